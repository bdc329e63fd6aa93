"""Engines: where the chunks of a run are scored. The local one uses this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from curate.progress import Stop
from pipelines.scoring import Chunk, Job, Scored, Scorer
from pipelines.threads import run_here

#: Chunks that are decoded, or wait decoded, while a GPU works on one.
_AHEAD = 2


class Engine(Protocol):
    """Where chunks are scored."""

    @property
    def workers(self) -> int:
        """Chunks that are worked on at one time."""

    def run(self, chunks: Iterable[Chunk], stop: Stop) -> Iterator[tuple[Chunk, Scored]]:
        """Score chunks, and hand out each as soon as it is done, in any order.

        Args:
            chunks: taken lazily; a bounded number is under way at a time.
            stop: asks to stop: no further chunk starts, those at work end and are handed out.

        Raises:
            UsageError, StorageError: whatever makes every chunk impossible.
        """

    def widen(self, job: Job) -> None:
        """Go on with the wider margins of a job that is otherwise the same."""

    def close(self) -> None:
        """End what was started; what is under way is lost."""


class LocalEngine:
    """This process: on the CPU a thread a core; for a GPU one that judges, and decoding ones."""

    def __init__(self, scorer: Scorer, cores: int) -> None:
        self.scorer, self.cores = scorer, cores
        self._on_cpu = scorer.device == "cpu"

    @property
    def workers(self) -> int:
        """See `Engine.workers`."""
        return self.cores if self._on_cpu else 1

    def run(self, chunks: Iterable[Chunk], stop: Stop) -> Iterator[tuple[Chunk, Scored]]:
        """See `Engine.run`."""
        if self._on_cpu:
            yield from run_here(chunks, self.scorer.score, self.cores, stop)
            return
        with ThreadPoolExecutor(self.cores) as decoders:
            loaded = run_here(
                chunks, lambda chunk: self.scorer.load(chunk, decoders.map), _AHEAD, stop
            )
            judged = run_here(loaded, lambda pair: self.scorer.judge(*pair), 1)
            for (chunk, _), scored in judged:
                yield chunk, scored

    def widen(self, job: Job) -> None:
        """See `Engine.widen`."""
        self.scorer.widen(job)

    def close(self) -> None:
        """Nothing: threads end with their chunks."""
