"""Engines: where the chunks of a run are scored: in this process, in several, or on Ray."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Protocol

from curate.errors import MissingExtraError
from curate.progress import Stop
from curate.setting_groups import FilterSettings
from pipelines.bench import Bench
from pipelines.scoring import Chunk, Job, Scored, Scorer
from pipelines.threads import run_here


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

    @property
    def workers(self) -> int:
        """See `Engine.workers`."""
        return self.cores if self.scorer.device == "cpu" else 1

    def run(self, chunks: Iterable[Chunk], stop: Stop) -> Iterator[tuple[Chunk, Scored]]:
        """See `Engine.run`."""
        with closing(Bench(self.scorer, self.cores)) as bench:
            yield from run_here(chunks, bench.work, bench.hands, stop)

    def widen(self, job: Job) -> None:
        """See `Engine.widen`."""
        self.scorer.widen(job)

    def close(self) -> None:
        """Nothing: threads end with their chunks."""


def make_engine(settings: FilterSettings, job: Job, scorer: Scorer, cores: int) -> Engine:
    """The engine that the settings ask for; nothing is started yet.

    Args:
        settings: engine, address and device.
        job: what workers must know.
        scorer: of this process, made of what `job_here` gives.
        cores: that this process may use.

    Raises:
        UsageError: Ray does not hand out such a device.
        MissingExtraError: Ray is not installed.
    """
    if settings.engine == "ray":
        from pipelines.ray_engine import RayEngine

        return RayEngine(job, settings.ray_address, cores)
    if devices := _several(settings):
        from pipelines.process_engine import ProcessEngine

        return ProcessEngine(job, devices, cores)
    return LocalEngine(scorer, cores)


def job_here(settings: FilterSettings, job: Job) -> Job:
    """The job of this process: where others score, it needs the models but no device.

    Args:
        settings: engine and device.
        job: what workers are told.

    Raises:
        MissingExtraError: Ray is not installed; told before models are loaded.
    """
    if settings.engine == "ray":
        check_ray()
    elif not _several(settings):
        return job
    return replace(job, device="cpu", backend="torch", precision="fp32")


def _several(settings: FilterSettings) -> list[str]:
    """The GPUs of this machine, where there are several and the user names none."""
    import torch

    if settings.device != "auto":
        return []
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [f"cuda:{number}" for number in range(count)] if count > 1 else []


def check_ray() -> None:
    """See that Ray is installed, without importing it.

    Raises:
        MissingExtraError: it is not.
    """
    from importlib.util import find_spec

    if find_spec("ray") is None:
        raise MissingExtraError("natadv-curate[ray]", "--engine ray")
