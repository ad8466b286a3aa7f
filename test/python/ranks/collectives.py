"""Every collective, over types, operators and memory layouts, beside gloo and beside what it has to be."""
import os

import torch
import torch.distributed as dist

import tutti.torch  # noqa: F401
from cases import case, close, equal, raises, rank, run, size

INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SMALL_FLOATS = [torch.float8_e4m3fn, torch.float8_e5m2]
COMPLEX = [torch.complex64, torch.complex128]
OPAQUE = [torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
Op = dist.ReduceOp

dist.init_process_group("tutti")
GLOO = dist.new_group(backend="gloo")


def data(of, dtype=torch.float32, shape=(5, 3), salt=0):
    """Returns the contribution of rank `of`, which any rank can compute. Sums of small whole numbers are exact."""
    count = 1
    for extent in shape:
        count *= extent
    values = (torch.arange(count) * 7 + of * 3 + salt) % 5
    if dtype == torch.bool:
        return (values > 2).reshape(shape)
    if dtype.is_complex:
        return torch.complex(values.double(), (values * 2 - 3).double()).to(dtype).reshape(shape)
    return values.to(torch.float64).to(torch.float32).to(dtype).reshape(shape)


def everyone(**how):
    return torch.stack([data(r, **how).to(wide(how.get("dtype", torch.float32))) for r in range(size())])


def wide(dtype):
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else torch.int64


def strided(tensor):
    """The same values in memory that is not in one piece."""
    room = torch.zeros(*tensor.shape[:-1], tensor.shape[-1] * 2, dtype=tensor.dtype)
    view = room[..., ::2]
    view.copy_(tensor)
    assert not view.is_contiguous()
    return view


def expected(op, stacked):
    return {Op.SUM: lambda s: s.sum(0), Op.MAX: lambda s: s.amax(0), Op.MIN: lambda s: s.amin(0),
            Op.PRODUCT: lambda s: s.prod(0), Op.AVG: lambda s: s.sum(0) / size()}[op](stacked)


@case
def all_reduce_of_every_type():
    for dtype in INTEGERS + FLOATS + SMALL_FLOATS:
        for op in (Op.SUM, Op.MAX, Op.MIN, Op.PRODUCT):
            x = data(rank(), dtype)
            dist.all_reduce(x, op)
            wanted = expected(op, everyone(dtype=dtype))
            limit = torch.finfo(dtype).max if dtype.is_floating_point else torch.iinfo(dtype).max
            if wanted.abs().max() <= limit:
                equal(x, wanted.to(torch.float32).to(dtype) if dtype in SMALL_FLOATS else wanted.to(dtype),
                      f"{op} {dtype}")


@case
def all_reduce_as_gloo_does_it():
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.int8):
        for op in (Op.SUM, Op.MAX, Op.MIN, Op.PRODUCT):
            ours, theirs = data(rank(), dtype), data(rank(), dtype)
            dist.all_reduce(ours, op)
            dist.all_reduce(theirs, op, group=GLOO)
            equal(ours, theirs, f"{op} {dtype}")
    for op in (Op.BAND, Op.BOR, Op.BXOR):
        ours, theirs = data(rank(), torch.int32), data(rank(), torch.int32)
        dist.all_reduce(ours, op)
        dist.all_reduce(theirs, op, group=GLOO)
        equal(ours, theirs, str(op))


@case
def all_reduce_avg():
    for dtype in FLOATS:
        x = data(rank(), dtype)
        dist.all_reduce(x, Op.AVG)
        close(x, expected(Op.AVG, everyone(dtype=dtype)), f"avg {dtype}", 1e-2)
    x = data(rank(), torch.int32) - 2
    dist.all_reduce(x, Op.AVG)
    total = (everyone(dtype=torch.int32) - 2).sum(0)
    equal(x, torch.div(total, size(), rounding_mode="trunc").to(torch.int32), "avg of integers")


@case
def all_reduce_of_bool_and_complex():
    x = data(rank(), torch.bool)
    dist.all_reduce(x)
    equal(x, torch.stack([data(r, torch.bool) for r in range(size())]).any(0), "any")
    x = data(rank(), torch.bool)
    dist.all_reduce(x, Op.MIN)
    equal(x, torch.stack([data(r, torch.bool) for r in range(size())]).all(0), "all")
    for dtype in COMPLEX:
        x = data(rank(), dtype)
        dist.all_reduce(x)
        equal(x, everyone(dtype=dtype).sum(0).to(dtype), str(dtype))


@case
def all_reduce_with_a_factor_per_rank():
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = data(rank(), dtype)
        dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
        close(x, everyone(dtype=dtype).sum(0) * 0.5, f"premultiplied {dtype}", 1e-2)
    x = data(rank())
    dist.all_reduce(x, dist._make_nccl_premul_sum(torch.tensor([float(rank() + 1)])))
    close(x, sum(data(r) * (r + 1) for r in range(size())), "a tensor as the factor")


@case
def strided_tensors():
    x = strided(data(rank()))
    dist.all_reduce(x)
    equal(x.contiguous(), everyone().sum(0).float(), "all_reduce")
    x = data(rank(), shape=(4, 6)).t()
    dist.all_reduce(x)
    equal(x.contiguous(), everyone(shape=(4, 6)).sum(0).float().t().contiguous(), "transposed")
    x = strided(data(rank()))
    dist.broadcast(x, 1)
    equal(x.contiguous(), data(1), "broadcast")
    outputs = [strided(torch.zeros(5, 3)) for _ in range(size())]
    dist.all_gather(outputs, strided(data(rank())))
    for r, got in enumerate(outputs):
        equal(got.contiguous(), data(r), "all_gather")
    x = strided(data(rank()))
    dist.reduce(x, 0)
    equal(x.contiguous(), everyone().sum(0).float() if rank() == 0 else data(rank()), "reduce")
    work = dist.all_reduce(y := strided(data(rank())), async_op=True)
    work.wait()
    equal(y.contiguous(), everyone().sum(0).float(), "asynchronous")
    if rank() == 0:
        dist.send(strided(data(9)), 1)
    elif rank() == 1:
        x = strided(torch.zeros(5, 3))
        dist.recv(x, 0)
        equal(x.contiguous(), data(9), "recv")


@case
def broadcast_and_reduce():
    for dtype in INTEGERS + FLOATS + SMALL_FLOATS + COMPLEX + OPAQUE + [torch.bool]:
        for root in range(size()):
            x = data(rank(), dtype)
            dist.broadcast(x, root)
            equal(x.view(torch.uint8) if dtype in OPAQUE else x,
                  data(root, dtype).view(torch.uint8) if dtype in OPAQUE else data(root, dtype), f"{dtype}")
    for root in range(size()):
        x = data(rank())
        dist.reduce(x, root, Op.MAX)
        if rank() == root:
            equal(x, expected(Op.MAX, everyone()).float())


@case
def all_gather_in_all_its_forms():
    for dtype in (torch.float32, torch.int64, torch.bfloat16, torch.bool):
        outputs = [torch.zeros(5, 3, dtype=dtype) for _ in range(size())]
        dist.all_gather(outputs, data(rank(), dtype))
        for r, got in enumerate(outputs):
            equal(got, data(r, dtype), f"list of {dtype}")
    whole = torch.zeros(size() * 5, 3)
    dist.all_gather_into_tensor(whole, data(rank()))
    equal(whole, torch.cat([data(r) for r in range(size())]), "into a tensor")
    whole = torch.zeros(size(), 4)
    whole[rank()] = rank() + 1
    dist.all_gather_into_tensor(whole, whole[rank()])
    equal(whole, (torch.arange(size()) + 1.0).unsqueeze(1).expand(size(), 4).contiguous(), "in place")
    views = list(torch.zeros(size(), 6).unbind(0))
    dist.all_gather(views, torch.full((6,), float(rank())))
    for r, got in enumerate(views):
        equal(got, torch.full((6,), float(r)), "views of one tensor")


@case
def uneven_lists():
    outputs = [torch.zeros(r + 1, 2) for r in range(size())]
    dist.all_gather(outputs, data(rank(), shape=(rank() + 1, 2)))
    for r, got in enumerate(outputs):
        equal(got, data(r, shape=(r + 1, 2)), "all_gather")
    inputs = [torch.full((rank() + to + 1,), rank() * 10.0 + to) for to in range(size())]
    outputs = [torch.zeros(rank() + come + 1) for come in range(size())]
    dist.all_to_all(outputs, inputs)
    for r, got in enumerate(outputs):
        equal(got, torch.full((rank() + r + 1,), r * 10.0 + rank()), "all_to_all")
    inputs = [data(rank(), shape=(r + 2,), salt=r) for r in range(size())]
    output = torch.zeros(rank() + 2)
    dist.reduce_scatter(output, inputs)
    equal(output, sum(data(r, shape=(rank() + 2,), salt=rank()) for r in range(size())), "reduce_scatter")


@case
def gather_and_scatter():
    for root in range(size()):
        outputs = [torch.zeros(5, 3) for _ in range(size())] if rank() == root else None
        dist.gather(data(rank()), outputs, dst=root)
        for r, got in enumerate(outputs or []):
            equal(got, data(r), "gather")
        x = torch.zeros(5, 3)
        dist.scatter(x, [data(r, salt=root) for r in range(size())] if rank() == root else None, src=root)
        equal(x, data(rank(), salt=root), "scatter")


@case
def reduce_scatter_in_all_its_forms():
    for op in (Op.SUM, Op.MAX, Op.AVG):
        output = torch.zeros(5, 3)
        dist.reduce_scatter(output, [data(rank(), salt=r) for r in range(size())], op)
        close(output, expected(op, everyone(salt=rank())), f"list {op}")
        whole = torch.cat([data(rank(), salt=r) for r in range(size())])
        dist.reduce_scatter_tensor(output, whole, op)
        close(output, expected(op, everyone(salt=rank())), f"tensor {op}")
    whole = torch.cat([data(rank(), salt=r) for r in range(size())])
    own = whole[rank() * 5:(rank() + 1) * 5]
    dist.reduce_scatter_tensor(own, whole)
    close(own, expected(Op.SUM, everyone(salt=rank())), "in place")


@case
def all_to_all_with_and_without_splits():
    x = torch.arange(size() * 2.0) + rank() * 100
    y = torch.zeros(size() * 2)
    dist.all_to_all_single(y, x)
    equal(y, torch.cat([torch.arange(rank() * 2.0, rank() * 2 + 2) + r * 100 for r in range(size())]))
    sent = [to + 1 for to in range(size())]
    x = torch.cat([torch.full((n, 3), rank() * 10.0 + to) for to, n in enumerate(sent)])
    y = torch.zeros((rank() + 1) * size(), 3)
    dist.all_to_all_single(y, x, [rank() + 1] * size(), sent)
    equal(y, torch.cat([torch.full((rank() + 1, 3), r * 10.0 + rank()) for r in range(size())]), "splits")


@case
def no_elements():
    dist.all_reduce(torch.zeros(0))
    dist.broadcast(torch.zeros(0, 4), 0)
    outputs = [torch.zeros(0) for _ in range(size())]
    dist.all_gather(outputs, torch.zeros(0))
    dist.all_gather_into_tensor(torch.zeros(0), torch.zeros(0))
    dist.reduce_scatter_tensor(torch.zeros(0), torch.zeros(0))
    dist.all_to_all_single(torch.zeros(0), torch.zeros(0))
    outputs = [torch.zeros(r) for r in range(size())]
    dist.all_gather(outputs, torch.full((rank(),), 1.0))
    for r, got in enumerate(outputs):
        equal(got, torch.ones(r), "a rank with nothing")


@case
def many_small_tensors_at_once():
    tensors = [data(rank(), dtype, shape=(i % 7 + 1,), salt=i)
               for i in range(60) for dtype in (torch.float32, torch.int32)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors[::2]:
            dist.all_reduce(tensor)
    manager.wait()
    for i, tensor in enumerate(tensors[::2]):
        equal(tensor, everyone(shape=(i % 7 + 1,), salt=i).sum(0).float(), f"tensor {i}")
    mixed = [data(rank(), torch.float32), data(rank(), torch.int64), torch.full((100_000,), float(rank()))]
    options = dist.AllreduceCoalescedOptions()
    dist.group.WORLD.allreduce_coalesced(mixed, options).wait()
    equal(mixed[0], everyone().sum(0).float(), "float32 among others")
    equal(mixed[1], everyone(dtype=torch.int64).sum(0), "int64 among others")
    equal(mixed[2], torch.full((100_000,), size() * (size() - 1) / 2), "a large one")


def reduce_list(tensors, op=Op.SUM):
    options = dist.AllreduceCoalescedOptions()
    options.reduceOp = op
    return dist.group.WORLD.allreduce_coalesced(tensors, options)


@case
def lists_of_every_type_and_layout():
    dtypes = INTEGERS + FLOATS + SMALL_FLOATS + COMPLEX + [torch.bool]
    shapes = [(5, 3), (0,), (), (2, 0, 3), (1,), (7, 2)]
    tensors, wanted = [], []
    for salt, shape in enumerate(shapes):
        for dtype in dtypes:
            tensors.append(data(rank(), dtype, shape, salt))
            stacked = everyone(dtype=dtype, shape=shape, salt=salt)
            total = stacked.any(0) if dtype == torch.bool else stacked.sum(0)
            wanted.append(total.to(torch.float32).to(dtype) if dtype in SMALL_FLOATS else total.to(dtype))
    tensors += [strided(data(rank())), data(rank(), shape=(3, 5)).t()]
    wanted += [everyone().sum(0).float(), everyone(shape=(3, 5)).sum(0).float().t()]
    reduce_list(tensors).wait()
    for i, (got, want) in enumerate(zip(tensors, wanted)):
        equal(got, want, f"tensor {i}, {got.dtype} {tuple(got.shape)}")


@case
def lists_with_every_operator():
    for op in (Op.MAX, Op.MIN, Op.PRODUCT, Op.AVG):
        tensors = [data(rank(), dtype, salt=i) for dtype in FLOATS for i in range(4)]
        reduce_list(tensors, op).wait()
        for place, tensor in enumerate(tensors):
            close(tensor, expected(op, everyone(dtype=tensor.dtype, salt=place % 4)), f"{op} {place}", 1e-2)
    tensors = [data(rank(), dtype, salt=i) for dtype in (torch.float32, torch.bfloat16) for i in range(4)]
    reduce_list(tensors, dist._make_nccl_premul_sum(0.5)).wait()
    for place, tensor in enumerate(tensors):
        close(tensor, everyone(dtype=tensor.dtype, salt=place % 4).sum(0) * 0.5, f"a factor {place}", 1e-2)


@case
def lists_have_the_bits_of_their_tensors_alone():
    generator = torch.Generator().manual_seed(7 + rank())
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        alone = [torch.randn(i + 1, generator=generator).to(dtype) for i in range(40)]
        together = [tensor.clone() for tensor in alone]
        work = reduce_list(together)
        if size() == 2:  # the order of two operands makes no difference
            for tensor in alone:
                dist.all_reduce(tensor)
        work.wait()
        for i, tensor in enumerate(together):
            everyones = [torch.zeros_like(tensor) for _ in range(size())]
            dist.all_gather(everyones, tensor)
            for other in everyones + ([alone[i]] if size() == 2 else []):
                equal(tensor.view(torch.uint8), other.view(torch.uint8), f"{dtype} {i}")


@case
def lists_that_are_started_and_left():
    lists = [[data(rank(), salt=i) for i in range(20)] for _ in range(10)]
    works = [reduce_list(tensors) for tensors in lists]
    works[3].get_future().wait()
    del works[5]
    for work in reversed(works):
        work.wait()
    dist.barrier()
    for tensors in lists[:5] + lists[6:]:
        for i, tensor in enumerate(tensors):
            equal(tensor, everyone(salt=i).sum(0).float(), f"tensor {i}")


@case
def lists_that_differ():
    first = rank() == 0
    pairs = [([(3,), (5,)], [(5,), (3,)]), ([(3,), (5,)], [(8,)]), ([(4,), (4,)], [(4,), (2,), (2,)]),
             ([(4,), (0,)], [(4,), (0,), (0,)])]
    for ours, theirs in pairs:
        tensors = [torch.ones(shape) for shape in (ours if first else theirs)]
        words = ["all_reduce_coalesced", "collective mismatch", "rank 0"]
        error = raises(tutti.torch.MismatchError, words, lambda: reduce_list(tensors).wait())
        if len(tensors) > 1:
            assert f"this rank's list has {len(tensors)} tensors" in str(error), error
        assert error.operation == "all_reduce_coalesced" and error.rank is not None, error
        dist.barrier()
    types = [torch.float32, torch.int32, torch.float32] if first else [torch.float32, torch.float32, torch.int32]
    tensors = [torch.ones(4, dtype=dtype) for dtype in types]
    raises(tutti.torch.MismatchError, "this rank's list has 3 tensors", lambda: reduce_list(tensors).wait())
    dist.barrier()
    tensors = [torch.ones(3), torch.ones(5)]
    reduce_list(tensors).wait()
    equal(torch.cat(tensors), torch.full((8,), float(size())), "the group works on")


SHAPES_AND_TYPES = [(shape, dtype) for shape in ((1,), (0,), (4, 2), (3,), (70_000,))
                    for dtype in (torch.float32, torch.bfloat16)]


def gather_all_at_once(arrange):
    inputs = [arrange(data(rank(), dtype, shape)) for shape, dtype in SHAPES_AND_TYPES]
    outputs = [arrange(torch.zeros(size() * shape[0], *shape[1:], dtype=dtype)) for shape, dtype in SHAPES_AND_TYPES]
    with dist._coalescing_manager():
        for output, x in zip(outputs, inputs):
            dist.all_gather_into_tensor(output, x)
    for output, (shape, dtype) in zip(outputs, SHAPES_AND_TYPES):
        equal(output.contiguous(), torch.cat([data(r, dtype, shape) for r in range(size())]), f"{dtype} {shape}")


def scatter_all_at_once(arrange, op):
    inputs = [arrange(torch.cat([data(rank(), dtype, shape, r) for r in range(size())]))
              for shape, dtype in SHAPES_AND_TYPES]
    outputs = [arrange(torch.zeros(shape, dtype=dtype)) for shape, dtype in SHAPES_AND_TYPES]
    with dist._coalescing_manager(async_ops=True) as manager:
        for output, x in zip(outputs, inputs):
            dist.reduce_scatter_tensor(output, x, op)
    manager.wait()
    for output, (shape, dtype) in zip(outputs, SHAPES_AND_TYPES):
        wanted = expected(op, everyone(dtype=dtype, shape=shape, salt=rank()))
        close(output, wanted, f"{op} {dtype} {shape}", 1e-2)


@case
def coalesced_gathers_and_scatters():
    for arrange in (lambda tensor: tensor, lambda tensor: strided(tensor) if tensor.numel() > 1 else tensor):
        gather_all_at_once(arrange)
        for op in (Op.SUM, Op.AVG, Op.MAX):
            scatter_all_at_once(arrange, op)


@case
def coalesced_gathers_in_place():
    wholes = [torch.zeros(size(), i + 1) for i in range(5)]
    for whole in wholes:
        whole[rank()] = rank() + 1
    with dist._coalescing_manager():
        for whole in wholes:
            dist.all_gather_into_tensor(whole, whole[rank()])
    for i, whole in enumerate(wholes):
        equal(whole, (torch.arange(size()) + 1.0).unsqueeze(1).expand(size(), i + 1).contiguous(), "gathered")
    with dist._coalescing_manager():
        for whole in wholes:
            dist.reduce_scatter_tensor(whole[rank()], whole)
    for i, whole in enumerate(wholes):
        equal(whole[rank()], torch.full((i + 1,), size() * (rank() + 1.0)), "scattered")


@case
def coalesced_gathers_and_scatters_that_differ():
    counts = (3, 5) if rank() == 0 else (5, 3)

    def gather():
        with dist._coalescing_manager():
            for count in counts:
                dist.all_gather_into_tensor(torch.zeros(size() * count), torch.ones(count))

    def scatter():
        with dist._coalescing_manager():
            for count in counts:
                dist.reduce_scatter_tensor(torch.zeros(count), torch.ones(size() * count))
    for call in (gather, scatter):
        raises(tutti.torch.MismatchError, "this rank's list has 2 tensors", call)
        dist.barrier()


@case
def lists_beside_a_version_that_gives_them_no_name():
    store = dist.PrefixStore("older", dist.distributed_c10d._get_default_store())
    if rank() == 0:  # as if one rank did not count itself in
        attempt = [os.environ.get(name) for name in ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")]
        store.add("/".join(["tutti", *filter(None, attempt), "1/lists"]), -1)
    older = tutti.torch.build().create(store, rank(), size(), 60_000, "older", {})
    tensors = [torch.ones(3), torch.ones(5)] if rank() == 0 else [torch.ones(8)]
    older.allreduce_coalesced(tensors, dist.AllreduceCoalescedOptions()).wait()
    equal(torch.cat(tensors), torch.full((8,), float(size())), "one call, as before")


def sparse(positions, values, shape, dtype=torch.float32):
    return torch.sparse_coo_tensor(positions, torch.tensor(values, dtype=dtype), shape)


@case
def sparse_tensors():
    me = rank()
    for x in (sparse([[me, 7]], [[1.0, 2.0], [3.0, 4.0]], (10, 2)),
              sparse([[7, me, 7, 0]], [1.0, 2.0, 3.0, me], (10,)),  # positions twice, unsorted
              sparse([[me, 2], [me, 0]], [1.0, -1.0], (10, 10)).coalesce(),
              sparse([[5] * me] if me else torch.zeros(1, 0, dtype=torch.int64), [1.0] * me, (6,))):
        ours, theirs = x.clone(), x.clone()
        dist.all_reduce(ours)
        dist.all_reduce(theirs, group=GLOO)
        assert ours.is_coalesced() == theirs.is_coalesced(), (ours.is_coalesced(), theirs.is_coalesced())
        equal(ours.indices(), theirs.indices(), "positions")
        equal(ours.values(), theirs.values(), "values")
        equal(ours.to_dense(), theirs.to_dense(), "sparse")
    ours = sparse([[3]], [me + 1], (10,), torch.int64)
    dist.all_reduce(ours)
    equal(ours.values(), torch.tensor([size() * (size() + 1) // 2]))


@case
def sparse_sums_never_become_dense():
    shape = (1 << 40, 1 << 20)  # dense, this has an exabyte
    x = sparse([[rank(), (1 << 40) - 1], [3, 5]], [1.0, rank() + 1], shape)
    dist.all_reduce(x)
    assert x.is_coalesced()
    ranks = list(range(size()))
    equal(x.indices(), torch.tensor([ranks + [(1 << 40) - 1], [3] * size() + [5]]))
    equal(x.values(), torch.tensor([1.0] * size() + [float(sum(ranks) + size())]))


@case
def small_floats_in_sparse_sums_round_once():
    x = sparse([[0]], [256.0 if rank() == 0 else 1.0], (1,), torch.bfloat16)
    dist.all_reduce(x)
    assert x.dtype == torch.bfloat16
    equal(x.to_dense(), torch.tensor([256.0 + size() - 1]).to(torch.bfloat16))


@case
def sparse_tensors_that_cannot_be_summed():
    backend = tutti.torch.backend_of()
    x = sparse([[0]], [1.0], (2,))
    raises(ValueError, "only ReduceOp.SUM", dist.all_reduce, x, op=dist.ReduceOp.MAX)
    raises(ValueError, "another shape", dist.all_reduce, sparse([[0]], [1.0], (2 + rank(),)))
    for compressed in (torch.eye(4).to_sparse_csr(), torch.eye(4).to_sparse_bsr((2, 2))):
        raises((NotImplementedError, ValueError), "Sparse", dist.all_reduce, compressed)  # torch's own
        raises(ValueError, ["layout Sparse", "COO"], backend.allreduce, [compressed])
        raises(ValueError, ["layout Sparse", "COO"], backend.broadcast, [compressed], dist.BroadcastOptions())
    dist.barrier()


@case
def large_tensors():
    for count in (70_001, 1_000_003):
        ours, theirs = torch.arange(count) % 11 + rank(), torch.arange(count) % 11 + rank()
        dist.all_reduce(ours)
        dist.all_reduce(theirs, group=GLOO)
        equal(ours, theirs, str(count))


@case
def objects():
    gathered = [None] * size()
    dist.all_gather_object(gathered, {"rank": rank(), "text": "x" * rank()})
    assert gathered == [{"rank": r, "text": "x" * r} for r in range(size())], gathered
    told = [{"a": 1}, "two"] if rank() == 0 else [None, None]
    dist.broadcast_object_list(told, 0)
    assert told == [{"a": 1}, "two"], told


run()
