"""A network under DistributedDataParallel. A thread, then a process, saves a checkpoint while the training goes on."""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.nn.parallel import DistributedDataParallel

STEPS = 40


def main(folder):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 8))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(dist.get_rank())
    times = []

    def train():
        for _ in range(STEPS):
            x = torch.randn(32, 64, generator=data)
            began = time.perf_counter()
            optimizer.zero_grad()
            loss = (model(x) - x[:, :8]).square().mean()
            loss.backward()
            optimizer.step()
            times.append(time.perf_counter() - began)
            if dist.get_rank() == 0:
                print("LOSS", loss.item())

    # The training uses the default group meanwhile, and a group's calls have one order.
    savers = dist.new_group(backend="gloo")
    train()
    step_ms = statistics.median(times[2:]) * 1000
    for kind in AsyncCheckpointerType:
        place = os.path.join(folder, kind.name)
        saved = {name: value.clone() for name, value in model.state_dict().items()}
        saving = dcp.async_save({"model": model.state_dict()}, checkpoint_id=place, process_group=savers,
                                async_checkpointer_type=kind)
        train()
        saving.result()
        state = {"model": model.state_dict()}
        dcp.load(state, checkpoint_id=place)
        for name, value in saved.items():
            assert torch.equal(state["model"][name], value), f"{place}: {name} is not as it was saved"
        model.load_state_dict(state["model"])
        if dist.get_rank() == 0:
            print("SAVED", kind.name)
    if dist.get_rank() == 0:
        print("STEP_MS", step_ms)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
