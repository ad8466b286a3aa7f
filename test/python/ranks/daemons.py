"""The interpreter ends while a daemon thread is inside a call that nothing answers: daemons.py HOW. Run by tutti-run."""
import sys
import threading
import time

import numpy as np

import tutti

how = sys.argv[1]
comm = tutti.init(timeout_ms=120_000)
other = (comm.rank + 1) % comm.size
comm.barrier()
entered = threading.Event()


def forever():
    entered.set()
    while True:
        comm.allreduce(np.ones(1000))


def receive():
    entered.set()
    comm.recv(np.ones(3), other)


def wait():
    request = comm.irecv(np.ones(3), other)
    entered.set()
    request.wait()


def plan():
    bound = comm.plan("allreduce", np.ones(10))
    entered.set()
    while True:
        bound.run()


threading.Thread(target={"loop": forever, "recv": receive, "wait": wait, "plan": plan}[how], daemon=True).start()
entered.wait()
time.sleep(0.2)  # it is inside by then, as a rule
print("ENDING", flush=True)
