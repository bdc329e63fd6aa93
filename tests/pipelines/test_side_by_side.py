"""Several filters on one catalogue in PostgreSQL: one run, each candidate scored once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

from curate.catalog import judging
from curate.catalog.tables import claims, now, parts, verdicts
from pipelines import filter_end, sharing
from pipelines.collect import collect_folder
from pipelines.filter import run_filter
from pipelines.runs import finished_run
from pipelines.workspace import Workspace, create_workspace, open_workspace
from tests.postgres import Server
from tests.running import ROOT
from tests.waiting import PATIENCE, wait_until_stopped

pytestmark = pytest.mark.slow

CLASSES = ("jeep", "strawberry", "n02815834")

#: A filter whose leases are short, so that what a killed one held is soon free. It stops itself by
#: SIGSTOP once it has named a part, so that what comes to it then finds it at work.
_FILTER = """
import os, signal, sys
import pipelines.sharing
from curate.cli.main import main
from pipelines.filter_run import FilterRun

pipelines.sharing.LEASE_SECONDS = 3.0
name_part = FilterRun._name_part

def then_stop(self, *about):
    FilterRun._name_part = name_part
    named = name_part(self, *about)
    os.kill(os.getpid(), signal.SIGSTOP)
    return named

FilterRun._name_part = then_stop
sys.argv = ["curate", "-w", sys.argv[1], "--json", "filter"]
main()
"""


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of two, and one network: what it says is not what is tested here."""
    monkeypatch.setenv("CURATE_FILTER__CHUNK", "2")
    monkeypatch.setenv("CURATE_FILTER__MODELS", '["lite/efficientnet_lite0"]')
    monkeypatch.setenv("CURATE_FILTER__BACKEND", "torch")


@pytest.fixture
def make_workspace(
    tmp_path: Path, weak_folder: Path, postgres: Server
) -> Iterator[Callable[[str], Workspace]]:
    """Makes a workspace of 20 candidates in SQLite or in a new database."""
    made: list[str] = []

    def make(kind: str) -> Workspace:
        preset = tmp_path / f"{kind}.yaml"
        text = "label_space: imagenet-1k\n"
        if kind == "postgresql":
            made.append(postgres.make())
            text += f'database: "{made[-1]}"\n'
        preset.write_text(text, encoding="utf-8")
        workspace = create_workspace(tmp_path / kind, str(preset))
        collect_folder(workspace, weak_folder)
        return workspace

    yield make
    for address in made:
        postgres.drop(address)


def start(root: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _FILTER, str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ,
    )


def said(workspace: Workspace) -> dict[str, Any]:
    """What a run leaves, without times and without what is no verdict."""
    row = finished_run(workspace)
    folder = workspace.run_folder(row["id"])
    with workspace.catalogue.read() as connection:
        told = connection.execute(select(verdicts).order_by(verdicts.c.candidate_id)).all()
    return {
        "verdicts": [tuple(verdict) for verdict in told],
        "shortlist": (folder / "shortlist.csv").read_bytes(),
        "scores": (folder / "scores.parquet").read_bytes(),
    }


def test_postgresql_and_sqlite_give_the_same_bytes(
    make_workspace: Callable[[str], Workspace],
) -> None:
    results = []
    for kind in ("sqlite", "postgresql"):
        workspace = make_workspace(kind)
        summary = run_filter(workspace)
        assert summary["survivors"] >= 6
        assert run_filter(workspace) == summary
        results.append(said(workspace))
        workspace.close()
    assert results[0] == results[1]


def test_several_filters_share_a_run_and_a_killed_one_loses_nothing(
    make_workspace: Callable[[str], Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two are processes, of which one is killed, and this one is the third."""
    monkeypatch.setattr(sharing, "LEASE_SECONDS", 3.0)
    alone = make_workspace("sqlite")
    run_filter(alone)
    shared = make_workspace("postgresql")
    filters = [start(shared.root) for _ in range(2)]
    try:
        for process in filters:
            wait_until_stopped(process)
        filters[0].send_signal(signal.SIGKILL)
        filters[1].send_signal(signal.SIGCONT)
        mine = open_workspace(shared.root)
        summary = run_filter(mine)
        mine.close()
        ends = [process.communicate(timeout=PATIENCE) for process in filters]
    finally:
        for process in filters:
            process.kill()
    assert [process.returncode for process in filters] == [-signal.SIGKILL, 0], ends
    assert json.loads(ends[1][0])["run"] == summary["run"]
    assert said(shared) == said(alone)
    with shared.catalogue.read() as connection:
        rows = connection.execute(select(parts.c.number, parts.c.file)).all()
        assert connection.scalar(select(func.count()).select_from(claims)) == 11
    assert sorted(number for number, _ in rows) == list(range(10))
    # Files are tagged by who wrote them.
    assert len({file.partition("-")[2] for _, file in rows}) >= 2
    shared.close()
    alone.close()


@pytest.mark.thorough
def test_a_filter_that_comes_later_gets_the_summary_of_the_run_that_has_ended(
    make_workspace: Callable[[str], Workspace], capsys: pytest.CaptureFixture[str]
) -> None:
    shared = make_workspace("postgresql")
    summary = run_filter(shared)
    late = open_workspace(shared.root)
    assert run_filter(late) == summary
    late.close()
    assert "has ended before" in capsys.readouterr().err
    with shared.catalogue.read() as connection:
        assert len(judging.all_runs(connection)) == 1
    shared.close()


@pytest.mark.thorough
def test_an_interrupted_filter_gives_back_what_it_has_not_scored(
    make_workspace: Callable[[str], Workspace],
) -> None:
    shared = make_workspace("postgresql")
    process = start(shared.root)
    try:
        wait_until_stopped(process)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 130, errors
    with shared.catalogue.read() as connection:
        held = connection.scalar(
            select(func.count()).select_from(claims).where(claims.c.until.is_not(None))
        )
    assert held == 0
    summary = run_filter(open_workspace(shared.root))
    assert summary["candidates"] == 20
    shared.close()


@pytest.fixture
def long_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody renews them during a test."""
    monkeypatch.setattr(sharing, "LEASE_SECONDS", 600.0)


def lose_the_end(workspace: Workspace) -> None:
    """What becomes of the claim of a command that is cut off for longer than its lease."""
    with workspace.catalogue.write() as connection:
        late = now() - timedelta(hours=1)
        lost = connection.execute(update(claims).where(~claims.c.done).values(until=late))
    assert lost.rowcount == 1


@pytest.mark.usefixtures("long_leases")
@pytest.mark.parametrize("when", ["before", "after"])
def test_of_two_ends_one_is_recorded_and_told_by_both(
    make_workspace: Callable[[str], Workspace], monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The first one is cut off in its merge, before or after it reads the parts."""
    shared = make_workspace("postgresql")
    merge = filter_end._merge
    others: list[dict[str, Any]] = []

    def cut_off(*about: Any) -> None:
        monkeypatch.setattr(filter_end, "_merge", merge)
        if when == "after":
            merge(*about)
        lose_the_end(shared)
        other = open_workspace(shared.root)
        others.append(run_filter(other, CLASSES))
        other.close()
        if when == "before":
            merge(*about)

    monkeypatch.setattr(filter_end, "_merge", cut_off)
    summary = run_filter(shared, CLASSES)
    assert [summary] == others
    assert finished_run(shared)["summary"] == summary
    assert run_filter(shared, CLASSES) == summary
    shared.close()


@pytest.mark.usefixtures("long_leases")
def test_a_run_whose_parts_are_taken_back_at_its_end_is_ended_anew(
    make_workspace: Callable[[str], Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = make_workspace("postgresql")
    merge = filter_end._merge
    ends: list[int] = []

    def taken_back(run: Any, named: Any, record: Any) -> None:
        merge(run, named, record)
        ends.append(len(named))
        if len(ends) == 1:
            with shared.catalogue.write() as connection:
                judging.forget_part(connection, run.id, 1, run.candidates.span(1))

    monkeypatch.setattr(filter_end, "_merge", taken_back)
    summary = run_filter(shared, CLASSES)
    assert len(ends) == 2
    with shared.catalogue.read() as connection:
        assert judging.count_verdicts(connection, summary["run"]) == summary["candidates"]
        assert len(judging.run_parts(connection, summary["run"])) == ends[0] == ends[1]
    shared.close()
