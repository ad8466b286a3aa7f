"""torchft's process group over tutti: replicas.py RANK PORT, three processes. Each has a launcher of its own, as
the variables that the test sets pretend. Rank 2 dies; the others go on as a group of two."""
import datetime
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import (AllgatherOptions, AllreduceOptions, BarrierOptions, ReduceOp,
                                                ReduceScatterOptions)

import tutti.torch
from cases import equal, raises
from tutti.torch.ft import ProcessGroupTutti

RANK, PORT, SIZE = int(sys.argv[1]), sys.argv[2], 3
SECOND = datetime.timedelta(seconds=1)
store = dist.TCPStore("127.0.0.1", int(PORT), is_master=RANK == 0, wait_for_workers=False)
group = ProcessGroupTutti(timeout=30 * SECOND)
assert group.getBackendName() == "torchft-tutti"


def configure(name, rank, size):
    group.configure(f"127.0.0.1:{PORT}/{name}", f"replica_{RANK}", rank, size)
    assert group.size() == size


def meet(name, count):
    """Waits until `count` processes have called it, without the group."""
    store.add("meet/" + name, 1)
    end = time.monotonic() + 60
    while store.add("meet/" + name, 0) < count and time.monotonic() < end:
        time.sleep(0.002)


def total(size):
    """Collectives of all kinds over the group as it is."""
    rank = group.parent.rank()
    x = torch.full((1000,), rank + 1.0)
    group.allreduce([x], ReduceOp.SUM).wait()
    equal(x, torch.full((1000,), size * (size + 1) / 2))
    work = group.allreduce([x], AllreduceOptions())
    work.get_future().wait()
    equal(x, torch.full((1000,), size * size * (size + 1) / 2))
    out = [torch.zeros(2) for _ in range(size)]
    group.allgather([out], [torch.full((2,), float(rank))], AllgatherOptions()).wait()
    equal(torch.stack(out), torch.arange(float(size))[:, None].expand(size, 2))
    blocks = [torch.full((2,), float(r)) for r in range(size)]
    own = torch.zeros(2)
    group.reduce_scatter([own], [blocks], ReduceScatterOptions()).wait()
    equal(own, torch.full((2,), float(size * rank)))
    x = torch.full((3,), float(rank))
    group.broadcast_one(x, size - 1).wait()
    equal(x, torch.full((3,), size - 1.0))
    if rank == 0:
        group.send([x], 1, 5).wait()
    elif rank == 1:
        group.recv([x], 0, 5).wait()
    group.barrier(BarrierOptions()).wait()


def grows_and_shrinks():
    """Rank 1 alone, then all, then two in another order."""
    if RANK == 1:
        configure("alone", 0, 1)
        x = torch.ones(4)
        group.allreduce([x], ReduceOp.SUM).wait()
        equal(x, torch.ones(4))
    configure("all", RANK, SIZE)
    total(SIZE)
    meet("shrink", SIZE)
    if RANK != 1:
        configure("two", {2: 0, 0: 1}[RANK], 2)
        total(2)
    meet("two", SIZE)


def aborts():
    """A thread of rank 0 aborts while all wait; the group can be configured again."""
    configure("abort", RANK, SIZE)
    total(SIZE)
    meet("abort", SIZE)
    if RANK == 0:
        threading.Timer(0.3, group.abort).start()
        parent = group.parent
        raises(tutti.torch.AbortedError, "aborted", lambda: parent.recv([torch.zeros(1)], 1, 9).wait())
    else:
        parent = group.parent
        raises(tutti.torch.AbortedError, "aborted", lambda: parent.allreduce([torch.zeros(1)], ReduceOp.SUM).wait())
    meet("aborted", SIZE)
    configure("after", RANK, SIZE)
    total(SIZE)


def lacks_a_rank():
    """Two of three configure; the error names the third."""
    meet("lacking", SIZE)
    if RANK != 2:
        group.set_timeout(6 * SECOND)
        raises(tutti.torch.TimedOutError, "rank 2" if RANK == 0 else "", configure, "lacking", RANK, SIZE)
        group.set_timeout(30 * SECOND)
    meet("lacked", SIZE)


def loses_a_rank():
    configure("whole", RANK, SIZE)
    total(SIZE)
    meet("whole", SIZE)
    if RANK == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    error = raises(tutti.torch.PeerLostError, "rank 2", lambda: group.allreduce([torch.ones(4)], ReduceOp.SUM).wait())
    knew = time.monotonic()
    assert error.rank == 2, error
    configure("survivors", RANK, 2)
    total(2)
    print(f"REPLICA {RANK}: error after {(knew - began) * 1000:.0f} ms, a group of two and its collectives after "
          f"{(time.monotonic() - knew) * 1000:.0f} ms more", flush=True)
    meet("end", 2)


for test in (grows_and_shrinks, aborts, lacks_a_rank, loses_a_rank):
    test()
    print(f"CASE {test.__name__}", flush=True)
group.shutdown()
