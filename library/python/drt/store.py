"""Stores: chunks of a corpus on disk, searched by vector, with their texts and positions."""

from __future__ import annotations

import builtins
import ctypes as c
import gc
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _arguments as check
from . import _library as lib
from ._arrays import Array, address, as_array, copied, mapped
from ._calls import LongCall, Report, reporter
from .model import Model

__all__ = ["Chunk", "Document", "Finding", "Hit", "Store", "StoreInfo"]

_KINDS = {"auto": 0, "lexical": 1, "hybrid": 2}
_MOST = 1 << 20                                  # hits of a query
_QUERIES, _TEXTS = 1024, 256                     # of one call into C, between two of which Ctrl-C is seen


@dataclass(frozen=True)
class StoreInfo:
    """Counts and types of a store. Counts include dropped documents: all ids are below them. `index`: "exact" or a FAISS string.

    `landmarks`: how they are stored, "f16" or "i8"; "none": there are none, and words find the chunks. `keys_chunks`:
    chunks that have stored keys of a token memory; it reads them if these are all `chunks`.
    """

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
    landmarks: str
    keys_files: int
    keys_chunks: int


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
    hash: builtins.bytes
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
    """A chunk that a search found. `score`: q.l / sqrt(dim), for query q and landmark l."""

    score: float
    chunk: Chunk
    document: Document
    text: str

    @property
    def offset(self) -> int:
        """Number of the chunk's first token in its document."""
        return self.chunk.token_offset


@dataclass(frozen=True)
class Finding:
    """What `Store.verify` found: a file, what is wrong with it, and what helps."""

    file: str
    problem: str
    remedy: str


_END = object()


class _Documents:
    """The callback that gives an iterable's documents to C."""

    def __init__(self, documents: Iterable[Any], text_field: str, key_field: str, call: LongCall) -> None:
        self._iterator, self._call = iter(documents), call
        self._text_field, self._key_field, self._count = text_field, key_field, 0
        self._kept: tuple[Any, ...] = ()
        self._total = len(documents) if isinstance(documents, Sized) else None
        call.position = lambda: ("documents", self._count, self._total)

    def _parts(self, item: Any) -> tuple[bytes, bytes | None, bytes | None]:
        text, key, source = item, None, None
        if isinstance(item, Mapping):
            if self._text_field not in item:
                raise KeyError(f"document {self._count}: no {self._text_field!r} in it; it has {sorted(map(str, item))}: "
                               "name its field with text_field")
            text, key, source = item[self._text_field], item.get(self._key_field), item.get("source")
        if not isinstance(text, str):
            raise TypeError(f"document {self._count}: its text is {type(text).__name__}, not str")
        return (lib.utf8(text, "text"), self._name(source, "source"), self._name(key, self._key_field))

    def _name(self, value: Any, name: str) -> bytes | None:
        return None if value is None else check.encoded(str(value), f"document {self._count}: {name}")

    def next(self, _context: object, out: Any) -> int:
        """drt_next_text. It has the GIL, and may be called by a thread of the library."""
        try:
            with lib.in_callback(self._call.busy):
                item = next(self._iterator, _END)
            if item is _END:
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


def _build(path: str | os.PathLike[str], documents: Any, model: Model, *, progress: Report | bool | None,
           text_field: str, key_field: str, format: str | None, index: str | None = None, **options: Any) -> dict[str, Any]:
    """drt_store_build, and its report."""
    at_work, where = model._handle(), check.path(path, "path")
    call = LongCall(reporter(progress), at_work)
    check.text(key_field, "key_field")
    config = lib.new(lib.build_config, format=format, text_field=check.text(text_field, "text_field"), index=index, **options)
    source: Any = None
    if _is_paths(documents):
        paths = [documents] if isinstance(documents, (str, os.PathLike)) else documents
        names = [check.path(p, "documents") for p in paths]
        config.inputs, config.n_inputs = (c.c_char_p * len(names))(*names), len(names)
    else:
        if isinstance(documents, bytes) or not isinstance(documents, Iterable):
            raise TypeError(f"documents: {type(documents).__name__} where a path or an iterable of documents is needed")
        source = lib.next_function(_Documents(documents, text_field, key_field, call).next)
        config.next = source
    report = lib.new(lib.build_report)

    def build(with_report: Any) -> None:
        config.progress = with_report
        lib.library.drt_store_build(where, at_work, c.byref(config), c.byref(report))

    call.run_reported(build)
    return lib.members(report)


# A directory is open once in a process (LMDB's rule), so further objects get views of it: handles by process, device and inode
# of the catalog, which stays open with them. A handle that is about to be closed is still found here; its value becomes None
# under the lock.
_directories: dict[tuple[int, int, int], weakref.WeakSet[lib.Opened]] = {}
_directories_lock = lib.ClosingLock()


def _after_fork() -> None:
    """In the child: another thread of the parent may have had the lock."""
    global _directories_lock
    _directories_lock = lib.ClosingLock()


os.register_at_fork(after_in_child=_after_fork)


def _closed(call: Callable[[], Any]) -> Any:
    """A call that needs a directory to be closed: by objects, too, that nobody has and that wait to be collected."""
    try:
        return call()
    except lib.Busy:
        gc.collect()
        with _directories_lock:                  # what waits for the lock's owner is closed then
            pass
        return call()


def _of_directory(key: tuple[int, int, int], handle: lib.Handle) -> lib.Handle:
    """Call it with the lock. Keeps the handle for further views."""
    for other in [k for k, handles in _directories.items() if not handles]:
        del _directories[other]
    _directories.setdefault(key, weakref.WeakSet()).add(handle())
    return handle


def _view(first: lib.Opened) -> lib.Handle:
    return lib.opened("drt_store_view", "drt_store_close", first, lock=_directories_lock)


def _further_view(first: lib.Opened) -> lib.Handle:
    with _directories_lock:
        handle = _view(first)
        key = next((k for k, handles in _directories.items() if first in handles), None)
        return handle if key is None else _of_directory(key, handle)


def _open_directory(path: str | os.PathLike[str]) -> lib.Handle:
    name = check.path(path, "path")
    with _directories_lock:
        try:
            found = os.stat(os.path.join(name, b"catalog/data.mdb"))
        except OSError:
            return lib.opened("drt_store_open", "drt_store_close", name)     # which reports what is wrong
        key = (os.getpid(), found.st_dev, found.st_ino)
        first = next((h for h in list(_directories.get(key, ())) if h.value is not None), None)
        if first is not None:
            return _of_directory(key, _view(first))
        return _of_directory(key, _closed(lambda: lib.opened("drt_store_open", "drt_store_close", name, lock=_directories_lock)))


class Store:
    """A view of a store: always the generation that was the newest when it was opened (see `refresh`).

    Several objects of one path share its open directory; each is a view of its own. Calls on one object take turns, so a
    thread that searches beside others opens its own. After a fork, open the store in the child.
    """

    def __init__(self, path: str | os.PathLike[str], *, model: Model | None = None) -> None:
        """Opens the store at `path`. `model`: the one that made it, for texts and queries; None: the bundled one."""
        check.path(path, "path")
        if model is not None:
            check.instance(model, "model", Model)
        self._path, self._model = os.path.abspath(path), model           # for calls after a change of the working directory
        self._searchers: dict[Any, lib.Handle] = {}
        #: What `build` did: documents, chunks, tokens, duplicates, seconds, ...; empty where the store was only opened.
        self.report: dict[str, Any] = {}
        self._handle = _open_directory(path)
        self._read_info()

    @classmethod
    def build(cls, documents: Any, path: str | os.PathLike[str], *, model: Model | None = None, text_field: str = "text",
              key_field: str = "id", format: str | None = None, index: str | None = None, max_ram: int = 0,
              shard_chunks: int = 0, restart: bool = False, skip_bad_lines: bool = False,
              part: tuple[int, int] | None = None, landmarks: str | None = None, keys: bool = False,
              progress: Report | bool | None = None) -> "Store":
        """Builds a store at `path` and opens it.

        A build that was stopped (Ctrl-C, a kill) continues when it is called again with the same documents.

        documents: a path of a file or folder, or a list of pathlib paths, in any `format` of drt-index build; or an iterable
            of texts, or of dicts with `text_field` and optionally `key_field` and "source".
        model: makes the landmarks; None: the bundled one.
        index: "auto" (None), "exact" or a FAISS factory string.
        max_ram: bytes; 0: 4 GiB.
        shard_chunks: chunks of a file of the store; 0: 16384.
        restart: drops an unfinished build.
        skip_bad_lines: skips lines and rows without a document; otherwise the build stops at the first.
        part: (i, n): builds only part i of n, i from 1, of a corpus of files; `join` makes one store of all parts.
        landmarks: "f16" (None); "i8": half the bytes, rounded to 8 bits; "none": no chunk is encoded, and words find the
            chunks, which is what a token memory needs.
        keys: also makes the keys of all tokens for a token memory.
        progress: True for a tqdm bar, or a function (stage, unit, done, total).
        """
        model = _model_of(model)
        if part is not None and (not isinstance(part, (tuple, list)) or len(part) != 2):
            raise TypeError(f"part: {part!r} where two numbers (i, n) are needed")
        number, parts = (0, 0) if part is None else (check.integer(p, "part", 1, 2**31 - 1) for p in part)
        report = _closed(lambda: _build(
            path, documents, model, progress=progress, text_field=text_field, key_field=key_field, format=format,
            index=index, max_ram=max_ram, shard_chunks=shard_chunks, restart=restart, skip_bad_lines=skip_bad_lines,
            part=number, parts=parts, landmarks=landmarks, keys=keys))
        store = cls(path, model=model)
        store.report = report
        return store

    def add(self, documents: Any, *, model: Model | None = None, text_field: str = "text", key_field: str = "id",
            format: str | None = None, max_ram: int = 0, shard_chunks: int = 0, skip_bad_lines: bool = False,
            keys: bool = False, progress: Report | bool | None = None) -> dict[str, Any]:
        """Adds documents (as in `build`); documents that the store has already are left out. Returns the report.

        This object then shows the newest generation. Chunks and documents keep their ids. It is closed meanwhile; other
        objects and sessions of the store must be closed before (drt.Busy). If the store has
        keys of this model, or with `keys`, those of the new chunks are made. "keys_lacking" of the report: chunks that the store's keys do not
        have, because they are of another model or rounding; the log "drt" has the remedy.
        """
        model = _model_of(self._model if model is None else model)
        self.close()
        try:
            report: dict[str, Any] = _closed(lambda: _build(
                self._path, documents, model, progress=progress, text_field=text_field, key_field=key_field,
                format=format, append=True, max_ram=max_ram, shard_chunks=shard_chunks, skip_bad_lines=skip_bad_lines,
                keys=keys))
            return report
        finally:
            self._handle = _open_directory(self._path)
            self._read_info()

    # ---- whole stores

    @staticmethod
    def verify(path: str | os.PathLike[str], *, deep: bool = False, progress: Report | bool | None = None) -> list[Finding]:
        """What is damaged or missing in the store at `path`; an empty list: nothing. Changes nothing.

        `deep` compares every byte with its checksum; otherwise only names, sizes and records are checked. It takes a path since a damaged store may
        not open. The store must not be open in this process (drt.Busy).
        """
        found: list[Finding] = []
        call, where, problems = LongCall(reporter(progress)), check.path(path, "path"), c.c_int64()

        def on_finding(_context: object, given: Any) -> None:
            f = given.contents
            found.append(Finding(lib.decoded(f.file), lib.decoded(f.problem), lib.decoded(f.remedy)))

        config = lib.new(lib.verify_config, deep=deep, on_finding=lib.finding_function(on_finding))

        def run(with_report: Any) -> None:
            found.clear()
            config.progress = with_report
            lib.library.drt_store_verify(where, c.byref(config), c.byref(problems))

        _closed(lambda: call.run_reported(run))
        return found

    def delete(self, documents: Iterable[int] = (), *, sources: Iterable[str] = (), keys: Iterable[str] = (),
               dry_run: bool = False, progress: Report | bool | None = None) -> dict[str, Any]:
        """Deletes documents by id, or all whose source matches one of the patterns `sources` (* ? [...], as a shell's), or all
        whose key is one of `keys`; with both, those that match both.

        Returns the report: documents, chunks, tokens that were deleted (`dry_run`: would be), generation, and "ids" of the
        documents. All other ids stay. This object then shows the newest generation; it is closed meanwhile, and others of
        the store must be closed before (drt.Busy). Files keep their sizes: see `compact`.
        """
        numbers, patterns, names = _numbers(documents, "documents"), _strings(sources, "sources"), _strings(keys, "keys")
        ids: list[int] = []
        config = lib.new(
            lib.delete_config, documents=(c.c_int64 * len(numbers))(*numbers), n_documents=len(numbers),
            sources=(c.c_char_p * len(patterns))(*patterns), n_sources=len(patterns),
            keys=(c.c_char_p * len(names))(*names), n_keys=len(names), dry_run=dry_run,
            on_document=lib.document_function(lambda _context, document: ids.append(document.contents.id)))

        def run(where: bytes | None, with_report: Any, report: Any) -> None:
            ids.clear()
            config.progress = with_report
            lib.library.drt_store_delete(where, c.byref(config), c.byref(report))

        return {**self._meanwhile_closed(run, lib.change_report, progress), "ids": ids}

    def compact(self, path: str | os.PathLike[str], *, index: str | None = None, max_ram: int = 0, shard_chunks: int = 0,
                threads: int = 0, landmarks: str | None = None, devices: int = 0,
                progress: Report | bool | None = None) -> "Store":
        """A new store at `path` of the documents that deletions have left, under new ids in the same order.

        Nothing is encoded again. `index`, `landmarks`: None: as this store has them; "f16" or "i8" changes how landmarks
        are stored. `devices`: GPUs that make the index, from GPU 0 on; -1: all; 0: the CPU. This object is closed
        meanwhile. A call that was stopped continues when it is repeated. `report` of the result: documents, chunks, tokens.
        """
        config = lib.new(lib.compact_config, index=index, max_ram=max_ram, shard_chunks=shard_chunks,
                         threads=threads, landmarks=landmarks, devices=devices)
        return self._copy(path, "drt_store_compact", config, lib.change_report, progress)

    def freeze(self, path: str | os.PathLike[str], *, copy: bool = False, progress: Report | bool | None = None) -> "Store":
        """A snapshot of the newest generation at `path`, which nothing changes and many hosts may read.

        Its files are hard links to those of this store, or copies (`copy`, or another file system). This object is closed
        meanwhile.
        """
        return self._copy(path, "drt_store_freeze", lib.new(lib.freeze_config, copy=copy), lib.freeze_report, progress)

    def _copy(self, path: str | os.PathLike[str], call: str, config: Any, report: Any,
              progress: Report | bool | None) -> "Store":
        to = check.path(path, "path")

        def run(where: bytes | None, with_report: Any, filled: Any) -> None:
            config.progress = with_report
            getattr(lib.library, call)(to, where, c.byref(config), c.byref(filled))

        done = self._meanwhile_closed(run, report, progress)
        store = Store(path, model=self._model)
        store.report = done
        return store

    @classmethod
    def join(cls, parts: Iterable[str | os.PathLike[str]], path: str | os.PathLike[str], *, model: Model | None = None,
             index: str | None = None, lexical: bool = False, copy: bool = False, max_ram: int = 0, threads: int = 0,
             devices: int = 0, progress: Report | bool | None = None) -> "Store":
        """One store at `path` of the parts that `build(part=(i, n))` or drt-index build --part made, in any order.

        Its files are hard links to those of the parts, or copies (`copy`). `index`: as in `build`; None:
        none now, `add` selects one. `lexical`: with an index of tokens. `devices`: as in `compact`. `report` of the result counts documents,
        copies, files.
        """
        names = _strings(parts, "parts")
        listed, where = (c.c_char_p * len(names))(*names), check.path(path, "path")
        config = lib.new(lib.join_config, copy=copy, lexical=lexical, index=index, max_ram=max_ram,
                         threads=threads, devices=devices)
        report, call = lib.new(lib.join_report), LongCall(reporter(progress))

        def run(with_report: Any) -> None:
            config.progress = with_report
            lib.library.drt_store_join(where, listed, len(names), c.byref(config), c.byref(report))

        _closed(lambda: call.run_reported(run))
        store = cls(path, model=model)
        store.report = lib.members(report)
        return store

    def _meanwhile_closed(self, run: Callable[[bytes | None, Any, Any], None], report: Any,
                          progress: Report | bool | None) -> dict[str, Any]:
        """A call for the folder of this object, which is closed for the call and then shows the newest generation."""
        filled, call, where = lib.new(report), LongCall(reporter(progress)), check.path(self._path, "path")
        self.close()
        try:
            _closed(lambda: call.run_reported(lambda with_report: run(where, with_report, filled)))
            return lib.members(filled)
        finally:
            self._handle = _open_directory(self._path)
            self._read_info()

    def _read_info(self) -> None:
        info = lib.new(lib.store_info)
        lib.library.drt_store_info(self._handle(), c.byref(info))
        self.info = StoreInfo(**lib.members(info))

    def refresh(self) -> "Store":
        """Shows the newest generation from now on. Arrays that were taken before stay valid."""
        handle = _further_view(self._handle())
        self.close()
        self._handle = handle
        self._read_info()
        return self

    def close(self) -> None:
        """Closes it now instead of when it is collected. Arrays of landmarks stay valid."""
        self._searchers = {}
        self._handle.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._path, self._model)

    def __len__(self) -> int:
        return self.info.chunks - self.info.dropped_chunks

    def __repr__(self) -> str:
        return f"<drt.Store {self.info.path}: {len(self)} chunks of {self.info.documents - self.info.dropped_documents} documents>"

    # ---- what it holds

    def chunk(self, chunk: int) -> Chunk:
        """A chunk's document, its number there, and its first token."""
        return self._chunk_list([check.integer(chunk, "chunk")])[0]

    def _chunk_list(self, chunks: Sequence[int] | Array) -> list[Chunk]:
        wanted = as_array(chunks, np.int64, (None,), "chunks")
        found = (lib.chunk * len(wanted))()
        lib.library.drt_store_chunks(self._handle(), found, None, None, address(wanted), len(wanted))
        return [Chunk(f.id, f.document, f.in_document, f.token_offset, f.n_tokens) for f in found]

    def tokens(self, chunk: int | Sequence[int] | Array) -> Array:
        """Ids of a chunk, int32 [n_tokens]; or of several chunks, int32 [n, chunk], where -1 fills short chunks."""
        several = not isinstance(chunk, (int, np.integer))
        wanted = as_array(chunk if several else [chunk], np.int64, (None,), "chunk")
        ids = np.empty((len(wanted), self.info.chunk), np.int32)
        lib.library.drt_store_chunks(self._handle(), None, address(ids), None, address(wanted), len(wanted))
        return ids if several else ids[0][ids[0] >= 0]

    def document(self, document: int) -> Document:
        """A document by its id."""
        document = check.integer(document, "document")
        with lib.Returned(c.POINTER(lib.document)) as found:
            lib.library.drt_store_document(self._handle(), found.reference, document)
            d = found.pointer.contents
            return Document(d.id, d.first_chunk, d.chunks, d.tokens, d.offset, d.line, d.bytes, bytes(d.hash),
                            lib.decoded(d.source), lib.decoded(d.key))

    def find_document(self, hash: bytes) -> int | None:
        """The id of the document with this content hash (Document.hash, 16 bytes: XXH3-128 of its text); None: none."""
        if not isinstance(hash, bytes):
            raise TypeError(f"hash: {type(hash).__name__} where bytes are needed")
        if len(hash) != 16:
            raise ValueError(f"hash: {len(hash)} bytes where 16 are needed")
        found = c.c_int64()
        try:
            lib.library.drt_store_find_document(self._handle(), c.byref(found), c.c_char_p(hash))
        except lib.NotFound:
            return None
        return found.value

    def document_tokens(self, document: int) -> Array:
        """All ids of a document: int32 [tokens]."""
        document = check.integer(document, "document")
        n = c.c_int64()
        with lib.Returned() as ids:
            lib.library.drt_store_document_ids(self._handle(), ids.reference, c.byref(n), document)
            return copied(ids.pointer, n.value, np.int32)

    def text(self, chunk: int, model: Model | None = None) -> str:
        """The text of a chunk, by the tokenizer of the model that made the store (None: this object's)."""
        return self._text("drt_store_chunk_text", check.integer(chunk, "chunk"), model)

    def document_text(self, document: int, model: Model | None = None) -> str:
        """The text of a document, decoded from its ids."""
        return self._text("drt_store_document_text", check.integer(document, "document"), model)

    def _text(self, call: str, number: int, model: Model | None) -> str:
        n = c.c_size_t()
        tokenizer = _model_of(self._model if model is None else model).tokenizer._handle()
        with lib.Returned() as text:
            getattr(lib.library, call)(self._handle(), tokenizer, text.reference, c.byref(n), number)
            return text.data(n.value).decode("utf8", "replace")

    # ---- landmarks

    def landmark_shards(self) -> Iterator[tuple[Any, ...]]:
        """Pairs (first chunk id, float16 [n, dim]): one for each file, in order; views of the map, without a copy.

        Of a store with landmarks "i8": (first chunk id, codes int8 [n, dim], scales float32 [n]). The numbers of row r are
        codes[r] * scales[r]. Views are read-only, and stay valid when the store is closed.
        """
        first, coded = c.c_int64(), self.info.landmarks == "i8"
        lib.library.drt_landmarks_next(self._handle(), c.byref(first), 0)
        while first.value >= 0:
            handle = lib.opened("drt_landmarks_open", "drt_landmarks_close", self._handle(), first.value)
            rows: Any = lib.landmark_codes() if coded else lib.landmark_rows()
            (lib.library.drt_landmarks_codes if coded else lib.library.drt_landmarks_rows)(handle(), c.byref(rows))
            shape = (rows.n, rows.dim)
            if coded:
                yield (rows.first, mapped(handle, rows.codes, shape, "|i1"), mapped(handle, rows.scales, shape[:1], "<f4"))
            else:
                yield rows.first, mapped(handle, rows.rows, shape, "<f2")
            lib.library.drt_landmarks_next(self._handle(), c.byref(first), rows.first + rows.n)

    def landmarks(self) -> Array:
        """All landmarks, float16 [n, dim], in the order of chunk ids without dropped ones.

        One file of float16 gives a read-only view; several files, or landmarks "i8", give a copy of all rows. Each number
        of the latter is a float16, so that none is rounded.
        """
        shards: list[Array] = [rows[0] if len(rows) == 1 else (rows[0] * rows[1][:, None]).astype(np.float16)
                  for _, *rows in self.landmark_shards()]
        if len(shards) == 1:
            return shards[0]
        return np.concatenate(shards) if shards else np.empty((0, self.info.dim), np.float16)

    def sample_batch(self, n: int, seed: int, *, landmarks: bool = False) -> dict[str, Array]:
        """n chunks drawn uniformly, for data loaders; the same seed gives the same.

        "chunks" int64 [n], "ids" int32 [n, chunk] (-1 fills short chunks), "documents" int64 [n]; with `landmarks`
        also "landmarks" float32 [n, dim].
        """
        n = check.integer(n, "n", 1)
        chunks, number = np.empty(n, np.int64), check.seed(seed)
        lib.library.drt_store_sample(self._handle(), address(chunks), n, number)
        ids = np.empty((n, self.info.chunk), np.int32)
        rows = np.empty((n, self.info.dim), np.float32) if check.boolean(landmarks, "landmarks") else None
        found = np.empty(n, np.dtype(lib.chunk))
        lib.library.drt_store_chunks(self._handle(), address(found), address(ids), None if rows is None else address(rows),
                                     address(chunks), n)
        batch: dict[str, Array] = {"chunks": chunks, "ids": ids, "documents": np.ascontiguousarray(found["document"])}
        return batch if rows is None else {**batch, "landmarks": rows}

    # ---- searching

    def _searcher(self, model: Model | None, kind: str, exact: bool, nprobe: int, threads: int) -> lib.Opened:
        """The searcher for these options, made at its first use and kept."""
        store, at_work = self._handle(), model._handle() if model is not None else None
        config = lib.new(lib.searcher_config, kind=_KINDS[check.choice(kind, "kind", _KINDS)], exact=exact, exact_fallback=True,
                         nprobe=nprobe, threads=threads)
        name = (at_work, kind, config.exact, config.nprobe, config.threads)
        if name not in self._searchers:
            turns = (store,) if at_work is None else (at_work, store)
            self._searchers[name] = lib.opened("drt_searcher_open", "drt_searcher_close", store, at_work, c.byref(config),
                                               keeps=turns, turns=turns)
        return self._searchers[name]()

    def searched_by(self, *, model: Model | None = None, kind: str = "auto", exact: bool = False, nprobe: int = 0) -> str:
        """How a search with these options works, for people: "index IVF64,SQ8, 16 of 64 lists"."""
        info = lib.new(lib.searcher_info)
        lib.library.drt_searcher_info(self._searcher(_model_of(self._model if model is None else model), kind, exact, nprobe, 0), c.byref(info))
        return lib.decoded(info.text)

    def search_vectors(self, vectors: Any, k: int = 10, *, exact: bool = False, nprobe: int = 0,
                       threads: int = 0) -> tuple[Array, Array]:
        """Scores float32 [n, k] and chunk ids int64 [n, k] for vectors float32 [n, dim], best first, as FAISS returns them.

        Id -1 where fewer than k chunks were found. `exact`: scan all landmarks. `nprobe`: lists of the index to visit;
        0: its default. `threads`: 0: one for each processor.
        """
        queries = as_array(vectors, np.float32, (None, self.info.dim), "vectors")
        searcher = self._searcher(None, "auto", exact, nprobe, threads)
        how = lib.new(lib.search, k=check.integer(k, "k", 1, _MOST), nprobe=nprobe)
        hits = np.empty((len(queries), how.k), np.dtype(lib.hit))
        for at in range(0, len(queries), _QUERIES):
            n = min(_QUERIES, len(queries) - at)
            lib.library.drt_search_vectors(searcher, address(hits, at), address(queries, at), n, c.byref(how))
        return np.ascontiguousarray(hits["score"]), np.ascontiguousarray(hits["chunk"])

    def search(self, query: str | Sequence[str] | Any, k: int = 10, *, model: Model | None = None, kind: str = "auto",
               exact: bool = False, nprobe: int = 0, exclude_document: int | None = None) -> list[Any]:
        """Hits with text, document and position, best first: a list of Hit for one query, a list of lists for several.

        `query`: a text, several texts, a vector [dim] or vectors float32 [n, dim]. `kind`: "auto" (by landmarks), "lexical"
        (BM25; needs a store with an index of tokens) or "hybrid". `exclude_document`: a document that is not to be found,
        such as the query's own. `model`: None: this object's.
        """
        model = _model_of(self._model if model is None else model)
        text, several = isinstance(query, str), isinstance(query, (list, tuple)) and all(isinstance(q, str) for q in query)
        searcher, single = self._searcher(model, kind, exact, nprobe, 0), False
        how = lib.new(lib.search, k=check.integer(k, "k", 1, _MOST), nprobe=nprobe)
        if text or several:
            found = self._search_texts(searcher, [query] if isinstance(query, str) else query, how, exclude_document)
        else:
            single = len(np.shape(query)) == 1
            vectors = as_array([query] if single else query, np.float32, (None, self.info.dim), "query")
            found = self._search_rows(searcher, vectors, how, exclude_document)
        hits = self._hits(found, model)
        return hits[0] if text or single else hits

    def _excluded(self, how: Any, n: int, document: int | None) -> None:
        if document is not None:
            d = self.document(check.integer(document, "exclude_document"))
            how.exclude = (lib.chunk_range * n)(*[(d.first_chunk, d.first_chunk + d.chunks)] * n)

    def _search_texts(self, searcher: lib.Opened, texts: Sequence[str], how: Any, document: int | None) -> Array:
        data = [lib.utf8(t, "query") for t in texts]
        hits = np.empty((len(data), how.k), np.dtype(lib.hit))
        self._excluded(how, min(_TEXTS, len(data)), document)
        for at in range(0, len(data), _TEXTS):
            part = data[at:at + _TEXTS]
            n = len(part)
            lib.library.drt_search_texts(searcher, address(hits, at), (c.c_char_p * n)(*part),
                                         (c.c_size_t * n)(*map(len, part)), n, c.byref(how))
        return hits

    def _search_rows(self, searcher: lib.Opened, vectors: Array, how: Any, document: int | None) -> Array:
        hits = np.empty((len(vectors), how.k), np.dtype(lib.hit))
        self._excluded(how, min(_QUERIES, len(vectors)), document)
        for at in range(0, len(vectors), _QUERIES):
            n = min(_QUERIES, len(vectors) - at)
            lib.library.drt_search_vectors(searcher, address(hits, at), address(vectors, at), n, c.byref(how))
        return hits

    def _hits(self, found: Array, model: Model) -> list[list[Hit]]:
        """What the library found, [n, k]; each chunk and document is read once."""
        every = np.unique(found["chunk"])
        every = every[every >= 0]
        chunks = {chunk.id: chunk for chunk in self._chunk_list(every)}
        documents = {id: self.document(id) for id in {chunk.document for chunk in chunks.values()}}
        texts = {id: self.text(id, model) for id in chunks}
        return [[Hit(score, chunks[id], documents[chunks[id].document], texts[id]) for id, score in row if id >= 0]
                for row in found[["chunk", "score"]].tolist()]


def _numbers(values: Any, name: str) -> list[int]:
    """Document ids; also those of an array."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"{name}: {type(values).__name__} where several numbers are needed")
    return [check.integer(value, f"{name}[{i}]") for i, value in enumerate(values)]


def _strings(values: Any, name: str) -> list[bytes]:
    if isinstance(values, (str, bytes, os.PathLike)) or not isinstance(values, Iterable):
        raise TypeError(f"{name}: {type(values).__name__} where a list of str or paths is needed")
    return [check.path(value, f"{name}[{i}]") for i, value in enumerate(values)]


def _reopen(path: str, model: Model | None) -> Store:
    return Store(path, model=model)


_bundled: Model | None = None


def _model_of(model: Model | None) -> Model:
    """The given model, or the bundled one, which is loaded once."""
    global _bundled
    if model is not None:
        return check.instance(model, "model", Model)  # type: ignore[no-any-return]
    with _directories_lock:
        if _bundled is None or _bundled._handle.closed or _bundled._handle.process != os.getpid():
            _bundled = Model.load()
        return _bundled
