"""Communicators of processes that exchange their handles."""

from __future__ import annotations

from typing import Any, Iterable

from . import _settings, _tutti
from ._errors import with_advice
from .communicator import Communicator, _deadline_ms


def handle(**settings: Any) -> bytes:
    """This process's handle, which the other processes need for reconfigure: give it to them in any way.

    The same job, secret, iface and insecure give the same handle, which stays valid as long as the process lives.
    """
    return _tutti.handle(_settings.texts(settings))


def reconfigure(uuid: str | int, handles: Iterable[bytes], timeout: float | None = None,
                **settings: Any) -> Communicator:
    """A communicator of the processes of these handles, this one among them; no store is needed.

    All of them call it with the same uuid, which no earlier call had, and the same handles. A list gives ranks by its
    order, a set by the handles' sorted order. timeout: seconds for this call; None for the setting timeout_ms. Settings:
    those of handle(). Older communicators stay as they are: close them.
    """
    ordered = sorted(handles) if isinstance(handles, (set, frozenset)) else list(handles)
    name = str(uuid)
    if "\0" in name:
        raise ValueError(with_advice(f"the uuid {name!r} has a NUL character", "give a text without that character"))
    return Communicator(_tutti.reconfigure(_settings.texts(settings), name, ordered, _deadline_ms(timeout)))
