"""Long calls: progress for tqdm and friends, and an end when the user presses Ctrl-C."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Optional, TypeVar

from . import _arguments as check
from . import _library as lib

#: Called as ``report(stage, unit, done, total)``; total is None where it is not known.
Report = Callable[[str, str, int, Optional[int]], None]
Result = TypeVar("Result")
_log = logging.getLogger("drt")


class TqdmReport:
    """Draws progress with a tqdm bar for each stage: ``progress=drt.TqdmReport()``, or ``progress=True``.

    ``bar`` is the class of the bars (default: ``tqdm.auto.tqdm``).
    """

    def __init__(self, bar: Callable[..., Any] | None = None) -> None:
        if bar is None:
            try:
                from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]
            except ImportError as error:
                raise ImportError("bars of progress need tqdm: pip install tqdm, or give a function (stage, unit, done, "
                                  "total) as progress") from error
            bar = tqdm
        self._make, self._stage = bar, ""
        self._bar: Any = None

    def __call__(self, stage: str, unit: str, done: int, total: int | None) -> None:
        if stage != self._stage:
            self.close()
            of_bytes = unit == "bytes"
            self._bar = self._make(desc=stage, unit="B" if of_bytes else f" {unit}", unit_scale=of_bytes, total=total)
            self._stage = stage
        self._bar.total = total
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Ends the last bar; the call that it reports on does so when it ends."""
        if self._bar is not None:
            self._bar.close()
        self._bar, self._stage = None, ""


def reporter(progress: Report | bool | None) -> Report | None:
    """What the argument `progress` of a long call means."""
    if isinstance(progress, bool):
        return TqdmReport() if progress else None
    return None if progress is None else check.function(progress, "progress")


class LongCall:
    """A call that may take minutes.

    In the main thread it runs in a thread of its own, so that the main thread is free to see Ctrl-C; it then asks the
    library to stop, waits until the library has reached a safe point, and raises KeyboardInterrupt. An exception in a
    callback stops the call in the same manner and is raised afterwards. It can be run several times.
    """

    def __init__(self, report: Report | None, *at_work: lib.Opened) -> None:
        self.report, self.busy = report, frozenset(at_work)
        self._error: BaseException | None = None
        #: How far the encoding of a caller's documents is, whose number the library does not know: unit, done, total.
        self.position: Callable[[], tuple[str, int, int | None]] | None = None
        stop = self._stop = threading.Event()
        # Not bound methods: a cycle through C's callbacks would wait for the garbage collector.
        self.progress = lib.progress(stop=lib.stop_function(lambda _context: stop.is_set()))

    def fail(self, error: BaseException) -> None:
        """Keeps the first exception of a callback and stops the call."""
        self._error = self._error or error
        self._stop.set()

    def _on_report(self, _context: object, event: Any) -> None:
        try:
            with lib.in_callback(self.busy):
                step = event.contents
                if step.note is not None:
                    _log.info("%s", lib.decoded(step.note))
                elif self.report is not None:
                    stage, unit = lib.decoded(step.stage), lib.decoded(step.unit)
                    done, total = step.done, step.total if step.total >= 0 else None
                    if self.position is not None and stage in ("encode", "tokenize"):
                        unit, done, total = self.position()
                    self.report(stage, unit, done, total)
        except BaseException as error:  # noqa: BLE001  (C must not see it; raised by run)
            self.fail(error)

    def run(self, call: Callable[[], Result]) -> Result:
        """What `call` returns."""
        self._error = None
        self._stop.clear()
        result: list[Result] = []
        with lib.long_call():
            try:
                self._watch(lambda: result.append(call()))
            except lib.Interrupted:
                if self._error is None:
                    raise
            finally:
                close = getattr(self.report, "close", None)
                if close is not None:
                    close()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return result[0]

    def run_reported(self, call: Callable[[Any], Result]) -> Result:
        """The same; `call` gets the struct of progress with a function that reports."""
        # The function refers to this object, and lives for the call alone.
        with_report = lib.progress(report=lib.report_function(self._on_report), stop=self.progress.stop)
        return self.run(lambda: call(with_report))

    def _watch(self, call: Callable[[], None]) -> None:
        if threading.current_thread() is not threading.main_thread():
            return call()                        # Ctrl-C is the main thread's
        failed: list[BaseException] = []
        ended = threading.Event()

        def work() -> None:
            try:
                call()
            except BaseException as error:  # noqa: BLE001  (raised below)
                failed.append(error)
            finally:
                ended.set()

        thread = threading.Thread(target=work, name="drt", daemon=True)
        thread.start()
        while not ended.is_set():
            try:
                ended.wait()
            except BaseException as error:  # noqa: BLE001  (KeyboardInterrupt, or what another handler raises)
                self.fail(error)
        thread.join()
        if failed:
            raise failed[0]
