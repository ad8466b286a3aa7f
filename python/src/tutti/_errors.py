"""The exceptions of tutti: each names the operation, the cause and the rank at fault."""

from __future__ import annotations

OK = 0
IN_PROGRESS = 1


def with_advice(message: str, advice: str) -> str:
    """The text of an exception: what failed and why, then advice to the reader, an imperative without a full stop."""
    return f"{message}. What to do: {advice}"


class Error(RuntimeError):
    """A call of tutti failed.

    rank: the rank at fault, -1 if none is known.
    operation: the name of the call, such as "all_reduce".
    cause: a sentence with the operation's number, the peer and what to do.
    status: tutti's status code.
    """

    def __init__(self, text: str, *, rank: int = -1, operation: str = "", cause: str = "", status: int = 0):
        super().__init__(text)
        self.rank = rank
        self.operation = operation
        self.cause = cause or text
        self.status = status


class InvalidError(Error, ValueError):
    """An argument or setting is wrong; nothing was done."""


class MismatchError(Error):
    """The ranks made different calls; the communicator still works."""


class TimedOutError(Error, TimeoutError):
    """A deadline passed."""


class PeerLostError(Error, ConnectionError):
    """A rank's process is gone: the attribute rank is its number."""


class AbortedError(Error):
    """The communicator was aborted or destroyed."""


class RevokedError(Error):
    """A rank revoked the communicator: the attribute rank is its number."""


class UnsupportedError(Error):
    """This build, transport or algorithm cannot do it."""


class AuthenticationError(Error):
    """The peer does not know the job's secret."""


class SystemFailureError(Error):
    """The operating system refused."""


class OutOfMemoryError(Error, MemoryError):
    """Memory or shared memory is exhausted."""


#: By tutti_status, as tutti.h counts them.
BY_STATUS = {
    2: InvalidError,
    3: MismatchError,
    4: TimedOutError,
    5: PeerLostError,
    6: AbortedError,
    7: UnsupportedError,
    8: AuthenticationError,
    9: SystemFailureError,
    10: OutOfMemoryError,
    11: RevokedError,
}

# A traceback then prints the names under which programs catch them.
for _kind in (Error, *BY_STATUS.values()):
    _kind.__module__ = __package__


def make(status: int, rank: int, operation: str, cause: str) -> Error:
    """The exception for a failed call; the C++ module raises it."""
    kind = BY_STATUS.get(status, Error)
    return kind(f"{operation}: {cause}", rank=rank, operation=operation, cause=cause, status=status)
