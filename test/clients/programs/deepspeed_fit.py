"""A network whose optimizer state DeepSpeed divides among the ranks: ZeRO, stage 1, without GPUs."""
import statistics
import time

import deepspeed
import torch
import torch.distributed as dist

STEPS = 100

deepspeed.init_distributed()
torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 8))
engine, *_ = deepspeed.initialize(
    model=network, optimizer=torch.optim.AdamW(network.parameters(), lr=0.01),
    config={"train_micro_batch_size_per_gpu": 16, "zero_optimization": {"stage": 1}, "gradient_clipping": 1.0,
            "zero_force_ds_cpu_optimizer": False})
assert engine.zero_optimization_stage() == 1
data = torch.Generator().manual_seed(dist.get_rank())
times = []
for _ in range(STEPS):
    x = torch.randn(16, 64, generator=data)
    began = time.perf_counter()
    loss = (engine(x) - x[:, :8]).square().mean()
    engine.backward(loss)
    engine.step()
    times.append(time.perf_counter() - began)
    if dist.get_rank() == 0:
        print("LOSS", loss.item())
if dist.get_rank() == 0:
    print("STEP_MS", statistics.median(times[2:]) * 1000)
dist.destroy_process_group()
