"""One rank of bench/recovery: trains nothing, loses a rank, and goes on in a smaller group.

usage: torch_recovery.py BACKEND RANK RANKS VICTIM RESIDENT_MB TIMEOUT_S PORT
RANK -1 serves torch's store on the port until its standard input ends. The other ranks print a line for each event: its
name and the machine's monotonic clock in nanoseconds.
"""
import datetime
import sys
import time

import torch
import torch.distributed as dist

ELEMENTS = 1000
CLOSE_S = 60  # the ranks of a job that goes well end much earlier


def tell(event, *words):
    print(event, time.monotonic_ns(), *words, flush=True)


def store_of(port, serves=False):
    return dist.TCPStore("127.0.0.1", port, is_master=serves, wait_for_workers=False,
                         timeout=datetime.timedelta(seconds=CLOSE_S))


class Tutti:
    """Survivors ask each other who is left."""

    def __init__(self, rank, ranks, store, timeout):
        import tutti.torch
        self.tutti = tutti.torch
        dist.init_process_group("tutti", store=store, rank=rank, world_size=ranks, timeout=timeout)

    def go_on(self, victim):
        del victim
        dist.shrink_group(self.tutti.lost_ranks())


class Gloo:
    """The program itself tells the survivors which ranks are left, and exchanges their addresses through the store."""

    def __init__(self, rank, ranks, store, timeout):
        self.rank, self.ranks, self.store = rank, ranks, store
        dist.init_process_group("gloo", store=dist.PrefixStore("job", store), rank=rank, world_size=ranks, timeout=timeout,
                                enable_reconfigure=True)
        self.make(1, range(ranks))

    def make(self, uuid, members):
        self.store.set(f"{uuid}/{self.rank}", dist.distributed_c10d._get_reconfigure_handle())
        handles = [self.store.get(f"{uuid}/{member}").decode() for member in members]
        dist.distributed_c10d._reconfigure(uuid=uuid, handles=handles).wait()

    def go_on(self, victim):
        self.make(2, [member for member in range(self.ranks) if member != victim])


BACKENDS = {"tutti": Tutti, "gloo": Gloo}


def serve(port):
    store = store_of(port, serves=True)
    tell("serving")
    sys.stdin.read()
    del store


def main():
    backend, (rank, ranks, victim, resident_mb, timeout_s, port) = sys.argv[1], map(int, sys.argv[2:])
    if rank < 0:
        return serve(port)
    torch.set_num_threads(1)
    resident = torch.ones(resident_mb << 18 if rank == victim else 1)
    group = BACKENDS[backend](rank, ranks, store_of(port), datetime.timedelta(seconds=timeout_s))
    values = torch.ones(ELEMENTS)
    dist.all_reduce(values)
    tell("ready", int(resident[0]))
    try:
        while True:
            values.fill_(1)
            dist.all_reduce(values)
    except RuntimeError as error:
        tell("failed", f"rank {victim}" in str(error))
    group.go_on(victim)
    tell("made")
    values.fill_(1)
    dist.all_reduce(values)
    if not torch.equal(values, torch.full((ELEMENTS,), float(ranks - 1))):
        raise ValueError(f"rank {rank}: the sum over the survivors is {values[0].item()} instead of {ranks - 1}")
    tell("summed")
    sys.stdin.read()


if __name__ == "__main__":
    main()
