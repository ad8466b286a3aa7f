"""A stand-in for the package torchcomms: as much of its interface as a backend in Python meets."""
import importlib.metadata

from ._comms import CommOptions, RedOpType, ReduceOp, new_comm  # noqa: F401


def _load_backend(name):
    found = importlib.metadata.entry_points(group="torchcomms.backends", name=name)
    if not found:
        raise ModuleNotFoundError(f"no entry point of the group torchcomms.backends has the name {name}")
    next(iter(found)).load()
