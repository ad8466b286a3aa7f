"""tutti's errors for torch's programs: each is also a torch.distributed.DistBackendError."""

from __future__ import annotations

import torch.distributed as dist

from .. import _errors as base

try:
    _Backend = dist.DistBackendError
except AttributeError:
    _Backend = RuntimeError


class Error(base.Error, _Backend):
    """A call of the backend failed: see tutti.Error for rank, operation and cause."""


class MismatchError(Error, base.MismatchError):
    """The ranks made different calls; the group still works."""


class TimedOutError(Error, base.TimedOutError):
    """A deadline passed."""


class PeerLostError(Error, base.PeerLostError):
    """A rank's process is gone: the attribute rank is its number in the group."""


class AbortedError(Error, base.AbortedError):
    """The group was aborted or destroyed."""


class RevokedError(Error, base.RevokedError):
    """A rank revoked the group's communicator: the attribute rank is its number in the group."""


class UnsupportedError(Error, base.UnsupportedError):
    """This build, transport or algorithm cannot do it."""


_BY_STATUS = {3: MismatchError, 4: TimedOutError, 5: PeerLostError, 6: AbortedError, 7: UnsupportedError,
              11: RevokedError}

for _kind in (Error, *_BY_STATUS.values()):
    _kind.__module__ = __package__  # as for tutti's own


def make(status: int, rank: int, operation: str, cause: str, text: str) -> Error:
    """For the backend: the exception that a failed call raises."""
    return _BY_STATUS.get(status, Error)(text, rank=rank, operation=operation, cause=cause, status=status)
