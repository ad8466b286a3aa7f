"""Estimates of the time of collectives, which one rank makes alone."""
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager

import tutti.torch
from cases import VERSION, case, equal, raises, rank, run, size

dist.init_process_group("tutti")
HAS_IT = VERSION >= (2, 8)


def estimate(calls):
    with dist.distributed_c10d._time_estimator() as told:
        calls()
    return told.estimated_time


def everyone_agrees():
    """A real collective, which fails if a rank has taken a number that the others have not."""
    x = torch.full((4,), float(rank()))
    dist.all_reduce(x)
    equal(x, torch.full((4,), size() * (size() - 1) / 2))


@case
def one_rank_estimates_alone_and_touches_no_tensor():
    if HAS_IT and rank() == 0:
        whole = torch.arange(40.0)
        plain, strided = whole.clone(), torch.arange(24.0).reshape(4, 6)[:, ::2]
        kept = strided.clone()
        lists = [torch.full((3,), 9.0) for _ in range(size())]

        def calls():
            dist.all_reduce(plain)
            dist.all_reduce(strided)
            dist.broadcast(strided, 0)
            dist.all_gather(lists, torch.ones(3))
            dist.reduce_scatter(strided[0], [torch.ones(3) for _ in range(size())])
            dist.all_to_all(lists, [torch.ones(3) for _ in range(size())])
            dist.gather(torch.ones(3), lists, 0)
            dist.barrier()

        assert estimate(calls) > 0
        equal(plain, whole)
        equal(strided, kept)
        for one in lists:
            equal(one, torch.full((3,), 9.0))
    everyone_agrees()


@case
def estimates_add_up_and_grow():
    if HAS_IT and rank() == 0:
        small, large = torch.zeros(1000), torch.zeros(1 << 20)
        first, second = estimate(lambda: dist.all_reduce(small)), estimate(lambda: dist.all_reduce(large))
        assert 0 < 10 * first < second, (first, second)
        both = estimate(lambda: (dist.all_reduce(small), dist.all_reduce(large)))
        assert abs(both - first - second) < 1e-3 * both, (both, first, second)
        assert estimate(lambda: None) == 0
    everyone_agrees()


@case
def works_of_planned_calls_are_over_at_once():
    if HAS_IT and rank() == 0:
        x = torch.ones(1000)

        def calls():
            work = dist.all_reduce(x, async_op=True)
            assert work.is_completed() and work.wait()
            assert dist.all_reduce(x, async_op=True).get_future().wait()[0] is not None
            dist.all_reduce(x, async_op=True)  # dropped
            with _coalescing_manager():
                for one in x.split(100):
                    dist.all_reduce(one)

        assert estimate(calls) > 0
        equal(x, torch.ones(1000))
    everyone_agrees()


@case
def planned_calls_have_no_number():
    backend = tutti.torch.backend_of()
    if HAS_IT:
        before = backend._get_sequence_number_for_group()
        if rank() == 0:
            estimate(lambda: dist.all_reduce(torch.ones(4)))
        assert backend._get_sequence_number_for_group() == before
    everyone_agrees()


@case
def planned_sums_make_no_operator():
    if HAS_IT and rank() == 0:
        estimate(lambda: dist.all_reduce(torch.ones(4), dist._make_nccl_premul_sum(2.0)))
    x = torch.ones(4)
    dist.all_reduce(x, dist._make_nccl_premul_sum(2.0))
    equal(x, torch.full((4,), 2.0 * size()))


@case
def refused_calls_end_no_estimate_in_silence():
    if HAS_IT and rank() == 0:
        x = torch.ones(4)
        for words, call in (("messages", lambda: dist.send(x, 1)), ("messages", lambda: dist.recv(x, 1)),
                            ("sparse", lambda: dist.all_reduce(x.to_sparse()))):
            raises(RuntimeError, ("cannot estimate", words, "What to do"), estimate, call)
            # The block did not end the estimate, so that the thread must not make real calls unawares.
            raises(RuntimeError, ("an earlier call in it failed", "_end_time_estimate"), dist.all_reduce, x)
            tutti.torch.backend_of()._end_time_estimate()
        raises(ValueError, "has not begun", tutti.torch.backend_of()._end_time_estimate)
    everyone_agrees()


@case
def an_estimate_replaces_one_whose_block_raised():
    if HAS_IT and rank() == 0:
        raises(ZeroDivisionError, "", estimate, lambda: 1 / 0)
        x = torch.ones(4)
        first = estimate(lambda: dist.all_reduce(x))
        assert first == estimate(lambda: dist.all_reduce(x))
    everyone_agrees()


@case
def hooks_do_not_hear_of_planned_calls():
    group = dist.new_group(list(range(size())), backend="tutti")
    heard = []
    if HAS_IT and rank() == 0:
        group._register_on_completion_hook(lambda info: heard.append(info.seq))
        with dist.distributed_c10d._time_estimator(group):
            dist.all_reduce(torch.ones(4), group=group)
    dist.all_reduce(torch.ones(4), group=group)
    if HAS_IT and rank() == 0:
        group._wait_for_pending_works()
        assert len(heard) == 1, heard


run()
