"""Collectives over arrays."""

from __future__ import annotations

import asyncio
import math
import operator
import os
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np

from . import _arrays, _blocks, _growth, _settings, _tutti
from ._errors import Error, with_advice

ANY_SOURCE = -1
Result = TypeVar("Result")
COLLECTIVES = ("allreduce", "broadcast", "barrier", "reduce", "allgather", "reduce_scatter", "gather", "scatter",
               "alltoall", "scan", "exscan")
WITH_COUNTS = ("allgatherv", "reduce_scatterv", "gatherv", "scatterv", "alltoallv")
LONGEST_S = 1e9  # a longer timeout counts as infinite, because the library's arithmetic would overflow


class Request(Generic[Result]):
    """A non-blocking operation. Wait for it, await it, or leave the block of a ``with`` statement.

    The arrays belong to it until it is over. Wait for it before its communicator is closed: that ends it. Dropping it
    waits.

    A waiter that stops does not end it: if an ``await`` is cancelled, or a signal's handler raises in a wait (Ctrl-C),
    the operation continues, as on the other ranks. Its communicator keeps the arrays until it is over.

    A block that raises also waits for the operation. The block's exception propagates; the operation's is dropped.
    """

    def __init__(self, native, result):
        self._native = native
        self._result = result

    def wait(self, timeout: float | None = None) -> Any:
        """The operation's result. timeout: seconds that this waits at most; 0 polls once, None waits for the end.

        TimeoutError: the operation continues, wait again. tutti.TimedOutError is a TimeoutError, too: the operation's
        own deadline passed and the communicator has failed. To tell the two apart, catch it first.
        """
        if not self._native.wait(_patience_ms(timeout)):
            raise TimeoutError(with_advice(f"the wait timed out after {timeout} s; the operation goes on",
                                           "wait again, or with a longer timeout"))
        return self._result() if callable(self._result) else self._result

    def test(self) -> bool:
        """Whether it is over; makes progress. Raises the operation's failure."""
        return self._native.wait(0)

    async def _until_done(self) -> Any:
        descriptor = -1 if self._native.wait(0) else self._native.fd()
        if descriptor >= 0:
            # Duplicated, because a wait closes the request's descriptor.
            own = os.dup(descriptor)
            loop, done = asyncio.get_running_loop(), asyncio.Event()
            loop.add_reader(own, done.set)
            try:
                await done.wait()
            except BaseException:
                self._native.leave()  # if it were dropped, its destructor would block the loop until it is over
                raise
            finally:
                loop.remove_reader(own)
                os.close(own)
        return self.wait()

    def __await__(self):
        return self._until_done().__await__()

    def __enter__(self) -> Request:
        return self

    def __exit__(self, kind, *_) -> None:
        try:
            self.wait()
        except Error:
            if kind is None:
                raise


class Plan(Generic[Result]):
    """A collective that is bound to its arrays once (Communicator.plan) and run any number of times.

    A run reads the arrays' current values and has its place in the order of the communicator's calls. One at a time.
    """

    def __init__(self, native, result):
        self._native = native
        self._result = result

    def run(self) -> Any:
        """Runs it once; returns the collective's result, the same array each time. Raises like the collective."""
        self._native.run()
        return self._result

    def start(self) -> Request:
        """A run as a Request. InvalidError: the previous run is not over."""
        return Request(self._native.start(), self._result)


class Communicator(_growth.Growth):
    """This rank's membership of a group of ranks. A context manager; ``close`` leaves in order.

    Arrays are numpy's or anything with the buffer protocol or DLPack in host memory, in one piece; they are never
    copied. ``out`` may be the input (in place). Every rank makes the same calls in the same order, with the same shapes
    and types. While a call waits, other python threads run, and every tenth of a second the signal handlers. If a
    handler raises, the wait ends but the operation does not (see Request).

    Every collective has a form with an ``i`` in front (``iallreduce``) that returns a Request. Its timeout is the
    operation's deadline in seconds, above 0; passing it fails the communicator on all ranks. None: that of the
    communicator (the setting timeout_ms); inf: none.
    """

    def __init__(self, native):
        self._native = native
        self.rank: int = native.rank
        self.size: int = native.size
        self.local_rank: int = native.local_rank  # among the ranks of this host: chooses a GPU
        self.local_size: int = native.local_size
        self.host_count: int = native.host_count

    def __repr__(self) -> str:
        return f"<tutti.Communicator: rank {self.rank} of {self.size}>"

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def host_of(self, rank: int) -> int:
        """The host of a rank, 0 … host_count - 1, in the order of the hosts' lowest ranks."""
        host = self._native.host_of(rank)
        if host < 0:
            raise ValueError(with_advice(f"host_of: there is no rank {rank} in this communicator of {self.size} ranks",
                                         f"pass a rank from 0 to {self.size - 1}"))
        return host

    # ---- collectives: (name, (input, output, elements per rank, …), operator, root) → result

    def _blocking(self, name, arrays, op="sum", root=0):
        source, target, count = arrays
        try:
            self._native.run(name, source, target, count, op, root)
        except TypeError as error:
            _refused(error, name, source, target, op)
        return target

    def _starting(self, name, arrays, op="sum", root=0, timeout=None):
        return self._begun(self._native.start, Request, name, arrays, op, root, timeout)

    def _begun(self, begin, kind, name, arrays, op, root, timeout):
        source, target, count, *blocks = arrays
        milliseconds = _deadline_ms(timeout)
        try:
            return kind(begin(name, source, target, count, op, root, milliseconds, *blocks), target)
        except TypeError as error:
            _refused(error, name, source, target, op)

    def allreduce(self, x, op: str = "sum", out=None):
        """Every rank gets the sum (max, …) of all ranks' x, which has the same shape everywhere."""
        return self._blocking("allreduce", _arrays.same(x, out), op)

    def iallreduce(self, x, op: str = "sum", out=None, timeout: float | None = None) -> Request:
        """allreduce as a Request. timeout: seconds until the communicator fails on all ranks; None: its timeout_ms."""
        return self._starting("allreduce", _arrays.same(x, out), op, timeout=timeout)

    def broadcast(self, x, root: int = 0):
        """Copies root's x to every rank's x, in place; returns x, which must be writable on all ranks, root's too."""
        return self._blocking("broadcast", _both(x), root=root)

    def ibroadcast(self, x, root: int = 0, timeout: float | None = None) -> Request:
        """broadcast as a Request. timeout: seconds until the communicator fails on all ranks; None: its timeout_ms."""
        return self._starting("broadcast", _both(x), root=root, timeout=timeout)

    def barrier(self, name: str | None = None) -> None:
        """Returns when every rank has called it.

        name: of the operation that begins with it, at most 15 letters, digits and blanks. If the ranks' names differ,
        each rank gets MismatchError with both names.
        """
        self._native.barrier(name)

    def ibarrier(self, timeout: float | None = None) -> Request:
        """barrier as a Request. timeout: seconds until the communicator fails on all ranks; None: its timeout_ms."""
        return self._starting("barrier", (None, None, 0), timeout=timeout)

    def reduce(self, x, op: str = "sum", root: int = 0, out=None):
        """As allreduce, but only root gets the result; other ranks get None."""
        return self._blocking("reduce", self._at_root(x, out, root), op, root)

    def ireduce(self, x, op: str = "sum", root: int = 0, out=None, timeout: float | None = None) -> Request:
        """reduce as a Request. timeout: seconds until the communicator fails on all ranks; None: its timeout_ms."""
        return self._starting("reduce", self._at_root(x, out, root), op, root, timeout)

    def allgather(self, x, out=None):
        """An array of shape (size, *x.shape): every rank's x, in rank order."""
        return self._blocking("allgather", self._grown(x, out))

    def iallgather(self, x, out=None, timeout: float | None = None) -> Request:
        """allgather as a Request. timeout: seconds until the communicator fails on all ranks; None: its timeout_ms."""
        return self._starting("allgather", self._grown(x, out), timeout=timeout)

    def reduce_scatter(self, x, op: str = "sum", out=None):
        """x has shape (size, …): a block for each rank. Rank r gets the sum of all ranks' x[r]."""
        return self._blocking("reduce_scatter", self._shrunk(x, out), op)

    def ireduce_scatter(self, x, op: str = "sum", out=None, timeout: float | None = None) -> Request:
        """reduce_scatter as a Request. timeout: seconds until the communicator fails on all; None: its timeout_ms."""
        return self._starting("reduce_scatter", self._shrunk(x, out), op, timeout=timeout)

    def gather(self, x, root: int = 0, out=None):
        """Root gets an array of shape (size, *x.shape); other ranks get None."""
        return self._blocking("gather", self._gathered(x, root, out), root=root)

    def igather(self, x, root: int = 0, out=None, timeout: float | None = None) -> Request:
        """gather as a Request. timeout: seconds until the communicator fails on all ranks; None: its timeout_ms."""
        return self._starting("gather", self._gathered(x, root, out), root=root, timeout=timeout)

    def scatter(self, x, out=None, root: int = 0):
        """out of rank r becomes x[r] of root's x, which has shape (size, *out.shape); other ranks pass None for x.

        Without out, the result is a new array: root first sends its shape and type in a separate message. So all ranks
        give an out or none does (else MismatchError).
        """
        if out is None:
            out = self._told_of(x, root, lambda: [self._rows(x).shape[1:]] * self.size)
        return self._blocking("scatter", self._scattered(x, out, root), root=root)

    def iscatter(self, x, out, root: int = 0, timeout: float | None = None) -> Request:
        """scatter as a Request, with an out. timeout: seconds until the communicator fails; None: its timeout_ms."""
        return self._starting("scatter", self._scattered(x, out, root), root=root, timeout=timeout)

    def alltoall(self, x, out=None):
        """x has shape (size, …): block r goes to rank r. Result[r] is the block that came from rank r."""
        return self._blocking("alltoall", self._blocks(x, out))

    def ialltoall(self, x, out=None, timeout: float | None = None) -> Request:
        """alltoall as a Request. timeout: seconds until the communicator fails on all ranks; None: its timeout_ms."""
        return self._starting("alltoall", self._blocks(x, out), timeout=timeout)

    def scan(self, x, op: str = "sum", out=None):
        """Rank r gets the sum of the x of ranks 0 … r."""
        return self._blocking("scan", _arrays.same(x, out), op)

    def iscan(self, x, op: str = "sum", out=None, timeout: float | None = None) -> Request:
        """scan as a Request. timeout: seconds until the communicator fails on all ranks; None: its timeout_ms."""
        return self._starting("scan", _arrays.same(x, out), op, timeout=timeout)

    def exscan(self, x, op: str = "sum", out=None):
        """Rank r gets the sum of the x of ranks 0 … r-1; rank 0's out stays as it is (zeros, if it is new)."""
        return self._blocking("exscan", _arrays.same(*_zeros(x, out)), op)

    def iexscan(self, x, op: str = "sum", out=None, timeout: float | None = None) -> Request:
        """exscan as a Request. timeout: seconds until the communicator fails on all ranks; None: its timeout_ms."""
        return self._starting("exscan", _arrays.same(*_zeros(x, out)), op, timeout=timeout)

    # ---- blocks of different lengths: counts are rows (a row is one x[i]), one after the other in rank order

    def allgatherv(self, x, counts, out=None):
        """An array of shape (sum(counts), …): the counts[r] rows of every rank r's x, in rank order.

        counts is the same on all ranks; ``allgather(len(x))`` gives it to every rank.
        """
        return self.iallgatherv(x, counts, out).wait()

    def iallgatherv(self, x, counts, out=None, timeout: float | None = None) -> Request:
        """allgatherv as a Request. timeout: seconds until the communicator fails on all ranks; None: its timeout_ms."""
        return self._starting("allgatherv", _blocks.gathered_everywhere(x, counts, out, self.rank, self.size),
                              timeout=timeout)

    def gatherv(self, x, counts=None, root: int = 0, out=None):
        """Root gets an array of shape (sum(counts), …), as from allgatherv; other ranks get None and need no counts."""
        return self.igatherv(x, counts, root, out).wait()

    def igatherv(self, x, counts=None, root: int = 0, out=None, timeout: float | None = None) -> Request:
        """gatherv as a Request. timeout: seconds until the communicator fails on all ranks; None: its timeout_ms."""
        return self._starting("gatherv", _blocks.gathered(x, counts, out, self.rank, self.size, root), root=root,
                              timeout=timeout)

    def scatterv(self, x, counts=None, out=None, root: int = 0):
        """out of rank r becomes the next counts[r] rows of root's x, which has sum(counts); only root gives x and counts.

        Without out, a new array, as from scatter: all ranks give an out or none does.
        """
        if out is None:
            out = self._told_of(x, root, lambda: _blocks.shapes(x, counts, self.size))
        return self.iscatterv(x, counts, out, root).wait()

    def iscatterv(self, x, counts, out, root: int = 0, timeout: float | None = None) -> Request:
        """scatterv as a Request, with an out. timeout: seconds until the communicator fails; None: its timeout_ms."""
        return self._starting("scatterv", _blocks.scattered(x, counts, out, self.rank, self.size, root), root=root,
                              timeout=timeout)

    def reduce_scatterv(self, x, counts, op: str = "sum", out=None):
        """x has sum(counts) rows. Rank r gets its counts[r] of the sum of all ranks' x. counts: the same on all ranks."""
        return self.ireduce_scatterv(x, counts, op, out).wait()

    def ireduce_scatterv(self, x, counts, op: str = "sum", out=None, timeout: float | None = None) -> Request:
        """reduce_scatterv as a Request. timeout: seconds until the communicator fails on all; None: its timeout_ms."""
        return self._starting("reduce_scatterv", _blocks.reduced(x, counts, out, self.rank, self.size), op,
                              timeout=timeout)

    def alltoallv(self, x, in_counts, out_counts, out=None):
        """in_counts[r] rows of x go to rank r, out_counts[r] rows of the result come from it, both in rank order.

        ``alltoall(in_counts)`` tells every rank its out_counts.
        """
        return self.ialltoallv(x, in_counts, out_counts, out).wait()

    def ialltoallv(self, x, in_counts, out_counts, out=None, timeout: float | None = None) -> Request:
        """alltoallv as a Request. timeout: seconds until the communicator fails on all ranks; None: its timeout_ms."""
        return self._starting("alltoallv", _blocks.exchanged(x, in_counts, out_counts, out, self.size),
                              timeout=timeout)

    # ---- bound once

    def plan(self, collective: str, *arguments, **named) -> Plan:
        """A collective to be run often: it is bound to its arrays once, and a run needs no lookup.

            plan = comm.plan("allreduce", x, "max", out=x)
            for ...:
                plan.run()

        The arguments are as for the form with an ``i``; timeout is for each run. If the result is a new array, it is made
        here. Collective: all ranks make their plans and start them in the same order. ValueError: no such collective.
        """
        if collective not in COLLECTIVES + WITH_COUNTS:
            raise ValueError(with_advice(f"plan: unknown collective {collective!r}",
                                         f"pass one of {', '.join(COLLECTIVES + WITH_COUNTS)}"))
        return getattr(_Planning(self._native), "i" + collective)(*arguments, **named)

    # ---- messages

    def send(self, x, dest: int, tag: int = 0) -> None:
        """Sends x to one rank."""
        self.isend(x, dest, tag).wait()

    def isend(self, x, dest: int, tag: int = 0, timeout: float | None = None) -> Request:
        """send as a Request. timeout: seconds until the communicator fails on all ranks; None: its timeout_ms."""
        x, milliseconds = _arrays.given(x), _deadline_ms(timeout)
        try:
            return Request(self._native.send(x, dest, tag, milliseconds), None)
        except TypeError as error:
            _refused(error, "send", x, None)

    def recv(self, out, source: int = ANY_SOURCE, tag: int = 0) -> tuple[int, int, int]:
        """Receives into out; returns (source, tag, elements of out's type; a complex number counts as two)."""
        return self.irecv(out, source, tag).wait()

    def irecv(self, out, source: int = ANY_SOURCE, tag: int = 0, timeout: float | None = None) -> Request:
        """recv as a Request. timeout: seconds until the communicator fails on all ranks; None: its timeout_ms."""
        out, milliseconds = _arrays.literal(out), _deadline_ms(timeout)
        try:
            native = self._native.receive(out, source, tag, milliseconds)
        except TypeError as error:
            _refused(error, "recv", None, out)
        return Request(native, native.source)

    def sendrecv(self, x, dest: int, out, source: int = ANY_SOURCE, tag: int = 0,
                 recv_tag: int | None = None) -> tuple[int, int, int]:
        """Sends x to dest and receives into out, without an order between the two; returns what recv does.

        The types of x and out may differ; they do not overlap. recv_tag: the received message's tag, if not tag.
        """
        recv_tag = tag if recv_tag is None else recv_tag
        self._check_message("sendrecv", dest, tag)
        self._check_message("sendrecv", dest if source == ANY_SOURCE else source, recv_tag)
        x, out = _arrays.given(x), _arrays.literal(out)
        try:
            both = self._native.sendrecv(x, dest, tag, out, source, recv_tag)
        except TypeError as error:
            _refused(error, "sendrecv", x, out)
        return _outcome_of(both)

    def _check_message(self, call, rank, tag):
        if not 0 <= rank < self.size:
            raise ValueError(with_advice(f"{call}: there is no rank {rank} in this communicator of {self.size} ranks",
                                         f"pass a rank from 0 to {self.size - 1}"))
        if not 0 <= tag < 2**31:
            raise ValueError(with_advice(f"{call}: tag {tag} is out of range", f"pass a tag from 0 to {2**31 - 1}"))

    # ---- the communicator

    def dup(self) -> Communicator:
        """Another communicator of the same ranks, with its own order of calls. Collective; close it, too."""
        return Communicator(self._native.duplicate())

    def split(self, color: int, key: int | None = None) -> Communicator | None:
        """Ranks that give the same color get a communicator of their own, ranked by key; None for color < 0."""
        part = self._native.split(color, self.rank if key is None else key)
        return None if part is None else Communicator(part)

    def shrink(self) -> Communicator:
        """A communicator of the ranks that are alive and have not left, ranked in their order here.

        It works after every failure, when all those ranks call it, and returns the same members to all. This
        communicator stays as it is: close both.
        """
        return Communicator(self._native.shrink([]))

    def shrink_without(self, ranks) -> Communicator:
        """The same without the named ranks of this communicator, alive or not, which do not call it.

        All callers name the same ranks, and not their own. If one of these is alive, the operations of this
        communicator end with RevokedError on all ranks.
        """
        return Communicator(self._native.shrink([operator.index(rank) for rank in ranks]))

    def agree(self, bits: int = 2**64 - 1) -> int:
        """The bitwise and of all callers' bits, an unsigned number of 64 bits: the same on all ranks, also after a failure.

        agree(True) is 1 if all ranks gave True. The bits of a rank that dies during the call may be in it or not.
        """
        bits = int(operator.index(bits))  # a bool is an index of its own type
        if not 0 <= bits < 2**64:
            raise ValueError(with_advice(f"agree: {bits} is not a number of 64 bits",
                                         "pass a number from 0 to 2**64 - 1"))
        return self._native.agree(bits)

    @property
    def lost(self) -> list[int]:
        """The ranks that are no members any more, as the last agree or shrink has decided: the same on all callers."""
        return self._native.lost()

    def explain(self, collective: str, nbytes: int, dtype: str = "float32", op: str = "sum") -> str:
        """Says in words which algorithm tutti would choose for such a call, and why.

        nbytes: of x; of one rank's block for allgather, reduce_scatter, gather, scatter and alltoall.
        """
        return self._native.explain(collective, nbytes, dtype, op)

    def dump(self, path: str | os.PathLike) -> None:
        """Writes the flight recorder, the last 1,024 operations, as JSON lines."""
        with open(path, "wb") as file:
            self._native.dump(file.fileno())

    def abort(self) -> None:
        """Fails every pending and later operation on all ranks. From any thread."""
        self._native.abort()

    def revoke(self) -> None:
        """Ends every pending and later operation with RevokedError on all ranks, also after another failure.

        From any thread. Other communicators of these ranks work on.
        """
        self._native.revoke()

    def close(self) -> None:
        """Leaves in order; never hangs. Later calls raise ValueError.

        Operations for which another thread waits fail on all ranks, as after abort().
        """
        self._native.close()

    # ---- shapes

    def _at_root(self, x, out, root):
        x = _arrays.given(x)
        return _arrays.same(x, out) if self.rank == root else (x, None, _arrays.count(x))

    def _grown(self, x, out):
        x = _arrays.given(x)
        return x, _arrays.target(out, (self.size, *x.shape), x), _arrays.count(x)

    def _gathered(self, x, root, out):
        return self._grown(x, out) if self.rank == root else (_arrays.given(x), None, _arrays.count(_arrays.given(x)))

    def _rows(self, x):
        x = _arrays.given(x)
        if not x.shape or x.shape[0] != self.size:
            raise ValueError(with_advice(f"x has shape {tuple(x.shape)}, but its first dimension is for the "
                                         f"{self.size} ranks",
                                         f"pass an array of shape ({self.size}, …), with a block for each rank"))
        return x

    def _shrunk(self, x, out):
        x = self._rows(x)
        return x, _arrays.target(out, x.shape[1:], x), _arrays.count(x) // self.size

    def _blocks(self, x, out):
        x = self._rows(x)
        return x, _arrays.target(out, x.shape, x), _arrays.count(x) // self.size

    def _told_of(self, x, root, shapes):
        """A new array for this rank's block of root's x. shapes returns the shapes of all blocks; only root calls it."""
        told, words = np.empty(_blocks.HEADER_WORDS, np.int64), None
        if self.rank == root:
            words = _blocks.headers(_arrays.given(x), shapes())
        self._native.barrier("scatter shapes")
        return _blocks.from_header(self._blocking("scatter", (words, told, told.size), root=root))

    def _scattered(self, x, out, root):
        block = tuple(_arrays.given(out).shape)
        if self.rank != root:
            return None, out, _arrays.count(_arrays.given(out))
        x = self._rows(x)
        if tuple(x.shape[1:]) != block:
            raise ValueError(with_advice(f"x has blocks of shape {tuple(x.shape[1:])}, and out has shape {block}",
                                         "pass an out of the blocks' shape, or none"))
        return x, out, _arrays.count(_arrays.given(out))


class _Planning(Communicator):
    """Binds calls as plans, with the methods of a Communicator."""

    def _starting(self, name, arrays, op="sum", root=0, timeout=None):
        return self._begun(self._native.plan, Plan, name, arrays, op, root, timeout)


def _deadline_ms(timeout: float | None) -> int:
    """Returns an operation's timeout for tutti_call_opts: -1 for the communicator's, 0 for none."""
    if timeout is None:
        return -1
    if not timeout > 0:
        raise ValueError(with_advice(f"the operation's timeout is {timeout} seconds",
                                     "pass more than 0 seconds, or None for the communicator's timeout_ms"))
    return 0 if timeout > LONGEST_S else math.ceil(timeout * 1000)


def _patience_ms(timeout: float | None) -> int:
    """Returns a wait's timeout for tutti_wait: -1 to wait until the operation's deadline, 0 to look once."""
    if timeout is None or timeout > LONGEST_S:
        return -1
    if math.isnan(timeout):
        raise ValueError(with_advice("the wait's timeout is nan seconds",
                                     "pass a number of seconds, or None to wait for the outcome"))
    return max(0, math.ceil(timeout * 1000))


def _outcome_of(both) -> tuple[int, int, int]:
    """Waits for a send and a receive, both even if one fails: they use their arrays. Returns the receive's source."""
    sending, receiving = both
    failure = None
    try:
        for each in both:
            try:
                each.wait(-1)
            except Error as error:
                failure = failure or error
    except BaseException:  # a signal's handler raised it, and this thread no longer waits for either
        sending.leave()
        receiving.leave()
        raise
    if failure:
        raise failure
    return receiving.source()


def _both(x):
    return None, x, _arrays.count(_arrays.given(x))


def _zeros(x, out):
    x = _arrays.given(x)
    return x, np.zeros(tuple(x.shape), _arrays.type_of(x)) if out is None else out


def _refused(error, name, source, target, op="sum") -> NoReturn:
    """Names the array, and the reason, for a TypeError of the module."""
    written = "x" if name == "broadcast" else "out"
    _arrays.explain(error, name, (("x", source, False), (written, target, True)), op)


def init(**settings) -> Communicator:
    """Joins the job that the launcher (tutti-run, torchrun, Slurm, Open MPI, …) started; alone, a job of one rank.

    Settings by the names of docs/reference/configuration.md win over the environment: init(transport=["shm", "tcp"],
    timeout_ms=10_000, insecure=True). None leaves a setting unchanged. Blocks until all ranks have joined.
    """
    return Communicator(_tutti.Communicator(_settings.texts(settings)))


def adopt(made) -> Communicator:
    """A communicator that another extension made: (address, the object that keeps it alive)."""
    return Communicator(_tutti.Communicator.adopt(*made))


def info() -> dict[str, Any]:
    """Describes this installation: its version, transports, algorithms and files."""
    from . import _paths

    return {
        "version": _tutti.version(),
        "transports": _tutti.transports(),
        "algorithms": {name: _tutti.algorithms(name) for name in COLLECTIVES},
        "library": str(_paths.LIBRARY),
        "include": str(_paths.INCLUDE),
        "programs": sorted(path.name for path in _paths.PROGRAMS.glob("*")),
    }
