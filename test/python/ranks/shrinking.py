"""torch.distributed.shrink_group with four ranks: without ranks that are alive, and without ranks that were killed.

They run without a launcher, which would end the others. Ranks 2 and 3 kill themselves."""
import os
import signal
import sys

import torch
import torch.distributed as dist

import tutti.torch
from expect import raises

if not hasattr(dist, "shrink_group"):
    print("SHRINK this torch cannot")
    sys.exit(0)
SHRINK_ABORT = dist.distributed_c10d.SHRINK_ABORT
dist.init_process_group("tutti")
rank, size = dist.get_rank(), dist.get_world_size()
assert size == 4


def check_sum(group, members):
    """A sum over the group has the contributions of these ranks of the job, and no other's."""
    assert dist.get_world_size(group) == len(members)
    x = torch.full((1000,), 10.0 ** rank)
    dist.all_reduce(x, group=group)
    assert torch.equal(x, torch.full((1000,), sum(10.0 ** member for member in members))), x


def without_a_living_rank(whole):
    check_sum(whole, range(size))
    if rank == 3:
        raises(tutti.torch.RevokedError, "", dist.all_reduce, torch.ones(4), group=whole)
    else:
        smaller = dist.shrink_group([3], group=whole)
        assert tutti.torch.backend_of(smaller).rank() == rank
        check_sum(smaller, [0, 1, 2])
        dist.destroy_process_group(smaller)


def with_pending_work(whole):
    pending = dist.irecv(torch.zeros(4), (rank + 3) % size, group=whole)  # which no rank sends
    check_sum(whole, range(size))
    if rank == 3:
        raises(tutti.torch.RevokedError, "", dist.all_reduce, torch.ones(4), group=whole)
        return
    smaller = dist.shrink_group([3], group=whole, shrink_flags=SHRINK_ABORT)
    raises(tutti.torch.RevokedError, "", pending.wait)
    check_sum(smaller, [0, 1, 2])
    dist.destroy_process_group(smaller)


def without_lost_ranks(whole):
    if rank >= 2:
        os.kill(os.getpid(), signal.SIGKILL)
    raises((tutti.torch.PeerLostError, tutti.torch.RevokedError), "", dist.all_reduce, torch.ones(4), group=whole)
    assert tutti.torch.lost_ranks(whole) == [2, 3]
    assert tutti.torch.lost_ranks(whole) == [2, 3]
    # The list lacks a rank that is gone: no rank gets a group, and the error has the rank's number.
    error = raises(tutti.torch.PeerLostError, "rank 2 is gone, too", dist.shrink_group, [3], shrink_flags=SHRINK_ABORT)
    assert error.rank == 2, repr(error)
    group = dist.shrink_group([2, 3], shrink_flags=SHRINK_ABORT)
    assert group == dist.group.WORLD and (dist.get_rank(), dist.get_world_size()) == (rank, 2)
    check_sum(group, [0, 1])


# torch numbers groups by counting, and a rank that is left out counts fewer: make all groups first.
first, second, third = (dist.new_group() for _ in range(3))
without_a_living_rank(first)
with_pending_work(second)
dist.barrier()
without_lost_ranks(third)
dist.destroy_process_group()
print("SHRINK ok", flush=True)
