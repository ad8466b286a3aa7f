"""Programs that write gloo, or name no backend: TUTTI_AS_GLOO=1 alone makes it tutti. This one does not import it."""
import datetime

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")

import tutti.torch  # noqa: E402
from cases import case, equal, raises, rank, run, size  # noqa: E402


def is_ours(group):
    return tutti.torch.build().is_own(group._get_backend(torch.device("cpu")))


@case
def the_name_stands_for_tutti():
    assert is_ours(dist.group.WORLD) and dist.get_backend() == "gloo"
    x = torch.arange(6)[::2].clone() + rank()
    dist.all_reduce(x)
    equal(x, size() * torch.arange(6)[::2] + sum(range(size())))
    error = raises(tutti.torch.MismatchError, "", dist.all_reduce, torch.ones(4 + rank()))
    assert error.operation == "all_reduce"


@case
def new_groups_are_of_it_too():
    for named in ({}, {"backend": "gloo"}, {"backend": dist.Backend.GLOO}, {"backend": "cpu:gloo"}):
        group = dist.new_group(**named)
        assert is_ours(group), named
        gathered = [None] * size()
        dist.all_gather_object(gathered, rank(), group=group)
        assert gathered == list(range(size())), gathered
        dist.destroy_process_group(group)
    part = dist.new_group([0], backend="gloo")
    if rank() == 0:
        assert is_ours(part)


@case
def torchs_own_is_there_by_another_name():
    group = dist.new_group(backend="gloo_builtin")
    assert not is_ours(group)
    x = torch.ones(3)
    dist.all_reduce(x, group=group)
    equal(x, torch.full((3,), float(size())))
    dist.destroy_process_group(group)


@case
def a_group_without_a_name_is_of_it():
    assert dist.Backend.default_device_backend_map["cpu"] == "gloo"
    assert dist.BackendConfig(dist.Backend("undefined")).device_backend_map == {"cpu": "gloo"}


@case
def a_monitored_barrier_names_who_is_missing():
    dist.monitored_barrier()
    if rank() == 0:
        raises(RuntimeError, "Rank 1 failed to pass monitoredBarrier", dist.monitored_barrier,
               timeout=datetime.timedelta(milliseconds=200))
    dist.all_reduce(torch.ones(1))  # works on


@case
def models_train():
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Linear(4, 2))
    model(torch.full((3, 4), float(rank()))).sum().backward()
    wanted = sum(range(size())) / size() * 3
    equal(model.module.weight.grad, torch.full((2, 4), wanted))


run()
