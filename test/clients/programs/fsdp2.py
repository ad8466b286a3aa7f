"""A network whose parameters, gradients and optimizer state fully_shard divides among the ranks of a device mesh."""
import statistics
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

STEPS = 60


def main():
    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 256), torch.nn.Tanh(),
                                torch.nn.Linear(256, 8))
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    data = torch.Generator().manual_seed(mesh.get_rank())
    times = []
    for _ in range(STEPS):
        x = torch.randn(32, 64, generator=data)
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = (model(x) - x[:, :8]).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append(time.perf_counter() - began)
        if mesh.get_rank() == 0:
            print("LOSS", loss.item())
    # A mean of all elements, which DTensor computes with the sums of both ranks.
    mean = model[0].weight.detach().square().mean().full_tensor().item()
    if mesh.get_rank() == 0:
        print("LOSS", mean)
        print("STEP_MS", statistics.median(times[2:]) * 1000)
    dist.destroy_process_group()


main()
