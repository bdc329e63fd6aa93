"""Scoring on Ray: the same bytes as in threads, whatever is killed, and nothing left behind."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import func, select

from curate.catalog.tables import parts
from curate.errors import UsageError
from curate.progress import Stop
from pipelines.bench import Fault
from pipelines.collect import collect_folder
from pipelines.filter import begin_run, run_filter
from pipelines.filter_run import FilterRun
from pipelines.ray_cluster import Cluster, _signal_handlers_kept, import_ray
from pipelines.ray_crew import own_code
from pipelines.ray_engine import Actor, RayEngine
from pipelines.scoring import Job, Scored
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
    widened_after_a_pass_given_up,
)
from tests.running import signalled
from tests.waiting import PATIENCE, wait_until_stopped

SMALL = {"object_store_memory": 80 << 20}
OPTIONS = {"filter.models": MODELS, "filter.chunk": 1}


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory, weak_folder: Path) -> Path:
    """A workspace of 20 candidates; copy it to use it."""
    workspace = create_workspace(tmp_path_factory.mktemp("ray") / "workspace", "imagenet-1k")
    collect_folder(workspace, weak_folder)
    workspace.close()
    return workspace.root


@pytest.fixture
def workspace(collected: Path, tmp_path: Path) -> Iterator[Workspace]:
    opened = open_workspace(Path(shutil.copytree(collected, tmp_path / "workspace")), OPTIONS)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def in_threads(collected: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run in threads of one process leaves."""
    root = shutil.copytree(collected, tmp_path_factory.mktemp("threads") / "workspace")
    opened = open_workspace(root, OPTIONS)
    run_filter(opened)
    return outcome(opened)


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A cluster of two nodes with a core each, beside one that has none, all on loopback."""
    import_ray(own=True)
    import ray
    from ray.cluster_utils import Cluster as Nodes

    # It would note down this cluster as the one of this machine that others join.
    monkeypatch.setattr("ray._private.utils.write_ray_address", lambda *_: None)
    folder = tempfile.mkdtemp(prefix="curate-test-", dir="/tmp")
    head = {"num_cpus": 0, "include_dashboard": False, "temp_dir": folder, **SMALL}
    nodes = Nodes(initialize_head=True, head_node_args=head)
    try:
        nodes.removable = [nodes.add_node(num_cpus=1, **SMALL) for _ in range(2)]
        yield nodes
    finally:
        ray.shutdown()
        nodes.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.thorough
@pytest.mark.slow
def test_a_worker_and_then_a_node_are_killed_and_the_bytes_are_the_same(
    workspace: Workspace,
    in_threads: dict[str, Any],
    two_nodes: Any,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node that joins meanwhile gets a worker too."""
    monkeypatch.setattr("pipelines.ray_crew._GROW", 0.5)
    engines: list[RayEngine] = []
    sizes: list[int] = []

    def make(job: Job) -> RayEngine:
        engines.append(RayEngine(job, two_nodes.address, 2))
        return engines[0]

    def after(done: int, stop: Stop) -> None:
        sizes.append(len(engines[0]._crew))
        if done == 3:
            kill(actors()[0])
        if done == 6:
            two_nodes.add_node(num_cpus=1, **SMALL)
        if done == 9:
            two_nodes.remove_node(two_nodes.removable[0], allow_graceful=False)

    filter_on(workspace, make, after)
    assert outcome(workspace) == in_threads
    assert (sizes[0], max(sizes)) == (2, 3)
    told = capfd.readouterr()
    assert told.err.count("another worker takes its place") >= 2
    assert told.out == ""
    run = begin_run(workspace)
    with closing(RayEngine(run.job, two_nodes.address, 2)) as engine:
        assert widened_after_a_pass_given_up(run, engine) == {1}


def actors(process: int | None = None) -> list[int]:
    """The processes of Ray actors of this engine, below a process or this one."""
    return [pid for pid in below(process) if title(pid).startswith("ray::Actor")]


def title(process: int) -> str:
    try:
        return " ".join(psutil.Process(process).cmdline())
    except psutil.NoSuchProcess:
        return ""


def count_parts(workspace: Workspace) -> int:
    with workspace.catalogue.read() as connection:
        return connection.execute(select(func.count()).select_from(parts)).scalar_one()


@contextmanager
def stopped_after(workspace: Workspace, parts: int) -> Iterator[subprocess.Popen[str]]:
    """A real filter on Ray that has named so many parts more than there were, and then stopped
    itself by SIGSTOP: to look at its processes takes as long as some chunks."""
    with signalled(
        *("-w", workspace.root, "filter", "--engine=ray", "--json"),
        at=f"part:{parts}",
        by="STOP",
        CURATE_FILTER__CHUNK="1",
        CURATE_FILTER__MODELS=json.dumps(MODELS),
    ) as process:
        wait_until_stopped(process)
        yield process


def left_by(*drivers: subprocess.Popen[str]) -> list[Path]:
    """What is left of these drivers' folders; others may run on Ray meanwhile."""
    pids, found = {driver.pid for driver in drivers}, []
    for note in Path("/tmp").glob("curate-ray-*/holder.json"):
        with suppress(OSError, ValueError):
            if json.loads(note.read_text())["pid"] in pids:
                found.append(note.parent)
    return found


@pytest.mark.slow
def test_a_driver_that_is_killed_or_stopped_goes_on_and_leaves_nothing_behind(
    workspace: Workspace, in_threads: dict[str, Any]
) -> None:
    with stopped_after(workspace, 2) as killed:
        working = below(killed.pid)
        listening = {
            where.laddr.ip
            for pid in working | {killed.pid}
            for where in psutil.Process(pid).net_connections("inet")
            if where.status == psutil.CONN_LISTEN
        }
        assert listening
        assert all(ip.removeprefix("::ffff:").startswith("127.") for ip in listening), listening
        # Two of Ray's own processes try for a minute to tell the dead driver of its death.
        late = {pid for pid in working if "Agent" in title(pid)}
        killed.kill()
        killed.communicate(timeout=PATIENCE)
    assert gone(working - late)
    assert len(left_by(killed)) == 1, "the next start removes it"

    with stopped_after(workspace, 2) as stopped:
        working = below(stopped.pid)
        # As a terminal does: the signal goes to every process of the group.
        os.killpg(stopped.pid, signal.SIGINT)
        os.kill(stopped.pid, signal.SIGCONT)
        stdout, stderr = stopped.communicate(timeout=PATIENCE)
    assert stopped.returncode == 130, stderr
    assert "the same command goes on" in stderr
    assert stdout == ""
    assert gone(working)
    assert left_by(killed, stopped) == []
    assert 4 <= count_parts(workspace) < 20

    with stopped_after(workspace, 1) as last:
        kill(actors(last.pid)[0])
        os.kill(last.pid, signal.SIGCONT)
        stdout, stderr = last.communicate(timeout=PATIENCE)
    assert last.returncode == 0, stderr
    assert json.loads(stdout)["candidates"] == 20
    assert "another worker takes its place" in stderr
    assert outcome(workspace) == in_threads
    assert left_by(killed, stopped, last) == []
    assert gone(late)


@pytest.mark.thorough
@pytest.mark.slow
def test_a_worker_on_a_gpu_leaves_the_bytes_that_this_process_would(
    workspace: Workspace, collected: Path, tmp_path: Path
) -> None:
    on_a_gpu_or_skip()
    run_filter(workspace.changed({"filter.engine": "ray", "filter.device": "cuda"}))
    root = Path(shutil.copytree(collected, tmp_path / "here"))
    here = open_workspace(root, {**OPTIONS, "filter.device": "cuda"})
    run_filter(here)
    for name in ("verdicts", "parts", "shortlist"):
        assert outcome(workspace)[name] == outcome(here)[name]


@pytest.fixture
def run(workspace: Workspace) -> FilterRun:
    return begin_run(workspace)


def told(run: FilterRun, **changes: Any) -> bytes:
    job = replace(run.job, device="cpu", **changes)
    return pickle.dumps((job, run.job.sample[0]))


@pytest.mark.slow
def test_a_worker_with_other_code_or_weights_is_refused(run: FilterRun) -> None:
    version, fingerprint = own_code()
    fault = Actor().begin((version, "0" * 64), b"never looked at", 1)
    assert fault is not None
    assert fault.kind == "UsageError"
    assert f"runs natadv-curate {version} ({fingerprint[:8]})" in fault.text
    assert "install the same on every machine" in fault.text
    fault = Actor().begin(own_code(), told(run, fingerprints=("0" * 64,)), 1)
    assert fault is not None
    assert "found other weights for lite/efficientnet_lite0" in fault.text


@pytest.mark.thorough
@pytest.mark.slow
def test_a_worker_that_does_not_find_the_store_says_so_and_fails_no_candidate(
    run: FilterRun, tmp_path: Path
) -> None:
    elsewhere = (tmp_path / "not here").as_uri()
    fault = Actor().begin(own_code(), told(run, store=elsewhere), 1)
    assert fault is not None
    assert fault.kind == "UsageError"
    assert f"does not find the images at {elsewhere}, where this machine does" in fault.text

    actor, images = Actor(), run.workspace.root / "images"
    assert actor.begin(own_code(), told(run), 1) is None
    images.rename(tmp_path / "away")
    lost = actor.score(1, run.chunk(3))
    assert isinstance(lost, Fault)
    assert "does not find the images" in lost.text
    (tmp_path / "away").rename(images)
    chunk = run.chunk(3)
    (image,) = chunk.candidates
    (images / image.sha256[:2] / f"{image.sha256}.{image.extension}").unlink()
    scored = actor.score(1, chunk)
    assert isinstance(scored, Scored)
    assert [verdict.reason for verdict in scored.verdicts] == ["missing"]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("nonsense", "'nonsense' is no address of Ray; write auto, HOST:PORT or ray://HOST:PORT"),
        ("127.0.0.1:1", "does not answer on port 1 .*correct filter.ray_address"),
        ("ray://127.0.0.1:1", "does not answer on port 1 .*correct filter.ray_address"),
    ],
)
def test_a_cluster_that_is_not_there_is_told_at_once(address: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Cluster(address, 1, 0).join()


@pytest.mark.slow
def test_a_program_that_has_imported_ray_before_gets_a_cluster_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ray._raylet import AuthenticationTokenLoader, Config

    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()
    cluster = Cluster("", 1, 0)
    cluster.join()
    try:
        assert cluster.resources()["CPU"] == 1
    finally:
        cluster.leave()


def test_ray_does_not_get_to_handle_signals_that_stop_a_run() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with _signal_handlers_kept():
        signal.signal(signal.SIGTERM, lambda *_: None)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("device", ["cuda:1", "mps"])
def test_ray_itself_hands_out_gpus(device: str) -> None:
    with pytest.raises(UsageError, match="write auto, cpu or cuda"):
        RayEngine(replace(any_job(), device=device), "", 2)
