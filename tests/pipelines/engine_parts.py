"""Runs on one engine or another, and what they leave."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import select

from curate.catalog import judging
from curate.catalog.tables import verdicts
from curate.filtration.rules import make_rule
from curate.labels.space import load_label_space
from curate.progress import Stop
from curate.settings import ImageLimits
from pipelines.engines import Engine
from pipelines.filter import run_filter
from pipelines.filter_run import FilterRun
from pipelines.runs import finished_run, read_shortlist
from pipelines.scoring import Chunk, Job, Scored
from pipelines.workspace import Workspace
from tests.waiting import PATIENCE, is_gone

MODELS = ("lite/efficientnet_lite0",)


def outcome(workspace: Workspace) -> dict[str, Any]:
    """What a run leaves, without times: verdicts, parts, scores and shortlist, byte for byte.

    Its record tells the engine among the settings, which may differ.
    """
    row = finished_run(workspace)
    folder = workspace.run_folder(row["id"])
    record = json.loads((folder / "run.json").read_bytes())
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "run.json"}
    with workspace.catalogue.read() as connection:
        said = connection.execute(select(verdicts).order_by(verdicts.c.candidate_id))
        return {
            "verdicts": [tuple(verdict) for verdict in said],
            "parts": [(p["number"], p["sha256"]) for p in judging.run_parts(connection, row["id"])],
            "files": files,
            "record": {name: value for name, value in record.items() if name != "settings"},
            "shortlist": read_shortlist(workspace)[1],
        }


class Watched:
    """An engine that tells how many chunks it has scored."""

    def __init__(self, engine: Engine, after: Callable[[int, Stop], None]) -> None:
        self._engine, self._after = engine, after
        self.workers = 1

    def run(self, chunks: Iterable[Chunk], stop: Stop) -> Iterator[tuple[Chunk, Scored]]:
        for done, pair in enumerate(self._engine.run(chunks, stop), start=1):
            self._after(done, stop)
            yield pair

    def widen(self, job: Job) -> None:
        self._engine.widen(job)

    def close(self) -> None:
        self._engine.close()


def filter_on(
    workspace: Workspace,
    make: Callable[[Job], Engine],
    after: Callable[[int, Stop], None] = lambda done, stop: None,
) -> dict[str, Any]:
    """Filter on an engine, and do something whenever it has scored a chunk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "pipelines.filter.make_engine",
            lambda settings, job, scorer, cores: Watched(make(job), after),
        )
        return run_filter(workspace)


def on_a_gpu_or_skip() -> None:
    """Skip a test that only a GPU can run."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("there is no GPU that PyTorch can use")


def kill(process: int) -> None:
    """Kill a process of this test as a full memory would."""
    os.kill(process, signal.SIGKILL)


def below(process: int | None = None) -> set[int]:
    """The processes below one, this one by default, that are at work.

    Python's own helper, which outlives those it helps, is none of them.
    """
    found: set[int] = set()
    for child in psutil.Process(process).children(recursive=True):
        try:
            helper = "resource_tracker" in " ".join(child.cmdline())
            if child.status() != psutil.STATUS_ZOMBIE and not helper:
                found.add(child.pid)
        except psutil.NoSuchProcess:
            continue
    return found


def gone(processes: Iterable[int], seconds: float = PATIENCE) -> bool:
    """Whether processes end within a time; 0 for those that must have ended by now."""
    pids, until = list(processes), time.monotonic() + seconds
    while not (ended := all(map(is_gone, pids))) and time.monotonic() < until:
        time.sleep(0.1)
    return ended


def runs_left(workspace: Workspace) -> list[Path]:
    """Parts that stand in the folders of runs."""
    return sorted((workspace.root / "runs").glob("*/parts/*.parquet"))


def any_job() -> Job:
    """A job that is only looked at."""
    return Job(
        models=MODELS,
        label_space=load_label_space("imagenet-1k"),
        rule=make_rule("misclassified", 0.15, "centre", 0.9),
        views="paper",
        complete=False,
        keep_logits=False,
        seed=0,
        device="auto",
        backend="auto",
        precision="auto",
        limits=ImageLimits(),
        store="file:///nowhere",
    )


def widened_after_a_pass_given_up(run: FilterRun, engine: Engine) -> set[int]:
    """How wide the margins are that scores of a second pass were made under; 1 is right."""
    chunks = [run.chunk(number) for number in range(5)]
    for _ in engine.run(chunks, Stop()):
        break
    engine.widen(replace(run.job, widened=1))
    scored = {chunk.number: scored for chunk, scored in engine.run(chunks, Stop())}
    assert sorted(scored) == [0, 1, 2, 3, 4]
    return {one.made_by["widened"] for one in scored.values()}
