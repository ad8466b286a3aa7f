"""A program that ends while a future is pending whose callback is Python's, and leaves its groups to the interpreter."""
import sys

import torch
import torch.distributed as dist

import tutti.torch  # noqa: F401

dist.init_process_group("tutti")
rank = dist.get_rank()
dist.barrier()
pending = [dist.irecv(torch.zeros(4), 1 - rank, tag=tag).get_future().then(lambda done: done.value()) for tag in range(8)]
print(f"LEAVING {rank} ok", flush=True)
# Rank 0 keeps its store until the other is gone; either goes with everything pending.
if rank == 0:
    sys.stdin.read()
