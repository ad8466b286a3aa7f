"""tutti for torchft: a process group that changes its members at run time.

    from tutti.torch.ft import ProcessGroupTutti

    manager = torchft.Manager(pg=ProcessGroupTutti(timeout=timedelta(seconds=30)), …)
"""

from __future__ import annotations

from datetime import timedelta

from .._errors import with_advice
from . import (AbortedError, Error, Options, PeerLostError, RevokedError, TimedOutError, _devices, _settings,
               backend_of, build, last_error, torch)

try:
    from torchft.process_group import ProcessGroupWrapper
except ImportError as error:
    raise ImportError(with_advice(f"tutti.torch.ft needs torchft, which cannot be imported here ({error})",
                                  "pip install torchft")) from error

__all__ = ["ProcessGroupTutti"]


class ProcessGroupTutti(ProcessGroupWrapper):
    """torchft's process group over tutti, for tensors of hosts and CUDA devices.

    timeout: for joining and for every operation. options: tutti's settings of each group (tutti.torch.Options).

    configure() joins a new group of the given ranks, through a store prefix that no other group has used; it first
    aborts the old group, on all its ranks. If a member is gone, the others' calls raise PeerLostError with its rank at
    once; TimedOutError from configure() names the ranks that did not come.
    """

    def __init__(self, timeout: timedelta = timedelta(seconds=60), options: Options | None = None) -> None:
        super().__init__(timeout)
        self._tutti_settings = _settings(options)
        self._tutti_name = "torchft"

    def configure(self, store_addr: str, *arguments, **named) -> None:
        """Leaves the present group and joins that of the ranks which pass the same store_addr."""
        # A process counts its communicators of one job, and a new replica has joined fewer than the others. So each
        # group is a job of its own, with the name of its store and prefix.
        self._tutti_name = "torchft/" + store_addr
        super().configure(store_addr, *arguments, **named)

    def _create_pg(self, store, rank: int, world_size: int):
        milliseconds = round(self._timeout.total_seconds() * 1000)
        # The replicas have a launcher each, or none, so the launcher's run must not be part of the keys.
        try:
            backend = build().create(store, rank, world_size, milliseconds, self._tutti_name, self._tutti_settings,
                                     one_launcher=False)
        except TimedOutError as error:
            # With torchft's own groups torch's store fails first, and programs look for its words.
            raise TimedOutError(f"timeout after {milliseconds}ms: {error}", rank=error.rank, operation=error.operation,
                                cause=error.cause, status=error.status) from None
        group = torch.distributed.ProcessGroup(store, rank, world_size)
        custom = torch.distributed.ProcessGroup.BackendType.CUSTOM
        group._set_default_backend(custom)
        for device in _devices():
            group._register_backend(torch.device(device), custom, backend)
        return group

    def errored(self) -> Error | None:
        """The error that has ended the present group, None while it works. configure() makes a new group."""
        cause = last_error(self._pg) if self._pg else None
        ended = isinstance(cause, (AbortedError, PeerLostError, RevokedError, TimedOutError))
        return Error(f"the process group is aborted: {cause}") if ended else None

    def set_timeout(self, timeout: timedelta) -> None:
        """Changes the time-out of the next groups; with torch 2.15 also that of the present group's next operations."""
        super().set_timeout(timeout)
        backend = backend_of(self._pg) if self._pg else None
        if hasattr(backend, "set_timeout"):
            backend.set_timeout(timeout)

    def getBackendName(self) -> str:  # noqa: N802
        return "torchft-tutti"
