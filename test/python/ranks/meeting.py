"""Processes that meet by handles, for numpy arrays. Run by tutti-run --keep-going with four ranks, which exchange their
handles through files. Rank 0 kills itself; a fifth process, which rank 1 starts, joins the others."""
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np

import tutti
from expect import raises

folder = pathlib.Path(os.environ["TUTTI_TEST_FOLDER"])
newcomer = "newcomer" in sys.argv
me = 4 if newcomer else int(os.environ["TUTTI_RANK"])


def put(name, data):
    draft = folder / f"draft-{me}"
    draft.write_bytes(data)
    draft.rename(folder / name)


def get(name):
    while not (folder / name).exists():
        time.sleep(0.001)
    return (folder / name).read_bytes()


def check_sum(comm, members):
    assert (comm.rank, comm.size) == (members.index(me), len(members)), (comm.rank, comm.size, members)
    total = comm.allreduce(np.full(1000, 10.0 ** me))
    assert np.array_equal(total, np.full(1000, sum(10.0 ** member for member in members))), total


def meet(uuid, members):
    """The communicator of these processes, whose handles are in the folder."""
    comm = tutti.reconfigure(uuid, [get(f"handle-{member}") for member in members], timeout=60)
    check_sum(comm, members)
    return comm


own = tutti.handle()
assert isinstance(own, bytes) and own == tutti.handle() != tutti.handle(job="another")
put(f"handle-{me}", own)
if newcomer:
    meet("with the newcomer", [3, 4, 1, 2]).close()
    sys.exit(0)

first = meet("first", [0, 1, 2, 3])
meet("backwards", [3, 2, 1, 0]).close()
handles = {get(f"handle-{member}") for member in range(4)}
with tutti.reconfigure(7, handles) as comm:
    assert comm.rank == sorted(handles).index(own)
for wrong, words, arguments in ((tutti.InvalidError, "the uuid has 0 bytes", ("", [own])),
                                (tutti.InvalidError, "used before", ("first", [own])),
                                (tutti.InvalidError, "cut short", ("cut", [own[:20]])),
                                (tutti.InvalidError, "count is 0", ("none", [])),
                                (ValueError, "NUL character", ("a\0b", [own])),
                                (ValueError, "timeout", ("late", [own], -1)),
                                (TypeError, "", ("text", ["handle"]))):
    raises(wrong, words, tutti.reconfigure, *arguments)
raises(tutti.AuthenticationError, "handle 0 of 1: its process has another secret", tutti.reconfigure, "secret", [own],
       secret="0123456789abcdef0123456789abcdef")
if me == 1:  # a forked child is another process
    child = os.fork()
    if child == 0:
        raises(tutti.InvalidError, "has no handle for job", tutti.reconfigure, "child", [own])
        assert tutti.handle() != own
        raises(tutti.InvalidError, "none of the 1 handle is this process's", tutti.reconfigure, "child", [own])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
if me == 0:
    os.kill(os.getpid(), signal.SIGKILL)
raises(tutti.PeerLostError, "rank 0", first.barrier)
error = raises(tutti.PeerLostError, "the process of handle 0 (rank 0) has ended", tutti.reconfigure, "dead",
               [get(f"handle-{member}") for member in range(4)], timeout=60)
assert error.rank == 0, repr(error)
first.close()
meet("three", [2, 3, 1]).close()
started = subprocess.Popen([sys.executable, __file__, "newcomer"]) if me == 1 else None
meet("with the newcomer", [3, 4, 1, 2]).close()
assert not started or started.wait() == 0
print("MEETING ok")
