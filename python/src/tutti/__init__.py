"""tutti: collective communication between processes, for numpy and everything with DLPack.

    import numpy as np, tutti

    comm = tutti.init()                         # under tutti-run -n 4, torchrun, srun, mpirun, …
    total = comm.allreduce(np.ones(1000))
    with comm.iallreduce(total, out=total):
        ...                                     # computes meanwhile

``python -m tutti.run -n 4 script.py`` starts four ranks on this machine. ``import tutti.torch`` makes it a backend of
torch.distributed.
"""

from ._errors import (
    AbortedError,
    AuthenticationError,
    Error,
    InvalidError,
    MismatchError,
    OutOfMemoryError,
    PeerLostError,
    RevokedError,
    SystemFailureError,
    TimedOutError,
    UnsupportedError,
)

__all__ = [
    "ANY_SOURCE", "AbortedError", "AuthenticationError", "Communicator", "Error", "InvalidError", "MismatchError",
    "OutOfMemoryError", "PeerLostError", "Plan", "Request", "RevokedError", "SystemFailureError", "TimedOutError",
    "UnsupportedError", "__version__", "checkpoint", "handle", "info", "init", "reconfigure",
]
_LATER = ("ANY_SOURCE", "Communicator", "Plan", "Request", "info", "init")


def __getattr__(name):
    # numpy and the library are loaded when they are first used: tutti.torch needs neither.
    if name in _LATER:
        from . import communicator

        return getattr(communicator, name)
    if name in ("handle", "reconfigure"):
        from . import _handles

        return getattr(_handles, name)
    if name == "checkpoint":
        import importlib

        return importlib.import_module(".checkpoint", __name__)
    if name == "__version__":
        from . import _tutti

        return _tutti.version()
    raise AttributeError(f"module 'tutti' has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
