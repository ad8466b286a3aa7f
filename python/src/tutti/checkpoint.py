"""Checkpoints: a model's state in one file that any number of ranks restores. The layout: docs/how-to/checkpoints.md.

    state = {"conv.weight": weight, "fc.weight": Shard(rows, first_row=first, rows=classes)}
    tutti.checkpoint.save("epoch-12.safetensors", state, comm, texts={"epoch": "12"})
    tutti.checkpoint.load("epoch-12.safetensors", state, comm)

The file has the safetensors layout. Arrays are numpy's, torch's (a state_dict is a state) or anything with the buffer
protocol or DLPack in host memory, in one piece; they are used without a copy.
"""

from __future__ import annotations

import os
from typing import Any, Mapping

from . import _arrays, _tutti
from ._errors import with_advice
from .communicator import Communicator

__all__ = ["Loaded", "Shard", "load", "save"]


class Shard:
    """Some rows of a value that is spread over the ranks.

    data: an array (own rows, …), which may have no rows; first_row: the index of its first row in the whole;
    rows: the number of rows of the whole.
    """

    def __init__(self, data: Any, first_row: int, rows: int):
        self.data, self.first_row, self.rows = data, int(first_row), int(rows)


class Loaded:
    """The result of a load besides the arrays. missing: names that the file lacks (allow_missing), without a scope."""

    def __init__(self, native):
        self._native = native
        self.missing: list[str] = native.missing()

    def text(self, key: str) -> str | None:
        """A text that was saved with the state."""
        return self._native.text(_text(key))


def _text(text: str) -> str:
    # The library's texts end with the first NUL.
    if "\0" in text:
        raise ValueError(with_advice(f"{text!r} has a NUL character, which names, texts and paths cannot have",
                                     "remove that character"))
    return text


def _plain(data):
    # torch exports no memory of a tensor that requires gradients; its detached view shares that memory.
    return data.detach() if hasattr(data, "detach") else data


def _listed(state, target: bool):
    native = _tutti.Checkpoint()
    add = native.add_target if target else native.add_source
    for name, value in state.items():
        shard = value if isinstance(value, Shard) else Shard(value, 0, 0)
        data = (_arrays.literal if target else _arrays.given)(_plain(shard.data))
        try:
            add(_text(name), data, shard.first_row if shard is value else None, shard.rows)
        except TypeError as error:
            _arrays.explain(error, "load" if target else "save", [(name, data, target)])
    return native


def save(path: str | os.PathLike, state: Mapping[str, Any], comm: Communicator | None = None,
         texts: Mapping[str, str] | None = None) -> None:
    """Writes state to path; a crash leaves the old file or the new one.

    state: arrays that are whole on every rank (rank 0's are written), and Shards, whose rows on all ranks cover the
    whole exactly once. Collective over comm, None: this process alone; rank 0 writes. Keys of texts are not "tutti.…".

    ValueError for a name, text or path with a NUL character. InvalidError on every rank if a row is missing or on two
    ranks, or if entries differ between ranks; SystemFailureError for an error of the file system. After a failure path
    is unchanged.
    """
    native = _listed(state, target=False)
    for key, text in (texts or {}).items():
        native.set_text(_text(key), _text(text))
    native.save(None if comm is None else comm._native, _text(os.fspath(path)))


def load(path: str | os.PathLike, state: Mapping[str, Any], comm: Communicator | None = None, *,
         allow_missing: bool = False, allow_extra: bool = False) -> Loaded:
    """Restores the arrays of state, in place, from path. They must have the shapes and types of the saved arrays.

    Shards may be of any rows, whichever rank saved them. Collective over comm, None: this process alone; only rank 0
    needs the file. allow_missing: arrays that the file lacks keep their values; allow_extra: the file may have more.

    InvalidError on every rank for a file that is damaged or of another model; the arrays are then unchanged. If one rank
    saves while others load, all get MismatchError, and the communicator still works.
    """
    native = _listed(state, target=True)
    native.load(None if comm is None else comm._native, _text(os.fspath(path)), allow_missing, allow_extra)
    return Loaded(native)
