"""Processes beside each other: the same bytes as threads, whoever is killed."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from curate import errors
from curate.errors import DeviceError, Interrupted, MissingExtraError, UsageError
from curate.progress import Stop
from curate.settings import FilterSettings
from pipelines.bench import Fault
from pipelines.collect import collect_folder
from pipelines.engines import LocalEngine, job_here, make_engine
from pipelines.filter import begin_run, run_filter
from pipelines.process_engine import ProcessEngine
from pipelines.scoring import Chunk, Job
from pipelines.workspace import Workspace, create_workspace, open_workspace
from tests.pipelines.engine_parts import (
    MODELS,
    any_job,
    below,
    filter_on,
    gone,
    kill,
    on_a_gpu_or_skip,
    outcome,
    runs_left,
    widened_after_a_pass_given_up,
)


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory, weak_folder: Path) -> Path:
    """A workspace of 20 candidates; copy it to use it."""
    workspace = create_workspace(tmp_path_factory.mktemp("engines") / "workspace", "imagenet-1k")
    collect_folder(workspace, weak_folder)
    workspace.close()
    return workspace.root


@pytest.fixture
def workspace(collected: Path, tmp_path: Path) -> Iterator[Workspace]:
    root = Path(shutil.copytree(collected, tmp_path / "workspace"))
    opened = open_workspace(root, {"filter.models": MODELS, "filter.chunk": 2})
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def in_threads(collected: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run in threads of one process leaves."""
    root = shutil.copytree(collected, tmp_path_factory.mktemp("threads") / "workspace")
    opened = open_workspace(root, {"filter.models": MODELS, "filter.chunk": 2})
    run_filter(opened)
    return outcome(opened)


def one(job: Job) -> ProcessEngine:
    return ProcessEngine(job, ["cpu"], 1)


def two(job: Job) -> ProcessEngine:
    return ProcessEngine(job, ["cpu", "cpu"], 2)


@pytest.mark.slow
def test_two_processes_leave_the_same_bytes_as_threads(
    workspace: Workspace, in_threads: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where a terminal interrupts them as it does the driver, who alone heeds it."""
    before, working = below(), set()

    def after(done: int, stop: Stop) -> None:
        if done == 1:
            working.update(below() - before)
            for process in working:
                os.kill(process, signal.SIGINT)
                os.kill(process, signal.SIGTERM)

    filter_on(workspace, two, after)
    assert len(working) == 2
    assert outcome(workspace) == in_threads
    assert "has ended" not in capsys.readouterr().err
    assert gone(working, 0)


@pytest.mark.slow
def test_two_processes_on_a_gpu_leave_the_bytes_that_this_process_would(
    workspace: Workspace, collected: Path, tmp_path: Path
) -> None:
    on_a_gpu_or_skip()
    filter_on(workspace, lambda job: ProcessEngine(job, ["cuda:0", "cuda:0"], 4))
    root = Path(shutil.copytree(collected, tmp_path / "here"))
    options = {"filter.models": MODELS, "filter.chunk": 2, "filter.device": "cuda"}
    here = open_workspace(root, options)
    run_filter(here)
    for name in ("verdicts", "parts", "shortlist"):
        assert outcome(workspace)[name] == outcome(here)[name]


@pytest.mark.slow
def test_a_process_killed_at_work_loses_nothing(
    workspace: Workspace, in_threads: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    engines: list[ProcessEngine] = []

    def make(job: Job) -> ProcessEngine:
        engines.append(two(job))
        return engines[0]

    def after(done: int, stop: Stop) -> None:
        if done == 2:
            victim = next(w for w in engines[0]._processes() if w.held)
            kill(victim.process.pid or 0)

    filter_on(workspace, make, after)
    told = capsys.readouterr().err
    assert "the process for cpu has ended (killed by signal 9); its chunks go to the others" in told
    assert outcome(workspace) == in_threads


@pytest.mark.slow
def test_where_all_processes_are_killed_one_line_says_so_and_the_same_command_goes_on(
    workspace: Workspace, in_threads: dict[str, Any]
) -> None:
    before = below()

    def after(done: int, stop: Stop) -> None:
        if done == 3:
            for process in below() - before:
                kill(process)

    with pytest.raises(DeviceError, match="no worker is left.*run the same command again"):
        filter_on(workspace, two, after)
    named = [path.read_bytes() for path in runs_left(workspace)]
    assert 3 <= len(named) < 10
    again: list[int] = []
    filter_on(workspace, one, lambda done, stop: again.append(done))
    assert len(again) == 10 - len(named)
    assert outcome(workspace) == in_threads


@pytest.mark.thorough
@pytest.mark.slow
def test_after_a_stop_no_chunk_starts_and_no_process_is_left(workspace: Workspace) -> None:
    before, working = below(), set()

    def after(done: int, stop: Stop) -> None:
        working.update(below() - before)
        if done == 1:
            stop.request()

    with pytest.raises(Interrupted, match="the same command goes on"):
        filter_on(workspace, two, after)
    assert 1 <= len(runs_left(workspace)) <= 3
    assert gone(working, 0)


@pytest.mark.thorough
@pytest.mark.slow
def test_an_error_in_a_process_arrives_as_that_error(workspace: Workspace) -> None:
    job = replace(begin_run(workspace).job, fingerprints=("0" * 64,))
    with (
        closing(one(job)) as engine,
        pytest.raises(UsageError, match="a worker found other weights for lite/efficientnet_lite0"),
    ):
        list(engine.run([Chunk(0, job.sample[:2])], Stop()))


@pytest.mark.thorough
@pytest.mark.slow
def test_wider_margins_hold_for_every_chunk_of_the_next_pass(workspace: Workspace) -> None:
    run = begin_run(workspace)
    with closing(two(run.job)) as engine:
        assert widened_after_a_pass_given_up(run, engine) == {1}


@pytest.mark.slow
def test_the_processes_of_a_driver_that_is_killed_end(workspace: Workspace, tmp_path: Path) -> None:
    run = begin_run(workspace)
    (tmp_path / "job").write_bytes(pickle.dumps((run.job, run.chunk(0))))
    script = (
        "import pathlib, pickle, sys, time\n"
        "from curate.progress import Stop\n"
        "from pipelines.process_engine import ProcessEngine\n"
        "if __name__ == '__main__':\n"
        "    job, chunk = pickle.loads(pathlib.Path('job').read_bytes())\n"
        "    engine = ProcessEngine(job, ['cpu', 'cpu'], 2)\n"
        "    pairs = engine.run((chunk for _ in range(9999)), Stop())\n"
        "    next(pairs)\n"
        "    print('at work', flush=True)\n"
        "    time.sleep(999)\n"
    )
    (tmp_path / "driver.py").write_text(script, encoding="utf-8")
    driver = subprocess.Popen(
        [sys.executable, "driver.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "at work\n"
    working = below(driver.pid)
    assert len(working) >= 2
    driver.kill()
    driver.wait()
    driver.stdout.close()
    assert gone(working)


@pytest.mark.parametrize(
    "error",
    [
        errors.UnknownNameError("class", "crane", ["cranes"]),
        errors.MissingExtraError("natadv-curate[s3]", "store: s3://"),
        errors.QuotaExhausted("flickr", None),
        errors.DeviceError("cuda:1 failed"),
        errors.WeightsError("no such file"),
        errors.ImageRefused("altered"),
        ZeroDivisionError("division by zero"),
    ],
)
def test_an_error_goes_through_a_pickle_as_the_nearest_class_that_it_can_be(
    error: Exception,
) -> None:
    arrived = pickle.loads(pickle.dumps(Fault.of(error))).error()
    assert str(error) in str(arrived)
    assert getattr(arrived, "exit_code", None) == getattr(error, "exit_code", None)
    if type(error) in (DeviceError, errors.WeightsError):
        assert type(arrived) is type(error)
    assert str(error) in "".join(arrived.__notes__)


def test_each_gpu_gets_a_process_unless_the_user_names_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    scorer: Any = None
    engine = make_engine(FilterSettings(), any_job(), scorer, 16)
    assert isinstance(engine, ProcessEngine)
    assert engine.devices == ("cuda:0", "cuda:1", "cuda:2")
    assert engine.workers == 3
    one = FilterSettings(device="cuda:1")
    assert isinstance(make_engine(one, any_job(), scorer, 16), LocalEngine)
    job = any_job()
    assert job_here(one, job) is job


def test_the_driver_of_others_computes_on_no_device_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_gpus = replace(any_job(), precision="bf16")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    mine = job_here(FilterSettings(precision="bf16"), on_gpus)
    assert (mine.device, mine.backend, mine.precision) == ("cpu", "torch", "fp32")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    assert job_here(FilterSettings(precision="bf16"), on_gpus) is on_gpus


def test_ray_that_is_not_installed_is_told_before_models_are_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"--engine ray needs .*natadv-curate\[ray\]"):
        job_here(FilterSettings(engine="ray"), any_job())
