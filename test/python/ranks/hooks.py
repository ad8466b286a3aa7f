"""torch's hooks before an abort and at the end of a call, the times of calls, and longer time-outs for one call."""
import datetime
import importlib.machinery
import importlib.util
import os
import pickle
import time

import torch
import torch.distributed as dist

import tutti.torch
from cases import VERSION, case, equal, raises, raises_late, rank, run, size

HAS_ABORT_HOOKS, HAS_COMPLETION_HOOKS = VERSION >= (2, 14), VERSION >= (2, 15)
SECOND = datetime.timedelta(seconds=1)
WAIT_S = 60
PATH = os.environ["TUTTI_TEST_LISTENER"]
LOADER = importlib.machinery.ExtensionFileLoader("listener", PATH)
listener = importlib.util.module_from_spec(importlib.util.spec_from_file_location("listener", PATH, loader=LOADER))
LOADER.exec_module(listener)

dist.init_process_group("tutti")
STORE = dist.distributed_c10d._get_default_store()


def ones(count=4):
    return torch.ones(count)


def recorded(group):
    """The group's calls in torch's own flight recorder, oldest first."""
    trace = pickle.loads(torch._C._distributed_c10d._dump_fr_trace(includeStackTraces=False, backend="tutti"))
    return [entry for entry in trace["entries"] if entry["process_group"][0] == group.group_name]


def held_back(group, name):
    """An all_reduce that rank 0 has begun and the other ranks begin only after let_go(name)."""
    if rank() == 0:
        return dist.all_reduce(ones(), group=group, async_op=True)
    STORE.wait([name])
    return dist.all_reduce(ones(), group=group, async_op=True)


def let_go(name):
    if rank() == 0:
        STORE.set(name, "")


@case
def torchs_recorder_has_written_its_file_when_the_program_learns_of_a_failure():
    """The first case, because torch writes the file once in a process."""
    if not HAS_COMPLETION_HOOKS:
        return
    group = dist.new_group(backend="tutti")
    right, left = (rank() + 1) % size(), (rank() - 1) % size()
    x = torch.zeros(4)
    unwatched = dist.irecv(x, left, group=group)
    dist.barrier()
    dist.send(ones(), right, group=group)
    # Messages arrive in their order: to wait for the second brings in the first, whose work nothing looks at.
    dist.send(ones(), right, group=group)
    dist.recv(torch.zeros(4), left, group=group)
    dist.barrier()
    if rank() == 0:
        STORE.wait([f"waits/{other}" for other in range(1, size())])
        tutti.torch.abort(group)
    else:
        work = dist.all_reduce(ones(), group=group, async_op=True)
        began = time.monotonic()
        STORE.set(f"waits/{rank()}", "")
        # torch calls the backend with Python's lock here, which the recorder needs as well.
        while not work.is_completed():
            assert time.monotonic() - began < WAIT_S
        assert not work.is_success()
        assert time.monotonic() - began < 30, "the recorder waited for Python's lock"
    with open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(rank()), "rb") as file:
        trace = pickle.load(file)
    states = [entry["state"] for entry in trace["entries"] if entry["process_group"][0] == group.group_name]
    # The first call was over, although the program had neither waited for it nor polled it.
    assert states == [*["completed"] * 4, "scheduled"][:4 if rank() == 0 else 5], states
    unwatched.wait()
    equal(x, ones())


@case
def abort_hooks_run_before_a_group_is_aborted():
    if not HAS_ABORT_HOOKS:
        return
    group = dist.new_group(backend="tutti")
    if HAS_COMPLETION_HOOKS:  # newer torch can ask as well
        assert group.supports_abort_hooks
    heard = []

    def hook():
        """Calls the group, for which no lock may be held."""
        heard.append(tutti.torch.last_error(group))
        if rank() == 0:
            dist.isend(ones(), 1, group=group)
        else:
            raises(tutti.torch.AbortedError, "aborted", dist.all_reduce, ones(), group=group)

    group.register_abort_hook(2, hook)
    group.register_abort_hook(1, lambda: heard.append("removed"))
    group.unregister_abort_hook(1)
    if rank() == 0:
        tutti.torch.abort(group)
        assert heard == [None], heard
    raises(tutti.torch.AbortedError, "aborted", dist.all_reduce, ones(), group=group)
    assert len(heard) == 1, heard
    assert rank() == 0 or isinstance(heard[0], tutti.torch.AbortedError), heard
    raises(tutti.torch.AbortedError, "aborted", dist.all_reduce, ones(), group=group)
    assert len(heard) == 1, heard


@case
def an_abort_hook_that_raises_harms_neither_the_others_nor_the_error():
    if not HAS_ABORT_HOOKS:
        return
    group, heard = dist.new_group(backend="tutti"), []

    def hook():
        heard.append("first")
        raise ValueError("no more")

    group.register_abort_hook(1, hook)
    group.register_abort_hook(2, lambda: heard.append("second"))
    if rank() == 0:
        tutti.torch.abort(group)
    raises(tutti.torch.AbortedError, "aborted", dist.all_reduce, ones(), group=group)
    assert heard == ["first", "second"], heard


def group_with_an_abort_hook():
    """A new group, and the list to which its hook adds this rank."""
    group, heard = dist.new_group(backend="tutti"), []
    group.register_abort_hook(1, lambda: heard.append(rank()))
    return group, heard


@case
def a_rank_that_leaves_its_group_calls_no_abort_hook():
    if not HAS_ABORT_HOOKS:
        return
    group, heard = group_with_an_abort_hook()
    if rank() == 0:
        work = dist.all_reduce(ones(), group=group, async_op=True)
        STORE.set("leaving", "")
        dist.destroy_process_group(group)
        raises(RuntimeError, "", work.wait)
    else:
        STORE.wait(["leaving"])
        dist.destroy_process_group(group)
    assert heard == [], heard
    dist.barrier()


@case
def a_mismatch_calls_no_abort_hook():
    if not HAS_ABORT_HOOKS:
        return
    group, heard = group_with_an_abort_hook()
    raises(tutti.torch.MismatchError, "", dist.all_reduce, ones(4 + rank()), group=group)
    dist.barrier(group)
    assert heard == [], heard


@case
def torchs_recorder_sees_the_end_and_the_time_of_each_call():
    if not HAS_COMPLETION_HOOKS:
        return
    group = dist.new_group(backend="tutti")
    group._enable_collectives_timing()
    dist.all_reduce(ones(), group=group)
    dist.all_reduce(ones(), group=group, async_op=True).wait()
    dist.all_reduce(torch.ones(6, 4)[:, ::2], group=group, async_op=True).get_future().wait()
    outputs = [torch.zeros(4) for _ in range(size())]
    dist.all_gather(outputs, ones(), group=group)
    with dist._coalescing_manager(group=group, async_ops=True) as manager:
        for _ in range(3):
            dist.all_reduce(ones(), group=group)
    manager.wait()
    dist.barrier(group)
    entries = recorded(group)
    assert len(entries) == 6, entries
    for entry in entries:
        assert entry["state"] == "completed" and entry["retired"] and entry["duration_ms"] > 0, entry


@case
def torchs_recorder_shows_a_call_that_a_rank_holds_back():
    if not HAS_COMPLETION_HOOKS:
        return
    group = dist.new_group(backend="tutti")
    dist.all_reduce(ones(), group=group)
    work = held_back(group, "shown")
    if rank() == 0:
        assert not work.is_completed()
        entries = recorded(group)
        assert [entry["state"] for entry in entries] == ["completed", "scheduled"], entries
        assert [entry["retired"] for entry in entries] == [True, False], entries
        assert "duration_ms" not in entries[0], entries  # nothing asked for it
    let_go("shown")
    work.wait()
    assert [entry["state"] for entry in recorded(group)] == ["completed", "completed"]


@case
def completion_hooks_hear_of_each_call_once():
    if not HAS_COMPLETION_HOOKS:
        return
    group = dist.new_group(backend="tutti")
    backend = tutti.torch.backend_of(group)
    dist.all_reduce(ones(), group=group)  # before there is a hook
    for hook in (1, 2):
        listener.add(backend, hook)
    works = [dist.all_reduce(ones(), group=group, async_op=True) for _ in range(3)]
    for work in reversed(works):
        work.wait()
    assert all(work.is_completed() for work in works)
    keys = [listener.key(work) for work in works]
    assert len(set(keys)) == 3
    for hook in (1, 2):
        assert sorted(listener.reports(hook)) == sorted((key, None) for key in keys), listener.reports(hook)
    listener.remove(backend, 2)
    group._enable_collectives_timing()
    work = dist.all_reduce(ones(), group=group, async_op=True)
    work.wait()
    key, took = listener.reports(1)[-1]
    assert key == listener.key(work) and abs(took - work._get_duration()) < 0.001, (key, took)
    assert len(listener.reports(1)) == 4 and len(listener.reports(2)) == 3


@case
def completion_hooks_do_not_hear_of_a_failed_call():
    if not HAS_COMPLETION_HOOKS:
        return
    group = dist.new_group(backend="tutti")
    listener.add(tutti.torch.backend_of(group), 3)
    # A rank that begins late knows of the mismatch already: then all_reduce raises the error, not wait.
    raises(tutti.torch.MismatchError, "", lambda: dist.all_reduce(ones(4 + rank()), group=group, async_op=True).wait())
    good = dist.all_reduce(ones(), group=group, async_op=True)
    good.wait()
    assert [key for key, _ in listener.reports(3)] == [listener.key(good)], listener.reports(3)


@case
def coalesced_calls_have_one_key_that_comes_last():
    if not HAS_COMPLETION_HOOKS:
        return
    group, cpu = dist.new_group(backend="tutti"), torch.device("cpu")
    group._enable_collectives_timing()
    listener.add(tutti.torch.backend_of(group), 4)
    right, left = (rank() + 1) % size(), (rank() - 1) % size()
    group._start_coalescing(cpu)
    parts = [group.send([ones()], right, 0), group.recv([torch.zeros(4)], left, 0), group.allreduce([ones()])]
    work = group._end_coalescing(cpu)
    for part in parts[:2]:
        part.wait()
    work.wait()
    heard = listener.reports(4)
    assert sorted(key for key, _ in heard) == sorted(map(listener.key, [*parts, work])), heard
    assert heard[-1][0] == listener.key(work), heard
    took = [part._get_duration() for part in parts]
    assert work._get_duration() >= max(took), (work._get_duration(), took)
    assert abs(heard[-1][1] - work._get_duration()) < 0.001, heard


@case
def calls_are_timed_once_a_program_asks_for_it():
    group = dist.new_group(backend="tutti")
    work = dist.all_reduce(ones(), group=group, async_op=True)
    work.wait()
    raises(RuntimeError, ["did not time its calls", "What to do: call _enable_collectives_timing()"], work._get_duration)
    group._enable_collectives_timing()
    work = held_back(group, "timed")
    if rank() == 0:
        raises(RuntimeError, ["is not over", "What to do: call wait()"], work._get_duration)
        time.sleep(0.25)
    let_go("timed")
    work.wait()
    least = 250 if rank() == 0 else 0
    assert least <= work._get_duration() < 1000 * WAIT_S, work._get_duration()


@case
def a_longer_time_out_is_for_one_call():
    """The other ranks wait for rank 1 longer than the group's time-out."""
    if not HAS_ABORT_HOOKS:  # the same versions have it
        return
    group = dist.new_group(backend="tutti", timeout=4 * SECOND)
    dist.distributed_c10d._add_ephemeral_timeout_for_all_pgs(30 * SECOND)
    if rank() == 1:
        time.sleep(6)
    x = ones()
    dist.all_reduce(x, group=group)
    equal(x, ones() * size())
    if rank() == 1:
        STORE.wait([f"late/{other}" for other in range(size()) if other != 1])
        raises_late(dist.DistBackendError, "", dist.all_reduce, ones(), group=group)
    else:
        error = raises(tutti.torch.TimedOutError, ["timed out", "rank 1"], dist.all_reduce, ones(), group=group)
        STORE.set(f"late/{rank()}", "")
        assert error.rank == 1, repr(error)


@case
def longer_time_outs_add_up_until_their_first_calls_are_over():
    if not HAS_COMPLETION_HOOKS:  # the listener shows the time-outs
        return
    group = dist.new_group(backend="tutti", timeout=100 * SECOND)
    for extension in (5, 7):
        group._add_ephemeral_timeout(extension * SECOND)
    works = [held_back(group, "extended"), dist.all_reduce(ones(), group=group, async_op=True)]
    group._add_ephemeral_timeout(20 * SECOND)
    works.append(dist.all_reduce(ones(), group=group, async_op=True))
    limits = [listener.timeout_ms(work) for work in works]
    if rank() == 0:  # with the other ranks, the first call may be over before the third begins
        assert limits == [112_000, 112_000, 132_000], limits
    let_go("extended")
    for work in works:
        work.wait()
    work = dist.all_reduce(ones(), group=group, async_op=True)
    assert listener.timeout_ms(work) == 100_000, listener.timeout_ms(work)
    work.wait()


run()
