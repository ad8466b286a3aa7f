"""Compares the training features of tutti.torch with plain torch on the joined batch of all ranks."""
import copy
import os
import tempfile
import weakref

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import tutti
import tutti.torch
from cases import case, close, equal, raises, rank, run, size

dist.init_process_group("tutti")


def everyone(make):
    """Joins make(r) of all ranks r along the first dimension; every rank can compute all of them."""
    return torch.cat([make(r) for r in range(size())])


def seeded(number):
    return torch.Generator().manual_seed(number)


# ---- synchronised batch-norm


def uneven_batch(r, *inner, dtype=torch.float32, none_at=-1):
    rows = 0 if r == none_at else 3 + 2 * r
    return (torch.randn(rows, 4, *inner, generator=seeded(10 + r)) * 3 + 5).to(dtype)


def check_batch_norm(make, inner, tolerance=1e-5, steps=3, momentum=0.1):
    """Forward, backward and running statistics of both, over several steps."""
    torch.manual_seed(3)
    plain = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[len(inner)](
        4, momentum=momentum)
    nn.init.uniform_(plain.weight, 0.5, 1.5)
    nn.init.uniform_(plain.bias, -1, 1)
    ours = tutti.torch.convert_sync_batchnorm(copy.deepcopy(plain))
    begin = sum(len(make(r)) for r in range(rank()))
    for _ in range(steps):
        whole = everyone(make).float().requires_grad_()
        part = make(rank()).requires_grad_()
        wanted, got = plain(whole), ours(part)
        mine = slice(begin, begin + len(part))
        close(got, wanted[mine], "forward", tolerance)
        weights = torch.randn(wanted.shape, generator=seeded(4))
        (wanted * weights).sum().backward()
        (got * weights[mine]).sum().backward()
        close(part.grad, whole.grad[mine], "dx", tolerance)
        for name in ("weight", "bias"):
            shared = getattr(ours, name).grad.clone()
            dist.all_reduce(shared)
            close(shared, getattr(plain, name).grad, f"d{name}", tolerance * 10)
            getattr(ours, name).grad = getattr(plain, name).grad = None
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        close(getattr(ours, name), getattr(plain, name), name, tolerance)
        kept = [torch.empty_like(getattr(ours, name)) for _ in range(size())]
        dist.all_gather(kept, getattr(ours, name))
        for other in kept:
            equal(other, getattr(ours, name), f"{name}: the same bits on all ranks")
    return plain, ours


@case
def batch_norm_over_uneven_batches():
    for inner in ((), (5,), (3, 2), (2, 2, 2)):
        check_batch_norm(lambda r, inner=inner: uneven_batch(r, *inner), inner)
    check_batch_norm(lambda r: uneven_batch(r, 3, 2), (3, 2), momentum=None)


@case
def batch_norm_where_a_rank_has_no_samples():
    check_batch_norm(lambda r: uneven_batch(r, 3, 2, none_at=1), (3, 2))


@case
def batch_norm_of_strided_and_of_16_bit_tensors():
    check_batch_norm(lambda r: uneven_batch(r, 3, 2).to(memory_format=torch.channels_last), (3, 2))
    check_batch_norm(lambda r: uneven_batch(r, 3, 2).transpose(2, 3), (2, 3))
    check_batch_norm(lambda r: uneven_batch(r, 3, dtype=torch.bfloat16), (3,), tolerance=0.05)


@case
def batch_norm_far_from_zero():
    """A mean that is large beside the deviation: sums of squares in single precision would have nothing left."""
    check_batch_norm(lambda r: uneven_batch(r, 64) * 0.01 + 100, (64,), tolerance=2e-3)


@case
def batch_norm_sends_nothing_in_evaluation():
    _, ours = check_batch_norm(lambda r: uneven_batch(r, 2), (2,), steps=1)
    ours.eval()
    before = ours.running_mean.clone()
    if rank() == 0:  # alone: a collective would not match the barrier of the others
        x = uneven_batch(0, 2)
        close(ours(x), functional.batch_norm(x, ours.running_mean, ours.running_var, ours.weight, ours.bias))
    dist.barrier()
    equal(ours.running_mean, before)


@case
def batch_norm_says_what_it_cannot_do():
    layer = tutti.torch.SyncBatchNorm(4)
    raises(ValueError, "more than one value", layer, torch.ones(1 if rank() == 0 else 0, 4))
    raises(ValueError, "(N, 4", layer, torch.ones(3, 5))
    raises(ValueError, "meta", layer, torch.ones(3, 4, device="meta"))
    raises(ValueError, "run the model once", tutti.torch.convert_sync_batchnorm, nn.LazyBatchNorm1d())
    dist.barrier()


@case
def whole_models_are_converted():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.BatchNorm1d(4), nn.ReLU()), nn.Linear(4, 2))
    whole = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ours = tutti.torch.convert_sync_batchnorm(model)
    assert isinstance(ours[1][0], tutti.torch.SyncBatchNorm) and len(list(ours.parameters())) == 6
    replica = nn.parallel.DistributedDataParallel(ours)
    reference = torch.optim.SGD(whole.parameters(), lr=0.1)

    def samples(r):
        return torch.randn(6, 3, generator=seeded(r))
    for _ in range(4):
        optimizer.zero_grad(), reference.zero_grad()
        replica(samples(rank())).square().mean().backward()
        whole(everyone(samples)).square().mean().backward()
        optimizer.step(), reference.step()
    for got, wanted in zip(ours.parameters(), whole.parameters()):
        close(got, wanted, "after four steps")


# ---- replicas


@case
def every_tensor_is_looked_at_once_for_its_bucket():
    class Counted:
        dtype, device, looked = torch.float32, torch.device("cpu"), 0

        @property
        def nbytes(self):
            self.looked += 1
            return 4

    several = [Counted() for _ in range(1000)]
    buckets = tutti.torch._replicas.buckets_of(several, limit=1200)
    assert [len(bucket) for bucket in buckets] == [300, 300, 300, 100]
    assert {one.looked for one in several} == {1}


@case
def buffers_are_averaged_or_taken_from_the_first_rank():
    def model():
        layer = nn.BatchNorm1d(3)
        layer.running_mean.fill_(rank())
        layer.running_var.copy_(torch.arange(3.0) * rank())
        layer.num_batches_tracked.fill_(rank() + 7)
        layer.register_buffer("narrow", torch.full((2, 3), float(rank()), dtype=torch.bfloat16)[:, ::2])
        return nn.Sequential(layer)

    middle = (size() - 1) / 2
    averaged = model()
    tutti.torch.sync_buffers(averaged, "mean")
    equal(averaged[0].running_mean, torch.full((3,), middle))
    equal(averaged[0].running_var, torch.arange(3.0) * middle)
    equal(averaged[0].num_batches_tracked, torch.tensor(7))
    equal(averaged[0].narrow, torch.full((2, 2), middle, dtype=torch.bfloat16))
    first = model()
    tutti.torch.sync_buffers(first, "broadcast")
    equal(first[0].running_mean, torch.zeros(3))
    equal(first[0].num_batches_tracked, torch.tensor(7))
    raises(ValueError, "sideways", tutti.torch.sync_buffers, first, "sideways")
    tutti.torch.sync_buffers(nn.Linear(2, 2))  # has none


@case
def buffers_that_differ_between_ranks_are_an_error():
    model = nn.Module()
    model.register_buffer("kept", torch.zeros(3 + rank()))
    raises(tutti.torch.MismatchError, "", tutti.torch.sync_buffers, model)
    dist.barrier()


def linear():
    torch.manual_seed(2)
    return nn.Linear(3, 2)


def gradient_of(model, step, r):
    x = torch.randn(5, 3, generator=seeded(100 * step + r))
    return functional.mse_loss(model(x), x[:, :2] * 2)


@case
def local_sgd_of_every_step_is_synchronous_sgd():
    for settings in ({}, {"momentum": 0.9}):
        local, whole = linear(), linear()
        if rank() == 1:
            nn.init.zeros_(local.weight)  # rank 0's goes everywhere
        optimizer = tutti.torch.LocalSGD(torch.optim.SGD(local.parameters(), lr=0.1, **settings), 1)
        reference = torch.optim.SGD(whole.parameters(), lr=0.1, **settings)
        for step in range(5):
            optimizer.zero_grad(), reference.zero_grad()
            gradient_of(local, step, rank()).backward()
            (sum(gradient_of(whole, step, r) for r in range(size())) / size()).backward()
            optimizer.step(), reference.step()
        for got, wanted in zip(local.parameters(), whole.parameters()):
            close(got, wanted, f"{settings}")


@case
def local_sgd_averages_every_kth_step():
    local = linear()
    optimizer = tutti.torch.LocalSGD(torch.optim.SGD(local.parameters(), lr=0.1), 3)
    others = [linear() for _ in range(size())]  # all ranks' replicas, worked out here
    for step in range(7):
        optimizer.zero_grad()
        gradient_of(local, step, rank()).backward()
        optimizer.step()
        for r, other in enumerate(others):
            for parameter, gradient in zip(other.parameters(),
                                           torch.autograd.grad(gradient_of(other, step, r), other.parameters())):
                parameter.data -= 0.1 * gradient
        if (step + 1) % 3 == 0:
            for parameters in zip(*(other.parameters() for other in others)):
                mean = torch.stack([p.data for p in parameters]).mean(0)
                for parameter in parameters:
                    parameter.data.copy_(mean)
        for got, wanted in zip(local.parameters(), others[rank()].parameters()):
            close(got, wanted, f"step {step}")
    optimizer.average()
    same = [torch.empty_like(local.weight) for _ in range(size())]
    dist.all_gather(same, local.weight.detach())
    for other in same:
        equal(other, local.weight.detach())


@case
def local_sgd_is_an_optimizer():
    model = linear()
    optimizer = tutti.torch.LocalSGD(torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5), 2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for step in range(3):
        optimizer.zero_grad()
        gradient_of(model, step, rank()).backward()
        optimizer.step()
        schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.125, optimizer
    saved = copy.deepcopy(optimizer.state_dict())
    assert saved["local_steps"] == 3 and "LocalSGD(k=2" in repr(optimizer)
    again = tutti.torch.LocalSGD(torch.optim.SGD(linear().parameters(), lr=1.0, momentum=0.5), 2)
    again.load_state_dict(saved)
    assert again.steps == 3 and again.param_groups[0]["lr"] == 0.125
    again.load_state_dict(optimizer.optimizer.state_dict())
    assert again.steps == 0
    extra = nn.Parameter(torch.full((2,), float(rank() + 1)))
    again.add_param_group({"params": [extra]})
    equal(extra.detach(), torch.ones(2))
    raises(ValueError, "whole number", tutti.torch.LocalSGD, torch.optim.SGD(model.parameters(), lr=1.0), 0)


@case
def local_sgd_has_the_hooks_of_an_optimizer():
    model = linear()
    optimizer = tutti.torch.LocalSGD(torch.optim.SGD(model.parameters(), lr=1.0), 2)
    called = []
    for name in ("step_pre", "step_post", "state_dict_pre", "state_dict_post", "load_state_dict_pre",
                 "load_state_dict_post"):
        register = getattr(optimizer, f"register_{name}_hook")
        register(lambda *_, name=name: called.append(name))
    gradient_of(model, 0, rank()).backward()
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    assert called == ["step_pre", "step_post", "state_dict_pre", "state_dict_post", "load_state_dict_pre",
                      "load_state_dict_post"], called


# ---- sharded softmax


def softmax_case(classes, rows_of, ignore=-100, bias=True):
    """Loss and gradients of the sharded layer, beside torch's on one rank with all samples."""
    features = 5
    head = tutti.torch.ShardedSoftmax(features, classes, bias=bias, ignore_index=ignore)
    whole = nn.Linear(features, classes, bias=bias)
    with torch.no_grad():
        whole.weight.copy_(torch.randn(classes, features, generator=seeded(1)))
        head.weight.copy_(whole.weight[head.first:head.first + head.rows])
        if bias:
            whole.bias.copy_(torch.randn(classes, generator=seeded(2)))
            head.bias.copy_(whole.bias[head.first:head.first + head.rows])

    def x_of(r):
        return torch.randn(rows_of(r), features, generator=seeded(20 + r)) * 4

    def labels_of(r):
        labels = torch.randint(classes, (rows_of(r),), generator=seeded(30 + r))
        labels[1::4] = ignore
        return labels
    mine, all_of_them = x_of(rank()).requires_grad_(), everyone(x_of).requires_grad_()
    loss = head(mine, labels_of(rank()))
    wanted = functional.cross_entropy(whole(all_of_them), everyone(labels_of), ignore_index=ignore)
    close(loss, wanted, "loss")
    losses = [torch.empty_like(loss) for _ in range(size())]
    dist.all_gather(losses, loss.detach())
    for other in losses:
        equal(other, loss.detach(), "the same bits on all ranks")
    (loss * 3).backward()
    (wanted * 3).backward()
    begin = sum(rows_of(r) for r in range(rank()))
    close(mine.grad, all_of_them.grad[begin:begin + len(mine)], "dx")
    shard = slice(head.first, head.first + head.rows)
    close(head.weight.grad, whole.weight.grad[shard], "dweight")
    if bias:
        close(head.bias.grad, whole.bias.grad[shard], "dbias")


@case
def sharded_softmax_is_the_unsharded_one():
    for classes in (1, size() - 1, size(), 11, 64):
        softmax_case(classes, lambda r: 6)
    softmax_case(11, lambda r: 3 + 2 * r)
    softmax_case(11, lambda r: 0 if r == 1 else 5)
    softmax_case(11, lambda r: 6, ignore=3, bias=False)


@case
def sharded_softmax_of_very_different_logits():
    head = tutti.torch.ShardedSoftmax(1, 2 * size(), bias=False)
    with torch.no_grad():
        head.weight.copy_((torch.arange(head.first, head.first + head.rows, dtype=torch.float32) * 300).unsqueeze(1))
    loss = head(torch.ones(2, 1), torch.tensor([0, 2 * size() - 1]))
    close(loss, torch.tensor(300.0 * (2 * size() - 1) / 2))


@case
def sharded_softmax_without_samples_that_count():
    head = tutti.torch.ShardedSoftmax(3, 7)
    loss = head(torch.ones(2, 3), torch.full((2,), -100))
    equal(loss.detach(), torch.tensor(0.0))
    loss.backward()
    equal(head.weight.grad, torch.zeros_like(head.weight))


@case
def sharded_softmax_whose_features_only_some_ranks_learn():
    head = tutti.torch.ShardedSoftmax(3, 7, input_gradient_scale=2.0)
    x = torch.ones(2, 3, requires_grad=rank() == 0)
    head(x, torch.zeros(2, dtype=torch.int64)).backward()
    assert (x.grad is not None) == (rank() == 0)


@case
def sharded_softmax_under_autocast_computes_in_its_own_type():
    head = tutti.torch.ShardedSoftmax(3, 7)
    x, labels = torch.arange(6.0).view(2, 3).requires_grad_(), torch.tensor([1, 6])
    plain = head(x, labels)
    plain.backward()
    expected = x.grad, head.weight.grad
    x.grad = head.weight.grad = None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = head(x, labels)
        loss.backward()
    equal(loss.detach(), plain.detach())
    equal(x.grad, expected[0])
    equal(head.weight.grad, expected[1])


@case
def sharded_softmax_names_a_wrong_label():
    head = tutti.torch.ShardedSoftmax(3, 7)
    labels = torch.tensor([1, 9 if rank() == 1 else 2])
    raises(ValueError, ["rank 1 is 9", "0 to 6"], head, torch.ones(2, 3), labels)
    raises(ValueError, "(N, 3)", head, torch.ones(2, 4), labels)
    shards = [torch.empty(3) for _ in range(size())]
    dist.all_gather(shards, head.weight.detach()[0] if head.rows else torch.zeros(3))
    assert not torch.equal(shards[0], shards[1]), "ranks of one seed got the same weights"


@case
def a_face_recogniser_learns_with_a_sharded_head():
    """A trunk in DistributedDataParallel, a head that is sharded: what one rank learns with plain torch."""
    def trunk():
        torch.manual_seed(8)
        return nn.Sequential(nn.Linear(6, 5), nn.Tanh())
    classes, whole = 9, nn.Linear(5, 9)
    ours = nn.parallel.DistributedDataParallel(trunk())
    head = tutti.torch.ShardedSoftmax(5, classes, input_gradient_scale=size())
    theirs = trunk()
    with torch.no_grad():
        whole.weight.copy_(torch.randn(classes, 5, generator=seeded(1)))
        whole.bias.zero_()
        head.weight.copy_(whole.weight[head.first:head.first + head.rows])
        head.bias.zero_()
    mine = torch.optim.SGD([*ours.parameters(), *head.parameters()], lr=0.5)
    reference = torch.optim.SGD([*theirs.parameters(), *whole.parameters()], lr=0.5)

    def samples(r):
        return torch.randn(8, 6, generator=seeded(r))

    def labels(r):
        return torch.arange(8) % classes + (r % 2)
    for _ in range(5):
        mine.zero_grad(), reference.zero_grad()
        head(ours(samples(rank())), labels(rank()) % classes).backward()
        functional.cross_entropy(whole(theirs(everyone(samples))), everyone(labels) % classes).backward()
        mine.step(), reference.step()
    for got, wanted in zip(ours.module.parameters(), theirs.parameters()):
        close(got, wanted, "trunk", 1e-4)
    close(head.weight, whole.weight[head.first:head.first + head.rows], "head", 1e-4)


# ---- checkpoints of models


def shared_folder():
    told = [tempfile.mkdtemp() if rank() == 0 else None]
    dist.broadcast_object_list(told, 0)
    return told[0]


@case
def a_model_and_its_sharded_head_come_back():
    path = os.path.join(shared_folder(), "model.safetensors")
    model, head = linear().to(torch.bfloat16), tutti.torch.ShardedSoftmax(3, 7)
    saved = {name: value.clone() for name, value in model.state_dict().items()}
    kept = [parameter.detach().clone() for parameter in head.parameters()]

    def state():
        return {**model.state_dict(),
                "head.weight": tutti.checkpoint.Shard(head.weight, head.first, head.classes),
                "head.bias": tutti.checkpoint.Shard(head.bias, head.first, head.classes)}
    with tutti.torch.communicator() as comm:
        tutti.checkpoint.save(path, state(), comm, texts={"epoch": "12"})
        with torch.no_grad():
            for parameter in (*model.parameters(), *head.parameters()):
                parameter.zero_()
        loaded = tutti.checkpoint.load(path, state(), comm)
    assert loaded.text("epoch") == "12" and loaded.text("other") is None and loaded.missing == []
    for name, value in model.state_dict().items():
        equal(value, saved[name], name)
    for parameter, wanted in zip(head.parameters(), kept, strict=True):
        equal(parameter.detach(), wanted)
    dist.all_reduce(torch.ones(3))  # the group goes on


@case
def arrays_of_types_that_numpy_lacks():
    with tutti.torch.communicator() as comm:
        for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
            x = torch.tensor([1.0, rank()]).to(dtype)
            wanted = torch.tensor([size(), sum(range(size()))], dtype=torch.float32).to(dtype)
            equal(comm.allreduce(x, out=torch.empty_like(x)), wanted, str(dtype))
            raises(TypeError, "pass out=", comm.allreduce, x)
            raises(TypeError, "pass out=", comm.exscan, x)
        other = x.view(torch.float8_e5m2fnuz)
        raises(TypeError, ["allreduce: ", "view as uint8"], comm.allreduce, other, out=other)
        raises(TypeError, "allreduce: the input and the output have different types", comm.allreduce, other, out=x)
        raises(TypeError, ["allreduce: x is a Tensor with strides (1, 3)", "contiguous()"], comm.allreduce,
               torch.ones(2, 3).t(), out=torch.ones(3, 2))
        raises(TypeError, "detach()", comm.allreduce, torch.ones(2, requires_grad=True))


@case
def closing_lets_go_of_the_communicator_whatever_requests_are_left():
    class Keeper:
        def __init__(self, held):
            self.held = held

    address, held = tutti.torch.build().duplicate(tutti.torch.backend_of(None))
    keeper = Keeper(held)
    gone = weakref.ref(keeper)
    comm = tutti.communicator.adopt((address, keeper))
    del held, keeper
    request = comm.iallreduce(torch.ones(3).numpy())
    request.wait()
    assert gone() is not None
    comm.close()
    assert gone() is None, "a request that is over holds it"


run()
