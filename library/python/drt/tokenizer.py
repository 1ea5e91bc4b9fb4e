"""Byte-level BPE tokenizers of the library."""

from __future__ import annotations

import ctypes as c
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _arguments as check
from . import _library as lib
from ._arrays import Array, address, as_array, copied

__all__ = ["Tokenizer"]


class Tokenizer:
    """A tokenizer. Any number of threads may use one at the same time.

    ``Tokenizer.load(path)`` reads a tokenizer.json or a folder that has one; ``model.tokenizer`` is a model's.
    """

    def __init__(self, handle: lib.Handle, path: str | None) -> None:
        self._handle, self._path = handle, path

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tokenizer":
        """Opens `path`: a tokenizer.json, or a folder with one."""
        return cls(lib.opened("drt_tokenizer_open", "drt_tokenizer_close", check.path(path, "path")), os.path.abspath(path))

    def __reduce__(self) -> tuple[Any, ...]:
        if self._path is None:
            raise TypeError("a model's tokenizer cannot be pickled: pickle the model, or load the tokenizer by its path")
        return Tokenizer.load, (self._path,)

    def __repr__(self) -> str:
        return f"<drt.Tokenizer of {self.vocab_size} ids>"

    @property
    def vocab_size(self) -> int:
        """The highest id + 1."""
        return int(lib.library.drt_tokenizer_vocab_size(self._handle()))

    def encode(self, text: str, *, special: bool = False) -> Array:
        """The ids of a text: int32 [n].

        `special`: special tokens that are written out become their ids (as prompts want); otherwise they are
        ordinary text (as corpora want). No begin or end token is added.
        """
        data = lib.utf8(text, "text")
        n = c.c_size_t()
        with lib.Returned() as ids:
            lib.library.drt_tokenizer_encode(self._handle(), ids.reference, c.byref(n), data, len(data),
                                             check.boolean(special, "special"))
            return copied(ids.pointer, n.value, np.int32)

    def decode(self, ids: Sequence[int] | Array, *, skip_special: bool = True) -> str:
        """The text of ids. Bytes that are no UTF-8, and ids without a token, become U+FFFD."""
        array = as_array(ids, np.int32, (None,), "ids")
        n = c.c_size_t()
        with lib.Returned() as text:
            lib.library.drt_tokenizer_decode(self._handle(), text.reference, c.byref(n), address(array), len(array),
                                             check.boolean(skip_special, "skip_special"))
            return text.data(n.value).decode("utf8")

    def bytes_of(self, id: int) -> bytes:
        """The bytes that an id stands for inside a text: they may be a part of a character."""
        data, n = c.c_void_p(), c.c_size_t()
        lib.library.drt_tokenizer_bytes(self._handle(), c.byref(data), c.byref(n), check.id_(id))
        return c.string_at(data, n.value) if n.value else b""

    def spelling(self, id: int) -> str | None:
        """An id's spelling in tokenizer.json; None: no token has this id."""
        found = lib.library.drt_tokenizer_spelling(self._handle(), check.id_(id))
        return None if found is None else str(found, "utf8", "replace")

    def id_of(self, spelling: str) -> int | None:
        """The id with this spelling in tokenizer.json; None: there is none."""
        found = int(lib.library.drt_tokenizer_id(self._handle(), check.encoded(check.text(spelling, "spelling"), "spelling")))
        return None if found < 0 else found

    def is_special(self, id: int) -> bool:
        """Whether an id is a special token."""
        return bool(lib.library.drt_tokenizer_is_special(self._handle(), check.id_(id)))
