"""Checks the arrays of a call, makes those of results, and explains why an array cannot be used in place."""

from __future__ import annotations

import math
from typing import NoReturn

import numpy as np

from ._errors import with_advice

HOST = 1  # DLPack's number for memory of the host


def literal(x):
    """Returns x if its memory holds its visible values; tutti does not apply masks or torch's conj and neg bits."""
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(with_advice("a masked array would lose its mask", "pass x.filled(…) or x.data"))
    for mark in ("conj", "neg"):  # torch conjugates or negates the values only when they are read
        if getattr(x, f"is_{mark}", bool)():
            raise TypeError(with_advice(f"a {type(x).__name__} with the lazy '{mark}' flag of torch would lose that "
                                        "flag",
                                        f"pass x.resolve_{mark}()"))
    return x


def given(x):
    """Returns an array to read from: arrays unchanged; numbers, lists and bytes as numpy arrays."""
    if type(x) is np.ndarray:
        return x
    if hasattr(x, "__dlpack__"):
        return literal(x)
    return np.asarray(memoryview(x) if isinstance(x, bytes) else x)


def count(x) -> int:
    return math.prod(x.shape)


def type_of(x):
    """A numpy type for the result of an array of any library."""
    if isinstance(x, np.ndarray):
        return x.dtype
    try:
        return np.from_dlpack(x).dtype
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        wrong = _what_is_wrong(x, written=False)
        raise TypeError(f"x {wrong}" if wrong else with_advice(f"numpy has no type for elements of {x.dtype}",
                                                               "pass out=, an array for the result")) from error


def target(out, shape, x):
    """out, or a new array of that shape and of x's type."""
    if out is None:
        return np.empty(shape, type_of(x))
    found = out.shape if type(out) is np.ndarray else tuple(given(out).shape)
    if found != shape:
        raise ValueError(with_advice(f"out has shape {found}, but the result has shape {tuple(shape)}",
                                     "pass an out of that shape, or none"))
    return out


def same(x, out):
    """(input, output, elements) of a collective that keeps the shape."""
    x = given(x)
    shape = tuple(x.shape)
    return x, target(out, shape, x), math.prod(shape)


def explain(error: TypeError, call: str, arrays, op: str = "sum") -> NoReturn:
    """Raises a clearer error for one of the module. arrays: (name, array or None, whether it is written)."""
    if "incompatible function arguments" not in str(error):
        raise TypeError(f"{call}: {error}") from error
    for name, x, written in arrays:
        if x is not None and (wrong := _what_is_wrong(x, written)):
            raise TypeError(f"{call}: {name} {wrong}") from None
    if not isinstance(op, str):
        raise TypeError(with_advice(f"{call}: op is a {type(op).__name__}, not the name of an operator",
                                    "pass a name such as 'sum' or 'max'")) from None
    raise error


def _what_is_wrong(x, written: bool) -> str:
    """The reason why x was refused, as the end of a sentence that begins with its name; None if there is none."""
    if isinstance(x, np.ndarray):
        return _what_is_wrong_in_numpy(x, written)
    if hasattr(x, "__dlpack__"):
        if x.__dlpack_device__()[0] != HOST:
            return with_advice("is not in the host's memory", "pass a copy in host memory, in torch x.cpu()")
        if not getattr(x, "is_contiguous", lambda: True)():
            return with_advice(f"is a {type(x).__name__} with strides {tuple(x.stride())}, not contiguous",
                               "pass x.contiguous()")
        try:
            x.__dlpack__()
        except Exception as error:  # any exception of x's library
            return with_advice(f"cannot be exported by DLPack: {error}", "pass an array that can, such as numpy's")
        return ""
    try:
        return _what_is_wrong_in_numpy(np.asarray(memoryview(x)), written)
    except TypeError:
        return with_advice(f"is a {type(x).__name__}, not an array",
                           "pass a numpy array, or an object with the buffer protocol or DLPack")


def _what_is_wrong_in_numpy(x, written: bool) -> str:
    if x.dtype.kind not in "biufc" or x.dtype.itemsize > (16 if x.dtype.kind == "c" else 8):
        return with_advice(f"has elements of the unsupported type {x.dtype}",
                           "convert them with x.astype(…), or move the bytes as uint8")
    if not x.dtype.isnative:
        return with_advice(f"has elements of foreign byte order ({x.dtype.str})",
                           "pass x.astype(x.dtype.newbyteorder('='))")
    if not x.flags.c_contiguous:
        return with_advice(f"is a numpy array with strides {x.strides}, not contiguous", "pass np.ascontiguousarray(x)")
    if written and not x.flags.writeable:
        return with_advice("is read-only, but the call writes to it", "pass a writable array, such as x.copy()")
    return ""
