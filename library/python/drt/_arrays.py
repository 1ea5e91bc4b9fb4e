"""numpy arrays in and out of C. Any object with DLPack, or with the buffer protocol, is taken; results on a GPU are not copied."""

from __future__ import annotations

import ctypes as c
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_CPU = (1, 3, 11)                                # DLPack's kDLCPU, kDLCUDAHost, kDLROCMHost


def from_dlpack(value: Any, name: str) -> Array:
    """An object's array, without a copy."""
    if not hasattr(value, "__dlpack_device__"):
        raise TypeError(f"{name}: {type(value).__name__} where an array is needed")
    device = value.__dlpack_device__()[0]
    if device not in _CPU:
        raise ValueError(f"{name}: it lies in memory of a device (DLPack type {int(device)}): copy it to the CPU first")
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError) as error:
        raise ValueError(f"{name}: no array by DLPack: {error}") from error


def _from_gpu(value: Any) -> Any:
    """A copy on the CPU of torch's or CuPy's array on a GPU; every other value as it is."""
    if getattr(value, "__cuda_array_interface__", None) is None:
        return value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):   # through pinned memory, which torch keeps for the next call
        return torch.empty(value.shape, dtype=value.dtype, pin_memory=True).copy_(value).numpy()
    return value.get() if hasattr(value, "get") else value


def as_array(value: Any, dtype: Any, shape: tuple[int | None, ...], name: str) -> Array:
    """A dense array of this type and shape (None: any length); a copy only where it has to be one."""
    value = _from_gpu(value)
    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack_device__"):
        value = from_dlpack(value, name)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise type(error)(f"{name}: no array: {error}") from error
    wanted = np.dtype(dtype)
    if array.size == 0:
        array = array.astype(wanted)
    if array.dtype.kind != wanted.kind and not (wanted.kind == "i" and array.dtype.kind == "u"):
        raise TypeError(f"{name}: {array.dtype} where {wanted} is needed")
    if wanted.kind == "i" and array.dtype != wanted and array.size and (int(array.max()) > np.iinfo(wanted).max or int(array.min()) < np.iinfo(wanted).min):
        raise ValueError(f"{name}: a number that {wanted} cannot hold")
    if array.ndim != len(shape) or any(want is not None and have != want for have, want in zip(array.shape, shape)):
        raise ValueError(f"{name}: shape {array.shape} where {tuple('n' if s is None else s for s in shape)} is needed")
    # What numpy calls contiguous may begin at any byte, such as a view of a file's bytes.
    dense: Array = np.require(array, wanted, ["C", "ALIGNED"])
    return dense


def address(array: Array, row: int = 0) -> c.c_void_p:
    """Of an array of C's layout, or of one of its rows."""
    return c.c_void_p(array.ctypes.data + row * array.strides[0])


def _check_out(shape: tuple[int, ...], have: tuple[int, ...], right: bool) -> None:
    if have != shape or not right:
        raise ValueError(f"out: a dense, writable float32 array of shape {shape} is needed")


def cpu_out(value: Any, shape: tuple[int, ...]) -> Array:
    """A caller's float32 memory that results are written to: a numpy array, or one on the CPU with DLPack."""
    if isinstance(value, np.ndarray):
        _check_out(shape, value.shape, value.dtype == np.float32 and value.flags.c_contiguous and value.flags.aligned and value.flags.writeable)
        return value
    # numpy marks every array that comes by DLPack as read-only; the owner asks to have this one written.
    array = from_dlpack(value, "out")
    _check_out(shape, array.shape, array.dtype == np.float32 and array.flags.c_contiguous and array.flags.aligned)
    return array


def cuda_out(value: Any, shape: tuple[int, ...]) -> int | None:
    """The address of a caller's float32 memory on a GPU; None: it is not on a GPU.

    Work that torch has queued on it is waited for, since the model computes on a stream of its own.
    """
    interface = getattr(value, "__cuda_array_interface__", None) if value is not None else None
    if interface is None:
        return None
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        torch.cuda.current_stream(value.device).synchronize()
    strides = interface.get("strides")
    dense = strides is None or tuple(strides) == (shape[1] * 4, 4)
    data, read_only = interface["data"]
    _check_out(shape, tuple(interface["shape"]), interface["typestr"] == "<f4" and dense and not read_only)
    if data % 256:
        raise ValueError("out: memory of a GPU must begin at a multiple of 256 bytes, as a new tensor does")
    return int(data)


class Mapped:
    """Memory that another object keeps alive, for numpy: the array's base is this object."""

    def __init__(self, owner: Any, pointer: int, shape: tuple[int, ...], typestr: str) -> None:
        self.owner = owner
        self.__array_interface__ = {"data": (pointer, True), "shape": shape, "typestr": typestr, "version": 3}


def mapped(owner: Any, pointer: int, shape: tuple[int, ...], typestr: str) -> Array:
    """A read-only view of memory without a copy; `owner` lives as long as the view."""
    if 0 in shape:
        return np.empty(shape, typestr)
    return np.asarray(Mapped(owner, pointer, shape, typestr))


def copied(pointer: Any, n: int, dtype: Any, shape: tuple[int, ...] | None = None) -> Array:
    """A copy of n numbers at a C pointer."""
    size = n * np.dtype(dtype).itemsize
    data = c.string_at(c.cast(pointer, c.c_void_p), size) if size else b""
    array: Array = np.frombuffer(bytearray(data), dtype)
    return array if shape is None else array.reshape(shape)
