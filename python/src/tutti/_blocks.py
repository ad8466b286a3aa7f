"""Blocks of different lengths: the rows of each rank, and the header by which root describes an array to other ranks.

A row is one x[i]. Each collective gets (input, output, elements, elements for each rank …), by its shape.
"""

from __future__ import annotations

import math
import operator

import numpy as np

from . import _arrays
from ._errors import with_advice

HEADER_WORDS = 2 + 64  # type, number of dimensions, and numpy's most dimensions


def rows_for(counts, size: int, name: str = "counts") -> list[int]:
    """counts as numbers, one for each rank."""
    if counts is None:
        raise ValueError(with_advice(f"{name} is None, but this rank needs it",
                                     f"pass the number of rows for each of the {size} ranks"))
    rows = [operator.index(count) for count in counts]
    if len(rows) != size or any(count < 0 for count in rows):
        raise ValueError(with_advice(f"{name} is {rows}, not {size} numbers of 0 or more",
                                     "pass the number of rows for each rank"))
    return rows


def _with_rows(x, rows: int, why: str):
    """Returns x, which has that many rows, and the number of elements in a row."""
    x = _arrays.given(x)
    if not x.shape or x.shape[0] != rows:
        raise ValueError(with_advice(f"x has shape {tuple(x.shape)}, but {why} {rows} rows",
                                     f"pass an x of {rows} rows, or correct the counts"))
    return x, math.prod(x.shape[1:])


def _elements(rows, each: int) -> list[int]:
    return [count * each for count in rows]


def gathered_everywhere(x, counts, out, rank: int, size: int):
    rows = rows_for(counts, size)
    x, each = _with_rows(x, rows[rank], "counts says that this rank gives")
    return (x, _arrays.target(out, (sum(rows), *x.shape[1:]), x), rows[rank] * each, _elements(rows, each))


def gathered(x, counts, out, rank: int, size: int, root: int):
    if rank == root:
        return gathered_everywhere(x, counts, out, rank, size)
    x = _arrays.given(x)
    return x, None, _arrays.count(x)


def scattered(x, counts, out, rank: int, size: int, root: int):
    if rank != root:
        return None, out, _arrays.count(_arrays.given(out))
    rows = rows_for(counts, size)
    x, each = _with_rows(x, sum(rows), "counts adds up to")
    return x, _arrays.target(out, (rows[rank], *x.shape[1:]), x), rows[rank] * each, _elements(rows, each)


def shapes(x, counts, size: int):
    """Returns the shapes of the blocks that scattered() makes of x."""
    rows = rows_for(counts, size)
    x, _ = _with_rows(x, sum(rows), "counts adds up to")
    return [(count, *x.shape[1:]) for count in rows]


def reduced(x, counts, out, rank: int, size: int):
    rows = rows_for(counts, size)
    x, each = _with_rows(x, sum(rows), "counts adds up to")
    return x, _arrays.target(out, (rows[rank], *x.shape[1:]), x), rows[rank] * each, _elements(rows, each)


def exchanged(x, in_counts, out_counts, out, size: int):
    going = rows_for(in_counts, size, "in_counts")
    coming = rows_for(out_counts, size, "out_counts")
    x, each = _with_rows(x, sum(going), "in_counts adds up to")
    target = _arrays.target(out, (sum(coming), *x.shape[1:]), x)
    return x, target, 0, _elements(going, each), _elements(coming, each)


def headers(x, shapes):
    """Returns one row for each rank: the type of x and the shape of that rank's block."""
    words = np.zeros((len(shapes), HEADER_WORDS), np.int64)
    words[:, 0] = np.frombuffer(_arrays.type_of(x).str.encode().ljust(8, b"\0"), np.int64)
    for header, shape in zip(words, shapes):
        header[1] = len(shape)
        header[2:2 + len(shape)] = shape
    return words


def from_header(header):
    """Returns a new array of the type and shape in a header."""
    dimensions = int(header[1])
    return np.empty(header[2:2 + dimensions].tolist(), header[:1].tobytes().rstrip(b"\0").decode())
