"""Tensors on memory of the group's transports, and what the group says about its memory."""
import os
import subprocess
import sys
import unittest.mock

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import tutti.torch
from cases import VERSION, case, equal, raises, rank, run, size

dist.init_process_group("tutti")
CPU = torch.device("cpu")
MIB = 1 << 20


def backend(group=None):
    return (group or dist.group.WORLD)._get_backend(CPU)


def allocate(count, dtype=torch.float32, group=None):
    return backend(group).allocate_tensor(count, dtype=dtype, device=CPU)


@case
def a_tensor_is_allocated_and_serves_collectives():
    if VERSION < (2, 7):
        return
    assert backend().supports_tensor_alloc(CPU)
    assert not backend().supports_tensor_alloc(torch.device("cuda", 0))
    for dtype in (torch.float32, torch.int8, torch.complex128, torch.bool):
        x = allocate(1000, dtype)
        equal(x, torch.zeros(1000, dtype=dtype))
        assert x.data_ptr() % 4096 == 0 and x.is_contiguous()
    x = allocate(MIB)
    x.fill_(rank() + 1)
    dist.all_reduce(x)
    equal(x, torch.full((MIB,), float(size() * (size() + 1) // 2)))
    gathered = allocate(3 * size()).view(size(), 3)
    dist.all_gather_into_tensor(gathered, torch.full((3,), float(rank())))
    equal(gathered[-1], torch.full((3,), size() - 1.0))


@case
def no_elements_are_fine_and_nonsense_is_refused():
    if VERSION < (2, 7):
        return
    equal(allocate(0, torch.int64), torch.zeros(0, dtype=torch.int64))
    raises(ValueError, ("allocate_tensor", "-1", "What to do"), allocate, -1)
    raises(tutti.torch.Error, ("no memory for", "What to do"), allocate, 1 << 62)
    raises(ValueError, ("meta", "torch.empty"), backend().allocate_tensor, 4, dtype=torch.float32,
           device=torch.device("meta"))
    raises(TypeError, "not supported", allocate, 4, torch.qint8)


@case
def a_tensor_outlives_its_group():
    if VERSION < (2, 7):
        return
    group = dist.new_group(list(range(size())), backend="tutti")
    x = allocate(MIB, group=group)
    view = x[10:20]
    x.fill_(rank() + 1)
    dist.all_reduce(x, group=group)
    held = backend(group)
    dist.destroy_process_group(group)
    equal(x, torch.full((MIB,), float(size() * (size() + 1) // 2)))
    x += 1
    del x
    equal(view, torch.full((10,), float(size() * (size() + 1) // 2 + 1)))
    raises(RuntimeError, "closed", held.allocate_tensor, 4, dtype=torch.float32, device=CPU)


@case
def its_pages_are_returned_with_the_last_tensor():
    def mapped():
        with open("/proc/self/maps", encoding="utf-8") as file:
            ranges = [line.split()[0].split("-") for line in file]
        return any(int(low, 16) <= address < int(high, 16) for low, high in ranges)

    if VERSION < (2, 7):
        return
    x = allocate(MIB)
    address = x.data_ptr()
    assert mapped()
    del x
    assert not mapped()


@case
def a_forked_child_may_drop_it():
    if VERSION < (2, 7):
        return
    x = allocate(1000)
    x.fill_(7)
    child = os.fork()
    if child == 0:
        right = bool((x == 7).all())
        del x
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    equal(x, torch.full((1000,), 7.0))


@case
def statistics_follow_the_memory():
    def count(name):
        return tutti.torch.memory_stats()[name]

    dist.all_reduce(torch.ones(MIB))
    stats = tutti.torch.memory_stats()
    assert set(stats) == {"allocated_bytes", "registered_bytes", "work_bytes", "recorder_bytes", "mapped_bytes",
                          "cell_bytes"}
    assert stats["recorder_bytes"] > 0 and stats["registered_bytes"] == 0
    assert stats["mapped_bytes"] > 0  # these ranks are processes of one host
    if VERSION >= (2, 7):
        before = count("allocated_bytes")
        x = allocate(MIB)
        assert count("allocated_bytes") == before + 4 * MIB
        del x
        assert count("allocated_bytes") == before
    if VERSION >= (2, 12):
        assert set(backend().memory_stats()) == set(stats)
    raises(TypeError, "one of tutti's", tutti.torch.build().memory_stats,
           dist.new_group(list(range(size())), backend="gloo")._get_backend(CPU))


@case
def fully_sharded_data_parallel_takes_its_buffers_from_it():
    try:
        from torch.distributed.fsdp import FSDPModule, fully_shard
        FSDPModule.set_allocate_memory_from_process_group_for_comm
    except (ImportError, AttributeError):
        return

    def train(ours):
        torch.manual_seed(4)
        model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
        mesh = init_device_mesh("cpu", (size(),))
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=mesh)
            layer.set_allocate_memory_from_process_group_for_comm(ours)
        optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
        for step in range(5):
            x = torch.randn(16, 32, generator=torch.Generator().manual_seed(step * size() + rank()))
            loss = (model(x) - x[:, :8]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return torch.tensor(losses)

    own, counted = backend().allocate_tensor, []
    plain = train(False)
    with unittest.mock.patch.object(type(backend()), "allocate_tensor",
                                    lambda self, *given, **named: counted.append(1) or own(*given, **named)):
        equal(train(True), plain)
    assert counted, "FSDP did not call allocate_tensor"


@case
def tensors_may_outlive_the_process_group_and_the_interpreter():
    """In processes of its own, since the default group can end only once."""
    if VERSION < (2, 7) or rank() > 0:
        return
    script = ("import torch, torch.distributed as dist, tutti.torch\n"
              "dist.init_process_group('tutti', store=dist.HashStore(), rank=0, world_size=1)\n"
              "backend = dist.group.WORLD._get_backend(torch.device('cpu'))\n"
              "x = backend.allocate_tensor(1 << 20, dtype=torch.float32, device=torch.device('cpu'))\n"
              "dist.all_reduce(x)\n"
              "del backend\n"
              "dist.destroy_process_group()\n"
              "x += 1\n"
              "print('SUM', int(x.sum()))\n")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0 and done.stdout.strip() == "SUM 1048576", done.stdout + done.stderr


run()
