"""The package without torch: numpy arrays, buffers, requests, errors. Run by tutti-run."""
import array
import asyncio
import os
import signal
import sys
import threading
import time
import weakref

import numpy as np

import tutti
from expect import raises

comm = tutti.init()
rank, size = comm.rank, comm.size


def same(got, wanted, what):
    assert got.dtype == wanted.dtype and np.array_equal(got, wanted), f"{what}: got {got!r}, wanted {wanted!r}"


def of(r, dtype=np.float32, count=6):
    return (np.arange(count) % 3 + r + 1).astype(dtype)


def collectives():
    for dtype in (np.float32, np.float64, np.float16, np.int8, np.uint16, np.int64, np.uint64):
        for op, function in (("sum", np.sum), ("max", np.max), ("min", np.min), ("prod", np.prod)):
            wanted = function(np.stack([of(r, dtype).astype(np.int64) for r in range(size)]), axis=0).astype(dtype)
            same(comm.allreduce(of(rank, dtype), op), wanted, f"{op} {dtype}")
    x = of(rank)
    assert comm.allreduce(x, out=x) is x, "in place"
    same(x, sum(of(r) for r in range(size)), "in place")
    same(comm.allreduce(of(rank, np.complex64) * 1j), sum(of(r, np.complex64) * 1j for r in range(size)), "complex")
    same(comm.allreduce(np.array([rank == 0, False])), np.array([True, False]), "bool")
    same(comm.allreduce(rank), np.array(size * (size - 1) // 2), "a number")
    same(comm.allgather(of(rank)), np.stack([of(r) for r in range(size)]), "allgather")
    blocks = np.stack([of(rank) * (r + 1) for r in range(size)])
    same(comm.reduce_scatter(blocks), sum(of(r) for r in range(size)) * np.float32(rank + 1), "reduce_scatter")
    same(comm.alltoall(blocks), np.stack([of(r) * (rank + 1) for r in range(size)]), "alltoall")
    same(comm.scan(of(rank)), sum(of(r) for r in range(rank + 1)), "scan")
    same(comm.exscan(of(rank)), sum((of(r) for r in range(rank)), np.zeros(6, np.float32)), "exscan")
    for root in range(size):
        same(comm.broadcast(of(rank), root), of(root), "broadcast")
        reduced, gathered = comm.reduce(of(rank), root=root), comm.gather(of(rank), root)
        if rank == root:
            same(reduced, sum(of(r) for r in range(size)), "reduce")
            same(gathered, np.stack([of(r) for r in range(size)]), "gather")
        else:
            assert reduced is None and gathered is None
        same(comm.scatter(blocks if rank == root else None, np.empty(6, np.float32), root),
             of(root) * np.float32(rank + 1), "scatter")
    if rank == 0:
        for scatter in (comm.scatter, comm.iscatter):
            try:
                scatter(blocks, np.empty(7, np.float32))
                raise AssertionError("blocks of another shape were scattered")
            except ValueError as error:
                assert "blocks of shape (6,), and out has shape (7,)" in str(error), error
    comm.barrier()
    same(comm.allreduce(np.zeros((0, 3))), np.zeros((0, 3)), "no elements")


def plans():
    """Every collective, run twice with other values, gives what the call itself gives."""
    whole, counts = np.zeros((size, 3), np.float32), [1] * size
    arguments = {"reduce": (whole, "max", 1), "gather": (whole, 1), "broadcast": (whole, 1), "barrier": (),
                 "scatter": (whole, np.zeros(3, np.float32), 1), "allgatherv": (whole[:1], counts),
                 "reduce_scatterv": (whole, counts), "gatherv": (whole[:1], counts, 1),
                 "scatterv": (whole, counts, np.zeros((1, 3), np.float32), 1), "alltoallv": (whole, counts, counts)}
    for name in tutti.communicator.COLLECTIVES + tutti.communicator.WITH_COUNTS:
        given = arguments.get(name, (whole,))
        plan = comm.plan(name, *given)
        for step in range(2):
            whole[:] = (np.arange(whole.size) % 5).reshape(whole.shape) + 10 * rank + step
            before = whole.copy()
            result = plan.start().wait() if step else plan.run()
            planned = None if result is None else result.copy()
            whole[:] = before
            wanted = getattr(comm, name)(*given)
            assert (planned is None) == (wanted is None), name
            assert planned is None or np.array_equal(planned, wanted), (name, planned, wanted)
    x = np.zeros(1000)
    plan, gone = comm.plan("allreduce", x, out=x, timeout=60), weakref.ref(x)
    del x
    for step in range(100):
        gone()[:] = step
        assert (plan.run() == size * step).all()
    request = plan.start()
    del plan  # it is over before its arrays are let go
    assert request.wait()[0] == size * size * 99
    del request
    assert gone() is None
    for kind, words, wrong in ((ValueError, "plan: unknown collective 'nonsense'", ("nonsense",)),
                               (ValueError, "median", ("allreduce", np.zeros(1), "median")),
                               (TypeError, "scan: x is a numpy array with strides", ("scan", whole[:, ::2]))):
        try:
            comm.plan(*wrong)
            raise AssertionError(f"nothing was raised, wanted {words}")
        except kind as error:
            assert words in str(error), error
    part = comm.dup()
    plan = part.plan("barrier")
    if rank == 0:
        first = plan.start()
        try:
            plan.start()
            raise AssertionError("two runs of a plan at once")
        except tutti.InvalidError:
            pass
        comm.barrier()
        first.wait()
    else:
        comm.barrier()
        plan.run()
    part.close()
    for use in (plan.run, plan.start):
        try:
            use()
            raise AssertionError("a plan of a closed communicator was run")
        except ValueError as error:
            assert "closed" in str(error), error


def messages():
    right, left = (rank + 1) % size, (rank - 1) % size
    big = np.full(100_000, rank, np.int32)
    with comm.isend(big, right, tag=2):
        got = np.zeros_like(big)
        assert comm.recv(got, left, tag=2) == (left, 2, got.size)
    same(got, np.full(100_000, left, np.int32), "recv")
    comm.isend(of(rank), right, tag=3)
    assert comm.recv(np.zeros(6, np.float32), tag=3)[0] == left


def both_ways_at_once():
    right, left = (rank + 1) % size, (rank - 1) % size
    big, got = np.full(100_000, rank, np.int32), np.zeros(100_000, np.int32)  # a send that waits for its receive
    for _ in range(3):
        assert comm.sendrecv(big, right, got, left) == (left, 0, got.size)
        same(got, np.full_like(big, left), "sendrecv")
    floats = np.zeros(2)
    assert comm.sendrecv(b"12345", left, floats.view(np.uint8)[:5], tag=4 + rank, recv_tag=4 + right)[:2] == (
        right, 4 + right)
    refused = ((ValueError, "sendrecv: there is no rank", (big, size, got)),
               (ValueError, "sendrecv: there is no rank", (big, right, got, size)),
               (ValueError, "sendrecv: tag -1", (big, right, got, left, 0, -1)),
               (TypeError, "sendrecv: out is read-only", (big, right, b"123")),
               (TypeError, "sendrecv: x is a numpy array with strides", (big[::2], right, got)))
    for kind, words, arguments in refused:
        try:
            comm.sendrecv(*arguments)
            raise AssertionError(f"nothing was raised, wanted {words}")
        except kind as error:
            assert str(error).startswith(words), error
    comm.barrier()
    # A message that does not fit fails on its sender and its receiver. The calls of the other ranks end well.
    part = comm.dup()
    try:
        part.sendrecv(big if rank == 0 else of(rank, np.int32), right, got if rank != 1 else np.zeros(3, np.int32), left)
        assert rank > 1, "100,000 elements went into 3"
    except tutti.Error as error:
        assert rank < 2, error
    part.close()


def a_communicator_of_the_same_ranks():
    with comm.dup() as other:
        assert (other.rank, other.size) == (rank, size)
        # Its calls have an order of their own.
        requests = [each.iallreduce(np.full(2, rank)) for each in ((comm, other) if rank % 2 else (other, comm))]
        for request in reversed(requests):
            same(request.wait(), np.full(2, sum(range(size))), "dup")
    comm.barrier()


def scatter_into_new_arrays():
    for root in range(size):
        for dtype, inner in ((np.float32, (2, 3)), (np.int8, ()), (np.complex128, (1,)), (np.bool_, (0,))):
            blocks = np.arange(size * max(1, int(np.prod(inner)))).astype(dtype)[:size * int(np.prod(inner))]
            blocks = blocks.reshape(size, *inner)
            same(comm.scatter(blocks if rank == root else None, root=root), blocks[rank], f"{dtype} {inner}")
        rows = np.arange(3.0 * sum(range(size))).reshape(-1, 3)
        got = comm.scatterv(rows if rank == root else None, range(size) if rank == root else None, root=root)
        same(got, rows[sum(range(rank)):sum(range(rank + 1))], "scatterv")


def blocks_of_different_lengths():
    def rows(r, count, dtype=np.float32):
        return (np.arange(count * 2).reshape(count, 2) + 10 * r).astype(dtype)

    counts = [(r + 1) % size for r in range(size)]  # the last rank has none
    first, mine = sum(counts[:rank]), counts[rank]
    for dtype in (np.float32, np.complex64, np.bool_):
        whole = np.concatenate([rows(r, counts[r], dtype) for r in range(size)])
        part = rows(rank, mine, dtype)
        same(comm.allgatherv(part, counts), whole, "allgatherv")
        out = np.zeros_like(whole)
        out[first:first + mine] = part
        assert comm.iallgatherv(out[first:first + mine], np.array(counts), out=out).wait() is out
        same(out, whole, "allgatherv in place")
        for root in range(size):
            got = comm.gatherv(part, counts if rank == root else None, root)
            if rank == root:
                same(got, whole, "gatherv")
            else:
                assert got is None
            out = np.zeros_like(part)
            given = (whole, counts) if rank == root else (None, None)
            assert comm.scatterv(*given, out, root) is out
            same(out, part, "scatterv")
    lengths = sum(counts)
    same(comm.reduce_scatterv(rows(rank, lengths), counts, "max"), rows(size - 1, lengths)[first:first + mine],
         "reduce_scatterv")
    # r rows go to each rank r.
    coming = [rank] * size
    same(comm.alltoallv(rows(rank, sum(range(size))), range(size), coming),
         np.concatenate([rows(r, sum(range(size)))[sum(range(rank)):sum(range(rank + 1))] for r in range(size)]),
         "alltoallv")
    for words, call, arguments in (
            (f"counts is {[1] * (size + 1)}, not {size} numbers", comm.allgatherv, (rows(0, 1), [1] * (size + 1))),
            (f"counts is {[-1] * size}, not {size} numbers", comm.reduce_scatterv, (rows(0, 1), [-1] * size)),
            ("counts is None", comm.gatherv, (rows(0, 1), None, rank)),
            ("x has shape (7, 2), but counts says that this rank gives 1 rows. What to do: ", comm.allgatherv,
             (rows(0, 7), [1] * size)),
            ("x has shape (), but counts adds up to", comm.reduce_scatterv, (3.0, [1] * size)),
            ("x has shape (7, 2), but in_counts adds up to", comm.alltoallv, (rows(0, 7), [9] * size, [9] * size)),
            ("out_counts is []", comm.alltoallv, (rows(0, size), [1] * size, [])),
            ("out has shape (1, 2), but the result", comm.allgatherv, (rows(0, 9), [9] * size, rows(0, 1)))):
        try:
            call(*arguments)
            raise AssertionError(f"nothing was raised, wanted {words}")
        except ValueError as error:
            assert str(error).startswith(words), error
    try:
        comm.allgatherv(rows(0, 1), [1, 2] + [1] * (size - 2) if rank == 0 else [1] * size)
        raise AssertionError("other counts were taken")
    except tutti.MismatchError as error:
        assert error.operation == "allgatherv", error


def requests():
    x = of(rank)
    request = comm.iallreduce(x)
    same(request.wait(), sum(of(r) for r in range(size)), "iallreduce")
    with comm.iallgather(x) as request:
        pass
    same(request.wait(), np.stack([of(r) for r in range(size)]), "a with statement")

    async def several():
        first, second = comm.iallreduce(np.full(1_000_000, 1.0)), comm.iallreduce(x, "max")
        return await asyncio.gather(first, second)

    first, second = asyncio.run(several())
    same(first, np.full(1_000_000, float(size)), "await")
    same(second, of(size - 1), "await")
    if rank == 0:
        late = comm.irecv(np.zeros(1), 1, tag=8)
        try:
            late.wait(timeout=0.05)
            raise AssertionError("the wait was long enough")
        except TimeoutError:
            pass
        assert not late.test()
        comm.send(np.zeros(1), 1, tag=9)
        late.wait()
        small = comm.irecv(np.zeros(1), 1, tag=10)
        for ask in (small.wait, small.wait, small.test):  # each call gives the same error
            try:
                ask()
                raise AssertionError("two elements went into one")
            except tutti.Error as error:
                assert error.rank == 1, error
    elif rank == 1:
        comm.recv(np.zeros(1), 0, tag=9)
        comm.send(np.zeros(1), 0, tag=8)
        comm.send(np.zeros(2), 0, tag=10)


def other_arrays():
    x = array.array("d", [rank, 2.0])
    comm.broadcast(memoryview(x), 1)
    assert list(x) == [1.0, 2.0], x
    view = np.zeros((4, 6), np.float32)[:, ::2]
    for call in (lambda: comm.allreduce(view, out=np.zeros((4, 3), np.float32)), lambda: comm.broadcast(view)):
        try:
            call()
            raise AssertionError("a strided array was taken")
        except TypeError:
            pass
    frozen = of(rank)
    frozen.setflags(write=False)
    comm.allreduce(frozen)
    try:
        comm.broadcast(frozen, (rank + 1) % size)
        raise AssertionError("a read-only array was written to")
    except (TypeError, ValueError, BufferError):
        pass


def scalars_and_bytes():
    total = float(sum(range(size)))
    same(comm.allreduce(np.float64(rank)), np.array(total), "numpy's scalar")
    same(comm.allreduce(np.full(3, rank).mean()), np.array(total), "a mean")
    same(comm.allreduce(b"\x01\x02"), np.array([size, 2 * size], np.uint8), "bytes")
    same(comm.allreduce(b""), np.zeros(0, np.uint8), "no bytes")
    out = bytearray(2)
    assert comm.allreduce(b"\x01\x02", out=out) is out and list(out) == [size, 2 * size], out


def refused_arrays():
    x, frozen = of(rank), of(rank)
    frozen.setflags(write=False)
    square = np.zeros((2, 2))
    for words, call, arguments in (
            ("allreduce: x is a numpy array with strides (8,), not contiguous. What to do: pass np.asc", "allreduce", (x[::2],)),
            ("allreduce: x is a numpy array with strides (8, 16), not", "allreduce", (np.asfortranarray(square),)),
            ("allreduce: x is a numpy array with strides (0,), not", "allreduce", (np.broadcast_to(x[:1], 4),)),
            ("scan: x has elements of foreign byte order (>f8). What to do: pass", "scan", (np.zeros(2, ">f8"),)),
            ("scan: x has elements of the unsupported type float128", "scan", (np.zeros(2, np.longdouble),)),
            ("exscan: x has elements of the unsupported type [('a', '<i4')]", "exscan", (np.zeros(2, [("a", "<i4")]),)),
            ("allreduce: out is read-only", "allreduce", (x, "sum", frozen)),
            ("allreduce: out is a numpy array with strides", "allreduce", (x[:3], "sum", x[::2])),
            ("allreduce: out is a list, not an array", "allreduce", ([1, 2], "sum", [1, 2])),
            ("broadcast: x is a float, not an array", "broadcast", (3.0,)),
            ("broadcast: x is read-only", "broadcast", (b"12",)),
            ("reduce: op is a ndarray, not the name of an operator", "reduce", (x, x)),
            ("send: x is a numpy array with strides", "send", (x[::2], rank)),
            ("recv: out is read-only", "recv", (frozen,)),
            ("a masked array would lose its mask", "allreduce", (np.ma.masked_array(x, x > 2),)),
            ("a masked array would lose its mask", "recv", (np.ma.masked_array(x, x > 2),))):
        for name in (call, "i" + call):
            try:
                getattr(comm, name)(*arguments)
                raise AssertionError(f"nothing was raised, wanted {words}")
            except TypeError as error:
                assert str(error).startswith(words), (name, error)
    try:
        comm.allreduce(np.zeros(3, np.uint8), out=bytearray(4))
        raise AssertionError("an output of another shape was taken")
    except ValueError as error:
        assert str(error).startswith("out has shape (4,), but the result has shape (3,). What to do: "), error


def torchs_marks():
    import torch  # not before: the package does without it
    out, lazy = torch.zeros(2), torch._neg_view(torch.ones(2))
    for words, arguments in (("a Tensor with the lazy 'neg' flag of torch would lose that flag", (lazy, "sum", out)),
                             ("a Tensor with the lazy 'neg' flag of torch", (torch.ones(2), "sum", lazy)),
                             ("a Tensor with the lazy 'conj' flag of torch", (torch.full((2,), 1j).conj(), "sum",
                                                                              torch.zeros(2, dtype=torch.complex64)))):
        try:
            comm.allreduce(*arguments)
            raise AssertionError(f"nothing was raised, wanted {words}")
        except TypeError as error:
            assert str(error).startswith(words), error
    comm.allreduce(lazy.resolve_neg(), out=out)
    assert out.tolist() == [-size, -size], out


def errors():
    try:
        comm.allreduce(np.zeros(3 if rank == 0 else 4))
        raise AssertionError("nothing was raised")
    except tutti.MismatchError as error:
        assert error.operation == "allreduce" and "3" in error.cause and "4" in error.cause, error
    comm.barrier()
    for wrong, kind in ((lambda: comm.allreduce(of(0), "median"), ValueError),
                        (lambda: comm.allreduce(np.zeros(2, "M8[s]")), (TypeError, BufferError, ValueError)),
                        (lambda: comm.broadcast(of(0), size), ValueError),
                        (lambda: comm.alltoall(np.zeros((size + 1, 2))), ValueError),
                        (lambda: comm.allgather(of(0), out=np.zeros(3, np.float32)), ValueError),
                        (lambda: tutti.init(colour="red"), ValueError)):
        try:
            wrong()
            raise AssertionError(f"nothing was raised, wanted {kind}")
        except kind:
            pass
    comm.barrier()


def the_interpreter_goes_on():
    aside = comm.split(0)

    def tell():
        for _ in range(100):
            time.sleep(0.001)  # this rank waits at the barrier by then
        aside.send(np.zeros(1), 0)

    thread = threading.Thread(target=tell)
    # Rank 0 comes to the barrier when a thread of each other rank has run beside the barrier of that rank.
    if rank > 0:
        thread.start()
    for other in range(1, size) if rank == 0 else ():
        aside.recv(np.zeros(1), other)
    comm.barrier()
    if rank > 0:
        thread.join()
    aside.close()


def groups():
    part = comm.split(rank % 2)
    assert part.size == len([r for r in range(size) if r % 2 == rank % 2])
    same(part.allreduce(np.ones(2)), np.full(2, float(part.size)), "part")
    part.close()
    try:
        part.barrier()
        raise AssertionError("a closed communicator was used")
    except ValueError:
        pass
    assert comm.split(-1 if rank == 0 else 0) is None or rank > 0
    assert "allreduce of 1024 bytes" in comm.explain("allreduce", 1024)
    assert "allreduce of 1024 bytes" in comm.explain("allreduce", 1024, dtype="bfloat16", op="max")


def closing_while_others_wait():
    def raised_by(waits):
        def run():
            try:
                waits()
            except tutti.Error as error:
                raised.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    for _ in range(5):
        raised = []
        part = comm.split(0)
        # No rank sends a message, so that only close() can end the waits of the threads, here and on the other ranks.
        request = part.irecv(np.empty(2), tag=1)
        threads = [raised_by(lambda: part.recv(np.empty(2), tag=2)), raised_by(request.wait)]
        time.sleep(0.02)
        part.close()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "it still waits"
        assert len(raised) == 2 or size == 1, raised
        comm.barrier()


def revoking():
    last = size - 1
    part, copy = comm.split(0), comm.dup()
    received = part.irecv(np.empty(2), (rank + 1) % size, tag=3)  # no rank sends it
    comm.barrier()
    if rank == last:
        part.revoke()
    for call in (received.wait, part.barrier, lambda: part.allreduce(of(rank)), lambda: part.send(of(rank), 0),
                 lambda: part.split(0)):
        error = raises(tutti.RevokedError, [f"rank {last} revoked the communicator", "What to do: "], call)
        assert error.rank == last and error.status == 11, repr(error)
    same(copy.allreduce(np.ones(2)), np.full(2, float(size)), "the copy")
    part.close()
    copy.close()


def left(kind, tag, waits):
    """Rank 0 stops waiting for a message, which rank 1 sends only then: it arrives, and its array is let go."""
    if rank == 0:
        got = np.zeros(1)
        gone = weakref.ref(got)
        try:
            waits(got, tag)
            raise AssertionError("nothing was raised")
        except kind:
            pass
        assert gone() is got, "the operation is under way"
        del got
        comm.send(np.zeros(1), 1, tag=tag)
        comm.recv(np.zeros(1), 1, tag=tag + 1)  # came after the one that was left
    elif rank == 1:
        comm.recv(np.zeros(1), 0, tag=tag)
        comm.send(np.ones(1), 0, tag=tag)
        comm.send(np.zeros(1), 0, tag=tag + 1)
    comm.barrier()
    assert rank != 0 or gone() is None, "its array is kept"


def timeouts():
    for call, arguments in ((comm.iallreduce, (of(rank),)), (comm.isend, (of(rank), rank)), (comm.irecv, (of(rank),))):
        for seconds in (0, -1, float("nan")):
            try:
                call(*arguments, timeout=seconds)
                raise AssertionError(f"a deadline of {seconds} s was taken")
            except ValueError as error:
                assert "timeout" in str(error), error
    for seconds in (float("inf"), 1e300, 60):
        same(comm.iallreduce(np.ones(2), timeout=seconds).wait(seconds), np.full(2, float(size)), "patience")
    part = comm.split(0)
    request = part.irecv(np.zeros(1), timeout=1e-4)  # a millisecond, and not for ever
    try:
        request.wait()
        raise AssertionError("a message came that nobody sent")
    except tutti.TimedOutError as error:
        assert isinstance(error, TimeoutError), error
    part.close()
    if rank == 0:
        request = comm.irecv(np.zeros(1), 1, tag=15)
        for seconds in (0, -1, 1e-4):
            try:
                request.wait(seconds)
                raise AssertionError("a message came that nobody has sent yet")
            except TimeoutError as error:
                assert not isinstance(error, tutti.Error), error
        try:
            request.wait(float("nan"))
            raise AssertionError("it was waited for nan seconds")
        except ValueError as error:
            assert "nan seconds" in str(error), error
            comm.send(np.zeros(1), 1, tag=16)
        request.wait(float("inf"))
    elif rank == 1:
        comm.recv(np.zeros(1), 0, tag=16)
        comm.send(np.zeros(1), 0, tag=15)


def cancelled_waits():
    async def cancelled(got, tag):
        # Within its deadline it would hold up the loop; after it, all ranks would fail.
        task = asyncio.ensure_future(awaited(comm.irecv(got, 1, tag, timeout=60)))
        await asyncio.sleep(0.01)
        task.cancel()
        await task

    async def awaited(request):
        return await request

    left(asyncio.CancelledError, 20, lambda got, tag: asyncio.run(cancelled(got, tag)))


def interrupted(call):
    """Interrupts the call by SIGINT while it waits; raises what the call raises."""
    def interrupt():
        about_to.wait()
        time.sleep(0.5)  # it is inside by now
        os.kill(os.getpid(), signal.SIGINT)

    about_to = threading.Event()
    thread = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread.start()
    try:
        about_to.set()
        call()
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)


def interrupted_calls():
    left(KeyboardInterrupt, 30, lambda got, tag: interrupted(lambda: comm.recv(got, 1, tag)))
    if rank == 0:
        request, x = comm.irecv(np.zeros(1), 1, tag=40), of(0)
        for tag, call in ((41, request.wait), (42, lambda: comm.allreduce(x, out=x))):
            try:
                interrupted(call)
                raise AssertionError("the call was not interrupted")
            except KeyboardInterrupt:
                comm.send(np.zeros(1), 1, tag)
        assert request.wait() == (1, 40, 1), "it can be waited for again"
    else:
        if rank == 1:
            comm.recv(np.zeros(1), 0, tag=41)
            comm.send(np.zeros(1), 0, tag=40)
            comm.recv(np.zeros(1), 0, tag=42)
        x = comm.allreduce(of(rank))
    comm.barrier()
    same(x, sum(of(r) for r in range(size)), "it was done all the same")


def blocks_that_fail():
    for count in (4, 3 + rank):  # counts that match, then counts that differ
        try:
            request = comm.iallreduce(np.zeros(count))
        except tutti.MismatchError:  # heard of before this rank had begun
            continue
        try:
            with request:
                raise KeyError("of the block")
        except KeyError as error:
            assert "of the block" in str(error), error


for test in (collectives, scatter_into_new_arrays, blocks_of_different_lengths, plans, messages, both_ways_at_once,
             a_communicator_of_the_same_ranks, requests, other_arrays, scalars_and_bytes, refused_arrays, errors,
             the_interpreter_goes_on, groups, closing_while_others_wait, revoking, timeouts, cancelled_waits,
             interrupted_calls, blocks_that_fail):
    test()
    comm.barrier()
    if rank == 0:
        print(f"CASE {test.__name__}", flush=True)
assert "torch" not in sys.modules
torchs_marks()
comm.close()
