"""Flight recorders in the format of torch's own. Each case leaves one file a rank in a folder of its name, for the test
to give to torch's analyser."""
import os
import pickle

import torch
import torch.distributed as dist

import tutti.torch
from cases import case, equal, raises, rank, run, size

dist.init_process_group("tutti")
STORE = dist.distributed_c10d._get_default_store()


def prefix(name):
    folder = os.path.join(os.environ["TUTTI_TEST_FOLDER"], name)
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, "rank_")


def dumped(name, group=None):
    """This rank's file of the group's calls, as torch's analyser loads it."""
    tutti.torch.dump(prefix(name), group, format="torch")
    with open(f"{prefix(name)}{rank()}", "rb") as file:
        return pickle.load(file)


def meet(name):
    """Waits for all ranks without a collective of the groups that the cases dump."""
    STORE.set(f"{name}/{rank()}", "here")
    STORE.wait([f"{name}/{other}" for other in range(size())])


def aborted(group, call):
    """Ends a call that some rank does not make, or makes differently."""
    if rank() == 0:
        tutti.torch.abort(group)
    if call:
        raises(tutti.torch.AbortedError, "", call.wait)


@case
def agreement():
    group = dist.new_group(backend="tutti")
    x, all_ranks = torch.arange(6.0), range(size())
    dist.all_reduce(x, group=group)
    dist.all_reduce(torch.ones(6, dtype=torch.int64), dist.ReduceOp.MAX, group=group)
    dist.broadcast(x, 1, group=group)
    dist.reduce(x, 1, group=group)
    dist.barrier(group=group)
    dist.all_gather_into_tensor(torch.zeros(6 * size()), x, group=group)
    dist.all_gather([torch.zeros(6) for _ in all_ranks], x, group=group)
    dist.reduce_scatter_tensor(torch.zeros(6), torch.ones(6 * size()), group=group)
    dist.gather(x, [torch.zeros(6) for _ in all_ranks] if rank() == 1 else None, 1, group=group)
    dist.scatter(x, [torch.ones(6) for _ in all_ranks] if rank() == 1 else None, 1, group=group)
    dist.all_to_all_single(torch.zeros(2 * size()), torch.ones(2 * size()), group=group)
    # Ranks have blocks of different lengths.
    mine = torch.ones(rank() + 1)
    dist.all_gather([torch.zeros(other + 1) for other in all_ranks], mine, group=group)
    dist.reduce_scatter(torch.zeros(rank() + 1), [torch.ones(other + 1) for other in all_ranks], group=group)
    received = torch.zeros(sum(other + 1 for other in all_ranks))
    dist.all_to_all_single(received, mine.repeat(size()), [other + 1 for other in all_ranks],
                           [rank() + 1] * size(), group=group)
    equal(received, torch.ones(len(received)))
    # One call of torch, two of tutti.
    with dist._coalescing_manager(group):
        dist.all_reduce(torch.ones(4), group=group)
        dist.all_reduce(torch.ones(4, dtype=torch.int32), group=group)
    dist.barrier(group=group)
    trace = dumped("agreement", group)
    assert all(entry["state"] == "completed" and entry["retired"] for entry in trace["entries"]), trace
    times = [entry["time_created_ns"] for entry in trace["entries"]]
    assert times == sorted(times) and all(entry["duration_ms"] > 0 for entry in trace["entries"]), trace
    assert trace["pg_status"]["0"] == dict.fromkeys(trace["pg_status"]["0"], len(trace["entries"])), trace
    assert trace["comm_lib_version"].startswith("tutti "), trace


@case
def part():
    """A group without rank 0: files and members have their ranks in the job."""
    group = dist.new_group([1, 2], backend="tutti")
    if rank() > 0:
        dist.all_reduce(torch.ones(3), group=group)
        dist.gather(torch.ones(3), [torch.ones(3)] * 2 if rank() == 1 else None, 1, group=group)
        dist.barrier(group=group)
        dumped("part", group)


@case
def skipped():
    """Rank 2 does not make the last call."""
    group = dist.new_group(backend="tutti")
    for _ in range(3):
        dist.all_reduce(torch.ones(5), group=group)
    dist.barrier(group=group)
    call = dist.all_reduce(torch.ones(5), group=group, async_op=True) if rank() != 2 else None
    running = dumped("skipped", group)["entries"][-1]
    meet("skipped")
    aborted(group, call)
    failed = dumped("aborted", group)["entries"][-1]
    # Last, because a rank that fails earlier would let the others wait for it.
    assert (running["record_id"], running["state"], running["retired"]) == (
        (5, "started", False) if call else (4, "completed", True)), running
    assert (failed["state"], failed["retired"]) == ("started" if call else "completed", True), failed


@case
def another_length():
    """Rank 1 makes the last call with another length."""
    group = dist.new_group(backend="tutti")
    dist.all_reduce(torch.ones(5), group=group)
    others = [f"begun/{other}" for other in range(size()) if other != 1]
    # A rank that hears of a mismatch before it calls records no call. So rank 1 calls last.
    if rank() == 1:
        STORE.wait(others)
    work = dist.all_reduce(torch.ones(6 if rank() == 1 else 5), group=group, async_op=True)
    if rank() != 1:
        STORE.set(f"begun/{rank()}", "")
    raises(tutti.torch.MismatchError, "", work.wait)
    dumped("another_length", group)


@case
def what_the_analyser_cannot_read_is_refused():
    for end in ("1", "1.", " "):
        raises(ValueError, [f"'rank_{end}'", f"for example 'rank_{end}_'"], tutti.torch.dump, prefix("refused") + end,
               format="torch")
    raises(ValueError, ["'xml'", 'format="json"'], tutti.torch.dump, prefix("refused"), format="xml")
    assert not os.listdir(os.path.dirname(prefix("refused")))


run()
