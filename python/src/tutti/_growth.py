"""The calls of a Communicator with which ranks join and leave a running job."""

from __future__ import annotations


class Growth:
    """A base of Communicator, which has the module's object."""

    def grow(self, newcomers: int) -> Growth:
        """A communicator of these ranks, which keep their numbers, and of so many new processes, numbered after them.

        A newcomer calls init(join=True) with the job's store, job and secret. All ranks of this communicator call grow with
        the same number and wait for the newcomers, up to timeout_ms. This communicator stays as it is: close both.
        """
        return type(self)(self._native.grow(newcomers))

    def waiting(self) -> int:
        """The number of processes that wait to join: this rank alone asks the job's store.

        Let rank 0 ask and tell the others, and all of them call grow with that number. If the process that served a tcp
        store has ended, this rank serves it anew, so that newcomers find it.
        """
        return self._native.waiting()

    def leave(self) -> None:
        """Takes this rank out of the communicator, after the operations that it has begun.

        The other ranks' next collective raises PeerLostError, and their next shrink() does not wait for this rank. Later
        calls here raise ValueError; close() is still due.
        """
        self._native.leave()
