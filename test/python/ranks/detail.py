"""TORCH_DISTRIBUTED_DEBUG=DETAIL: torch puts its own checks around the backend."""
from unittest import mock

import torch
import torch.distributed as dist

import tutti.torch
from cases import case, equal, raises, rank, run, size

dist.init_process_group("tutti")


@case
def collectives_work():
    x = torch.ones(4)
    dist.all_reduce(x)
    equal(x, torch.full((4,), float(size())))
    outputs = [torch.zeros(2) for _ in range(size())]
    dist.all_gather(outputs, torch.full((2,), float(rank())))
    equal(outputs[-1], torch.full((2,), size() - 1.0))


@case
def torchs_checks_have_a_group_of_torchs_own_gloo():
    with mock.patch.object(dist.distributed_c10d, "ProcessGroupGloo", wraps=dist.ProcessGroupGloo) as made:
        group = dist.new_group()
    assert made.call_count == 1 and tutti.torch.build().is_own(tutti.torch.backend_of(group)), made.call_count
    dist.destroy_process_group(group)


@case
def messages_of_some_ranks_are_no_difference():
    if rank() == 0:
        dist.send(torch.ones(2), 1)
    elif rank() == 1:
        dist.recv(torch.zeros(2), 0)
    dist.all_reduce(torch.ones(4))


@case
def torch_finds_what_differs():
    raises(RuntimeError, "", dist.all_reduce, torch.ones(4 + rank()))


@case
def the_backend_inside_is_found():
    assert tutti.torch.build().is_own(tutti.torch.backend_of())


run()
