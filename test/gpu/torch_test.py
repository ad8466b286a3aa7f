"""On a real GPU: CUDA tensors through torch.distributed with the backend tutti, staged and, where there are several
GPUs, through NCCL. TUTTI_TEST_PYTHON names an environment with torch and the package (tools/setup-python)."""
import os
import socket
import subprocess
import sys
import unittest

PYTHON = os.environ.get("TUTTI_TEST_PYTHON", "")
LIMIT_S = 400


def probe():
    """Returns how many GPUs torch can use, and the reason if it can use none."""
    if not PYTHON or not os.access(PYTHON, os.X_OK):
        return 0, "tools/setup-python has not made an environment for the tests"
    script = ("import torch\n"
              "try:\n    torch.cuda.init(); print(torch.cuda.device_count())\n"
              "except Exception as error: print(0, error)")
    done = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, timeout=LIMIT_S, check=False,
                          stdin=subprocess.DEVNULL)
    count, _, reason = done.stdout.strip().partition(" ")
    return (int(count), reason) if count.isdigit() else (0, done.stderr[-500:])


def work():
    """One rank."""
    import torch
    import torch.distributed as dist

    import tutti.torch  # noqa: F401

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank if os.environ["TUTTI_TEST_DEVICES"] == "own" else 0)
    dist.init_process_group("tutti")
    total = size * (size + 1) / 2
    for count in (1, 1000, 1 << 20):
        for dtype in (torch.float32, torch.bfloat16, torch.int32):
            x = torch.full((count,), rank + 1, dtype=dtype, device="cuda")
            dist.all_reduce(x)
            assert (x == total).all(), (count, dtype)
    x = torch.ones(1000, 4, device="cuda")
    dist.all_reduce(x[:, 2])
    assert x.sum() == 3000 + 1000 * size
    # Behind kernels of the current stream, and in front of those that come after wait().
    for _ in range(20):
        a = torch.rand(1024, 1024, device="cuda")
        x = (a @ a) * 0 + rank + 1
        work = dist.all_reduce(x, async_op=True)
        del a
        junk = torch.full((1024, 1024), -1.0, device="cuda")
        work.wait()
        assert (x == total).all() and (junk == -1).all()
    blocks = torch.empty(size * 10, device="cuda")
    dist.all_gather_into_tensor(blocks, torch.full((10,), float(rank), device="cuda"))
    assert (blocks.view(size, 10) == torch.arange(size, device="cuda")[:, None]).all()
    future = dist.all_reduce(torch.ones(10, device="cuda"), async_op=True).get_future()
    assert (future.then(lambda done: done.value()[0] * 2).wait() == 2 * size).all()
    if size > 1:
        y = torch.full((5,), float(rank), device="cuda")
        dist.send(y, 1) if rank == 0 else dist.recv(y, 0) if rank == 1 else None
        assert rank > 1 or (y == 0).all()
        sent, got = torch.full((1 << 20,), float(rank), device="cuda"), torch.empty(1 << 20, device="cuda")
        batch = [dist.P2POp(dist.isend, sent, (rank + 1) % size), dist.P2POp(dist.irecv, got, (rank - 1) % size)]
        (work,) = dist.batch_isend_irecv(batch)
        work.wait()
        assert (got == (rank - 1) % size).all()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
    model(torch.ones(8, 64, device="cuda") * rank).sum().backward()
    mean = 8 * (size - 1) / 2
    assert torch.allclose(model.module.weight.grad, torch.full((64, 64), mean, device="cuda"))
    host = torch.ones(4)
    dist.all_reduce(host)
    assert (host == size).all()
    torch.cuda.synchronize()
    dist.destroy_process_group()


def two_backends():
    """One rank of a group with a backend for each kind of memory: tutti by the name gloo, and torch's own nccl."""
    import torch
    import torch.distributed as dist

    import tutti.torch

    torch.cuda.set_device(int(os.environ["RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl")
    is_own = tutti.torch.build().is_own
    for device, ours in (("cpu", True), ("cuda", False)):
        assert is_own(dist.group.WORLD._get_backend(torch.device(device))) == ours, device
        x = torch.ones(1000, device=device)
        dist.all_reduce(x)
        assert (x == dist.get_world_size()).all(), device
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, dist.get_rank())
    assert gathered == list(range(dist.get_world_size())), gathered
    torch.cuda.synchronize()
    dist.destroy_process_group()


RANKS = {"rank": work, "two-backends": two_backends}
AS_RANK = RANKS.get(" ".join(sys.argv[1:2])) if __name__ == "__main__" else None
COUNT, MISSING = probe() if __name__ == "__main__" and not AS_RANK else (0, "")


@unittest.skipIf(COUNT == 0, f"torch has no GPU here: {MISSING}")
class TorchOnGpu(unittest.TestCase):
    def job(self, ranks, devices, how="rank", **env):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        several = [subprocess.Popen([PYTHON, __file__, how], text=True, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks),
                                         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                                         "TUTTI_TEST_DEVICES": devices, **env})
                   for rank in range(ranks)]
        try:
            told = [process.communicate(timeout=LIMIT_S)[0] for process in several]
        finally:
            for process in several:
                process.kill()
                process.wait()
        self.assertEqual([process.returncode for process in several], [0] * ranks, "\n".join(told)[-6000:])

    def test_one_rank_through_nccl(self):
        self.job(1, "own")

    def test_two_ranks_that_share_a_device_through_the_host(self):
        self.job(2, "first", TUTTI_DEVICE="staged")

    def test_a_device_each_through_nccl(self):
        if COUNT < 2:
            self.skipTest(f"the machine has {COUNT} GPU")
        self.job(min(COUNT, 4), "own")

    def test_gloo_for_the_host_beside_nccl_for_devices(self):
        self.job(min(COUNT, 4), "own", "two-backends", TUTTI_AS_GLOO="1")


if __name__ == "__main__":
    if AS_RANK:
        AS_RANK()
    else:
        unittest.main()
