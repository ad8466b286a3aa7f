"""Actors that train over ray.util.collective, with its backend tutti, or with its own, which is gloo: NETWORK=tutti or own."""
import os
import statistics
import time

import ray
import torch

STEPS = 100
BACKEND = "tutti" if os.environ["NETWORK"] == "tutti" else "gloo"


@ray.remote
class Worker:
    def __init__(self, rank, size):
        import tutti.ray  # noqa: F401 (registers the backend)
        from ray.util import collective

        torch.set_num_threads(1)
        self.rank, self.size, self.collective = rank, size, collective
        collective.init_collective_group(size, rank, BACKEND, "workers")

    def train(self):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 8))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = torch.Generator().manual_seed(self.rank)
        losses, times = [], []
        for _ in range(STEPS):
            x = torch.randn(32, 64, generator=data)
            began = time.perf_counter()
            optimizer.zero_grad()
            loss = (model(x) - x[:, :8]).square().mean()
            loss.backward()
            for parameter in model.parameters():
                self.collective.allreduce(parameter.grad, "workers")
                parameter.grad /= self.size
            optimizer.step()
            times.append(time.perf_counter() - began)
            losses.append(loss.item())
        return losses, statistics.median(times[2:]) * 1000


ray.init(num_cpus=2, include_dashboard=False)
workers = [Worker.remote(rank, 2) for rank in range(2)]
losses, step_ms = ray.get([worker.train.remote() for worker in workers])[0]
for loss in losses:
    print("LOSS", loss)
print("STEP_MS", step_ms)
ray.shutdown()
