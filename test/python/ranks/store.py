"""The store is a process of its own, which dies: a group goes on, and ends in silence; one that begins then says what
is wrong."""
import datetime
import multiprocessing
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist

import tutti.torch  # noqa: F401

MINUTE = datetime.timedelta(seconds=60)


def serve(pipe):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipe.send(store.port)
    time.sleep(300)


def rank_of_two(rank, port, ready, gone):
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=MINUTE)
    dist.init_process_group("tutti", store=store, rank=rank, world_size=2, timeout=MINUTE)
    x = torch.ones(4)
    dist.all_reduce(x)
    ready.wait()
    gone.wait()
    dist.all_reduce(x)
    assert x.tolist() == [4.0] * 4, x
    told = written_by(dist.destroy_process_group)
    assert "Exception raised" not in told, told
    try:
        tutti.torch._create(Options(store, rank))
        raise AssertionError("a group began without a store")
    except RuntimeError as error:
        assert "store" in str(error).lower() or "socket" in str(error).lower() or "connection" in str(error).lower(), \
            error
    print("STORE ok", flush=True)
    sys.stdout.flush()
    os._exit(0)


def written_by(function):
    """Calls the function and returns all that it writes on standard error."""
    before = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            function()
        finally:
            os.dup2(before, 2)
            os.close(before)
        file.seek(0)
        return file.read().decode()


class Options:
    def __init__(self, store, rank):
        self.store, self.group_rank, self.group_size, self.timeout = store, rank, 2, MINUTE
        self.group_id = "late"


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")  # torch is imported once
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    port = ours.recv()
    ready, gone = context.Barrier(3), context.Barrier(3)
    ranks = [context.Process(target=rank_of_two, args=(r, port, ready, gone)) for r in range(2)]
    for process in ranks:
        process.start()
    ready.wait(120)
    server.kill()
    server.join()
    gone.wait(120)
    for process in ranks:
        process.join(120)
    sys.exit(max(abs(process.exitcode or 0) for process in ranks))
