"""A DDP job with the backend that is named. Rank 0 prints the losses, the compilers on the PATH, and the backend's file."""
import json
import pathlib
import shutil
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 5

dist.init_process_group(sys.argv[1])
rank = dist.get_rank()
torch.manual_seed(7)
network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).double()
model = DistributedDataParallel(network)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(STEPS):
    data = torch.randn(4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(100 * step + rank))
    loss = model(data).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    losses.append(total.item() / dist.get_world_size())

weights = torch.cat([weight.detach().flatten() for weight in model.parameters()])
everyones = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
dist.all_gather(everyones, weights)
assert all(torch.equal(other, weights) for other in everyones), "the ranks have other weights"
assert losses[-1] < losses[0], losses
if rank == 0:
    mapped = {line.split()[-1] for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if ".so" in line}
    print("JOB", json.dumps({
        "losses": losses, "size": dist.get_world_size(),
        "compilers": [name for name in ("c++", "g++", "clang++", "cc", "gcc") if shutil.which(name)],
        "backends": sorted(path for path in mapped if "/prebuilt/" in path or "_tutti_torch" in path)}))
dist.destroy_process_group()
