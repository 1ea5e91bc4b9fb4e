"""Models: landmarks of chunks, log-probabilities of texts, and generated text."""

from __future__ import annotations

import ctypes as c
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, TYPE_CHECKING

import numpy as np

from . import _arguments as check
from . import _library as lib
from ._arrays import Array, address, as_array, copied, cpu_out, cuda_out
from ._calls import LongCall
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .store import Store

__all__ = ["Model", "ModelInfo", "Neighbour", "Scores", "Session", "Token"]

_ENDS = {0: None, 1: "length", 2: "eos", 3: "stop", 4: "callback"}
_CHUNKS, _CHUNKS_GPU = 1024, 65536               # of one call into C
_MEMORY_KEYS = ("auto", "stored", "device", "encoded")
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

    `ids` int32 [n]; `logprobs` float32 [n], NaN for the first id of a text and for those of `skip`; `top_ids` int32 [n, top]
    and `top_logprobs` float32 [n, top]: the most probable ids, best first (id -1 where there is no log-probability);
    `memory_share` float32 [n], or None without a token memory; `first`: position of ids[0] in the text.
    """

    ids: Array
    logprobs: Array
    top_ids: Array
    top_logprobs: Array
    memory_share: Array | None
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


def _text(data: int | None, size: int) -> str:
    return c.string_at(data, size).decode("utf8", "replace") if data and size else ""


def _stops(stop: Any) -> list[bytes]:
    if stop is None or isinstance(stop, str):
        stop = [] if stop is None else [stop]
    if isinstance(stop, bytes) or not isinstance(stop, Iterable):
        raise TypeError(f"stop: {type(stop).__name__} where str or several str are needed")
    return [check.path(check.text(s, f"stop[{i}]"), f"stop[{i}]") for i, s in enumerate(stop)]


def _session_config(model: "Model", *, store: "Store | None" = None, self_retrieval: bool = False,
                    corpus_retrieval: bool | None = None, searcher: str = "auto", memory: str | None = None,
                    memory_config: str | os.PathLike[str] | None = None, memory_past: int = 0,
                    memory_keys: str = "auto", memory_k: int = 0, memory_every: int = 0, exclude_document: int | None = None, continuation: int = 0, overlap: int = 0, query_tokens: int = 0,
                    temperature: float = 0.0, top_k: int = 0, top_p: float = 0.0, min_p: float = 0.0, repeat_penalty: float = 0.0,
                    repeat_last: int = 0, seed: int = 0, max_tokens: int = 0, stop: str | Sequence[str] | None = None,
                    ignore_eos: bool = False, top: int = 0, skip: int = 0, rewind: bool = False) -> tuple[Any, Any]:
    """The struct of a session, and the searcher that it borrows (None: the session makes one).

    store: read by `corpus_retrieval` (default: where a store is given and no memory) and by memory "corpus" and "both".
    searcher: how `corpus_retrieval` finds chunks: "auto" (by landmarks), "lexical" or "hybrid".
    continuation: `corpus_retrieval` retrieves with each found chunk up to so many chunks after it in its document.
    overlap: a continuation (of `self_retrieval`, too) begins so many ids before the end of what it continues.
    query_tokens: a search by words reads only the last so many ids of the text; 0: the last 128.
    rewind: `Session.rewind` will be called.
    skip: scores leave out the first so many ids of the text, and a memory of the corpus makes its first search after them.
    """
    from .store import Store
    check.choice(memory, "memory", _MEMORIES)
    check.choice(searcher, "searcher", ("auto", "lexical", "hybrid"))
    check.choice(memory_keys, "memory_keys", _MEMORY_KEYS)
    if store is not None:
        check.instance(store, "store", Store)
    if corpus_retrieval is None:
        corpus_retrieval = store is not None and memory is None
    if store is None and (corpus_retrieval or memory in ("corpus", "both")):
        raise ValueError("a store is needed for corpus retrieval and for a memory of the corpus: store=...")
    found = None
    if searcher != "auto":
        if store is None or not corpus_retrieval:
            raise ValueError(f"searcher {searcher!r}: is of corpus retrieval: give a store, and no memory")
        found = store._searcher(model, searcher, False, 0, 0)
    stops = _stops(stop)
    if exclude_document is not None:
        exclude_document = check.integer(exclude_document, "exclude_document", 0)
    config: Any = lib.new(
        lib.session_config, self=self_retrieval, corpus=corpus_retrieval, store=store._handle().value if store is not None else None,
        searcher=found.value if found is not None else None,
        exclude=exclude_document is not None, exclude_document=exclude_document or 0, memory=_MEMORIES[memory],
        memory_config=memory_config, memory_past=memory_past,
        memory_keys=_MEMORY_KEYS.index(memory_keys), memory_k=memory_k, memory_every=memory_every, temperature=temperature, top_p=top_p,
        min_p=min_p, top_k=top_k, repeat_penalty=repeat_penalty, repeat_last=repeat_last, seed=check.seed(seed),
        max_tokens=max_tokens, ignore_eos=ignore_eos, top=top, n_stops=len(stops), stops=(c.c_char_p * len(stops))(*stops),
        continuation=continuation, overlap=overlap, query_tokens=query_tokens, skip=skip,
        rewind=check.boolean(rewind, "rewind"))
    return config, found


class _Turn:
    """Held during a call of a session, whose results point into the session's memory.

    It does not wait: a signal's handler that uses the session would wait for the call that it interrupts.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("the session is at work in another thread: a session is for one thread at a time")

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Session:
    """A running text: feed it, then take tokens. Made by ``model.session(...)``.

    A session is for one thread at a time: a call while another thread is inside a call raises RuntimeError.
    """

    def __init__(self, model: "Model", **options: Any) -> None:
        check.instance(model, "model", Model)
        config, searcher = _session_config(model, **options)
        store = options.get("store")
        opened = (model._handle(), *(() if store is None else (store._handle(),)))
        self._model, self._call, self._turn = model, LongCall(None), _Turn()
        config.progress = self._call.progress
        self._handle = lib.opened("drt_session_open", "drt_session_close", opened[0], c.byref(config),
                                  keeps=(opened, searcher, self._call.progress), turns=opened)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a session can be neither copied nor pickled: make another one, and feed it the ids of the text")

    def close(self) -> None:
        """Frees the session now instead of when it is collected."""
        self._handle.close()

    def __len__(self) -> int:
        """Ids of the text so far."""
        return int(lib.library.drt_session_tokens(self._handle()))

    def reset(self, seed: int = 0) -> None:
        """Begins a new text; nothing of the old one is left."""
        number = check.seed(seed)
        with self._turn:
            lib.library.drt_session_reset(self._handle(), number)

    def rewind(self, seed: int = 0) -> None:
        """Goes back to the end of the last feed, for another generation, which is as after `reset` and the same feeds.

        The session needs the option `rewind`. drt.Unsupported, and nothing is changed: on a GPU, with `self_retrieval` or
        `corpus_retrieval`, or after more than 16 chunks of tokens: reset and feed.
        """
        number = check.seed(seed)
        with self._turn:
            lib.library.drt_session_rewind(self._handle(), number)

    def feed(self, text: str | Sequence[int] | Array, *, scores: bool = False, top: int = 0) -> Scores | None:
        """Appends a text, or ids int32 [n], and begins a new generation. With `scores`: the log-probabilities of its ids.

        Special tokens that are written out in a text become their ids. An empty text at the start is the model's
        end-of-document id, after which a document begins. After Ctrl-C the session can only be reset or closed.
        """
        session, top = self._handle(), check.integer(top, "top", 0, 64)
        with self._turn, lib.Returned(c.POINTER(lib.scores)) as found:
            wanted = found.reference if check.boolean(scores, "scores") else None
            if isinstance(text, str):
                data = lib.utf8(text, "text")
                self._call.run(lambda: lib.library.drt_session_feed(session, data, len(data), wanted, top))
            else:
                ids = as_array(text, np.int32, (None,), "text")
                self._call.run(lambda: lib.library.drt_session_feed_ids(session, address(ids), len(ids), wanted, top))
            return _scores(found) if scores else None

    def logprobs(self) -> Array:
        """Log-probabilities of the next id: float32 [vocab_size], before sampling options apply."""
        out = np.empty(self._model.info.vocab_size, np.float32)
        with self._turn:
            lib.library.drt_session_logprobs(self._handle(), address(out))
        return out

    def next(self) -> Token:
        """Samples one token and appends it to the text."""
        token = lib.new(lib.token)
        with self._turn:                         # until the next call what the token points at is the session's
            session = self._handle()
            lib.library.drt_session_next(session, c.byref(token))
            return Token(
                token.id, _text(token.text, token.bytes), c.string_at(token.raw, token.raw_bytes) if token.raw_bytes else b"",
                token.position, token.logprob, token.memory_share, _ENDS[token.end],
                tuple(Neighbour("corpus" if n.source else "self", n.group, n.chunk, n.document, n.token_offset, n.weight,
                                n.score) for n in token.neighbours[:token.n_neighbours]),
                tuple((a.id, a.logprob) for a in token.alternatives[:token.n_alternatives]))

    @staticmethod
    def prepare(sessions: "Sequence[Session]") -> int:
        """Computes what the next `next` of each of several sessions of one model needs, in one pass over its weights.

        Call it before each round of `next`: several texts then cost little more than one. On a CPU tokens have the same bits
        with and without it, on a GPU for any set of sessions. Returns the number of sessions that it computed. The others
        (ended; on a GPU with a token memory; on a CPU at the end of a chunk) are left to `next`.
        """
        given = [check.instance(s, f"sessions[{i}]", Session) for i, s in enumerate(sessions)]
        with ExitStack() as turns:
            for session in dict.fromkeys(given):
                turns.enter_context(session._turn)
            handles, done = [s._handle() for s in given], c.c_int()
            array = (c.c_void_p * len(handles))(*(h.value for h in handles))
            lib.library.drt_session_prepare(array, len(handles), c.byref(done))
            return done.value

    def tokens(self) -> Iterator[Token]:
        """Tokens until the generation ends."""
        while True:
            token = self.next()
            yield token
            if token.end is not None:
                return

    def stop(self) -> str:
        """Ends the generation early. Returns the text that its tokens so far held back, which is often empty."""
        text, n = c.c_void_p(), c.c_size_t()
        with self._turn:
            session = self._handle()
            lib.library.drt_session_stop(session, c.byref(text), c.byref(n))
            return _text(text.value, n.value)

    def statistics(self) -> dict[str, Any]:
        """Counts and seconds of this session: retrievals, cached chunks, search and encoding time."""
        info = lib.new(lib.session_info)
        with self._turn:
            lib.library.drt_session_info(self._handle(), c.byref(info))
        return lib.members(info)


class Model:
    """A model, ready to run. Calls that use one model take turns; `share` makes one for another thread."""

    def __init__(self, handle: lib.Handle, arguments: tuple[Any, ...] | None) -> None:
        if not isinstance(handle, lib.Handle):
            raise TypeError("a model is opened with drt.Model.load(path)")
        self._handle, self._arguments = handle, arguments
        info = lib.new(lib.model_info)
        lib.library.drt_model_info(handle(), c.byref(info))
        self.info = ModelInfo(**lib.members(info))
        self.tokenizer = Tokenizer(lib.Handle(lib.library.drt_model_tokenizer(handle()), None, handle()), None)

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None, *, device: str = "auto", dtype: str = "auto",
             threads: int = 0) -> "Model":
        """Opens a model folder (config.json, model.safetensors, tokenizer.json); None: the bundled model.

        `device`: "auto" (a GPU if there is one), "cpu" or "cuda". `dtype`: "auto" (float32 on a CPU, bf16 on a GPU), "f32", "bf16", or
        "i8": as "auto" with the decoder's weights rounded to 8 bits (a GPU: Hopper or newer). `threads`: of the CPU; 0: one for each processor.
        """
        return cls(lib.opened("drt_model_open", "drt_model_close", None if path is None else check.path(path, "path"), cls._config(device, dtype, threads)),
                   (None if path is None else os.path.abspath(path), device, dtype, threads))

    @staticmethod
    def _config(device: str, dtype: str, threads: int) -> Any:
        return c.byref(lib.new(lib.model_config, device=device, dtype=dtype, threads=threads))

    def share(self, *, device: str = "auto", dtype: str = "auto", threads: int = 0) -> "Model":
        """A second model with the same weights, for another thread, so that both compute at the same time."""
        handle = lib.opened("drt_model_share", "drt_model_close", self._handle(), self._config(device, dtype, threads),
                            keeps=(self._handle(),))
        return Model(handle, None)

    def __reduce__(self) -> tuple[Any, ...]:
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

    def encode(self, chunks: str | Sequence[Sequence[int]] | Array | Any, *, out: Any = None) -> Any:
        """Landmarks float32 [n, dim] of chunks.

        `chunks`: a text, or ids int32 [n, chunk] (-1 fills short chunks): a numpy array, any object on the CPU with
        DLPack (torch, JAX), or a torch or CuPy array on a GPU, whose ids are copied. `out`: memory to write to, dense float32 [n, dim], which is returned: a numpy array, an
        object on the CPU with DLPack, or one on the model's GPU with __cuda_array_interface__ (a torch tensor), which the
        model writes without a copy. Without it: a new numpy array.
        """
        if isinstance(chunks, str):
            if out is not None:
                raise ValueError("out: give ids, whose number of chunks is known")
            ids = self._cut(self.tokenizer.encode(chunks))
        else:
            ids = as_array(chunks, np.int32, (None, self.info.chunk), "chunks")
        shape = (len(ids), self.info.dim)
        device = cuda_out(out, shape)
        if device is not None:
            if self.info.device != "cuda":
                raise ValueError("out: it is on a GPU, and this model is on the CPU: Model.load(..., device=\"cuda\")")
            self._encode_parts("drt_model_encode_device", lambda row: c.c_void_p(device + row * shape[1] * 4), ids)
            return out
        rows = np.empty(shape, np.float32) if out is None else cpu_out(out, shape)
        self._encode_parts("drt_model_encode", lambda row: address(rows, row), ids)
        return rows if out is None else out

    def _cut(self, ids: Array) -> Array:
        """A text's ids as chunks; -1 fills the last one."""
        chunk = self.info.chunk
        chunks = np.full((-(-len(ids) // chunk), chunk), -1, np.int32)
        chunks.reshape(-1)[:len(ids)] = ids
        return chunks

    def _encode_parts(self, call: str, at: Callable[[int], c.c_void_p], ids: Array) -> None:
        """In parts, between two of which Ctrl-C is seen. Landmarks do not depend on what is encoded beside them."""
        part = _CHUNKS if self.info.device == "cpu" else _CHUNKS_GPU
        for row in range(0, max(len(ids), 1), part):
            n = min(part, len(ids) - row)
            getattr(lib.library, call)(self._handle(), at(row), address(ids, row), n)

    def query(self, text: str | Sequence[int] | Array) -> Array:
        """The vector float32 [dim] that the model searches with after a text (or ids int32 [n])."""
        ids = as_array(self.tokenizer.encode(text) if isinstance(text, str) else text, np.int32, (None,), "text")
        if not len(ids):
            raise ValueError("text: it is empty, and a query needs a token")
        vector = np.empty(self.info.dim, np.float32)
        lib.library.drt_model_query(self._handle(), address(vector), address(ids), len(ids))
        return vector

    def session(self, **options: Any) -> Session:
        """A running text. Options: see `generate`."""
        return Session(self, **options)

    def logprobs(self, text: str | Sequence[int] | Array, *, top: int = 0, **options: Any) -> Scores:
        """Log-probabilities of a text (or ids), with the retrieval options of `generate`.

        skip: the first so many ids are a prompt, without log-probabilities. With a memory of the corpus the other ids have those
        that `generate` gives after this prompt; with 0 the memory searches from the first id on, as `drt-eval ppl --skip 0`.
        """
        with Session(self, **options) as session:
            found = session.feed(text, scores=True, top=top)
        assert found is not None
        return found

    def generate(self, prompt: str | Sequence[int] | Array, *, max_tokens: int = 128, **options: Any) -> Iterator[Token]:
        """Generates a continuation of a prompt (a text, or ids int32 [n]), token by token.

        max_tokens: 0: no limit.
        store: where to retrieve from.
        corpus_retrieval, self_retrieval: GCA reads chunks of the store (default: if a store is given without a memory), of
            the text's own past.
        searcher: "auto", "lexical" or "hybrid".
        memory: "own", "corpus" or "both": a token memory, with `memory_config` (a file; None: the model's) and
            `memory_past` (ids; 0: 2048).
        memory_keys: of the store's chunks: "stored" by drt-index keys, "encoded" when they are found, or "auto": stored, if the
            store has keys of the model. "device": stored, and all copied into the GPU's memory once (on a CPU: as stored).
        memory_k, memory_every: chunks that a search of the memory finds, and ids between two searches (0: as configured).
        exclude_document: id of a document whose chunks are not retrieved.
        continuation, overlap: chunks that are retrieved after each found one, and the ids before its end where they begin.
        query_tokens: last ids of the text that a search by words reads; 0: 128.
        temperature (0: greedy), top_k, top_p, min_p, repeat_penalty, repeat_last, seed: sampling, as in drt-generate.
        stop: a string, or several, before which the text ends.
        ignore_eos: continues after an end-of-document token.
        top: alternatives of each token.
        """
        if not isinstance(prompt, str):          # an error of this call, and not of the first token
            prompt = as_array(prompt, np.int32, (None,), "prompt")
        return self._tokens(Session(self, max_tokens=max_tokens, **options), prompt)

    @staticmethod
    def _tokens(session: Session, prompt: str | Sequence[int] | Array) -> Iterator[Token]:
        with session:
            session.feed(prompt)
            yield from session.tokens()


def _load_model(path: Any, device: str, dtype: str, threads: int) -> Model:
    return Model.load(path, device=device, dtype=dtype, threads=threads)
