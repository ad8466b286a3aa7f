"""The calls that go on after a loss, for numpy arrays. Run by tutti-run --keep-going with four ranks."""
import os
import signal

import numpy as np

import tutti
from expect import raises

comm = tutti.init()
rank, size = comm.rank, comm.size
assert size == 4


def check_sum(group, members):
    """A sum over the communicator has the contributions of these ranks of the job, and no other's."""
    assert (group.rank, group.size) == (members.index(rank), len(members))
    total = group.allreduce(np.full(1000, 10.0 ** rank))
    assert np.array_equal(total, np.full(1000, sum(10.0 ** member for member in members))), total


def agreeing():
    assert comm.lost == [] and comm.agree() == 2**64 - 1
    assert comm.agree(1 << rank | 1 << 63) == 1 << 63
    assert comm.agree(True) == 1 and comm.agree(rank == 0) == 0
    assert comm.agree(np.int64(6)) == 6
    for wrong in (-1, 2**64):
        raises(ValueError, "64 bits", comm.agree, wrong)
    raises(TypeError, "", comm.agree, 1.5)


def same_ranks():
    with comm.shrink() as same:
        check_sum(same, [0, 1, 2, 3])
    assert comm.lost == []
    for wrong, words in (([rank], "this rank itself"), ([size], f"rank {size}, which"),
                         ([(rank + 1) % size] * 2, "twice")):
        raises(tutti.InvalidError, words, comm.shrink_without, wrong)


def without_a_living_rank():
    whole = comm.dup()
    if rank == 0:
        raises(tutti.RevokedError, "", whole.barrier)
    else:
        with whole.shrink_without(iter([0])) as smaller:
            assert whole.lost == [0]
            check_sum(smaller, [1, 2, 3])
    whole.close()
    raises(ValueError, "closed", whole.shrink)


def without_lost_ranks():
    if rank in (0, 2):
        os.kill(os.getpid(), signal.SIGKILL)
    raises((tutti.PeerLostError, tutti.RevokedError), "", comm.allreduce, np.ones(100_000))
    comm.revoke()
    assert comm.agree(4 + rank) == 5
    assert comm.lost == [0, 2]
    with comm.shrink() as smaller:
        check_sum(smaller, [1, 3])


for test in (agreeing, same_ranks, without_a_living_rank, without_lost_ranks):
    test()
    print(f"CASE {test.__name__} on rank {rank}", flush=True)
comm.close()
