"""libdrt through ctypes: its structs and functions as include/drt.h declares them.

A test compiles the header and compares the size and the offset of every member with these declarations.
"""

from __future__ import annotations

import collections
import ctypes as c
import os
import pathlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from . import _arguments as check

size_t, i32, i64, u64, f32, boolean, text = c.c_size_t, c.c_int32, c.c_int64, c.c_uint64, c.c_float, c.c_bool, c.c_char_p
pointer, address = c.POINTER, c.c_void_p


def _struct(name: str, *fields: tuple[str, Any]) -> Any:
    return type(name, (c.Structure,), {"_fields_": list(fields)})


version_info = _struct(
    "drt_version_info", ("size", size_t), ("major", c.c_int), ("minor", c.c_int), ("patch", c.c_int),
    ("commit", c.c_char * 64), ("faiss", c.c_char * 64), ("cuda", c.c_char * 32), ("text", c.c_char * 256))

progress_event = _struct(
    "drt_progress_event", ("stage", text), ("unit", text), ("done", i64), ("total", i64), ("note", text), ("detail", text))
report_function = c.CFUNCTYPE(None, address, pointer(progress_event))
stop_function = c.CFUNCTYPE(boolean, address)
progress = _struct("drt_progress", ("report", report_function), ("stop", stop_function), ("context", address))

model_config = _struct("drt_model_config", ("size", size_t), ("device", text), ("dtype", text), ("threads", c.c_int))
model_info = _struct(
    "drt_model_info", ("size", size_t), ("path", text), ("variant", text), ("device", text), ("dtype", text),
    *((name, c.c_int) for name in ("dim", "vocab_size", "layers", "encoder_layers", "heads", "groups", "chunk", "window",
                                   "neighbours")),
    ("eos_id", i32), ("pad_id", i32), ("landmark_id", i32), ("parameters", i64), ("threads", c.c_int))

store_info = _struct(
    "drt_store_info", ("size", size_t), ("generation", u64),
    *((name, i64) for name in ("chunks", "documents", "tokens", "dropped_chunks", "dropped_documents", "dropped_tokens",
                               "shards", "segments", "duplicates")),
    *((name, u64) for name in ("token_bytes", "landmark_bytes", "index_bytes", "catalog_bytes")),
    ("dim", c.c_int), ("chunk", c.c_int), ("vocab_size", c.c_int), ("format", c.c_int), ("lexical", boolean),
    ("path", text), ("index", text), ("landmarks", text), ("keys_files", i64), ("keys_chunks", i64))
document = _struct(
    "drt_document", *((name, i64) for name in ("id", "first_chunk", "chunks", "tokens")),
    *((name, u64) for name in ("offset", "line", "bytes")), ("hash", c.c_uint8 * 16), ("source", text), ("key", text))
chunk = _struct(
    "drt_chunk", ("id", i64), ("document", i64), ("in_document", i64), ("token_offset", i64), ("n_tokens", i32),
    ("reserved", i32))
landmark_rows = _struct(
    "drt_landmark_rows", ("rows", address), ("first", i64), ("n", i64), ("dim", i32), ("reserved", i32))
landmark_codes = _struct(
    "drt_landmark_codes", ("codes", address), ("scales", address), ("first", i64), ("n", i64), ("dim", i32),
    ("reserved", i32))

new_text = _struct(
    "drt_text", ("size", size_t), ("text", address), ("bytes", size_t), ("source", text), ("key", text))
next_function = c.CFUNCTYPE(c.c_int, address, pointer(new_text))
build_config = _struct(
    "drt_build_config", ("size", size_t), ("inputs", pointer(text)), ("n_inputs", c.c_int), ("format", text),
    ("text_field", text), ("eod_id", pointer(i64)), ("skip_bad_lines", boolean), ("no_follow", boolean),
    ("next", next_function), ("next_context", address), ("append", boolean), ("restart", boolean), ("index", text),
    ("max_ram", u64), ("shard_chunks", i64), ("progress", progress), ("part", c.c_int), ("parts", c.c_int),
    ("landmarks", text), ("keys", boolean))
build_report = _struct(
    "drt_report", ("size", size_t),
    *((name, i64) for name in ("documents", "duplicates", "empty", "chunks", "tokens", "skipped_lines", "passed_over",
                               "resumed_documents", "resumed_chunks")),
    ("generation", u64), ("already_built", boolean),
    *((name, c.c_double) for name in ("seconds", "encode_seconds", "tokenize_seconds", "publish_seconds")),
    *((name, i64) for name in ("keys_files", "keys_made", "keys_chunks", "keys_lacking")),
    ("keys_bytes", u64), ("keys_seconds", c.c_double))

finding = _struct("drt_finding", ("file", text), ("problem", text), ("remedy", text))
finding_function = c.CFUNCTYPE(None, address, pointer(finding))
verify_config = _struct(
    "drt_verify_config", ("size", size_t), ("deep", boolean), ("on_finding", finding_function), ("context", address),
    ("progress", progress))
document_function = c.CFUNCTYPE(None, address, pointer(document))
delete_config = _struct(
    "drt_delete_config", ("size", size_t), ("documents", pointer(i64)), ("n_documents", i64), ("sources", pointer(text)),
    ("n_sources", c.c_int), ("dry_run", boolean), ("on_document", document_function), ("context", address),
    ("progress", progress), ("keys", pointer(text)), ("n_keys", c.c_int))
change_report = _struct(
    "drt_change_report", ("size", size_t), *((name, i64) for name in ("documents", "chunks", "tokens")), ("generation", u64))
compact_config = _struct(
    "drt_compact_config", ("size", size_t), ("index", text), ("max_ram", u64), ("shard_chunks", i64), ("threads", c.c_int),
    ("progress", progress), ("landmarks", text), ("devices", c.c_int))
join_config = _struct(
    "drt_join_config", ("size", size_t), ("copy", boolean), ("lexical", boolean), ("index", text), ("max_ram", u64),
    ("threads", c.c_int), ("progress", progress), ("devices", c.c_int))
join_report = _struct(
    "drt_join_report", ("size", size_t),
    *((name, i64) for name in ("shards", "documents", "chunks", "tokens", "copies", "linked", "copied")),
    ("generation", u64), ("already_joined", boolean))
freeze_config = _struct("drt_freeze_config", ("size", size_t), ("copy", boolean), ("progress", progress))
freeze_report = _struct(
    "drt_freeze_report", ("size", size_t), *((name, i64) for name in ("documents", "chunks", "linked", "copied")),
    ("generation", u64), ("already_frozen", boolean))

searcher_config = _struct(
    "drt_searcher_config", ("size", size_t), ("kind", c.c_int), ("exact", boolean), ("exact_fallback", boolean),
    ("nprobe", c.c_int), ("candidates", c.c_int), ("landmark_weight", f32), ("threads", c.c_int),
    ("workers", c.c_char_p), ("worker_key", c.c_char_p), ("worker_timeout", c.c_int),
    ("devices", c.c_int))
searcher_info = _struct(
    "drt_searcher_info", ("size", size_t), ("kind", c.c_char * 32), ("text", c.c_char * 512), ("exact", boolean),
    ("visited", i64), ("lists", i64), ("device_bytes", u64), ("queries", i64), ("missing", i64))
chunk_range = _struct("drt_range", ("begin", i64), ("end", i64))
hit = _struct("drt_hit", ("chunk", i64), ("score", f32), ("reserved", i32))
search = _struct(
    "drt_search", ("size", size_t), ("k", c.c_int), ("nprobe", c.c_int), ("exclude", pointer(chunk_range)))

session_config = _struct(
    "drt_session_config", ("size", size_t), ("self", boolean), ("corpus", boolean), ("store", address),
    ("searcher", address), ("exclude", boolean), ("exclude_document", i64), ("memory", c.c_int),
    ("memory_config", text), ("lexical", text), ("memory_past", i64), ("temperature", f32), ("top_p", f32),
    ("min_p", f32), ("top_k", c.c_int), ("repeat_penalty", f32), ("repeat_last", c.c_int), ("seed", u64),
    ("max_tokens", i64), ("stops", pointer(text)), ("n_stops", c.c_int), ("ignore_eos", boolean), ("top", c.c_int),
    ("progress", progress), ("continuation", c.c_int), ("no_logprob", boolean), ("overlap", c.c_int),
    ("query_tokens", c.c_int), ("skip", i64), ("rewind", boolean), ("memory_keys", c.c_int),
    ("memory_k", c.c_int), ("memory_every", c.c_int))
alternative = _struct("drt_alternative", ("id", i32), ("logprob", f32))
scores = _struct(
    "drt_scores", ("n", i64), ("first", i64), ("top", i32), ("reserved", i32), ("ids", pointer(i32)),
    ("logprob", pointer(f32)), ("alternatives", pointer(alternative)), ("memory_share", pointer(f32)), ("sum", c.c_double))
neighbour = _struct(
    "drt_neighbour", ("source", c.c_int), ("group", i32), ("chunk", i64), ("document", i64), ("token_offset", i64),
    ("weight", f32), ("score", f32))
token = _struct(
    "drt_token", ("size", size_t), ("id", i32), ("end", c.c_int), ("position", i64), ("text", address),
    ("bytes", size_t), ("raw", address), ("raw_bytes", size_t), ("logprob", f32), ("memory_share", f32),
    ("alternatives", pointer(alternative)), ("n_alternatives", i32), ("n_neighbours", i32),
    ("neighbours", pointer(neighbour)))
session_info = _struct(
    "drt_session_info", ("size", size_t), ("tokens", i64), ("chunks", i64), ("queries", i64), ("cache_hits", i64),
    ("cache_misses", i64), *((name, c.c_double) for name in ("seconds", "search_seconds", "read_seconds", "encode_seconds")),
    ("searched_by", c.c_char * 512))

STRUCTS = [value for value in list(globals().values())
           if isinstance(value, type) and issubclass(value, c.Structure) and value is not c.Structure]

# name: the arguments; all return enum drt_status.
_CALLS: dict[str, tuple[Any, ...]] = {
    "drt_version": (address,),
    "drt_model_open": (address, text, address),
    "drt_model_share": (address, address, address),
    "drt_model_info": (address, address),
    "drt_model_encode": (address, address, address, i64),
    "drt_model_encode_device": (address, address, address, i64),
    "drt_model_encode_text": (address, address, address, address, text, size_t),
    "drt_model_query": (address, address, address, i64),
    "drt_tokenizer_open": (address, text),
    "drt_tokenizer_encode": (address, address, address, text, size_t, boolean),
    "drt_tokenizer_decode": (address, address, address, address, size_t, boolean),
    "drt_tokenizer_bytes": (address, address, address, i32),
    "drt_store_open": (address, text),
    "drt_store_view": (address, address),
    "drt_store_info": (address, address),
    "drt_store_document": (address, address, i64),
    "drt_store_find_document": (address, address, address),
    "drt_store_chunks": (address, address, address, address, address, i64),
    "drt_store_sample": (address, address, i64, u64),
    "drt_store_chunk_text": (address, address, address, address, i64),
    "drt_store_document_text": (address, address, address, address, i64),
    "drt_store_document_ids": (address, address, address, i64),
    "drt_landmarks_open": (address, address, i64),
    "drt_landmarks_rows": (address, address),
    "drt_landmarks_codes": (address, address),
    "drt_landmarks_next": (address, address, i64),
    "drt_store_build": (text, address, address, address),
    "drt_store_verify": (text, address, address),
    "drt_store_delete": (text, address, address),
    "drt_store_compact": (text, text, address, address),
    "drt_store_join": (text, address, c.c_int, address, address),
    "drt_store_freeze": (text, text, address, address),
    "drt_searcher_open": (address, address, address, address),
    "drt_searcher_info": (address, address),
    "drt_search_vectors": (address, address, address, i64, address),
    "drt_search_texts": (address, address, address, address, i64, address),
    "drt_search_ids": (address, address, address, address, i64, address),
    "drt_session_open": (address, address, address),
    "drt_session_renew": (address, address),
    "drt_session_reset": (address, u64), "drt_session_rewind": (address, u64),
    "drt_session_feed": (address, text, size_t, address, c.c_int),
    "drt_session_feed_ids": (address, address, i64, address, c.c_int),
    "drt_session_feed_later": (address, address, i64, address),
    "drt_session_logprobs": (address, address),
    "drt_session_next": (address, address),
    "drt_session_prepare": (address, c.c_int, address),
    "drt_session_stop": (address, address, address),
    "drt_session_info": (address, address),
    "drt_score_text": (address, address, text, size_t, c.c_int, address),
    "drt_score_ids": (address, address, address, i64, c.c_int, address),
}
# name: what it returns, the arguments.
_OTHERS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "drt_message": (text, ()),
    "drt_free": (None, (address,)),
    "drt_model_close": (None, (address,)),
    "drt_model_tokenizer": (address, (address,)),
    "drt_tokenizer_close": (None, (address,)),
    "drt_tokenizer_vocab_size": (c.c_int, (address,)),
    "drt_tokenizer_spelling": (text, (address, i32)),
    "drt_tokenizer_id": (i32, (address, text)),
    "drt_tokenizer_is_special": (boolean, (address, i32)),
    "drt_store_close": (None, (address,)),
    "drt_landmarks_close": (None, (address,)),
    "drt_searcher_close": (None, (address,)),
    "drt_session_close": (None, (address,)),
    "drt_session_tokens": (i64, (address,)),
}


class DrtError(Exception):
    """A call of the library failed. ``str(error)`` is one line that names file, position and remedy."""

    status = 0


class NotFound(DrtError, LookupError):
    """A file, chunk or document does not exist."""


class Invalid(DrtError, ValueError):
    """An argument or an input that no version accepts."""


class Corrupt(DrtError):
    """A file of a store or of a model is damaged."""


class Mismatch(DrtError, ValueError):
    """Valid, but does not fit the other arguments, such as a store of another model."""


class VersionError(DrtError):
    """Written by a newer version."""


class Busy(DrtError):
    """Another writer has the lock of the store, or this process has it open already."""


class Unsupported(DrtError):
    """Valid, but this model, build or machine does not support it."""


class Interrupted(DrtError):
    """Stopped by a callback. A build that is called again continues."""


class ReadOnly(DrtError, PermissionError):
    """The store cannot be written: a snapshot, a read-only medium, or no permission."""


class InputOutput(DrtError, OSError):
    """Opening, reading or writing a file failed, or a disk is full."""


for _error in (DrtError, NotFound, Invalid, Corrupt, Mismatch, VersionError, Busy, Unsupported, Interrupted, ReadOnly, InputOutput):
    _error.__module__ = "drt"                    # where programs find it, and what tracebacks print

_ERRORS: dict[int, type[DrtError]] = {-1: InputOutput, -2: InputOutput, -4: NotFound, -5: Invalid, -6: Corrupt, -7: Mismatch, -8: VersionError,
           -9: Busy, -10: Unsupported, -11: Interrupted, -12: ReadOnly}


def _candidates() -> list[str]:
    """Where the library may lie: inside the package (wheels), or where the system looks."""
    named = os.environ.get("DRT_LIBRARY")
    if named:
        return [named]
    inside = sorted(pathlib.Path(__file__).parent.glob("libdrt.so*"))
    return [str(inside[-1])] if inside else ["libdrt.so.1"]


def _load() -> c.CDLL:
    path = _candidates()[0]
    try:
        loaded = c.CDLL(path)
    except OSError as error:
        raise ImportError(f"{path}: {error}; install the package with pip, the Debian package libdrt1, or name the "
                          "library in DRT_LIBRARY") from error
    for name, arguments in _CALLS.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype, function.errcheck = arguments, c.c_int, _check
    for name, (result, arguments) in _OTHERS.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype = arguments, result
    return loaded


def _check(status: int, _function: object, _arguments: object) -> int:
    """Raises what a status says. ctypes calls it in the thread of the call, where the message lies."""
    if status == 0:
        return 0
    message = (library.drt_message() or b"").decode("utf8", "replace")
    if status == -3:
        raise MemoryError(message)
    error = _ERRORS.get(status, DrtError)(message)
    error.status = status
    raise error


library = _load()


_SIGNED = {c.c_int: 32, i32: 32, i64: 64}
# What an argument in Python is called whose member has another name.
_ALIASES = {"self": "self_retrieval", "corpus": "corpus_retrieval"}


def _member(type_: Any, value: Any, name: str) -> Any:
    """A value of a caller for a member of a struct."""
    if type_ in _SIGNED:
        return check.integer(value, name, -2**(_SIGNED[type_] - 1), 2**(_SIGNED[type_] - 1) - 1)
    if type_ is u64:
        return check.integer(value, name, 0, 2**64 - 1)
    if type_ is f32:
        return check.real(value, name)
    if type_ is boolean:
        return check.boolean(value, name)
    return check.encoded(value, name) if type_ is text and not isinstance(value, bytes) else value


def new(struct: Any, **members: Any) -> Any:
    """A struct with its `size` and these members set. A member that its C type cannot hold is refused by its name."""
    made, types = struct(), dict(struct._fields_)
    for name, value in members.items():
        setattr(made, name, _member(types[name], value, _ALIASES.get(name, name)))
    made.size = c.sizeof(struct)
    return made


def members(struct: Any) -> dict[str, Any]:
    """A filled struct as a dict, without its `size`; strings are decoded."""
    values = {name: getattr(struct, name) for name, *_ in struct._fields_ if name != "size"}
    return {name: decoded(value) if isinstance(value, bytes) else value for name, value in values.items()}


def utf8(value: Any, name: str) -> bytes:
    """A text for C. Lone surrogates, which UTF-8 cannot hold, become U+FFFD, as in jsonl."""
    text_ = check.text(value, name)
    try:
        return text_.encode("utf8")
    except UnicodeEncodeError:
        return text_.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode("utf8")


def decoded(value: bytes | None) -> str:
    return (value or b"").decode("utf8", "surrogateescape")


# ---- handles


class _Callback(threading.local):
    """What is at work in the call that made the callback which this thread runs now."""

    busy: frozenset[Opened] = frozenset()


_callback = _Callback()
_long_calls = 0                                  # that run now
_long_calls_lock = threading.Lock()
_unclosed: collections.deque[Opened] = collections.deque()


def _after_fork() -> None:
    """In the child: the parent's calls do not run here."""
    global _long_calls, _long_calls_lock
    _long_calls, _long_calls_lock, _callback.busy = 0, threading.Lock(), frozenset()
    _unclosed.clear()


os.register_at_fork(after_in_child=_after_fork)


class ClosingLock:
    """A lock of handles that weak references find until they are closed.

    Closing never waits for it: the garbage collector closes in the middle of any code, also in a thread that has a lock which the
    owner of this one waits for. What is closed while another thread has the lock is closed by that thread, once it has released it.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._waiting: collections.deque[Opened] = collections.deque()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        self._close_waiting()

    def close(self, opened: Opened) -> None:
        self._waiting.append(opened)
        self._close_waiting()

    def _close_waiting(self) -> None:
        while self._waiting and self._lock.acquire(blocking=False):
            try:
                self._waiting.popleft().close()
            except IndexError:                   # another thread took it
                pass
            finally:
                self._lock.release()


class Opened:
    """What a handle of the library refers to. It is closed when nobody has it any more, neither an object nor a call.

    So an object may be closed while another thread is inside a call: ctypes keeps the call's arguments.
    """

    def __init__(self, value: int | None, close: str | None, keeps: tuple[object, ...], turns: tuple[Opened, ...],
                 lock: ClosingLock | None = None) -> None:
        self.value, self.process, self._lock = value, os.getpid(), lock
        self._as_parameter_ = c.c_void_p(value)
        self._close: Callable[[int], None] | None = getattr(library, close) if close else None
        self.keeps = keeps                       # what must not be closed earlier
        self.turns = frozenset(turns)            # whose turn a call waits for, besides its own

    def __del__(self) -> None:
        # A child of a fork must not close what its parent opened.
        if self._close is None or self.value is None or self.process != os.getpid():
            return
        try:
            self._release()
        except BaseException:                    # a signal's handler raised, as at Ctrl-C: once more
            self._release()
            raise

    def _release(self) -> None:
        # A session waits for its model's turn: not in the callback of a build with that model, and better not in a
        # thread that watches one, for it could be stopped no longer.
        if _long_calls and self.turns:
            _unclosed.append(self)
        elif self._lock is None:
            self.close()
        else:
            # Weak references still give this object to other threads, which must have the lock and see that it is closed.
            self._lock.close(self)

    def close(self) -> None:
        value, self.value = self.value, None
        if self._close is not None and value is not None:
            self._close(value)


class Handle:
    """A handle of the library with an owner in Python, who can close it.

    A process that was forked off must not use it (the library's threads are not there, and LMDB forbids it), so the
    handle remembers its process.
    """

    def __init__(self, value: int | None, close: str | None, *keeps: object, turns: tuple[Opened, ...] = (),
                 lock: ClosingLock | None = None) -> None:
        self._opened: Opened | None = Opened(value, close, keeps, turns, lock)

    def __call__(self) -> Opened:
        opened = self._opened
        if opened is None:
            raise ValueError("it was closed")
        if opened.process != os.getpid():
            raise RuntimeError(f"it was opened by process {opened.process}, and this is a process forked off from it: "
                               "open it here, after the fork (worker_init_fn of a data loader), or use spawn")
        if _callback.busy and (opened in _callback.busy or not _callback.busy.isdisjoint(opened.turns)):
            raise RuntimeError("it is at work in the call that made this callback: use another model there "
                               "(model.share()), or do it after the call")
        return opened

    def fill(self, value: int | None) -> None:
        """The value of a handle that was made with None."""
        if self._opened is not None:
            self._opened.value, self._opened._as_parameter_ = value, c.c_void_p(value)

    def close(self) -> None:
        self._opened = None

    @property
    def closed(self) -> bool:
        return self._opened is None

    @property
    def process(self) -> int:
        return -1 if self._opened is None else self._opened.process


def opened(call: str, close: str, *arguments: object, keeps: tuple[object, ...] = (), turns: tuple[Opened, ...] = (),
           lock: ClosingLock | None = None) -> Handle:
    """The handle that a function makes through its first argument. `lock`: held while it is closed."""
    value = c.c_void_p()
    handle = Handle(None, close, *keeps, turns=turns, lock=lock)
    try:
        getattr(library, call)(c.byref(value), *arguments)
    finally:                                     # also if Ctrl-C raises when the call has returned
        handle.fill(value.value)
    return handle


@contextmanager
def long_call() -> Iterator[None]:
    """While it runs, what the garbage collector finds is closed later, at the end."""
    global _long_calls
    with _long_calls_lock:
        _long_calls += 1
    try:
        yield
    finally:
        with _long_calls_lock:
            _long_calls -= 1
        while not _long_calls and _unclosed:
            try:
                waiting = _unclosed.popleft()
            except IndexError:                   # another thread took it
                break
            if waiting.process == os.getpid():
                waiting.close()


@contextmanager
def in_callback(busy: frozenset[Opened]) -> Iterator[None]:
    before, _callback.busy = _callback.busy, busy
    try:
        yield
    finally:
        _callback.busy = before


class Returned:
    """Memory that the library gave away: freed when the block ends."""

    def __init__(self, type_: Any = c.c_void_p) -> None:
        self.pointer: Any = type_()

    def __enter__(self) -> Returned:
        return self

    def __exit__(self, *_: object) -> None:
        library.drt_free(c.cast(self.pointer, c.c_void_p))

    @property
    def reference(self) -> Any:
        return c.byref(self.pointer)

    def data(self, size: int) -> bytes:
        return c.string_at(c.cast(self.pointer, c.c_void_p), size) if size else b""
