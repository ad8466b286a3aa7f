"""Ranks that are late, give up or die. They run without a launcher, which would end the others.

At the end rank 1 leaves in the way that TUTTI_TEST_WAY names; the others measure how long it takes until they get
the error."""
import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import tutti.torch
from cases import OLDEST, VERSION, raises, raises_late, rank, size

WAY = os.environ["TUTTI_TEST_WAY"]
FOLDER = os.environ["TUTTI_TEST_FOLDER"]
SECOND = datetime.timedelta(seconds=1)
dist.init_process_group("tutti")
assert size() >= 2


def tell(name):
    """Makes an empty file in the test's folder: a message that needs no group."""
    with open(os.path.join(FOLDER, name), "w", encoding="utf-8"):
        pass


def told(name):
    """Waits for the file that another rank makes with tell(), and returns the time at which it was made."""
    path = os.path.join(FOLDER, name)
    end = time.monotonic() + 60
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.002)
    return os.path.getmtime(path)


def late():
    group = dist.new_group(backend="tutti", timeout=6 * SECOND)
    if rank() == 1:
        for other in range(size()):
            if other != 1:
                told(f"timed out {other}")
        raises_late(dist.DistBackendError, "", dist.all_reduce, torch.ones(4), group=group)
    else:
        error = raises(tutti.torch.TimedOutError, ["timed out", "rank 1"], dist.all_reduce, torch.ones(4), group=group)
        assert error.rank == 1 and isinstance(error, TimeoutError) and error.operation == "all_reduce", repr(error)
        tell(f"timed out {rank()}")


def aborted():
    ways = [tutti.torch.abort]
    if not OLDEST:  # that has no such methods
        ways.append(lambda group: tutti.torch.backend_of(group).abort())
    for abort in ways:
        group = dist.new_group(backend="tutti")
        x = torch.ones(4)
        if rank() == 0:
            time.sleep(0.5)
            abort(group)
        raises(tutti.torch.AbortedError, "aborted", dist.all_reduce, x, group=group)
        if not OLDEST:
            tutti.torch.backend_of(group).shutdown()
            raises(RuntimeError, "closed", dist.all_reduce, x, group=group)


def go():
    if WAY == "raise":
        raise RuntimeError("this rank gives up")
    if WAY == "exit":
        os._exit(7)
    os.kill(os.getpid(), signal.SIGKILL)


def watch_failures(groups):
    """A list that the abort hooks of the groups append to. They call their groups, for which no lock may be held."""
    heard = []
    for name, group in groups.items() if VERSION >= (2, 14) else ():
        def hook(name=name, group=group):
            raises(tutti.torch.PeerLostError, "rank 1", dist.all_reduce, torch.ones(4), group=group)
            heard.append((name, tutti.torch.last_error(group).rank))

        group.register_abort_hook(1, hook)
    return heard


def check_heard(heard, groups):
    assert VERSION < (2, 14) or heard == [(name, 1) for name in groups], heard


def work_of_a_lost_rank():
    """Rank 1 is gone before the collective."""
    other = dist.new_group(backend="tutti")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    loss = model(torch.ones(1, 2)).sum()
    assert tutti.torch.last_error() is None
    heard = watch_failures({"world": dist.group.WORLD, "other": other})
    # Posted first: a rank that comes late may know of the loss when it posts.
    pending = dist.irecv(torch.zeros(4), 1) if rank() != 1 else None
    dist.barrier()
    if rank() == 1:
        tell("gone")
        go()
    x = torch.ones(4)
    error = raises(tutti.torch.PeerLostError, ["Connection closed by peer", "rank 1"], dist.all_reduce, x)
    knew = time.time()
    assert error.rank == 1 and isinstance(error, ConnectionError), error
    check_heard(heard, ["world"])
    raises(tutti.torch.PeerLostError, "", pending.wait)
    # It is known by now: this one fails when it is issued.
    raises(tutti.torch.PeerLostError, "rank 1", dist.all_reduce, x, group=other)
    check_heard(heard, ["world", "other"])
    backend = tutti.torch.backend_of(other)
    if hasattr(backend, "get_error"):  # torch 2.7 and newer
        assert str(backend.get_error()).endswith("COMM_ERROR"), backend.get_error()
    # Torch's own threads keep the text alone.
    raises(dist.DistBackendError, "rank 1", loss.backward)
    told_later = tutti.torch.last_error()
    assert isinstance(told_later, tutti.torch.PeerLostError) and told_later.rank == 1, repr(told_later)
    assert told_later.operation in ("all_reduce", "recv") and "rank 1" in told_later.cause, vars(told_later)
    took = knew - told("gone")
    print(f"FAULT rank {rank()} knew at {knew:.3f}, {took:.2f} s after the other gave up", flush=True)


if WAY == "raise":  # once is enough
    late()
    aborted()
work_of_a_lost_rank()
# A rank that ends here is lost too. A slower rank must find rank 1 in its errors, not this one.
tell(f"done-{rank()}")
for survivor in set(range(size())) - {1}:
    told(f"done-{survivor}")
sys.stdout.flush()
os._exit(0)  # the store of rank 0 may be gone
