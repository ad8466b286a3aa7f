"""Runs named cases on a rank, one after the other; rank 0 prints their outcomes as JSON lines.

A case that fails on any rank is reported with that rank's traceback; the others go on."""
import datetime
import json
import os
import sys
import traceback

import torch
import torch.distributed as dist

import tutti.torch
from expect import raises, raises_late  # noqa: F401 (programs import it from here)

CASES = {}
VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
# The cases work around methods that the oldest torch lacks; every newer torch must have them.
OLDEST = VERSION == tutti.torch.OLDEST_TORCH


def case(function):
    CASES[function.__name__] = function
    return function


def rank():
    return dist.get_rank()


def size():
    return dist.get_world_size()


def equal(got, wanted, what=""):
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        raise AssertionError(f"{what}: got {got.dtype} {tuple(got.shape)}, wanted {wanted.dtype} "
                             f"{tuple(wanted.shape)}")
    if got.dtype.itemsize == 1 and got.dtype.is_floating_point:
        got, wanted = got.float(), wanted.float()
    if not torch.equal(got, wanted):
        raise AssertionError(f"{what}: got {got}, wanted {wanted}")


def close(got, wanted, what="", tolerance=1e-5):
    if not torch.allclose(got.to(torch.complex128), wanted.to(torch.complex128), rtol=tolerance, atol=tolerance):
        raise AssertionError(f"{what}: got {got}, wanted {wanted}")


def monitored_barrier(**named):
    """Torch 2.4 allows it to gloo alone, the backend's own method to everyone."""
    if not OLDEST:
        return dist.monitored_barrier(**named)
    tutti.torch.backend_of().monitored_barrier(named.get("timeout", datetime.timedelta(minutes=30)),
                                               named.get("wait_all_ranks", False))


def run():
    """Runs all cases; between them the ranks tell each other through torch's store how it went."""
    store = dist.distributed_c10d._get_default_store()
    broken = ""
    for name, function in CASES.items():
        try:
            function()
            mine = ""
        except BaseException:  # also what a broken case throws at the others
            mine = f"rank {rank()}:\n{traceback.format_exc()}"
            print(f"case {name}, {mine}", file=sys.stderr, flush=True)  # rank 0 may wait for this rank, and print nothing
        store.set(f"case/{name}/{rank()}", mine)
        told = [store.get(f"case/{name}/{other}").decode() for other in range(size())]
        failures = "\n".join(text for text in told if text)
        if rank() == 0:
            print("CASE " + json.dumps({"name": name, "failure": failures}), flush=True)
        if failures and "TUTTI_TEST_KEEP_GOING" not in os.environ:
            sys.stdout.flush()
            os._exit(1)  # later failures may only follow from this one
        broken = broken or failures
    if not broken:
        dist.barrier()  # the store may be rank 0's, and others still read it
    dist.destroy_process_group()
