"""A bench: where one process scores chunks, and what it answers to whoever drives it.

Nothing but `Scored`, `Fault` or None goes back to another process: the errors of the tree do not
all survive pickling, and a worker elsewhere may know classes that the driver lacks.
"""

from __future__ import annotations

import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from curate.errors import (
    BusyError,
    CurateError,
    DeviceError,
    LabelSpaceError,
    SettingsError,
    StorageError,
    UsageError,
    VerificationError,
    WeightsError,
    WorkspaceError,
)
from curate.files import canonical_json, sha256_bytes, sha256_file
from pipelines.scoring import Chunk, Job, Scored, Scorer

#: Chunks that are decoded, or wait decoded, while a GPU works on one.
_AHEAD = 2

#: Errors that are made of their one line alone.
_KINDS: tuple[type[CurateError], ...] = (
    BusyError,
    StorageError,
    VerificationError,
    DeviceError,
    SettingsError,
    WorkspaceError,
    LabelSpaceError,
    WeightsError,
    UsageError,
    CurateError,
)


@dataclass(frozen=True)
class Fault:
    """An error on its way from one process to another.

    Attributes:
        kind: the nearest class of the error tree; empty for an error that nobody expected.
        text: its one line.
        trace: where it came from, for `--debug`.
    """

    kind: str
    text: str
    trace: str

    @classmethod
    def of(cls, error: BaseException, where: str = "") -> Fault:
        """The fault that stands for an error.

        Args:
            error: what was raised.
            where: which worker says so, where the reader could not tell.
        """
        expected = isinstance(error, CurateError)
        kind = next((k.__name__ for k in _KINDS if isinstance(error, k)), "")
        text = str(error) if expected else f"{type(error).__name__}: {error}"
        trace = "".join(traceback.format_exception(error))
        return cls(kind, f"{where}: {text}" if where else text, trace)

    def error(self) -> Exception:
        """The error as this process knows it."""
        kind = next((k for k in _KINDS if k.__name__ == self.kind), RuntimeError)
        error = kind(self.text)
        error.add_note(self.trace)
        return error


class Bench:
    """Where one process scores chunks: decoding ahead of a GPU, or a chunk a core.

    Args:
        scorer: shared by all threads.
        cores: that this process may use.
    """

    def __init__(self, scorer: Scorer, cores: int) -> None:
        self.scorer = scorer
        #: Chunks that gain from being worked on at one time, each in a thread of the caller's.
        self.hands = hands(scorer.device, cores)
        self._ahead = scorer.device != "cpu"
        self._cores = cores

    def work(self, chunk: Chunk) -> Scored:
        """Score a chunk, in the calling thread; at most `hands` at a time.

        Raises:
            DeviceError: the device failed, or its memory is full.
        """
        if not self._ahead:
            return self.scorer.score(chunk)
        photos = self.scorer.load(chunk, self._decoders.map)
        # One thread judges: what a GPU's libraries keep, they keep for each thread.
        return self._judge.submit(self.scorer.judge, chunk, photos).result()

    def close(self) -> None:
        """Let go of threads; what they have in hand is lost."""
        if self._ahead:
            self._decoders.shutdown(wait=False, cancel_futures=True)
            self._judge.shutdown(wait=False, cancel_futures=True)

    @cached_property
    def _decoders(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._cores, thread_name_prefix="decode")

    @cached_property
    def _judge(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, thread_name_prefix="judge")


def hands(device: str, cores: int) -> int:
    """Chunks that a process works on at one time.

    Args:
        device: where it computes.
        cores: that it may use.
    """
    return cores if device == "cpu" else 1 + _AHEAD


class Place:
    """A bench in a process that serves a driver elsewhere; safe to share between threads.

    Args:
        job: what to do.
        cores: that this process may use.

    Raises:
        UsageError: as `Scorer` says.
        DeviceError: the device is gone.
    """

    def __init__(self, job: Job, cores: int) -> None:
        from curate.models.memory import device_errors

        with device_errors(job.device):
            self._bench = Bench(Scorer(job, cores), cores)
        self._free = threading.BoundedSemaphore(self._bench.hands)
        self._stopped = 0

    def score(self, turn: int, chunk: Chunk) -> Scored | Fault | None:
        """Score a chunk, when a thread is free for it.

        Args:
            turn: which of the driver's passes it belongs to, from 1.
            chunk: the candidates.

        Returns:
            None where the driver has stopped that pass before the chunk was begun.
        """
        with self._free:
            if turn <= self._stopped:
                return None
            try:
                return self._bench.work(chunk)
            except Exception as error:
                return Fault.of(error)

    def stop(self, turn: int) -> None:
        """Begin no further chunk of a pass."""
        self._stopped = max(self._stopped, turn)

    def widen(self, job: Job) -> None:
        """Go on with the wider margins of a job that is otherwise the same."""
        self._bench.scorer.widen(job)


def code_fingerprint() -> str:
    """SHA-256 over the code that scores and drives, as it is installed here."""
    import curate
    import pipelines

    found: list[list[str]] = []
    for package in (curate, pipelines):
        assert package.__file__ is not None
        root = Path(package.__file__).parent
        for path in sorted(root.rglob("*.py")):
            name = path.relative_to(root.parent).as_posix()
            found.append([name, sha256_file(path)])
    return sha256_bytes(canonical_json(found))
