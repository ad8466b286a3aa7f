"""tutti.lightgbm over a stand-in for LightGBM's library (acted/acted_lightgbm.cpp). Run by tutti-run."""
import ctypes
import os
import sys
import threading
import time
import types

import numpy as np

import tutti
from expect import raises

ADD_DOUBLES, DIGITS, LARGER = range(3)


class LightGBMError(Exception):
    pass


library = ctypes.CDLL(os.environ["TUTTI_ACTED_LIGHTGBM"])
library.LGBM_GetLastError.restype = ctypes.c_char_p
basic = types.SimpleNamespace(_LIB=library, LightGBMError=LightGBMError)
sys.modules["lightgbm"] = types.SimpleNamespace(basic=basic, __version__="0.0")
sys.modules["lightgbm.basic"] = basic

import tutti.lightgbm  # noqa: E402

comm = tutti.init(timeout_ms=60_000)
rank, size = comm.rank, comm.size


def check(status):
    if status != 0:
        raise LightGBMError(library.LGBM_GetLastError().decode())


def ints(values):
    return (ctypes.c_int32 * len(values))(*values)


def address(x):
    return x.ctypes.data_as(ctypes.c_char_p)


def reduce_scatter(x, starts, lengths, out, type_size, reducer):
    check(library.acted_reduce_scatter(address(x), x.nbytes, type_size, ints(starts), ints(lengths), address(out),
                                       out.nbytes, reducer))


def allgather(x, starts, lengths, out):
    check(library.acted_allgather(address(x), ints(starts), ints(lengths), address(out), out.nbytes))


def starts_of(lengths, gap=0):
    """The blocks lie one after the other, with a gap between them."""
    return [sum(lengths[:r]) + r * gap for r in range(len(lengths))]


def blocks():
    """For each number of ranks: equal, unequal, some empty, all empty."""
    return [[8] * size, [8 * (r + 1) for r in range(size)], [0 if r == 0 else 24 for r in range(size)],
            [16 if r == 0 else 0 for r in range(size)], [0] * size, [80_000 + 8 * r for r in range(size)]]


def of(r, count):
    return (np.arange(count) % 5 + r + 1).astype(np.float64)


def folded(values):
    """DIGITS over the ranks' values, in rank order."""
    total = values[0].copy()
    for value in values[1:]:
        total = (total * np.uint8(10) + value).astype(np.uint8)
    return total


def reduce_scatters():
    for lengths in blocks():
        starts = starts_of(lengths)
        own = slice(starts[rank] // 8, (starts[rank] + lengths[rank]) // 8)
        x, out = of(rank, sum(lengths) // 8), np.full(lengths[rank] // 8 + 3, -1.0)
        reduce_scatter(x, starts, lengths, out, 8, ADD_DOUBLES)
        wanted = sum(of(r, len(x)) for r in range(size))[own]
        assert (out[:len(wanted)] == wanted).all() and (out[len(wanted):] == -1).all(), (lengths, out)


def reducers_see_the_ranks_in_order():
    for lengths in blocks():
        for gap in (0, 5):
            starts = starts_of(lengths, gap)
            total = starts[-1] + lengths[-1]
            xs = [(np.arange(total) % 3 + r + 1).astype(np.uint8) for r in range(size)]
            out = np.zeros(max(lengths[rank], 1), np.uint8)
            reduce_scatter(xs[rank].copy(), starts, lengths, out, 1, DIGITS)
            wanted = folded(xs)[starts[rank]:starts[rank] + lengths[rank]]
            assert (out[:lengths[rank]] == wanted).all(), (lengths, gap, out, wanted)


def a_reducer_sees_whole_items():
    items = np.array([[(7 * i + r) % size, r, i, 9, 9] for i in range(4 * size) for r in [rank]], np.uint8)
    lengths = [20] * size  # 4 items of 5 bytes for each rank
    out = np.zeros(20, np.uint8)
    reduce_scatter(items, starts_of(lengths), lengths, out, 5, LARGER)
    for item, i in zip(out.reshape(4, 5), range(4 * rank, 4 * rank + 4)):
        best = max(range(size), key=lambda r: ((7 * i + r) % size, -r))
        assert item.tolist() == [(7 * i + best) % size, best, i, 9, 9], (i, item)


def a_result_in_the_input():
    lengths = [8 * (r + 1) for r in range(size)]
    starts = starts_of(lengths)
    x = of(rank, sum(lengths) // 8)
    wanted = sum(of(r, len(x)) for r in range(size))[starts[rank] // 8:][:rank + 1]
    reduce_scatter(x, starts, lengths, x, 8, ADD_DOUBLES)
    assert (x[:rank + 1] == wanted).all(), x


def allgathers():
    for lengths in blocks():
        for gap in (0, 3):
            starts = starts_of(lengths, gap)
            x = np.full(lengths[rank] + 1, rank + 1, np.uint8)
            out = np.full(starts[-1] + lengths[-1] + 1, 99, np.uint8)
            allgather(x, starts, lengths, out)
            wanted = np.full(len(out), 99, np.uint8)
            for r in range(size):
                wanted[starts[r]:starts[r] + lengths[r]] = r + 1
            assert (out == wanted).all(), (lengths, gap, out)


def gathers_in_place():
    """Input and output are one buffer, and this rank's block lies at its beginning, or in its place."""
    for lengths in blocks():
        starts, total = starts_of(lengths), sum(lengths)
        mine = (np.arange(lengths[rank]) % 7 + 10 * rank).astype(np.uint8)
        wanted = np.concatenate([(np.arange(n) % 7 + 10 * r).astype(np.uint8) for r, n in enumerate(lengths)])
        for at in (0, starts[rank]):
            out = np.full(total + 1, 99, np.uint8)
            out[at:at + len(mine)] = mine
            allgather(out[at:], starts, lengths, out)
            assert (out[:total] == wanted).all() and out[total] == 99, (lengths, at, out)


def allreduces():
    for count in (1, 2, 5, 1000, 30_001):  # fewer items than ranks: the last blocks are empty
        x, out = of(rank, count), np.full(count, -1.0)
        check(library.acted_allreduce(address(x), x.nbytes, 8, address(out), ADD_DOUBLES))
        assert (out == sum(of(r, count) for r in range(size))).all(), count


def all_ranks_have_the_same_bits():
    x = np.random.default_rng(rank).random(5000) * 10.0 ** np.random.default_rng(rank + 50).integers(-9, 9, 5000)
    out = np.zeros_like(x)
    check(library.acted_allreduce(address(x), x.nbytes, 8, address(out), ADD_DOUBLES))
    everyones = comm.allgather(out)
    assert (everyones.view(np.uint64) == everyones[0].view(np.uint64)).all()


def one_network_for_a_thread():
    with tutti.lightgbm.network(comm) as given:
        assert given is comm and library.acted_machines() == size
        raises(RuntimeError, ["inside a network already", "What to do"], tutti.lightgbm.network(comm).__enter__)
        assert library.acted_machines() == size, "the refused one took the first one's network"
        allgathers()
    assert library.acted_machines() == 1
    with tutti.lightgbm.network(comm):
        allgathers()


def a_thread_without_a_network():
    allgather_address = ctypes.c_void_p(tutti._tutti.LightgbmNetwork.allgather_address())

    def call():
        told.append(raises(LightGBMError, ["is not inside tutti.lightgbm.network()", "What to do"],
                           lambda: check(library.acted_call_elsewhere(allgather_address))))

    told = []
    with tutti.lightgbm.network(comm):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        assert len(told) == 1
        allgathers()
    call()  # nor is it open in this thread any more


def a_block_that_ends_in_another_thread():
    network = tutti.lightgbm.network(comm)
    network.__enter__()
    told = []
    thread = threading.Thread(target=lambda: told.append(raises(RuntimeError, "ended in another thread",
                                                                network.__exit__, None, None, None)))
    thread.start()
    thread.join()
    assert len(told) == 1
    raises(LightGBMError, "is not inside", allgathers)
    with tutti.lightgbm.network(comm):  # the thread may have another
        allgathers()


def a_communicator_that_is_closed_under_a_collective():
    """Another thread ends the block and closes the communicator while the block's thread waits in a collective."""
    if size == 1:
        return
    part, told, entered = comm.dup(), [], threading.Event()
    network = tutti.lightgbm.network(part)

    def train():
        network.__enter__()
        entered.set()
        error = raises(LightGBMError, "What to do", allgathers)
        # On a busy machine the block may have ended before the call.
        assert "aborted" in str(error) or "is not inside" in str(error), error
        told.append(error)

    if rank == 0:
        thread = threading.Thread(target=train)
        thread.start()
        entered.wait()
        time.sleep(0.3)  # it waits inside the call by then, as a rule
        raises(RuntimeError, "ended in another thread", network.__exit__, None, None, None)
        part.close()
        thread.join()
        assert len(told) == 1
    comm.barrier()
    part.close()


def a_network_that_is_not_used():
    def idle():
        with tutti.lightgbm.network(comm):
            pass

    if size == 1:
        idle()
    else:
        raises(RuntimeError, [f"rank {rank}: LightGBM used no collective of this thread", "What to do"], idle)
    assert library.acted_machines() == 1


def another_number_of_machines():
    with tutti.lightgbm.network(comm):
        allgathers()
        library.LGBM_NetworkInitWithFunctions(
            size + 1, rank, ctypes.c_void_p(tutti._tutti.LightgbmNetwork.reduce_scatter_address()),
            ctypes.c_void_p(tutti._tutti.LightgbmNetwork.allgather_address()))
        raises(LightGBMError, [f"rank {rank}: LightGBM has {size + 1} machines", f"has {size} ranks"], allgather,
               np.zeros(8), [0] * (size + 1), [8] * (size + 1), np.zeros(8))


def an_old_lightgbm():
    basic._LIB = types.SimpleNamespace()
    try:
        raises(tutti.UnsupportedError, ["LightGBM 0.0 has no function LGBM_NetworkInitWithFunctions", "What to do"],
               tutti.lightgbm.network(comm).__enter__)
    finally:
        basic._LIB = library
    del sys.modules["lightgbm.basic"], sys.modules["lightgbm"]
    sys.modules["lightgbm"] = None  # cannot be imported
    try:
        raises(ImportError, ["needs LightGBM", "What to do: pip install"], tutti.lightgbm.network(comm).__enter__)
    finally:
        sys.modules.update({"lightgbm": types.SimpleNamespace(basic=basic, __version__="0.0"), "lightgbm.basic": basic})


def ranks_that_differ():
    if size == 1:
        return
    with tutti.lightgbm.network(comm):
        lengths = [8 + 8 * (rank == 1)] * size
        raises(LightGBMError, ["tutti: allgather for LightGBM: rank ", "What to do"], allgather, np.zeros(16),
               starts_of(lengths), lengths, np.zeros(64))
        allgathers()  # the communicator works on


def threads_with_networks_of_their_own():
    """Each of two threads has its own communicator, and both reduce at the same time."""
    parts, failures = [comm.dup(), comm.dup()], []

    def work(part):
        try:
            with tutti.lightgbm.network(part):
                for _ in range(20):
                    reduce_scatters()
                    allreduces()
        except BaseException as error:  # a thread's exception would be lost
            failures.append(error)

    threads = [threading.Thread(target=work, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    for part in parts:
        part.close()


def a_closed_communicator():
    part = comm.dup()
    with tutti.lightgbm.network(part):
        allgathers()
        comm.barrier()  # closing it inside the block ends the others' calls
        part.close()
        lengths = [8] * size
        raises(LightGBMError, ["aborted", "What to do"], allgather, np.zeros(8), starts_of(lengths), lengths,
               np.zeros(8))
    raises(ValueError, ["is closed", "What to do"], tutti.lightgbm.network(part).__enter__)
    assert library.acted_machines() == 1


INSIDE = (reduce_scatters, reducers_see_the_ranks_in_order, a_reducer_sees_whole_items, a_result_in_the_input,
          allgathers, gathers_in_place, allreduces, all_ranks_have_the_same_bits)
OUTSIDE = (one_network_for_a_thread, a_thread_without_a_network, a_block_that_ends_in_another_thread,
           a_communicator_that_is_closed_under_a_collective, a_network_that_is_not_used, another_number_of_machines,
           an_old_lightgbm, ranks_that_differ, threads_with_networks_of_their_own, a_closed_communicator)
for test in INSIDE + OUTSIDE:
    if test in INSIDE:
        with tutti.lightgbm.network(comm):
            test()
    else:
        test()
    comm.barrier()
    if rank == 0:
        print(f"CASE {test.__name__}", flush=True)
comm.close()
