"""Trainers of torch, unchanged, over tutti and over gloo: the same losses, and the time per step of both."""
import copy
import gzip
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import tutti.torch  # noqa: F401
from cases import OLDEST, case, close, equal, rank, run, size

dist.init_process_group("tutti")
OURS = dist.group.WORLD
GLOO = dist.new_group(backend="gloo")
STEPS, BATCH = 20, 24


@case
def a_sharded_tensor_is_gathered_without_a_gpu():
    from torch.distributed._shard import sharded_tensor
    from torch.distributed._shard.sharding_spec import ChunkShardingSpec

    spec = ChunkShardingSpec(dim=0, placements=[f"rank:{other}/cpu" for other in range(size())])
    sharded = sharded_tensor.full(spec, (2 * size(), 3), fill_value=4.0)
    whole = torch.zeros(2 * size(), 3) if rank() == 0 else None
    sharded.gather(dst=0, out=whole)
    if rank() == 0:
        equal(whole, torch.full((2 * size(), 3), 4.0))


def digits():
    rows = [[float(word) for word in line.split(",")]
            for line in gzip.open(os.environ["TUTTI_DIGITS"], "rt").read().splitlines() if line[:1].isdigit()]
    table = torch.tensor(rows)
    return table[:, :64].reshape(-1, 1, 8, 8) / 16, table[:, 64].long()


IMAGES, LABELS = digits()


def network(channels=16):
    torch.manual_seed(5)
    return nn.Sequential(nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, channels, 3), nn.ReLU(),
                         nn.Flatten(), nn.Linear(channels * 36, 64), nn.ReLU(), nn.Linear(64, 10))


def batch(step):
    begin = (step * size() + rank()) * BATCH % (len(LABELS) - BATCH)
    return IMAGES[begin:begin + BATCH], LABELS[begin:begin + BATCH]


def train(model, optimizer, steps=STEPS, accumulate=False):
    """Losses, and the median time of a step in ms."""
    losses, times = [], []
    for step in range(steps):
        began = time.perf_counter()
        images, labels = batch(step)
        if not accumulate or step % 2 == 0:
            optimizer.zero_grad()
        if accumulate and step % 2 == 0:
            with model.no_sync():
                nn.functional.cross_entropy(model(images), labels).backward()
            continue
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        times.append(1000 * (time.perf_counter() - began))
    return torch.tensor(losses), sorted(times)[len(times) // 2]


def compare(what, function, tolerance=1e-3):
    (ours, our_ms), (theirs, their_ms) = function(OURS), function(GLOO)
    close(ours, theirs, what, tolerance)
    if rank() == 0:
        print(f"{what}: loss {ours[0]:.3f} to {ours[-1]:.3f}; a step takes {our_ms:.1f} ms with tutti, "
              f"{their_ms:.1f} ms with gloo", file=sys.stderr, flush=True)
    assert ours[-1] < 0.95 * ours[0], f"{what}: the loss did not fall: {ours}"


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


@case
def data_parallel():
    def plain(group):
        model = DistributedDataParallel(network(), process_group=group, bucket_cap_mb=0.05)
        return train(model, adam(model))
    compare("DDP", plain)


@case
def data_parallel_with_a_static_graph():
    def static(group):
        model = DistributedDataParallel(network(), process_group=group, static_graph=True)
        return train(model, adam(model))
    compare("DDP, static graph", static)


@case
def data_parallel_that_accumulates():
    def accumulating(group):
        model = DistributedDataParallel(network(), process_group=group)
        return train(model, adam(model), accumulate=True)
    compare("DDP, no_sync", accumulating)


@case
def data_parallel_with_hooks():
    def bf16(group):
        model = DistributedDataParallel(network(), process_group=group)
        model.register_comm_hook(group, default_hooks.bf16_compress_hook)
        return train(model, adam(model))

    def power(group):
        model = DistributedDataParallel(network(), process_group=group)
        state = powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=4, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        return train(model, adam(model))
    compare("DDP, bf16 hook", bf16, 0.05)
    compare("DDP, PowerSGD hook", power, 0.05)


@case
def data_parallel_with_uneven_inputs():
    def uneven(group):
        model = DistributedDataParallel(network(), process_group=group)
        losses, steps, optimizer = [], STEPS + 3 * rank(), adam(model)
        with Join([model]):
            for step in range(steps):
                images, labels = batch(step)
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return torch.tensor(losses), 0.0
    compare("DDP, Join", uneven)


@case
def sharded_optimizer():
    def zero(group):
        model = DistributedDataParallel(network(), process_group=group)
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, process_group=group, lr=0.01)
        return train(model, optimizer)
    compare("ZeroRedundancyOptimizer", zero)


@case
def fully_sharded():
    if OLDEST:
        print("FSDP2: not on processors in this torch, whose streams are CUDA's")
        return
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        from torch.distributed._composable.fsdp import fully_shard

    def fsdp(group):
        model = network()
        mesh = DeviceMesh.from_group(group, "cpu")
        for layer in model:
            if list(layer.parameters()):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return train(model, adam(model))
    compare("FSDP2", fsdp)


@case
def checkpoints():
    import torch.distributed.checkpoint as checkpoint
    folder = [tempfile.mkdtemp() if rank() == 0 else None]
    dist.broadcast_object_list(folder, 0)
    for name, group in (("tutti", OURS), ("gloo", GLOO)):
        model = DistributedDataParallel(network(), process_group=group)
        optimizer = adam(model)
        train(model, optimizer, 2)
        saved = copy.deepcopy(model.state_dict())
        checkpoint.save({"model": model.state_dict()}, checkpoint_id=f"{folder[0]}/{name}", process_group=group)
        train(model, optimizer, 2)
        state = {"model": model.state_dict()}
        checkpoint.load(state, checkpoint_id=f"{folder[0]}/{name}", process_group=group)
        model.load_state_dict(state["model"])
        for key, value in model.state_dict().items():
            equal(value, saved[key], f"{name}: {key}")


@case
def sharded_tensors():
    if OLDEST:
        from torch.distributed._tensor import Replicate, Shard, distribute_tensor
    else:
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = DeviceMesh.from_group(OURS, "cpu")
    whole = torch.arange(24.0).reshape(8, 3)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    equal(sharded.redistribute(mesh, [Replicate()]).to_local(), whole)
    equal((sharded * 2).sum().full_tensor(), (whole * 2).sum())
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    parallel = parallelize_module(copy.deepcopy(model), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = torch.ones(2, 6)
    close(parallel(x), model(x).detach(), "tensor parallel")


@case
def differentiable_functions():
    x = torch.full((3,), float(rank() + 1), requires_grad=True)
    (differentiable.all_reduce(x) * (rank() + 1)).sum().backward()
    total = float(sum(range(1, size() + 1)))
    equal(x.grad, torch.full((3,), total))
    x = torch.full((3,), float(rank() + 1), requires_grad=True)
    torch.stack(differentiable.all_gather(x)).sum().backward()
    equal(x.grad, torch.full((3,), float(size())))


@case
def functional_collectives_compiled():
    def step(x):
        summed = functional.all_reduce(x * 2, "sum", OURS)
        gathered = functional.all_gather_tensor(x, 0, OURS)
        scattered = functional.reduce_scatter_tensor(gathered, "sum", 0, OURS)
        return summed + 1, gathered, scattered

    x = torch.full((4,), float(rank()))
    for function in (step, torch.compile(step, backend="aot_eager", fullgraph=True)):
        summed, gathered, scattered = (y.wait() if hasattr(y, "wait") else y for y in function(x))
        equal(summed, torch.full((4,), float(size() * (size() - 1) + 1)))
        equal(gathered, torch.arange(float(size())).repeat_interleave(4))
        equal(scattered, torch.full((4,), float(size() * rank())))


@case
def pipeline_of_stages():
    x = torch.ones(2, 3)
    for _ in range(4):
        if rank() > 0:
            dist.recv(x, rank() - 1)
        x += 1
        if rank() < size() - 1:
            dist.send(x, rank() + 1)
    dist.barrier()


run()
