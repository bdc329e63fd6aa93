"""Progress and messages, on standard error alone; results belong to standard output.

On a terminal a bar with rate and remaining time; elsewhere a line now and then, without colours.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

#: Seconds between two lines where standard error is no terminal.
LINE_SECONDS = 10.0


class Bar(Protocol):
    """What a stage tells of its progress."""

    def advance(self, count: int = 1) -> None:
        """`count` more items are done."""


#: The console of the bar that is being drawn, if one is.
_live: list[Any] = []


def bearable(text: str) -> str:
    """Text that steers no terminal, whoever wrote parts of it: such signs become question marks."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "?" for sign in text)


def say(text: str) -> None:
    """One message to the user, on standard error (see `bearable`)."""
    text = bearable(text)
    if _live:
        _live[-1].print(text, markup=False, highlight=False)
        return
    sys.stderr.write(text.rstrip("\n") + "\n")
    sys.stderr.flush()


@contextmanager
def progress(what: str, total: int | None, *, done: int = 0, unit: str = "images") -> Iterator[Bar]:
    """Show how far a stage is.

    Args:
        what: the stage, for example "filter".
        total: the number of items, or None where it is not known.
        done: items that an earlier start has finished.
        unit: what is counted.

    Yields:
        A `Bar`; `advance` may be called from any thread.
    """
    if sys.stderr.isatty():
        with _terminal_bar(what, total, done, unit) as bar:
            yield bar
        return
    lines = _Lines(what, total, done, unit)
    try:
        yield lines
    finally:
        lines.close()


class _Lines:
    def __init__(self, what: str, total: int | None, done: int, unit: str) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.start_at = self.done = done
        self.started = self.told = time.monotonic()
        self.told_done = done
        self.lock = threading.Lock()

    def advance(self, count: int = 1) -> None:
        with self.lock:
            self.done += count
            if time.monotonic() - self.told >= LINE_SECONDS:
                self._tell()

    def close(self) -> None:
        with self.lock:
            if self.told != self.started and self.told_done != self.done:
                self._tell()

    def _tell(self) -> None:
        self.told, self.told_done = time.monotonic(), self.done
        rate = (self.done - self.start_at) / max(self.told - self.started, 1e-9)
        text = f"{self.what}: {self.done}"
        if self.total is not None:
            left = (self.total - self.done) / rate if rate else float("inf")
            text += f" of {self.total}"
            if self.done < self.total and left != float("inf"):
                text += f", {_clock(left)} left"
        say(f"{text} ({rate:.1f} {self.unit}/s)")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def _terminal_bar(what: str, total: int | None, done: int, unit: str) -> Iterator[Bar]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text(f"{speed:.1f} {unit}/s" if speed else "")

    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as shown:
        task = shown.add_task(bearable(what), total=total, completed=done)

        class Terminal:
            def advance(self, count: int = 1) -> None:
                shown.advance(task, count)

        _live.append(shown.console)
        try:
            yield Terminal()
        finally:
            _live.pop()


class StopNow(BaseException):
    """The user wants the process to end at once; nothing may catch it but the command line."""


class Stop:
    """Whether the user asked to stop; see `stop_on_interrupt`."""

    def __init__(self) -> None:
        self._event = threading.Event()

    @property
    def requested(self) -> bool:
        """True from the first interrupt on."""
        return self._event.is_set()

    def request(self) -> None:
        """Ask to stop, as the interrupt does."""
        self._event.set()


@contextmanager
def stop_on_interrupt(stop: Stop | None = None) -> Iterator[Stop]:
    """Turn the first interrupt or termination into a request to stop after the batch in hand.

    A second one acts at once. Outside the main thread the signals are left as they are.

    Args:
        stop: what to set; a new one by default.
    """
    stop = stop or Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    previous: dict[signal.Signals, Any] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.requested:
            raise StopNow
        stop.request()
        say("stopping after the batch in hand; interrupt again to stop at once")

    for caught in (signal.SIGINT, signal.SIGTERM):
        previous[caught] = signal.signal(caught, handle)
    try:
        yield stop
    finally:
        for caught, handler in previous.items():
            signal.signal(caught, handler)
