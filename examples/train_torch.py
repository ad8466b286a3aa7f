"""Data-parallel training of a small model with PyTorch.  tutti-run -n 4 python3 train_torch.py"""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tutti.torch

dist.init_process_group("tutti")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100):
    x = torch.randn(32, 8)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

mean = loss.detach()
dist.all_reduce(mean, dist.ReduceOp.AVG)
print(f"rank {rank} of {size}: the mean loss is {mean.item():.6f}")
dist.destroy_process_group()
