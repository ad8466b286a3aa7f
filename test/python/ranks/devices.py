"""Tensors of CUDA devices, acted out: see acted/acted_cuda.cpp. Real torch, real backend, no GPU.

Each rank has a device of its own, or all have the first one where TUTTI_TEST_ONE_DEVICE is set."""
import datetime

import torch
import torch.distributed as dist

import acted
import tutti.torch
from acted import DEVICE, ONE_DEVICE, put
from cases import case, equal, monitored_barrier, raises, rank, run, size

acted.cuda.act()
dist.init_process_group("tutti")
get = acted.cuda.get
OTHER_STREAM = 1
MINUTE = datetime.timedelta(minutes=1)


def mine(count=1000, dtype=torch.float32, of=None):
    return (torch.arange(count) % 7 + (rank() if of is None else of)).to(dtype)


def total(count=1000, dtype=torch.float32):
    return sum(mine(count, dtype, of=other) for other in range(size()))


@case
def one_backend_serves_host_and_device():
    group = dist.group.WORLD
    assert group._get_backend(torch.device("cuda")) is group._get_backend(torch.device("cpu"))
    both = dist.new_group(backend="cpu:tutti,cuda:tutti")
    for x in (mine(), put(mine())):
        dist.all_reduce(x, group=both)
        equal(get(x), total())
    dist.destroy_process_group(both)
    only = dist.new_group(backend="cuda:tutti")
    x = put(mine())
    dist.all_reduce(x, group=only)
    equal(get(x), total())
    assert tutti.torch.backend_of(only).name() == "tutti"
    dist.destroy_process_group(only)


@case
def sums():
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.int16, torch.float64):
        for count in (1, 1000, 300_000):
            x = put(mine(count, dtype))
            dist.all_reduce(x)
            equal(get(x), total(count, dtype), dtype)
    x = put(mine())
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    equal(get(x), total() / size(), "avg")
    x = put(mine())
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    equal(get(x), mine(of=size() - 1), "max")
    empty = put(torch.zeros(0))
    dist.all_reduce(empty)


@case
def host_tensors_are_none_of_it():
    x, y = mine(), put(mine())
    works = [dist.all_reduce(x, async_op=True), dist.all_reduce(y, async_op=True)]
    for work in works:
        work.wait()
    equal(x, total())
    equal(get(y), total())
    work = dist.all_reduce(mine(), async_op=True)
    work.wait()
    assert work.is_completed()


@case
def strided_and_coalesced():
    whole = put(mine(60).view(6, 10))
    column = whole[:, 3]
    dist.all_reduce(column)
    wanted = mine(60).view(6, 10).clone()
    wanted[:, 3] = total(60).view(6, 10)[:, 3]
    equal(get(whole), wanted, "strided")
    several = [put(mine(count)) for count in (3, 100, 70_000)]
    dist.all_reduce_coalesced(several)
    for x in several:
        equal(get(x), total(x.numel()), "coalesced")


@case
def every_collective():
    n, me = size(), rank()
    x = put(mine() if me == n - 1 else torch.zeros(1000))
    dist.broadcast(x, n - 1)
    equal(get(x), mine(of=n - 1), "broadcast")
    x = put(mine())
    dist.reduce(x, 0)
    equal(get(x), total() if me == 0 else mine(), "reduce")
    gathered = [put(torch.zeros(50)) for _ in range(n)]
    dist.all_gather(gathered, put(mine(50)))
    for other in range(n):
        equal(get(gathered[other]), mine(50, of=other), "all_gather")
    out = put(torch.zeros(50 * n))
    dist.all_gather_into_tensor(out, put(mine(50)))
    equal(get(out), torch.cat([mine(50, of=other) for other in range(n)]), "all_gather_into_tensor")
    uneven = [put(torch.zeros(other + 1)) for other in range(n)]
    dist.all_gather(uneven, put(mine(me + 1)))
    for other in range(n):
        equal(get(uneven[other]), mine(other + 1, of=other), "uneven")
    out = put(torch.zeros(50))
    dist.reduce_scatter_tensor(out, put(mine(50 * n)))
    equal(get(out), total(50 * n).view(n, 50)[me], "reduce_scatter_tensor")
    dist.reduce_scatter(out, [put(mine(50) + other) for other in range(n)])
    equal(get(out), total(50) + n * me, "reduce_scatter")
    out = put(torch.zeros(50 * n))
    dist.all_to_all_single(out, put(mine(50 * n)))
    equal(get(out), torch.cat([mine(50 * n, of=other).view(n, 50)[me] for other in range(n)]), "all_to_all")
    lists = [put(torch.zeros(20)) for _ in range(n)] if me == 0 else None
    dist.gather(put(mine(20)), lists, 0)
    for other in range(n if me == 0 else 0):
        equal(get(lists[other]), mine(20, of=other), "gather")
    out = put(torch.zeros(20))
    dist.scatter(out, [put(mine(20) + other) for other in range(n)] if me == 0 else None, 0)
    equal(get(out), mine(20, of=0) + me, "scatter")
    dist.barrier()
    monitored_barrier()


@case
def streams_order_it_and_the_host_does_not_wait():
    x = put(mine())
    dist.all_reduce(x)  # of a shape that is known from now on
    get(x)
    x = put(mine())
    acted.cuda.gate(DEVICE)  # the current stream stands still until the gate is opened
    acted.cuda.add_one(x)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    acted.cuda.add_one(x)
    assert not work.is_completed() and work.result()[0] is not None
    acted.cuda.open_gate()
    equal(get(x), total() + size() + 1)
    assert work.wait(MINUTE) and work.is_completed()


@case
def another_stream_is_put_behind_it_only_by_waiting():
    x = put(mine())
    before = acted.cuda.use_stream(DEVICE, OTHER_STREAM)
    try:
        work = dist.all_reduce(x, async_op=True)
        for _ in range(3):
            acted.cuda.add_one(put(mine()))
        work.wait()
        acted.cuda.add_one(x)
        equal(get(x), total() + 1)
    finally:
        acted.cuda.use_stream(DEVICE, before)


@case
def memory_is_held_until_the_device_is_done():
    n = size()
    out = put(torch.zeros(1000 * n))
    dist.all_gather_into_tensor(out, put(mine()))
    get(out)
    for strided in (False, True):
        source = put(torch.stack([mine(), mine()], 1)) if strided else put(mine())
        view = source[:, 1] if strided else source
        acted.cuda.gate(DEVICE)
        work = dist.all_gather_into_tensor(out, view, async_op=True)
        before = acted.cuda.use_stream(DEVICE, OTHER_STREAM)
        del source, view  # the acted device overwrites freed memory at once
        acted.cuda.use_stream(DEVICE, before)
        acted.cuda.open_gate()
        work.wait()
        equal(get(out), torch.cat([mine(of=other) for other in range(n)]), strided)
    work = dist.all_reduce(put(mine()), async_op=True)
    del work
    lists = [put(torch.zeros(1000)) for _ in range(n)]
    work = dist.all_gather(lists, put(mine()), async_op=True)
    kept = lists[0]
    del lists
    work.wait()
    equal(get(kept), mine(of=0))


@case
def futures_follow_the_streams():
    x = put(mine())
    dist.all_reduce(x)
    get(x)
    x = put(mine())
    acted.cuda.gate(DEVICE)
    work = dist.all_reduce(x, async_op=True)
    future = work.get_future()
    assert future.done()

    def add(done):
        acted.cuda.add_one(done.value()[0])
        return done.value()[0]

    chained = future.then(add)
    assert not work.is_completed()
    acted.cuda.open_gate()
    equal(get(chained.wait()), total() + 1)


def ring(count=1000):
    """Returns a batch of two sends to the right and two receives from the left, its outputs and their wanted values."""
    left, right = (rank() - 1) % size(), (rank() + 1) % size()
    whole = put(torch.zeros(2, count))
    sent, got = [put(mine(count)), put(mine(count) + 100)], [whole[0], put(torch.zeros(count, 2))[:, 1]]
    batch = [dist.P2POp(dist.isend, x, right) for x in sent] + [dist.P2POp(dist.irecv, x, left) for x in got]
    return batch, got, [mine(count, of=left), mine(count, of=left) + 100]


@case
def batches_of_messages_go_by_the_device():
    batch, got, wanted = ring()
    dist.batch_isend_irecv(batch)[0].wait()
    for x, values in zip(got, wanted):
        equal(get(x.contiguous()), values)
    # All ranks are alike: only together they can be launched at all, and no host waits for it.
    batch, got, wanted = ring()
    acted.cuda.gate(DEVICE)
    acted.cuda.add_one(batch[0].tensor)
    works = dist.batch_isend_irecv(batch)
    assert len(works) == 1 and not works[0].is_completed()
    works[0].wait()
    acted.cuda.add_one(got[0])
    acted.cuda.open_gate()
    equal(get(got[0]), wanted[0] + 2)
    equal(get(got[1].contiguous()), wanted[1])
    assert works[0].wait(MINUTE) and works[0].is_completed()


@case
def a_batch_that_was_given_up_leaves_nothing_behind():
    batch, got, wanted = ring()
    with_nonsense = [*batch, dist.P2POp(dist.isend, put(mine()), (rank() + 1) % size(), tag=-1)]
    raises(ValueError, "tag -1", dist.batch_isend_irecv, with_nonsense)
    x = put(mine())
    works = [dist.isend(x, (rank() + 1) % size()), dist.irecv(y := put(mine()), (rank() - 1) % size())]
    for work in works:
        work.wait()
    equal(get(y), mine(of=(rank() - 1) % size()), "a lone message")
    raises(ValueError, "tag -1", dist.batch_isend_irecv, with_nonsense)
    works = dist.batch_isend_irecv(batch)
    for work in works:
        work.wait()
    for x, values in zip(got, wanted):
        equal(get(x.contiguous()), values)


@case
def messages_of_a_batch_cannot_be_waited_for_within_it():
    if rank() > 1:
        return
    x = put(mine())
    dist.group.WORLD._start_coalescing(torch.device("cuda"))
    work = dist.isend(x, 1) if rank() == 0 else dist.irecv(x, 0)
    assert not work.is_completed()
    raises(RuntimeError, "was not ended", work.wait)
    raises(RuntimeError, "was not ended", work.wait, MINUTE)
    dist.group.WORLD._end_coalescing(torch.device("cuda")).wait()
    work.wait()
    equal(get(x), mine(of=0))


@case
def messages_that_do_not_fit_are_told():
    group = dist.new_group(backend="tutti")
    x = put(mine(8))
    dist.all_reduce(x, group=group)
    if rank() < 2:
        y = put(mine(8 + rank()))
        operation = dist.P2POp(dist.isend if rank() == 0 else dist.irecv, y, 1 - rank(), group=group)
        works = dist.batch_isend_irecv([operation])
        if rank() == 1:
            raises(tutti.torch.MismatchError, "8 elements" if ONE_DEVICE else "32 bytes", works[0].wait, MINUTE)
    dist.destroy_process_group(group)


@case
def lone_messages_travel_in_host_memory():
    if rank() == 0:
        dist.send(put(mine()), 1)
        works = [dist.isend(put(mine(40).view(4, 10).t()), 1, tag=5)]
    elif rank() == 1:
        x = put(torch.zeros(1000))
        acted.cuda.add_one(x)
        dist.recv(x, 0)
        equal(get(x), mine(of=0))
        y = put(torch.zeros(10, 4))
        works = [dist.irecv(y, 0, tag=5)]
    else:
        works = []
    for work in works:
        work.wait()
    if rank() == 1:
        equal(get(y), mine(40, of=0).view(4, 10).t().contiguous())


@case
def lone_messages_have_futures():
    if rank() > 1:
        return
    x = put(mine() if rank() == 0 else torch.zeros(1000))
    future = (dist.isend(x, 1) if rank() == 0 else dist.irecv(x, 0)).get_future()
    value = future.wait()
    assert value[0].data_ptr() == x.data_ptr()
    equal(get(x), mine(of=0))


@case
def errors_name_what_is_wrong():
    here, host = put(mine(10)), mine(10)
    other = acted.cuda.put(mine(10), (DEVICE + 1) % 4)
    raises(ValueError, ["cuda", "cpu", "one device"], dist.all_gather, [here] * size(), host)
    raises(ValueError, [f"cuda:{DEVICE}", f"cuda:{(DEVICE + 1) % 4}"], dist.all_gather_into_tensor,
           put(torch.zeros(10 * size())), other)
    error = raises(ValueError, f"device {(DEVICE + 1) % 4}", dist.all_reduce, other)
    assert f"device is {DEVICE}" in str(error), error
    x = put(mine(10))
    dist.all_reduce(x)
    equal(get(x), total(10))


def misunderstood(group):
    """An operation of which each rank means another size; None where this rank heard of that while it called it."""
    try:
        return dist.all_reduce(put(mine(8 + rank())), async_op=True, group=group)
    except tutti.torch.MismatchError:
        return None


@case
def what_fails_later_is_told_by_the_next_call():
    group = dist.new_group(backend="tutti")

    def works():
        x = put(mine(8))
        dist.all_reduce(x, group=group)
        equal(get(x), total(8))

    for _ in range(3):
        works()
        if work := misunderstood(group):
            error = raises(tutti.torch.MismatchError, "collective mismatch", work.wait, MINUTE)
            assert error.operation == "all_reduce"
            raises(tutti.torch.MismatchError, "", work.wait)  # known by now, and told
        works()
        if work := misunderstood(group):
            while not work.is_completed():
                pass
            raises(tutti.torch.MismatchError, "", dist.all_reduce, put(mine(8)), group=group)
    works()
    dist.destroy_process_group(group)


@case
def nothing_was_done_that_a_driver_forbids():
    acted.check_violations()


run()
