"""The same processes abort their groups and make new ones, each with a store of its own."""
import os
import statistics
import time

import torch
import torch.distributed as dist

import tutti.torch
from expect import raises

rank, folder = int(os.environ["RANK"]), os.environ["TUTTI_TEST_FOLDER"]
took, began = [], 0.0
for turn in range(5):
    # Torch's store of the group before may still answer at the same address, and then end.
    dist.init_process_group("tutti", store=dist.FileStore(f"{folder}/{turn}", 2), rank=rank, world_size=2)
    x = torch.full((1000,), float(turn))
    dist.all_reduce(x)
    assert torch.equal(x, torch.full((1000,), 2.0 * turn)), x
    if turn > 0:
        took.append(time.perf_counter() - began)
    pending = dist.irecv(torch.zeros(4), 1 - rank)  # which no rank sends
    dist.barrier()
    began = time.perf_counter()
    dist.distributed_c10d._abort_process_group()
    raises(tutti.torch.AbortedError, "aborted", pending.wait)
    del pending
print(f"AGAIN {statistics.median(took) * 1000:.1f} ms from an abort to the first sum of the next group", flush=True)
