"""Rank 0 ends while messages arrive, for which nobody waits, in tensors that python holds."""
import os
import time

import torch
import torch.distributed as dist

import tutti.torch  # noqa: F401

COUNT = 4000

dist.init_process_group("tutti")
tensors = [torch.zeros(4) for _ in range(COUNT)]
if dist.get_rank() == 0:
    for tag, x in enumerate(tensors):
        dist.irecv(x, 1, tag=tag)
    dist.barrier()
    print("ENDING", flush=True)
else:
    dist.barrier()
    try:
        for tag, x in enumerate(tensors):
            dist.send(x, 0, tag=tag)
            time.sleep(0.0002)
    except (tutti.torch.PeerLostError, dist.DistError):
        pass  # as it should be: the other has gone
    os._exit(0)
