"""Stores: chunks of a corpus on disk, searched by vector, with their texts and positions."""

from __future__ import annotations

import ctypes as c
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _library as lib
from ._arrays import address, as_array, copied, mapped
from ._calls import LongCall, Report
from .model import Model

__all__ = ["Chunk", "Document", "Hit", "Store", "StoreInfo"]

_KINDS = {"auto": 0, "lexical": 1, "hybrid": 2}
_QUERIES = 1024                                  # of one call into C, between two of which Ctrl-C is seen


@dataclass(frozen=True)
class StoreInfo:
    """What a store holds. Counts include dropped documents: all ids are below them. `index`: "exact" or a FAISS string."""

    path: str
    generation: int
    chunks: int
    documents: int
    tokens: int
    dropped_chunks: int
    dropped_documents: int
    dropped_tokens: int
    shards: int
    segments: int
    duplicates: int
    token_bytes: int
    landmark_bytes: int
    index_bytes: int
    catalog_bytes: int
    dim: int
    chunk: int
    vocab_size: int
    format: int
    lexical: bool
    index: str


@dataclass(frozen=True)
class Document:
    """A document: its chunks are first_chunk .. first_chunk + chunks - 1. `offset`, `line`, `bytes`: in its source."""

    id: int
    first_chunk: int
    chunks: int
    tokens: int
    offset: int
    line: int
    bytes: int
    hash: bytes
    source: str
    key: str


@dataclass(frozen=True)
class Chunk:
    """A chunk: number `in_document` of `document`, its first token is number `token_offset` there."""

    id: int
    document: int
    in_document: int
    token_offset: int
    n_tokens: int


@dataclass(frozen=True)
class Hit:
    """A chunk that a search found. score: q.l / sqrt(dim)."""

    score: float
    chunk: Chunk
    document: Document
    text: str


class _Documents:
    """The callback that gives an iterable's documents to C."""

    def __init__(self, documents: Iterable[Any], text_field: str, key_field: str, call: LongCall) -> None:
        self._iterator, self._call = iter(documents), call
        self._text_field, self._key_field, self._count, self._kept = text_field, key_field, 0, ()
        self.function = lib.next_function(self._next)

    def _parts(self, item: Any) -> tuple[bytes, bytes | None, bytes | None]:
        if isinstance(item, Mapping):
            if self._text_field not in item:
                raise KeyError(f"document {self._count}: no {self._text_field!r} in it; it has {sorted(map(str, item))}")
            text, key, source = item[self._text_field], item.get(self._key_field), item.get("source")
        else:
            text, key, source = item, None, None
        if not isinstance(text, str):
            raise TypeError(f"document {self._count}: its text is {type(text).__name__}, not str")
        return text.encode("utf8", "surrogatepass"), *(None if v is None else lib.encoded(str(v)) for v in (source, key))

    def _next(self, _context: object, out: Any) -> int:
        try:
            item = next(self._iterator, None)
            if item is None:
                return 0
            text, source, key = self._kept = self._parts(item)       # C borrows them until the next call
            self._count += 1
            given = out.contents
            given.text, given.bytes = c.cast(c.c_char_p(text), c.c_void_p).value, len(text)
            given.source, given.key = source, key
            return 1
        except BaseException as error:  # noqa: BLE001  (C must not see it; raised after the call)
            self._call.fail(error)
            return -1


def _is_paths(documents: Any) -> bool:
    """Whether files are named: one path, or a list of os.PathLike. (A list of str is a list of texts.)"""
    if isinstance(documents, (str, os.PathLike)):
        return True
    return isinstance(documents, (list, tuple)) and len(documents) > 0 and all(isinstance(d, os.PathLike) for d in documents)


def _build(path: str | os.PathLike, documents: Any, model: Model, *, append: bool, text_field: str, key_field: str,
           format: str | None, index: str | None, max_ram: int, restart: bool, skip_bad_lines: bool,
           progress: Report | None) -> dict[str, Any]:
    call = LongCall(progress)
    config = lib.new(lib.build_config, append=append, restart=restart, max_ram=max_ram, skip_bad_lines=skip_bad_lines,
                     format=lib.encoded(format), text_field=lib.encoded(text_field), index=lib.encoded(index),
                     progress=call.progress)
    if _is_paths(documents):
        paths = [documents] if isinstance(documents, (str, os.PathLike)) else documents
        names = [lib.encoded(p if isinstance(p, os.PathLike) else str(p)) for p in paths]
        config.inputs, config.n_inputs = (c.c_char_p * len(names))(*names), len(names)
    else:
        source = _Documents(documents, text_field, key_field, call)
        config.next = source.function
    report = lib.new(lib.build_report)
    call.run(lambda: lib.library.drt_store_build(lib.encoded(path), model._handle(), c.byref(config), c.byref(report)))
    return {name: getattr(report, name) for name, _ in lib.build_report._fields_ if name != "size"}


class Store:
    """A view of a store: always the generation that was the newest when it was opened (see `refresh`).

    A store is open once in a process; `Store(path)` twice shares it. After a fork, open the store in the child.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self._path, self._searchers = os.fspath(path), {}
        self._handle = lib.opened("drt_store_open", "drt_store_close", lib.encoded(path))
        self._read_info()

    @classmethod
    def build(cls, documents: Any, path: str | os.PathLike, *, model: Model | None = None, text_field: str = "text",
              key_field: str = "id", format: str | None = None, index: str | None = None, max_ram: int = 0,
              restart: bool = False, skip_bad_lines: bool = False, progress: Report | None = None) -> "Store":
        """Builds a store at `path` and opens it.

        `documents`: a path of a file or folder (or a list of pathlib paths) in any format of drt-index build; or an
        iterable of texts, or of dicts with `text_field` and optionally `key_field` and "source". A build that was stopped
        continues when it is called again with the same documents. `progress`: a function (stage, unit, done, total), such
        as drt.TqdmReport(). Ctrl-C stops at the next safe point. `max_ram`: bytes; 0: 4 GiB.
        """
        model = model or Model.load()
        report = _build(path, documents, model, append=False, text_field=text_field, key_field=key_field, format=format,
                        index=index, max_ram=max_ram, restart=restart, skip_bad_lines=skip_bad_lines, progress=progress)
        store = cls(path)
        store.report = report
        return store

    def add(self, documents: Any, *, model: Model | None = None, text_field: str = "text", key_field: str = "id",
            format: str | None = None, max_ram: int = 0, skip_bad_lines: bool = False,
            progress: Report | None = None) -> dict[str, Any]:
        """Adds documents (as in `build`); documents that the store holds already are left out. Returns the report.

        This object then shows the newest generation. Chunks and documents keep their ids.
        """
        model = model or Model.load()
        self.close()
        try:
            return _build(self._path, documents, model, append=True, text_field=text_field, key_field=key_field,
                          format=format, index=None, max_ram=max_ram, restart=False, skip_bad_lines=skip_bad_lines,
                          progress=progress)
        finally:
            self._handle = lib.opened("drt_store_open", "drt_store_close", lib.encoded(self._path))
            self._read_info()

    def _read_info(self) -> None:
        info = lib.new(lib.store_info)
        lib.library.drt_store_info(self._handle(), c.byref(info))
        values = {name: getattr(info, name) for name, _ in lib.store_info._fields_ if name != "size"}
        self.info = StoreInfo(**{k: lib.decoded(v) if isinstance(v, bytes) else v for k, v in values.items()})

    def refresh(self) -> "Store":
        """Shows the newest generation from now on. Arrays that were taken before stay valid."""
        handle = lib.opened("drt_store_view", "drt_store_close", self._handle())
        self.close()
        self._handle = handle
        self._read_info()
        return self

    def close(self) -> None:
        """Closes it now instead of when it is collected. Arrays of landmarks stay valid."""
        for searcher in self._searchers.values():
            searcher.close()
        self._searchers.clear()
        self._handle.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple:
        return Store, (self._path,)

    def __len__(self) -> int:
        return self.info.chunks - self.info.dropped_chunks

    def __repr__(self) -> str:
        return f"<drt.Store {self.info.path}: {len(self)} chunks of {self.info.documents - self.info.dropped_documents} documents>"

    # ---- what it holds

    def chunk(self, chunk: int) -> Chunk:
        """Where a chunk lies."""
        return self._chunk_list([chunk])[0]

    def _chunk_list(self, chunks: Sequence[int] | np.ndarray) -> list[Chunk]:
        wanted = as_array(chunks, np.int64, (None,), "chunks")
        found = (lib.chunk * len(wanted))()
        lib.library.drt_store_chunks(self._handle(), found, None, None, address(wanted), len(wanted))
        return [Chunk(f.id, f.document, f.in_document, f.token_offset, f.n_tokens) for f in found]

    def tokens(self, chunk: int | Sequence[int] | np.ndarray) -> np.ndarray:
        """Ids of a chunk, int32 [n_tokens]; or of several chunks, int32 [n, chunk], where -1 fills short chunks."""
        several = not isinstance(chunk, (int, np.integer))
        wanted = as_array(chunk if several else [chunk], np.int64, (None,), "chunk")
        ids = np.empty((len(wanted), self.info.chunk), np.int32)
        lib.library.drt_store_chunks(self._handle(), None, address(ids), None, address(wanted), len(wanted))
        return ids if several else ids[0][ids[0] >= 0]

    def document(self, document: int) -> Document:
        """A document by its id."""
        with lib.Returned(c.POINTER(lib.document)) as found:
            lib.library.drt_store_document(self._handle(), found.reference, document)
            d = found.pointer.contents
            return Document(d.id, d.first_chunk, d.chunks, d.tokens, d.offset, d.line, d.bytes, bytes(d.hash),
                            lib.decoded(d.source), lib.decoded(d.key))

    def document_tokens(self, document: int) -> np.ndarray:
        """All ids of a document: int32 [tokens]."""
        n = c.c_int64()
        with lib.Returned() as ids:
            lib.library.drt_store_document_ids(self._handle(), ids.reference, c.byref(n), document)
            return copied(ids.pointer, n.value, np.int32)

    def text(self, chunk: int, model: Model | None = None) -> str:
        """The text of a chunk, by the tokenizer of the model that the store was made with (None: the bundled one)."""
        return self._text("drt_store_chunk_text", chunk, model)

    def document_text(self, document: int, model: Model | None = None) -> str:
        """The text of a document, decoded from its ids."""
        return self._text("drt_store_document_text", document, model)

    def _text(self, call: str, number: int, model: Model | None) -> str:
        n = c.c_size_t()
        tokenizer = _model_of(model).tokenizer
        with lib.Returned() as text:
            getattr(lib.library, call)(self._handle(), tokenizer._handle(), text.reference, c.byref(n), number)
            return text.data(n.value).decode("utf8", "replace")

    # ---- landmarks

    def landmark_shards(self) -> Iterator[tuple[int, np.ndarray]]:
        """Pairs (first chunk id, float16 [n, dim]): one for each file, in order; views of the map, without a copy.

        They are read-only, and stay valid when the store is closed.
        """
        first = c.c_int64()
        lib.library.drt_landmarks_next(self._handle(), c.byref(first), 0)
        while first.value >= 0:
            handle = lib.opened("drt_landmarks_open", "drt_landmarks_close", self._handle(), first.value)
            rows = lib.landmark_rows()
            lib.library.drt_landmarks_rows(handle(), c.byref(rows))
            yield rows.first, mapped(handle, rows.rows, (rows.n, rows.dim), "<f2")
            lib.library.drt_landmarks_next(self._handle(), c.byref(first), rows.first + rows.n)

    def landmarks(self) -> np.ndarray:
        """All landmarks, float16 [n, dim], in the order of chunk ids without dropped ones.

        One file gives a view; several files give a copy of all rows.
        """
        shards = [rows for _, rows in self.landmark_shards()]
        if len(shards) == 1:
            return shards[0]
        return np.concatenate(shards) if shards else np.empty((0, self.info.dim), np.float16)

    def sample_batch(self, n: int, seed: int, *, landmarks: bool = False) -> dict[str, np.ndarray]:
        """n chunks drawn uniformly, for data loaders; the same seed gives the same.

        "chunks" int64 [n], "ids" int32 [n, chunk] (-1 fills short chunks), "documents" int64 [n]; with `landmarks`
        also "landmarks" float32 [n, dim].
        """
        chunks = np.empty(n, np.int64)
        lib.library.drt_store_sample(self._handle(), address(chunks), n, seed)
        ids = np.empty((n, self.info.chunk), np.int32)
        rows = np.empty((n, self.info.dim), np.float32) if landmarks else None
        found = np.empty(n, np.dtype(lib.chunk))
        lib.library.drt_store_chunks(self._handle(), address(found), address(ids), None if rows is None else address(rows),
                                     address(chunks), n)
        batch = {"chunks": chunks, "ids": ids, "documents": np.ascontiguousarray(found["document"])}
        return batch if rows is None else {**batch, "landmarks": rows}

    # ---- searching

    def searcher(self, model: Model | None = None, *, kind: str = "auto", exact: bool = False, nprobe: int = 0,
                 threads: int = 0) -> lib.Handle:
        """The searcher for these options, made at its first use and kept. For `search_vectors` and `search` alone."""
        if kind not in _KINDS:
            raise ValueError(f"kind: one of {sorted(_KINDS)}, not {kind!r}")
        name = (id(model) if model is not None else None, kind, exact, nprobe, threads)
        if name not in self._searchers:
            config = lib.new(lib.searcher_config, kind=_KINDS[kind], exact=exact, exact_fallback=True, nprobe=nprobe,
                             threads=threads)
            self._searchers[name] = lib.opened("drt_searcher_open", "drt_searcher_close", self._handle(),
                                               model._handle() if model is not None else None, c.byref(config),
                                               keeps=(model,))
        return self._searchers[name]

    def search_vectors(self, vectors: Any, k: int = 10, *, exact: bool = False, nprobe: int = 0,
                       threads: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Scores float32 [n, k] and chunk ids int64 [n, k] for vectors float32 [n, dim], best first, as FAISS returns them.

        Id -1 where fewer than k chunks were found.
        """
        queries = as_array(vectors, np.float32, (None, self.info.dim), "vectors")
        handle = self.searcher(exact=exact, nprobe=nprobe, threads=threads)
        hits = np.empty((len(queries), k), np.dtype(lib.hit))
        how = lib.new(lib.search, k=k, nprobe=nprobe)
        for at in range(0, len(queries), _QUERIES):
            part = queries[at:at + _QUERIES]
            lib.library.drt_search_vectors(handle(), c.c_void_p(hits[at:].ctypes.data), address(part), len(part),
                                           c.byref(how))
        return np.ascontiguousarray(hits["score"]), np.ascontiguousarray(hits["chunk"])

    def search(self, query: str | Sequence[str] | Any, k: int = 10, *, model: Model | None = None, kind: str = "auto",
               exact: bool = False, nprobe: int = 0, exclude_document: int | None = None) -> list[Any]:
        """Hits with text, document and position: a list of Hit for one query, a list of lists for several.

        `query`: a text, several texts, a vector [dim] or vectors [n, dim]. `kind`: "auto" (by landmarks), "lexical"
        (BM25) or "hybrid". `exclude_document`: a document that is not to be found, such as the query's own.
        """
        model = _model_of(model)
        texts = [query] if isinstance(query, str) else query
        is_text = isinstance(query, str) or (isinstance(query, Sequence) and len(query) > 0 and isinstance(query[0], str))
        vectors = None if is_text else as_array(np.atleast_2d(np.asarray(query)), np.float32, (None, self.info.dim), "query")
        n = len(texts) if is_text else len(vectors)
        how = lib.new(lib.search, k=k, nprobe=nprobe)
        if exclude_document is not None:
            d = self.document(exclude_document)
            ranges = (lib.chunk_range * n)(*[(d.first_chunk, d.first_chunk + d.chunks)] * n)
            how.exclude = ranges
        hits = (lib.hit * (n * k))()
        handle = self.searcher(model, kind=kind, exact=exact, nprobe=nprobe)
        if is_text:
            data = [t.encode("utf8", "surrogateescape") for t in texts]
            lib.library.drt_search_texts(handle(), hits, (c.c_char_p * n)(*data), (c.c_size_t * n)(*map(len, data)), n,
                                         c.byref(how))
        else:
            lib.library.drt_search_vectors(handle(), hits, address(vectors), n, c.byref(how))
        found = [self._hits(hits[i * k:(i + 1) * k], model) for i in range(n)]
        single = isinstance(query, str) or (not is_text and np.ndim(query) == 1)
        return found[0] if single else found

    def _hits(self, hits: Any, model: Model) -> list[Hit]:
        kept = [h for h in hits if h.chunk >= 0]
        chunks = self._chunk_list([h.chunk for h in kept]) if kept else []
        return [Hit(h.score, chunk, self.document(chunk.document), self.text(chunk.id, model)) for h, chunk in zip(kept, chunks)]


_bundled: Model | None = None


def _model_of(model: Model | None) -> Model:
    """The given model, or the bundled one, which is loaded once."""
    global _bundled
    if model is not None:
        return model
    if _bundled is None or _bundled._handle._process != os.getpid():
        _bundled = Model.load()
    return _bundled
