"""A blocking and a non-blocking sum over all ranks.  python -m tutti.run -n 4 allreduce.py"""
import numpy as np
import tutti

with tutti.init() as comm:
    total = comm.allreduce(np.array([comm.rank, 1, 2 * comm.rank], np.float32))

    largest = np.full(1000, float(comm.rank))
    request = comm.iallreduce(largest, "max", out=largest)
    # The program can compute here; the array belongs to the request until wait() returns.
    request.wait()

    print(f"rank {comm.rank} of {comm.size}: {total.tolist()}, largest {largest[0]}")
