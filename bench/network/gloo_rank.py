"""One rank of an allreduce with gloo in torch.distributed. bench/hosts starts this program on each host.

usage: gloo_rank.py URL INTERFACE BYTES ITERATIONS WARMUP
TUTTI_RANK and TUTTI_SIZE have the rank and the number of ranks. Rank 0 prints the median over the iterations, on the
slowest rank, in microseconds.
"""
import os
import statistics
import sys
import time


def main():
    url, interface, size, iterations, warmup = sys.argv[1:]
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    rank = int(os.environ["TUTTI_RANK"])
    dist.init_process_group("gloo", init_method=url, rank=rank, world_size=int(os.environ["TUTTI_SIZE"]))
    tensor = torch.zeros(int(size) // 4)
    times = []
    for _ in range(int(warmup) + int(iterations)):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(tensor)
        times.append((time.perf_counter() - began) * 1e6)
    median = torch.tensor([statistics.median(times[int(warmup):])])
    dist.all_reduce(median, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(f"{median.item():.4f}", flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
