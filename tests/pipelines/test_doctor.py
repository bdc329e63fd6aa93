"""The doctor finds each kind of fault that a disk or a hand can make, and mends what it may."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pipelines.collect import collect_folder
from pipelines.doctor import examine
from pipelines.filter import run_filter
from pipelines.release import build_release
from pipelines.workspace import create_workspace, open_workspace
from tests.running import run_curate

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, weak_folder: Path) -> Path:
    workspace = create_workspace(tmp_path_factory.mktemp("doctor") / "workspace", "imagenet-1k")
    collect_folder(workspace, weak_folder)
    run_filter(workspace)
    build_release(workspace, "0.1.0", unreviewed=True)
    workspace.close()
    return workspace.root


@pytest.fixture
def root(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "workspace"))


def kinds(summary: dict[str, Any]) -> Counter[str]:
    return Counter(problem["kind"] for problem in summary["problems"])


def test_a_sound_workspace_has_no_problems(root: Path) -> None:
    summary = examine(open_workspace(root))
    assert summary["problems"] == []
    assert summary["checked"] == {"images": 12, "runs": 1, "releases": 1}
    told = run_curate("doctor", workspace=root).stdout
    assert told.startswith("checked 12 images, 1 run, 1 release\n")


def test_every_kind_of_fault_is_found(root: Path) -> None:
    images = sorted((root / "images").rglob("*.jpg"))
    images[0].unlink()
    images[1].write_bytes(images[1].read_bytes()[:-1])
    shutil.copy(images[2], images[2].with_name("0" * 64 + ".jpg"))
    (images[3].parent / ".partial-1-a").touch()
    (scores,) = (root / "runs").glob("*/scores.parquet")
    scores.write_bytes(scores.read_bytes() + b"x")
    (root / "releases" / "0.1.0" / "manifest.parquet").unlink()
    settings = root / "curate.yaml"
    text = settings.read_text(encoding="utf-8").replace("imagenet-1k", "imagenet-a")
    settings.write_text(text, encoding="utf-8")
    found = kinds(examine(open_workspace(root)))
    assert found == dict.fromkeys(
        (
            "image-missing",
            "image-altered",
            "image-unnamed",
            "leftover",
            "scores-altered",
            "release-altered",
            "label-space",
        ),
        1,
    )
    scores.unlink()
    assert kinds(examine(open_workspace(root)))["scores-missing"] == 1


def test_repairing_removes_only_what_nothing_names(root: Path, weak_folder: Path) -> None:
    images = sorted((root / "images").rglob("*.jpg"))
    images[0].unlink()
    images[2].with_name("0" * 64 + ".jpg").touch()
    (images[1].parent / ".partial-1-a").touch()
    done = run_curate("doctor", "--repair", "--json", workspace=root, expect=1)
    summary = json.loads(done.stdout)
    assert kinds(summary) == Counter(["image-missing", "image-unnamed", "leftover"])
    assert summary["unrepaired"] == 1
    collect_folder(open_workspace(root), weak_folder)
    run_curate("doctor", workspace=root)
    assert sorted((root / "images").rglob("*.jpg")) == images


def test_lost_scores_come_back_in_the_same_bytes_by_the_same_command(root: Path) -> None:
    (scores,) = (root / "runs").glob("*/scores.parquet")
    whole = {path.name: path.read_bytes() for path in scores.parent.iterdir()}
    for damage in (scores.unlink, lambda: scores.write_bytes(b"")):
        damage()
        workspace = open_workspace(root)
        run_filter(workspace)
        assert {path.name: path.read_bytes() for path in scores.parent.iterdir()} == whole
        assert examine(workspace)["problems"] == []
