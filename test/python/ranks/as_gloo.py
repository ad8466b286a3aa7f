"""Programs that write gloo, or name no backend: TUTTI_AS_GLOO=1 alone makes it tutti. This one does not import it."""
import datetime
import os
import pathlib
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

if __name__ == "__main__":  # torch starts processes that load this file again
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
    for named in ({}, {"backend": "gloo"}, {"backend": dist.Backend.GLOO}, {"backend": "cpu:gloo"},
                  {"backend": "gloo", "timeout": datetime.timedelta(days=10_000)}):
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
def checks_of_a_groups_kind_see_gloo():
    """Programs ask for a group's name, or for the class of the group. The class of its backend is not that of torch's own."""
    group = dist.new_group(backend="gloo")
    backend = group._get_backend(torch.device("cpu"))
    assert dist.get_backend(group) == dist.Backend.GLOO and group._get_backend_name() == "gloo"
    assert dist.get_backend_config(group) == "cpu:gloo" and dist.is_gloo_available()
    assert isinstance(group, dist.ProcessGroup) and not isinstance(backend, dist.ProcessGroupGloo)
    assert isinstance(dist.new_group(backend="gloo_builtin")._get_backend(torch.device("cpu")), dist.ProcessGroupGloo)


@case
def one_half_of_a_group_is_for_the_host():
    group = dist.new_group(backend="cpu:gloo,cuda:fake")
    assert is_ours(group) and group._get_backend(torch.device("cuda")).name() == "fake"
    x = torch.ones(3)
    dist.all_reduce(x, group=group)
    equal(x, torch.full((3,), float(size())))
    if not torch.cuda.is_available():  # test/gpu has the whole group
        error = raises((RuntimeError, ValueError), "", dist.new_group, backend="cpu:gloo,cuda:nccl")
        assert "GPUs" in str(error) or "CUDA device" in str(error), error


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


@case
def meshes_and_what_torch_builds_on_them():
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (1, size()), mesh_dim_names=("replicas", "shards"))
    assert is_ours(mesh.get_group("shards")) and is_ours(mesh.get_group("replicas"))
    whole = torch.arange(4.0 * size()).reshape(2 * size(), 2)
    sharded = distribute_tensor(whole, mesh["shards"], [Shard(0)])
    equal(sharded.to_local(), whole[2 * rank():2 * rank() + 2])
    equal(sharded.redistribute(placements=[Replicate()]).to_local(), whole)
    equal(sharded.sum().full_tensor(), whole.sum())


@case
def a_rank_without_shards_knows_its_device():
    from torch.distributed._shard import sharded_tensor
    from torch.distributed._shard.sharding_spec import EnumerableShardingSpec, ShardMetadata

    spec = EnumerableShardingSpec([ShardMetadata([0, 0], [2, 3], "rank:0/cpu")])
    sharded = sharded_tensor.full(spec, (2, 3), fill_value=4.0)
    moved = sharded.to("cpu")
    assert len(moved.local_shards()) == (rank() == 0) and sharded.device == torch.device("cpu"), sharded.device


@case
def remote_calls_stay_on_torchs_own():
    from torch.distributed import rpc

    with mock.patch.object(dist, "ProcessGroupGloo", wraps=dist.ProcessGroupGloo) as made:
        rpc.init_rpc(f"rank-{rank()}", rank=rank(), world_size=size())
    assert made.call_count == 1, made.call_count
    equal(rpc.rpc_sync(f"rank-{1 - rank()}", torch.add, args=(torch.ones(2), rank())), torch.full((2,), 1.0 + rank()))
    rpc.shutdown()


@case
def checkpoints_are_written_beside_the_training():
    def state(value):
        return {"w": torch.full((3,), value), "step": 7}

    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
    for number, kind in enumerate((AsyncCheckpointerType.THREAD, AsyncCheckpointerType.PROCESS)):
        folder = pathlib.Path(os.environ["TUTTI_TEST_FOLDER"]) / str(number)
        dcp.async_save(state(float(number)), checkpoint_id=folder, async_checkpointer_type=kind).result()
        dist.barrier()
        loaded = state(-1.0)
        dcp.load(loaded, checkpoint_id=folder)
        equal(loaded["w"], torch.full((3,), float(number)))


@case
def torch_records_its_calls():
    hooks = getattr(dist.distributed_c10d._world, "pg_flight_recorder_hooks", None)
    assert hooks is None or dist.group.WORLD in hooks  # torch 2.15 and newer have them


if __name__ == "__main__":
    run()
