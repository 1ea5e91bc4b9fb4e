"""numpy arrays in and out of C. Any object with DLPack on the CPU, or with the buffer protocol, is taken."""

from __future__ import annotations

import ctypes as c
from typing import Any

import numpy as np


def as_array(value: Any, dtype: Any, shape: tuple[int | None, ...], name: str) -> np.ndarray:
    """A dense array of this type and shape (None: any length); a copy only where it has to be one."""
    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        try:
            value = np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError) as error:
            raise ValueError(f"{name}: not in memory of the CPU: {error}") from error
    array = np.asarray(value)
    wanted = np.dtype(dtype)
    if array.size == 0:
        array = array.astype(wanted)
    if array.dtype.kind != wanted.kind and not (wanted.kind == "i" and array.dtype.kind == "u"):
        raise TypeError(f"{name}: {array.dtype} where {wanted} is needed")
    if wanted.kind == "i" and array.size and (array.max() > np.iinfo(wanted).max or array.min() < np.iinfo(wanted).min):
        raise ValueError(f"{name}: a number that {wanted} cannot hold")
    if array.ndim != len(shape) or any(want is not None and have != want for have, want in zip(array.shape, shape)):
        raise ValueError(f"{name}: shape {array.shape} where {tuple('n' if s is None else s for s in shape)} is needed")
    return np.ascontiguousarray(array, dtype=wanted)


def address(array: np.ndarray) -> c.c_void_p:
    return c.c_void_p(array.ctypes.data)


class Mapped:
    """Memory that another object keeps alive, for numpy: the array's base is this object."""

    def __init__(self, owner: Any, pointer: int, shape: tuple[int, ...], typestr: str) -> None:
        self.owner = owner
        self.__array_interface__ = {"data": (pointer, True), "shape": shape, "typestr": typestr, "version": 3}


def mapped(owner: Any, pointer: int, shape: tuple[int, ...], typestr: str) -> np.ndarray:
    """A read-only view of memory without a copy; `owner` lives as long as the view."""
    if 0 in shape:
        return np.empty(shape, typestr)
    return np.asarray(Mapped(owner, pointer, shape, typestr))


def copied(pointer: Any, n: int, dtype: Any, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """A copy of n numbers at a C pointer."""
    size = n * np.dtype(dtype).itemsize
    data = c.string_at(c.cast(pointer, c.c_void_p), size) if n else b""
    array = np.frombuffer(bytearray(data), dtype)
    return array if shape is None else array.reshape(shape)
