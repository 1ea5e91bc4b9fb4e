"""Long calls: progress for tqdm and friends, and an end when the user presses Ctrl-C."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Optional

from . import _library as lib

#: Called as ``report(stage, unit, done, total)``; total is None where it is not known.
Report = Callable[[str, str, int, Optional[int]], None]


class TqdmReport:
    """Draws progress with a tqdm bar for each stage: ``progress=drt.TqdmReport()``.

    ``bar`` is the class of the bars (default: ``tqdm.auto.tqdm``).
    """

    def __init__(self, bar: Callable[..., Any] | None = None) -> None:
        if bar is None:
            from tqdm.auto import tqdm as bar
        self._make, self._bar, self._stage = bar, None, ""

    def __call__(self, stage: str, unit: str, done: int, total: int | None) -> None:
        if stage != self._stage:
            self.close()
            self._bar, self._stage = self._make(desc=stage, unit=f" {unit}", total=total), stage
        self._bar.total = total
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        self._bar = None


class LongCall:
    """One call that may take minutes.

    The call runs in a thread of its own, so that the main thread is free to see Ctrl-C; it then asks the library to
    stop, waits until the library has reached a safe point, and raises KeyboardInterrupt. An exception in a callback
    stops the call in the same manner and is raised afterwards.
    """

    def __init__(self, report: Report | None) -> None:
        self._report, self._stop, self._error = report, threading.Event(), None
        self.progress = lib.progress(report=lib.report_function(self._on_report), stop=lib.stop_function(self._on_stop))

    def fail(self, error: BaseException) -> None:
        """Keeps the first exception of a callback and stops the call."""
        self._error = self._error or error
        self._stop.set()

    def _on_stop(self, _context: object) -> bool:
        return self._stop.is_set()

    def _on_report(self, _context: object, event: Any) -> None:
        step = event.contents
        if self._report is None or step.note is not None:
            return
        try:
            self._report(lib.decoded(step.stage), lib.decoded(step.unit), step.done, step.total if step.total >= 0 else None)
        except BaseException as error:  # noqa: BLE001  (C must not see it; raised by run)
            self.fail(error)

    def run(self, call: Callable[[], Any]) -> Any:
        result: list[Any] = [None, None]

        def work() -> None:
            try:
                result[0] = call()
            except BaseException as error:  # noqa: BLE001  (raised below)
                result[1] = error

        thread = threading.Thread(target=work, name="drt", daemon=True)
        thread.start()
        while thread.is_alive():
            try:
                thread.join(0.2)
            except BaseException as error:  # noqa: BLE001  (KeyboardInterrupt, or what another handler raises)
                self.fail(error)
        if self._error is not None:
            raise self._error
        if result[1] is not None:
            raise result[1]
        return result[0]
