"""Works, futures, messages, barriers and groups: what programs rely on besides the results."""
import datetime
import os
import tempfile
import threading
import time
import weakref

import torch
import torch.distributed as dist

import tutti.torch
from cases import OLDEST, case, equal, monitored_barrier, raises, rank, run, size

dist.init_process_group("tutti")
SECOND = datetime.timedelta(seconds=1)
LARGE = 3_000_000  # elements: a message that waits for its receive


def ones(count=4):
    return torch.full((count,), 1.0)


@case
def a_work_is_completed_after_wait():
    x = ones()
    work = dist.all_reduce(x, async_op=True)
    assert work.wait()
    assert work.is_completed() and work.is_success()
    equal(x, ones() * size())


@case
def polling_without_wait_makes_progress():
    x = ones(LARGE)
    work = dist.all_reduce(x, async_op=True)
    end = time.monotonic() + 60
    while not work.is_completed():
        assert time.monotonic() < end
    equal(x, ones(LARGE) * size())


@case
def a_work_that_nobody_keeps_still_happens():
    x, strided = ones(), torch.ones(6, 4)[:, ::2]
    dist.all_reduce(x, async_op=True)
    dist.all_reduce(strided, async_op=True)
    end = time.monotonic() + 60
    while not (torch.equal(x, ones() * size()) and torch.equal(strided, torch.full((6, 2), float(size())))):
        assert time.monotonic() < end
        time.sleep(0.01)
    dist.barrier()


@case
def a_future_holds_a_list_of_tensors():
    x = ones()
    future = dist.all_reduce(x, async_op=True).get_future()
    value = future.wait()
    assert isinstance(value, list) and len(value) == 1
    equal(value[0], ones() * size())
    outputs = [torch.zeros(4) for _ in range(size())]
    value = dist.all_gather(outputs, ones(), async_op=True).get_future().wait()
    assert len(value) == size()


@case
def a_future_goes_on_with_then():
    x = ones()
    work = dist.all_reduce(x, async_op=True)
    chained = work.get_future().then(lambda done: done.value()[0] / size())
    equal(chained.wait(), ones())
    # A callback may call the backend again.
    again = dist.all_reduce(ones(), async_op=True).get_future().then(
        lambda done: dist.all_reduce(done.value()[0], async_op=True).get_future().wait()[0])
    equal(again.wait(), ones() * size() * size())


@case
def a_wait_may_be_too_short():
    if rank() == 0:
        x = torch.zeros(4)
        work = dist.irecv(x, 1, tag=5)
        raises(RuntimeError, "timed out", work.wait, SECOND / 10)
        assert not work.is_completed()
        dist.send(ones(), 1, tag=6)
        work.wait()
        equal(x, ones())
    elif rank() == 1:
        dist.recv(torch.zeros(4), 0, tag=6)
        dist.send(ones(), 0, tag=5)


@case
def tensors_live_as_long_as_the_operation():
    x = ones()
    alive = weakref.ref(x.untyped_storage())
    work = dist.all_reduce(x, async_op=True)
    del x
    work.wait()
    del work
    dist.barrier()
    assert alive() is None


@case
def messages_have_tags_and_sources():
    if rank() == 0:
        for tag in (3, 1, 2):
            dist.send(ones() * tag, 1, tag=tag)
    elif rank() == 1:
        for tag in (1, 2, 3):
            x = torch.zeros(4)
            assert dist.recv(x, 0, tag=tag) == 0
            equal(x, ones() * tag)
    dist.barrier()
    if rank() == 0:
        seen = []
        for _ in range(size() - 1):
            x = torch.zeros(4)
            work = dist.irecv(x, tag=9)
            work.wait()
            source = work._source_rank()
            equal(x, ones() * source)
            seen.append(source)
        assert sorted(seen) == list(range(1, size())), seen
    else:
        dist.send(ones() * rank(), 0, tag=9)
    dist.barrier()
    if rank() == 0:
        x = torch.zeros(4)
        assert dist.recv(x) in range(1, size())
        for _ in range(size() - 2):
            dist.recv(x)
    else:
        dist.send(ones(), 0)


@case
def a_message_of_another_size_is_refused():
    if rank() == 0:
        dist.send(ones(3), 1)
    elif rank() == 1:
        error = raises(dist.DistBackendError, ["rank 0 sent 3 elements", "has 4"], dist.recv, torch.zeros(4), 0)
        assert error.rank == 0
    dist.barrier()


@case
def a_message_longer_than_its_tensor_is_refused():
    if rank() == 0:
        dist.send(ones(5), 1)
        dist.send(ones(), 1)
    elif rank() == 1:
        x = torch.zeros(4)
        error = raises(tutti.torch.MismatchError, "rank 0", dist.recv, x, 0)
        assert error.rank == 0, repr(error)
        dist.recv(x, 0)
        equal(x, ones())
    dist.barrier()


@case
def batches_of_sends_and_receives():
    right, left = (rank() + 1) % size(), (rank() - 1) % size()
    sent, got = [ones(n) * rank() for n in (4, LARGE)], [torch.zeros(4), torch.zeros(LARGE)]
    batch = [dist.P2POp(dist.isend, x, right) for x in sent] + [dist.P2POp(dist.irecv, x, left) for x in got]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    for x in got:
        equal(x, torch.full_like(x, float(left)))


@case
def a_coalescing_manager_gives_one_work():
    device = torch.device("cpu")
    right, left = (rank() + 1) % size(), (rank() - 1) % size()
    x, got = ones() * rank(), torch.zeros(4)
    with dist._coalescing_manager(device=device, async_ops=True) as manager:
        dist.isend(x, right)
        dist.irecv(got, left)
    manager.wait()
    equal(got, ones() * left)


@case
def two_threads_may_have_a_batch_each():
    right, left = (rank() + 1) % size(), (rank() - 1) % size()
    cpu, both, got = torch.device("cpu"), threading.Barrier(2), [torch.zeros(4), torch.zeros(4)]

    def exchange(tag):
        dist.group.WORLD._start_coalescing(cpu)
        both.wait(60)
        dist.isend(ones() * (10 * tag + rank()), right, tag=tag)
        dist.irecv(got[tag], left, tag=tag)
        both.wait(60)
        dist.group.WORLD._end_coalescing(cpu).wait()

    other = threading.Thread(target=exchange, args=[1])
    other.start()
    exchange(0)
    other.join(60)
    for tag in (0, 1):
        equal(got[tag], ones() * (10 * tag + left))


@case
def large_and_small_operations_overlap():
    small, large = [ones() for _ in range(20)], [ones(LARGE) for _ in range(2)]
    works = [dist.all_reduce(x, async_op=True) for pair in zip(small[:2], large) for x in pair]
    works += [dist.all_reduce(x, async_op=True) for x in small[2:]]
    for work in reversed(works):
        work.wait()
    for x in small + large:
        equal(x, torch.full_like(x, float(size())))


@case
def one_rank_may_wait_where_another_does_not():
    x = ones()
    if rank() == 0:
        dist.all_reduce(x)
    else:
        dist.all_reduce(x, async_op=True).wait()
    equal(x, ones() * size())
    y = ones(LARGE)
    if rank() == 0:
        dist.all_reduce(y, async_op=True).wait()
    else:
        dist.all_reduce(y)
    equal(y, ones(LARGE) * size())


@case
def a_message_does_not_wait_for_what_another_thread_waits_for():
    group = dist.new_group(backend="tutti", timeout=30 * SECOND)
    x = ones() * rank()
    if rank() == 0:
        # It is sent while this rank stands at the barrier, which the others come to when they have it.
        later = threading.Timer(0.3, lambda: [dist.send(x, r, group=group) for r in range(1, size())])
        later.start()
        dist.barrier(group)
        later.join()
    else:
        dist.recv(x, 0, group=group)
        equal(x, torch.zeros(4))
        dist.barrier(group)


@case
def a_groups_time_out_may_be_a_year_or_a_moment():
    x = ones()
    dist.all_reduce(x, group=dist.new_group(backend="tutti", timeout=datetime.timedelta(days=365)))
    equal(x, ones() * size())
    # Less than half a millisecond arrives as 0, which is not for ever; and nobody comes.
    raises(tutti.torch.TimedOutError, "", tutti.torch.build().create, dist.HashStore(), 0, 2, 0, "alone", {})


@case
def who_joins_waits_for_rank_0_as_long_as_the_groups_time_out():
    """And not as long as the store's, which is minutes."""
    error = raises(tutti.torch.TimedOutError, ["timed out", "rank 0", "500 ms"], tutti.torch.build().create,
                   dist.HashStore(), 1, 2, 500, "alone", {})
    assert error.rank == 0, repr(error)


@case
def groups_of_some_ranks():
    pairs = [dist.new_group([r, r + 1]) for r in range(0, size(), 2)]
    mine = pairs[rank() // 2]
    x = ones() * rank()
    dist.all_reduce(x, group=mine)
    first = rank() // 2 * 2
    equal(x, ones() * (2 * first + 1))
    dist.broadcast(x, first + 1, group=mine)
    dist.destroy_process_group(mine)
    if not OLDEST:  # that closes no group before its last reference goes
        raises(Exception, "", dist.all_reduce, ones(), group=mine)


@case
def groups_of_one_rank_do_not_confuse_later_groups():
    alone = [dist.new_group([r], backend="tutti") for r in range(size())]
    dist.all_reduce(ones(), group=alone[rank()])
    x = ones()
    dist.all_reduce(x, group=dist.new_group(backend="tutti"))
    equal(x, ones() * size())


@case
def a_group_can_be_split():
    if not hasattr(dist, "split_group"):
        return
    backend = tutti.torch.backend_of()
    assert backend.supports_splitting
    part = dist.group.WORLD.split_group([r for r in range(size()) if r % 2 == rank() % 2],
                                        timeout=60 * SECOND, group_name=f"half{rank() % 2}")
    x = ones() * rank()
    part.allreduce([x]).wait()
    equal(x, ones() * sum(r for r in range(size()) if r % 2 == rank() % 2))


@case
def a_group_is_split_also_for_ranks_that_are_in_no_part():
    if not hasattr(dist, "split_group") or size() < 3:
        return
    for _ in range(2):
        part = dist.split_group(split_ranks=[list(range(size() - 1))])
        assert (part is None or part == dist.GroupMember.NON_GROUP_MEMBER) == (rank() == size() - 1), part
        x = ones()
        if rank() < size() - 1:
            part.allreduce([x]).wait()
            equal(x, ones() * (size() - 1))
        dist.barrier()


@case
def a_part_of_a_group_has_a_time_out_of_its_own():
    if not hasattr(dist.ProcessGroup, "set_timeout") or size() < 4:
        return
    whole = dist.new_group(backend="tutti")
    backend = tutti.torch.backend_of(whole)
    for before in (None, 4 * SECOND):  # the parent's own, made shorter
        if before:
            whole.set_timeout(before)
        limit = backend.options._timeout
        part = whole.split_group([r for r in range(size()) if r % 2 == rank() % 2], timeout=4 * SECOND,
                                 group_name=f"part {rank() % 2} {before}")
        assert backend.options._timeout == limit, "the parent's time-out changed"
        if rank() == 0:
            raises(RuntimeError, [], part.allreduce([ones()]).wait)
        dist.barrier()


@case
def barriers():
    dist.barrier()
    dist.barrier(async_op=True).wait()
    monitored_barrier()
    monitored_barrier(timeout=30 * SECOND, wait_all_ranks=True)


@case
def a_monitored_barrier_names_who_is_missing():
    late = list(range(1, size(), 2))
    store = dist.distributed_c10d._get_default_store()
    dist.barrier()
    if rank() in late:
        store.wait(["barrier/ended"])  # rank 0's, without this rank
    else:
        names = ("Ranks " if len(late) > 1 else "Rank ") + ", ".join(map(str, late))
        error = raises(RuntimeError, [names, "failed to pass monitoredBarrier"], monitored_barrier,
                       timeout=4 * SECOND, wait_all_ranks=True)
        assert error.rank == late[0]
        if rank() == 0:
            store.set("barrier/ended", "")
    if rank() in late:
        raises(RuntimeError, ["failed to pass monitoredBarrier"], monitored_barrier, timeout=1 * SECOND,
               wait_all_ranks=True)
    dist.barrier()
    monitored_barrier(timeout=60 * SECOND)


@case
def sequence_numbers_count_operations():
    # Torch 2.4 asks none but its own.
    group = tutti.torch.backend_of() if OLDEST else dist.group.WORLD
    before = group._get_sequence_number_for_group()
    dist.all_reduce(ones())
    assert group._get_sequence_number_for_group() == before + 1


@case
def completion_hooks_hear_of_every_operation():
    group, heard = dist.new_group(backend="tutti"), []
    group._register_on_completion_hook(lambda info: heard.append(info.seq))
    dist.all_reduce(ones(), group=group)
    dist.all_reduce(ones(), group=group, async_op=True)
    group._wait_for_pending_works()
    assert len(set(heard)) == 2, heard


@case
def a_completion_hook_that_raises_harms_no_operation():
    group, heard = dist.new_group(backend="tutti"), []

    def hook(info):
        heard.append(info.seq)
        raise ValueError("no more")

    group._register_on_completion_hook(hook)
    for _ in range(3):
        dist.all_reduce(ones(), group=group, async_op=True)
        x = ones()
        dist.all_reduce(x, group=group)
        equal(x, ones() * size())
    group._wait_for_pending_works()
    assert len(set(heard)) == 6, heard


@case
def a_completion_hook_may_wait_for_what_is_pending():
    """If a hook waited for itself or for another waiting hook, the wait would end only after hook_grace, a minute."""
    group, took = dist.new_group(backend="tutti"), []

    def hook(info):
        began = time.monotonic()
        group._wait_for_pending_works()
        took.append(time.monotonic() - began)

    group._register_on_completion_hook(hook)
    dist.all_reduce(ones(), group=group)
    works = [dist.all_reduce(ones(), group=group, async_op=True) for _ in range(3)]
    for work in works:
        work.wait()
    group._wait_for_pending_works()
    assert len(took) == 4 and max(took) < 50, took


@case
def profilers_see_operations_with_shapes():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        dist.all_reduce(torch.ones(3, 5))
        dist.all_gather([torch.zeros(7) for _ in range(size())], torch.zeros(7))
        dist.all_reduce(torch.ones(2, 2), async_op=True).wait()
    shapes = {}
    for event in profile.events():
        if event.name.startswith("tutti:"):
            shapes.setdefault(event.name, []).append(event.input_shapes)
    assert shapes.get("tutti:all_reduce") == [[[3, 5]], [[2, 2]]], shapes
    assert shapes.get("tutti:all_gather") == [[[7]]], shapes


@case
def tensors_of_other_devices_are_refused():
    """In lists, where torch itself does not look, and where a program calls the backend itself."""
    elsewhere, here = torch.ones(4, device="meta"), ones()
    words = ["meta", "What to do: pass tensors "]
    backend = tutti.torch.backend_of()
    for several in ([here] * (size() - 1) + [elsewhere], [elsewhere] * size()):
        raises(ValueError, words, dist.all_gather, several, here)
        raises(ValueError, words, dist.reduce_scatter, here, several)
        raises(ValueError, words, backend.alltoall, several, [here] * size())
        raises(ValueError, words, backend.alltoall, [here] * size(), several)
    if rank() == 0:
        raises(ValueError, words, dist.scatter, here, [elsewhere] * size(), 0)
    for operation in (backend.allreduce, backend.broadcast, backend.reduce):
        raises(ValueError, words, operation, [elsewhere])
    raises(ValueError, words, backend.allgather, [[here] * size()], [elsewhere])
    raises(ValueError, words, backend.send, [elsewhere], (rank() + 1) % size(), 0)
    dist.barrier()
    dist.all_reduce(here)
    equal(here, ones() * size())


@case
def bad_calls_are_refused_before_anything_is_sent():
    raises(ValueError, "expanded", dist.all_reduce, torch.ones(1).expand(4))
    raises(TypeError, ["BAND", "Float"], dist.all_reduce, ones(), dist.ReduceOp.BAND)
    raises(TypeError, ["SUM", "Float8_e4m3fnuz"], dist.all_reduce,
           torch.zeros(4, dtype=torch.float8_e4m3fnuz))
    raises((TypeError, ValueError), "MAX", dist.all_reduce, torch.zeros(4, dtype=torch.complex64), dist.ReduceOp.MAX)
    raises(ValueError, "a block for each", dist.group.WORLD._allgather_base, torch.zeros(6 * size() + 1),
           torch.zeros(6))
    raises(ValueError, "add up to", dist.all_to_all_single, torch.zeros(size()), torch.zeros(size()),
           [1] * size(), [2] * size())
    raises(ValueError, "one for each rank", dist.group.WORLD.allgather, [[torch.zeros(4)] * (size() + 1)],
           [torch.zeros(4)])
    raises(ValueError, "pass a tag from 0 to", dist.send, ones(), (rank() + 1) % size(), tag=2**30)
    dist.barrier()


@case
def calls_that_differ_name_both_and_the_group_works_on():
    x = ones(8 if rank() == 0 else 9)
    error = raises(dist.DistBackendError, ["8", "9"], dist.all_reduce, x)
    assert isinstance(error, tutti.torch.MismatchError) and error.operation == "all_reduce", repr(error)
    assert str(error).count("collective mismatch") == 1, error
    again = tutti.torch.last_error()
    assert type(again) is type(error) and str(again) == str(error) and again.rank == error.rank, repr(again)
    raises(tutti.torch.MismatchError, ["sum", "max"], dist.all_reduce, ones(),
           dist.ReduceOp.SUM if rank() == 0 else dist.ReduceOp.MAX)
    x = ones()
    dist.all_reduce(x)
    equal(x, ones() * size())


@case
def forked_children_leave_the_group_alone():
    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            return torch.tensor(float(index))

    loader = torch.utils.data.DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context="fork")
    total = sum(batch.sum() for batch in loader)
    assert total == 28
    x = ones()
    dist.all_reduce(x)
    equal(x, ones() * size())
    child = os.fork()
    if child == 0:
        os._exit(0 if dist.get_rank() == rank() else 1)
    assert os.waitpid(child, 0)[1] == 0
    dist.barrier()


@case
def the_flight_recorder_can_be_dumped():
    dist.all_reduce(torch.ones(123))
    with tempfile.NamedTemporaryFile() as file:
        tutti.torch.dump(file.name)
        text = open(file.name, encoding="utf-8").read()
    assert "123" in text and "allreduce" in text, text[-500:]


@case
def another_group_with_settings_of_its_own():
    settings = tutti.torch.Options(transport=["tcp"], insecure=False, algo=None)
    group = dist.new_group(backend="tutti", pg_options=settings)
    x = ones()
    dist.all_reduce(x, group=group)
    equal(x, ones() * size())
    raises(Exception, "no_such_setting", dist.new_group, backend="tutti",
           pg_options=tutti.torch.Options(no_such_setting=1))


@case
def destroy_with_work_in_flight():
    group = dist.new_group(backend="tutti")
    if rank() == 0:
        work = dist.irecv(torch.zeros(4), 1, group=group)
        began = time.monotonic()
        dist.destroy_process_group(group)
        del group
        raises(RuntimeError, "", work.wait)
        assert time.monotonic() - began < 30
    else:
        dist.destroy_process_group(group)
    dist.barrier()


@case
def closing_a_group_ends_what_another_thread_waits_for():
    if OLDEST:  # that has no such method
        return
    group = dist.new_group(backend="tutti")
    if rank() == 0:
        told = []

        def wait():
            told.append(raises(RuntimeError, "", dist.all_reduce, ones(), group=group))

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.3)
        tutti.torch.backend_of(group).shutdown()
        thread.join(30)
        assert told, "the thread still waits"
    dist.barrier()
    dist.destroy_process_group(group)


run()
