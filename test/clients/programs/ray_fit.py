"""A network that the TorchTrainer of Ray Train trains in two workers."""
import statistics
import sys
import time

import ray
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model

STEPS = 100


def train():
    torch.manual_seed(0)
    model = prepare_model(torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(ray.train.get_context().get_world_rank())
    losses, times = [], []
    for _ in range(STEPS):
        x = torch.randn(32, 64, generator=data)
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = (model(x) - x[:, :8]).square().mean()
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - began)
        losses.append(loss.item())
    return losses, statistics.median(times[2:]) * 1000


ray.init(num_cpus=3, include_dashboard=False)
losses, step_ms = TorchTrainer(train, scaling_config=ScalingConfig(num_workers=2),
                               run_config=RunConfig(storage_path=sys.argv[1])).fit().return_value
for loss in losses:
    print("LOSS", loss)
print("STEP_MS", step_ms)
ray.shutdown()
