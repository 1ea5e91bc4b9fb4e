"""Models: landmarks of chunks, log-probabilities of texts, and generated text."""

from __future__ import annotations

import ctypes as c
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TYPE_CHECKING

import numpy as np

from . import _library as lib
from ._arrays import address, as_array, copied
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .store import Store

__all__ = ["Model", "ModelInfo", "Neighbour", "Scores", "Session", "Token"]

_ENDS = {0: None, 1: "length", 2: "eos", 3: "stop", 4: "callback"}
_MEMORIES = {None: 0, "own": 1, "corpus": 2, "both": 3}


@dataclass(frozen=True)
class ModelInfo:
    """What a model is. `variant`: "encoder-decoder", "decoder" or "base" (no retrieval)."""

    path: str
    variant: str
    device: str
    dtype: str
    dim: int
    vocab_size: int
    layers: int
    encoder_layers: int
    heads: int
    groups: int
    chunk: int
    window: int
    neighbours: int
    eos_id: int
    pad_id: int
    landmark_id: int
    parameters: int
    threads: int


@dataclass(frozen=True)
class Neighbour:
    """A chunk that the model read when it gave a token.

    `source`: "self" (the text's own past) or "corpus". `group`: of upper layers; -1: the token memory. `chunk`: id in
    the store, or the number of the chunk in this text. `document` -1: this text.
    """

    source: str
    group: int
    chunk: int
    document: int
    token_offset: int
    weight: float
    score: float


@dataclass(frozen=True)
class Token:
    """One generated token.

    `text` is what can be shown now: whole characters only, so it may be empty, or hold text of tokens before.
    `end` is None, or for the last token "length", "eos" or "stop". `logprob` is the token's before sampling options
    apply; `memory_share` is the part of its probability that a token memory gave.
    """

    id: int
    text: str
    bytes: bytes
    position: int
    logprob: float
    memory_share: float
    end: str | None
    neighbours: tuple[Neighbour, ...] = ()
    alternatives: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Scores:
    """Log-probabilities (natural) of the ids of a text.

    `ids` int32 [n]; `logprobs` float32 [n], NaN for the first id of a text; `top_ids` int32 [n, top] and `top_logprobs`
    float32 [n, top]: the most probable ids, best first (id -1 for the first id of a text); `memory_share` float32 [n], or
    None without a token memory; `first`: position of ids[0] in the text.
    """

    ids: np.ndarray
    logprobs: np.ndarray
    top_ids: np.ndarray
    top_logprobs: np.ndarray
    memory_share: np.ndarray | None
    first: int
    total: float = field(default=0.0)

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-probability of the ids that have one."""
        known = ~np.isnan(self.logprobs)
        return float(np.exp(-np.mean(self.logprobs[known], dtype=np.float64))) if known.any() else float("nan")


def _scores(found: lib.Returned) -> Scores:
    s = found.pointer.contents
    n, top = s.n, s.top
    pairs = copied(s.alternatives, n * top, np.dtype([("id", np.int32), ("logprob", np.float32)]), (n, top))
    share = copied(s.memory_share, n, np.float32) if s.memory_share else None
    return Scores(copied(s.ids, n, np.int32), copied(s.logprob, n, np.float32), np.ascontiguousarray(pairs["id"]),
                  np.ascontiguousarray(pairs["logprob"]), share, s.first, s.sum)


def _session_config(*, store: "Store | None" = None, self_retrieval: bool = False, corpus_retrieval: bool | None = None,
                    memory: str | None = None, memory_config: str | os.PathLike | None = None, memory_past: int = 0,
                    exclude_document: int | None = None, temperature: float = 0.0, top_k: int = 0, top_p: float = 0.0,
                    min_p: float = 0.0, repeat_penalty: float = 0.0, repeat_last: int = 0, seed: int = 0,
                    max_tokens: int = 0, stop: str | Sequence[str] = (), ignore_eos: bool = False, top: int = 0) -> Any:
    """The struct of a session, and what it borrows.

    store: read by `corpus_retrieval` (default: where a store is given and no memory) and by memory "corpus" and "both".
    """
    if memory not in _MEMORIES:
        raise ValueError(f'memory: "own", "corpus", "both" or None, not {memory!r}')
    if corpus_retrieval is None:
        corpus_retrieval = store is not None and memory is None
    if store is None and (corpus_retrieval or memory in ("corpus", "both")):
        raise ValueError("a store is needed for corpus retrieval and for a memory of the corpus: store=...")
    stops = [lib.encoded(s) for s in ([stop] if isinstance(stop, str) else stop)]
    config = lib.new(
        lib.session_config, corpus=corpus_retrieval, store=store._handle() if store is not None else None,
        exclude=exclude_document is not None, exclude_document=exclude_document or 0, memory=_MEMORIES[memory],
        memory_config=lib.encoded(memory_config), memory_past=memory_past, temperature=temperature, top_p=top_p,
        min_p=min_p, top_k=top_k, repeat_penalty=repeat_penalty, repeat_last=repeat_last, seed=seed,
        max_tokens=max_tokens, ignore_eos=ignore_eos, top=top, n_stops=len(stops), stops=(c.c_char_p * len(stops))(*stops))
    setattr(config, "self", self_retrieval)
    return config


class Session:
    """A running text: feed it, then take tokens. For one thread at a time; made by ``model.session(...)``."""

    def __init__(self, model: "Model", **options: Any) -> None:
        config = _session_config(**options)
        self._model = model
        self._handle = lib.opened("drt_session_open", "drt_session_close", model._handle(), c.byref(config),
                                  keeps=(model, options.get("store")))

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees the session now instead of when it is collected."""
        self._handle.close()

    def __len__(self) -> int:
        return lib.library.drt_session_tokens(self._handle())

    def reset(self, seed: int = 0) -> None:
        """Begins a new text; nothing of the old one is left."""
        lib.library.drt_session_reset(self._handle(), seed)

    def feed(self, text: str | Sequence[int] | np.ndarray, *, scores: bool = False, top: int = 0) -> Scores | None:
        """Appends a text, or ids, and begins a new generation. With `scores`: the log-probabilities of its ids."""
        with lib.Returned(c.POINTER(lib.scores)) as found:
            wanted = found.reference if scores else None
            if isinstance(text, str):
                data = text.encode("utf8", "surrogateescape")
                lib.library.drt_session_feed(self._handle(), data, len(data), wanted, top)
            else:
                ids = as_array(text, np.int32, (None,), "ids")
                lib.library.drt_session_feed_ids(self._handle(), address(ids), len(ids), wanted, top)
            return _scores(found) if scores else None

    def logprobs(self) -> np.ndarray:
        """Log-probabilities of the next id: float32 [vocab_size], before sampling options apply."""
        out = np.empty(self._model.info.vocab_size, np.float32)
        lib.library.drt_session_logprobs(self._handle(), address(out))
        return out

    def next(self) -> Token:
        """Samples one token and appends it to the text."""
        token = lib.new(lib.token)
        lib.library.drt_session_next(self._handle(), c.byref(token))
        return Token(
            token.id, c.string_at(token.text, token.bytes).decode("utf8", "replace") if token.bytes else "",
            c.string_at(token.raw, token.raw_bytes) if token.raw_bytes else b"", token.position, token.logprob,
            token.memory_share, _ENDS[token.end],
            tuple(Neighbour("corpus" if n.source else "self", n.group, n.chunk, n.document, n.token_offset, n.weight,
                            n.score) for n in token.neighbours[:token.n_neighbours]),
            tuple((a.id, a.logprob) for a in token.alternatives[:token.n_alternatives]))

    def tokens(self) -> Iterator[Token]:
        """Tokens until the generation ends."""
        while True:
            token = self.next()
            yield token
            if token.end is not None:
                return

    def statistics(self) -> dict[str, Any]:
        """Counts and seconds of this session: retrievals, cached chunks, search and encoding time."""
        info = lib.new(lib.session_info)
        lib.library.drt_session_info(self._handle(), c.byref(info))
        values = {name: getattr(info, name) for name, _ in lib.session_info._fields_ if name != "size"}
        return {**values, "searched_by": lib.decoded(values["searched_by"])}


class Model:
    """A model, ready to run. Calls that use one model take turns; `share` makes one for another thread."""

    def __init__(self, handle: lib.Handle, arguments: tuple | None) -> None:
        self._handle, self._arguments = handle, arguments
        info = lib.new(lib.model_info)
        lib.library.drt_model_info(handle(), c.byref(info))
        values = {name: getattr(info, name) for name, _ in lib.model_info._fields_ if name != "size"}
        self.info = ModelInfo(**{k: lib.decoded(v) if isinstance(v, bytes) else v for k, v in values.items()})
        self.tokenizer = Tokenizer(lib.Handle(lib.library.drt_model_tokenizer(handle()), None, handle), None)

    @classmethod
    def load(cls, path: str | os.PathLike | None = None, *, device: str = "auto", dtype: str = "auto",
             threads: int = 0) -> "Model":
        """Opens a model folder (config.json, model.safetensors, tokenizer.json); None: the bundled model.

        `device`: "auto" (a GPU if there is one), "cpu" or "cuda". `threads`: of the CPU; 0: one for each processor.
        """
        return cls(lib.opened("drt_model_open", "drt_model_close", lib.encoded(path), cls._config(device, dtype, threads)),
                   (path, device, dtype, threads))

    @staticmethod
    def _config(device: str, dtype: str, threads: int) -> Any:
        return c.byref(lib.new(lib.model_config, device=lib.encoded(device), dtype=lib.encoded(dtype), threads=threads))

    def share(self, *, device: str = "auto", dtype: str = "auto", threads: int = 0) -> "Model":
        """The same weights with a device and threads of its own, so that two threads compute at the same time."""
        handle = lib.opened("drt_model_share", "drt_model_close", self._handle(), self._config(device, dtype, threads),
                            keeps=(self,))
        return Model(handle, None)

    def __reduce__(self) -> tuple:
        if self._arguments is None:
            raise TypeError("a shared model cannot be pickled: pickle the model that it was made from")
        path, device, dtype, threads = self._arguments
        return _load_model, (path, device, dtype, threads)

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees the model now instead of when it is collected."""
        self._handle.close()

    def __repr__(self) -> str:
        return f"<drt.Model {self.info.path}: {self.info.parameters / 1e6:.1f}M parameters on {self.info.device}>"

    def encode(self, chunks: str | Sequence[int] | np.ndarray | Any, *, out: Any = None) -> Any:
        """Landmarks float32 [n, dim] of chunks.

        `chunks`: a text, or ids int32 [n, chunk] (-1 fills short chunks) as numpy array or any CPU object with DLPack.
        `out`: memory to write to, [n, dim] float32: a numpy array, or a CUDA array (such as a torch tensor on the model's
        GPU), which the model then writes without a copy; it is returned.
        """
        if isinstance(chunks, str):
            if out is not None:
                raise ValueError("out: give ids, whose number of chunks is known")
            return self._encode_text(chunks)
        ids = as_array(chunks, np.int32, (None, self.info.chunk), "chunks")
        shape = (len(ids), self.info.dim)
        device = getattr(out, "__cuda_array_interface__", None)
        if device is not None:
            if tuple(device["shape"]) != shape or device["typestr"] != "<f4" or device.get("strides") or device["data"][1]:
                raise ValueError(f"out: dense, writable float32 of shape {shape} is needed")
            lib.library.drt_model_encode_device(self._handle(), c.c_void_p(device["data"][0]), address(ids), len(ids))
            return out
        rows = np.empty(shape, np.float32) if out is None else out
        if not isinstance(rows, np.ndarray) or rows.shape != shape or rows.dtype != np.float32 \
                or not rows.flags.c_contiguous or not rows.flags.writeable:
            raise ValueError(f"out: a dense, writable float32 array of shape {shape} is needed")
        lib.library.drt_model_encode(self._handle(), address(rows), address(ids), len(ids))
        return rows

    def _encode_text(self, text: str) -> np.ndarray:
        data, n = text.encode("utf8", "surrogateescape"), c.c_int64()
        with lib.Returned() as rows:
            lib.library.drt_model_encode_text(self._handle(), rows.reference, None, c.byref(n), data, len(data))
            return copied(rows.pointer, n.value * self.info.dim, np.float32, (n.value, self.info.dim))

    def query(self, text: str | Sequence[int] | np.ndarray) -> np.ndarray:
        """The vector float32 [dim] that the model searches with after a text (or ids)."""
        ids = as_array(self.tokenizer.encode(text, special=True) if isinstance(text, str) else text, np.int32, (None,), "ids")
        vector = np.empty(self.info.dim, np.float32)
        lib.library.drt_model_query(self._handle(), address(vector), address(ids), len(ids))
        return vector

    def session(self, **options: Any) -> Session:
        """A running text. Options: see `generate`."""
        return Session(self, **options)

    def logprobs(self, text: str | Sequence[int] | np.ndarray, *, top: int = 0, **options: Any) -> Scores:
        """Log-probabilities of a text (or ids), with the retrieval options of `generate`."""
        config = _session_config(**options)
        with lib.Returned(c.POINTER(lib.scores)) as found:
            if isinstance(text, str):
                data = text.encode("utf8", "surrogateescape")
                lib.library.drt_score_text(self._handle(), c.byref(config), data, len(data), top, found.reference)
            else:
                ids = as_array(text, np.int32, (None,), "ids")
                lib.library.drt_score_ids(self._handle(), c.byref(config), address(ids), len(ids), top, found.reference)
            return _scores(found)

    def generate(self, prompt: str | Sequence[int] | np.ndarray, *, max_tokens: int = 128, **options: Any) -> Iterator[Token]:
        """Generates a continuation, token by token.

        Retrieval: `store`; `corpus_retrieval` (default: on when a store is given without a memory), `self_retrieval`;
        `memory` "own", "corpus" or "both" with `memory_config` and `memory_past`; `exclude_document`.
        Sampling: `temperature` (0: greedy), `top_k`, `top_p`, `min_p`, `repeat_penalty`, `repeat_last`, `seed`, `stop`
        (a string or several), `ignore_eos`, `top` (alternatives of each token).
        """
        with Session(self, max_tokens=max_tokens, **options) as session:
            session.feed(prompt)
            yield from session.tokens()


def _load_model(path: Any, device: str, dtype: str, threads: int) -> Model:
    return Model.load(path, device=device, dtype=dtype, threads=threads)
