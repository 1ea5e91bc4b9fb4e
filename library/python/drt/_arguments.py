"""Arguments of callers. Each check raises TypeError or ValueError with the argument's name, before C sees the value.

ctypes alone cuts numbers to the width of a C type and takes any object for a bool.
"""

from __future__ import annotations

import numbers
import operator
import os
from collections.abc import Callable, Collection
from typing import Any


def _kind(value: object) -> str:
    return type(value).__name__


def integer(value: Any, name: str, low: int = -2**63, high: int = 2**63 - 1) -> int:
    """A whole number, also numpy's, of low .. high."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: {_kind(value)} where a whole number is needed") from None
    if not low <= number <= high:
        raise ValueError(f"{name}: {number} where a number of {low} to {high} is needed")
    return number


def id_(value: Any) -> int:
    """A token's id."""
    return integer(value, "id", -2**31, 2**31 - 1)


def seed(value: Any) -> int:
    """64 bits; a negative number is that of the same bits."""
    return integer(value, "seed", -2**63, 2**64 - 1) % 2**64


def real(value: Any, name: str) -> float:
    """A finite number."""
    if not isinstance(value, numbers.Real) and not hasattr(value, "__float__"):
        raise TypeError(f"{name}: {_kind(value)} where a number is needed")
    number = float(value)
    if not abs(number) <= 3.4e38:
        raise ValueError(f"{name}: {number} where a finite float32 is needed")
    return number


def boolean(value: Any, name: str) -> bool:
    """True, False, or a number that is 0 or 1. (Any text is true for Python, also "no".)"""
    if isinstance(value, bool):
        return value
    try:
        number = operator.index(value)
    except TypeError:
        number = bool(value) if _kind(value) in ("bool_", "bool") else -1
    if number not in (0, 1):
        raise TypeError(f"{name}: {value!r} where True or False is needed")
    return bool(number)


def text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name}: {_kind(value)} where str is needed")
    return value


def encoded(value: Any, name: str) -> bytes | None:
    """A string or a path for C; None stays. A NUL inside is refused, since C would cut the string there."""
    if value is None:
        return None
    if isinstance(value, os.PathLike):
        data = os.fsencode(value)
    elif isinstance(value, str):
        data = value.encode("utf8", "surrogateescape")
    else:
        raise TypeError(f"{name}: {_kind(value)} where str or a path is needed")
    if b"\0" in data:
        raise ValueError(f"{name}: {data!r} has a NUL byte")
    return data


def path(value: Any, name: str) -> bytes:
    data = encoded(value, name)
    if data is None:
        raise TypeError(f"{name}: None where str or a path is needed")
    if not data:
        raise ValueError(f"{name}: it is empty")
    return data


def choice(value: Any, name: str, values: Collection[Any]) -> Any:
    """One of the values, each a text or None."""
    if not (value is None or isinstance(value, str)) or value not in values:
        raise ValueError(f"{name}: {value!r} where one of {', '.join(map(repr, values))} is needed")
    return value


def instance(value: Any, name: str, type_: type) -> Any:
    if not isinstance(value, type_):
        raise TypeError(f"{name}: {_kind(value)} where drt.{type_.__name__} is needed")
    return value


def function(value: Any, name: str) -> Callable[..., Any]:
    if not callable(value):
        raise TypeError(f"{name}: {_kind(value)} where a function is needed")
    found: Callable[..., Any] = value
    return found
