"""Two ranks take in a process that rank 0 starts; then one rank after another leaves."""
import os
import subprocess
import sys

import numpy as np
import tutti


def total(comm):
    return int(comm.allreduce(np.array(comm.rank)))


def newcomer():
    with tutti.init(join=True) as comm:
        assert (comm.rank, comm.size) == (2, 3), comm
        assert total(comm) == 3
    print("GROWTH ok: newcomer", flush=True)


def member():
    comm = tutti.init()
    child = None
    if comm.rank == 0:
        assert comm.waiting() == 0
        env = {name: value for name, value in os.environ.items() if name not in {"TUTTI_RANK", "TUTTI_SIZE"}}
        child = subprocess.Popen([sys.executable, __file__], env={**env, "TUTTI_JOIN": "1"})
        while comm.waiting() == 0:
            assert child.poll() is None, child.returncode
    larger = comm.grow(1)
    assert (larger.rank, larger.size) == (comm.rank, 3), larger
    assert total(larger) == 3
    larger.leave()
    try:
        total(larger)
    except ValueError as error:
        assert "has left the communicator" in str(error), error
    else:
        raise AssertionError("a rank that has left took part")
    larger.close()
    assert total(comm) == 1
    comm.close()
    if child:
        assert child.wait(60) == 0
    print("GROWTH ok: member", flush=True)


newcomer() if os.environ.get("TUTTI_JOIN") else member()
