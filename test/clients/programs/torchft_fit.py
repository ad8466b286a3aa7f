"""A replica that trains with torchft's Manager over tutti, or over torchft's group for gloo: NETWORK=tutti or own."""
import os
import statistics
import time
from datetime import timedelta

import torch
import torchft

STEPS = 60


def group(timeout):
    if os.environ["NETWORK"] != "tutti":
        return torchft.ProcessGroupGloo(timeout=timeout)
    from tutti.torch.ft import ProcessGroupTutti

    return ProcessGroupTutti(timeout=timeout)


torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 8))
members = group(timedelta(seconds=30))
manager = torchft.Manager(pg=members, state_dict=model.state_dict, load_state_dict=model.load_state_dict,
                          min_replica_size=2, hostname="127.0.0.1", init_sync=False)
optimizer = torchft.Optimizer(manager, torch.optim.SGD(model.parameters(), lr=0.1))
replicated = torchft.DistributedDataParallel(manager, model)
number = int(os.environ["REPLICA"])
data = torch.Generator().manual_seed(number)
losses, times = [], []
while manager.current_step() < STEPS:
    x = torch.randn(32, 64, generator=data)
    began = time.perf_counter()
    optimizer.zero_grad()
    loss = (replicated(x) - x[:, :8]).square().mean()
    loss.backward()
    optimizer.step()
    times.append(time.perf_counter() - began)
    losses.append(loss.item())
if number == 0:
    for loss in losses:
        print("LOSS", loss)
    print("STEP_MS", statistics.median(times[2:]) * 1000, flush=True)
members.shutdown()
manager.shutdown()
