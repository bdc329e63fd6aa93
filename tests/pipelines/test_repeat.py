"""Repeating a run by its record, and the control sample that is drawn before the filter."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from curate.catalog import listing
from pipelines.collect import collect_folder
from pipelines.filter import run_filter
from pipelines.runs import control_cells, finished_run
from pipelines.workspace import Workspace, create_workspace, open_workspace
from tests.running import copy_of, run_curate

pytestmark = pytest.mark.slow

OPTIONS = {
    "filter.models": ("lite/efficientnet_lite1",),
    "filter.threshold": 0.2,
    "filter.cap": 2,
    "filter.seed": 3,
    "filter.control": 5,
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, weak_folder: Path) -> Workspace:
    made = create_workspace(tmp_path_factory.mktemp("repeat") / "workspace", "imagenet-1k")
    collect_folder(made, weak_folder)
    return made


@pytest.fixture(scope="module")
def run_id(workspace: Workspace) -> str:
    """A run with settings that are not the workspace's own."""
    summary = run_filter(workspace.changed(OPTIONS), ["jeep", "strawberry", "n02815834"])
    return str(summary["run"])


def test_a_run_is_repeated_by_its_id(workspace: Workspace, run_id: str) -> None:
    again = run_curate("--json", "filter", "--like", run_id, workspace=workspace.root)
    assert json.loads(again.stdout)["run"] == run_id
    assert "not as in run" not in again.stderr


def test_a_run_is_repeated_in_another_workspace_to_the_same_bytes(
    workspace: Workspace, run_id: str, weak_folder: Path, tmp_path: Path
) -> None:
    other = create_workspace(tmp_path / "other", "imagenet-1k")
    collect_folder(other, weak_folder)
    folder = workspace.run_folder(run_id)
    shutil.copy(folder / "run.json", tmp_path / "run.json")
    assert run_filter(other, like_run=str(tmp_path / "run.json"))["run"] == run_id
    for name in ("shortlist.csv", "control.csv", "scores.parquet"):
        assert (other.run_folder(run_id) / name).read_bytes() == (folder / name).read_bytes()


def test_what_is_not_as_it_was_is_told(
    workspace: Workspace,
    run_id: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    package_photos: list[tuple[Path, int]],
) -> None:
    root = copy_of(workspace.root, tmp_path / "copy")
    copy = open_workspace(root)
    (tmp_path / "more" / "jeep").mkdir(parents=True)
    shutil.copy(package_photos[13][0], tmp_path / "more" / "jeep")
    collect_folder(copy, tmp_path / "more")
    assert run_filter(copy, like_run=run_id)["run"] != run_id
    assert "other candidates" in capsys.readouterr().err


def test_options_that_decide_do_not_go_with_like(workspace: Workspace, run_id: str) -> None:
    done = run_curate(
        "filter", "--like", run_id, "--threshold", "0.3", workspace=workspace.root, expect=2
    )
    assert done.stderr.count("\n") == 1
    done = run_curate("filter", "--like", "nothing.json", workspace=workspace.root, expect=2)
    assert "is no run.json" in done.stderr


def test_a_cluster_to_join_is_an_option_of_ray_alone(workspace: Workspace) -> None:
    command = ("filter", "--ray-address", "no-address")
    done = run_curate(*command, workspace=workspace.root, expect=2)
    assert "add --engine ray" in done.stderr
    done = run_curate(*command, "--engine", "ray", workspace=workspace.root, expect=2)
    assert "'no-address' is no address of Ray" in done.stderr


def test_the_control_sample_is_drawn_before_the_filter_by_seed_alone(
    workspace: Workspace, run_id: str
) -> None:
    row = finished_run(workspace, run_id)
    assert row["summary"]["control"] == 5
    cells = control_cells(workspace, run_id)
    assert len({cell["candidate"] for cell in cells}) == 5
    # Drawn blindly: of what leaves as well as of what survives.
    assert {cell["outcome"] for cell in cells} <= {"survivor", "removed"}
    stored = list(csv.DictReader((workspace.run_folder(run_id) / "control.csv").open()))
    assert [one["candidate"] for one in stored] == [cell["candidate"] for cell in cells]
    shown = run_curate("shortlist", "--control", "--run", run_id, workspace=workspace.root)
    assert shown.stdout == (workspace.run_folder(run_id) / "control.csv").read_text()
    other = run_filter(
        workspace.changed(OPTIONS | {"filter.seed": 4}), ["jeep", "strawberry", "n02815834"]
    )
    assert control_cells(workspace, other["run"]) != cells


def test_a_larger_control_sample_begins_with_the_smaller_one(
    workspace: Workspace, run_id: str
) -> None:
    few = [cell["candidate"] for cell in control_cells(workspace, run_id)]
    more = run_filter(
        workspace.changed(OPTIONS | {"filter.control": 7}), ["jeep", "strawberry", "n02815834"]
    )
    assert more["forwards"] == finished_run(workspace, run_id)["summary"]["forwards"]
    assert [cell["candidate"] for cell in control_cells(workspace, more["run"])][:5] == few
    assert more["scores_run"] == run_id


def test_more_controls_than_candidates_are_all_of_them(workspace: Workspace) -> None:
    summary = run_filter(workspace.changed(OPTIONS | {"filter.control": 100}), ["strawberry"])
    assert summary["control"] == summary["candidates"]
    with workspace.catalogue.read() as connection:
        rows = listing.control_sample(connection, summary["run"])
    assert [row["place"] for row in rows] == list(range(1, len(rows) + 1))


def test_the_control_sample_is_released_as_a_dataset_of_its_own(
    workspace: Workspace, run_id: str
) -> None:
    command = ("release", "build", "0.2.0", "--unreviewed", "--control", "--run", run_id)
    built = json.loads(run_curate("--json", *command, workspace=workspace.root).stdout)
    assert built["images"] == 5
    folder = workspace.root / "releases" / "0.2.0"
    assert json.loads((folder / "release.json").read_text())["split"] == "control"
    assert "before any model filtered them" in (folder / "README.md").read_text()
    rows = list(csv.DictReader((folder / "manifest.csv").open()))
    drawn = {cell["candidate"] for cell in control_cells(workspace, run_id)}
    assert {row["candidate"] for row in rows} == drawn
    done = run_curate(
        "--json", "evaluate", folder, "--model", "lite/efficientnet_lite1", "--label-space",
        "imagenet-1k", workspace=workspace.root,
    )  # fmt: skip
    assert json.loads(done.stdout)["results"][0]["n"] == 5
    other = run_filter(workspace.changed(OPTIONS | {"filter.control": 0}), ["jeep"])["run"]
    done = run_curate(*command[:2], "0.3.0", *command[3:5], "--run", other,
                      workspace=workspace.root, expect=2)  # fmt: skip
    assert "no control sample" in done.stderr
