"""LightGBM's distributed training over a tutti.Communicator.

    comm = tutti.init()
    with tutti.lightgbm.network(comm):
        data = lightgbm.Dataset(rows_of_this_rank, labels)
        model = lightgbm.train({"tree_learner": "data", "num_machines": comm.size, "pre_partition": True}, data)

LightGBM passes its collectives to the communicator's functions (LGBM_NetworkInitWithFunctions), and opens no sockets.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Iterator

from . import _tutti
from ._errors import UnsupportedError, with_advice
from .communicator import Communicator

__all__ = ["network"]


def _library():
    """LightGBM's module with its library, or an ImportError with advice."""
    try:
        import lightgbm.basic
    except (ImportError, OSError) as error:  # OSError: its library, or one that it needs, cannot be loaded
        raise ImportError(with_advice(f"tutti.lightgbm needs LightGBM, which cannot be imported here ({error})",
                                      "pip install lightgbm")) from error
    basic = lightgbm.basic
    for name in ("LGBM_NetworkInitWithFunctions", "LGBM_NetworkFree"):
        if not hasattr(basic._LIB, name):
            raise UnsupportedError(with_advice(f"tutti.lightgbm.network: LightGBM {lightgbm.__version__} has no "
                                               f"function {name}, so it cannot use another network",
                                               "pip install --upgrade lightgbm"),
                                   operation="network")
    return basic


def _check(basic, status: int) -> None:
    if status != 0:
        raise basic.LightGBMError(basic._LIB.LGBM_GetLastError().decode("utf-8"))


@contextlib.contextmanager
def network(comm: Communicator) -> Iterator[Communicator]:
    """LightGBM's collectives in this thread go over comm, until the block ends. The value of ``as`` is comm.

    Make each Dataset and train inside the block, in the thread that entered it: LightGBM's network belongs to a thread.
    The parameters need num_machines=comm.size and a tree_learner; pre_partition=True if each rank has its own rows. No
    ``machines``: LightGBM then opens sockets. Every rank trains with the same parameters. A callback may call comm, on
    every rank. Threads with communicators of their own may train at the same time.

    A failed collective raises lightgbm.basic.LightGBMError with tutti's text, which names the rank at fault.
    RuntimeError: this thread is inside a network already; another thread ended the block; or, at its end, LightGBM used
    no collective of this thread: it trained in another thread, alone. ValueError: comm is closed. ImportError: there is
    no LightGBM; UnsupportedError: it is too old.
    """
    basic = _library()
    native = _tutti.LightgbmNetwork(comm._native)
    try:
        _check(basic, basic._LIB.LGBM_NetworkInitWithFunctions(
            ctypes.c_int(comm.size), ctypes.c_int(comm.rank), ctypes.c_void_p(native.reduce_scatter_address()),
            ctypes.c_void_p(native.allgather_address())))
        yield comm
        if comm.size > 1 and not native.used():
            # A thread without a network trains alone, without an error of LightGBM's.
            raise RuntimeError(with_advice(f"tutti.lightgbm.network: rank {comm.rank}: LightGBM used no collective of "
                                           "this thread inside the block, so a model that was trained there has this "
                                           "rank's rows alone",
                                           "make the Dataset and train in the thread that entered the block, with "
                                           f"num_machines={comm.size} and a tree_learner"))
    finally:
        basic._LIB.LGBM_NetworkFree()
        native.leave()
