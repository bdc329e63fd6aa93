"""What docs/bias.md says can be typed can be typed."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from curate.cli import common
from curate.cli.main import app
from curate.models import lite
from curate.models.downloads import verified_sha256
from pipelines.release import build_release
from pipelines.workspace import create_workspace
from tests.pipelines import releasing
from tests.pipelines.zoo import loaded_once
from tests.running import ROOT, run_curate

PAGE = (ROOT / "docs" / "bias.md").read_text(encoding="utf-8")
COMMANDS = [
    line for block in re.findall(r"```\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
]
WNIDS = ("n01498041", "n01531178")
OWN = "lite/efficientnet_lite0"
TIMM = "timm-imagenet-a.csv"

#: Weights of torchvision's come from the network; these stand in for them.
STAND_INS = {
    "torchvision/resnet50": "lite/efficientnet_lite1",
    "torchvision/vgg16": "lite/efficientnet_lite2",
}

TABLE = """model,val,mine
resnet50,75,0
resnext50_32x4d,76,2
vgg16,71,8
swin,83,30
convnext,84,35
"""

Photos = list[tuple[Path, int]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, package_photos: Photos) -> Path:
    """The workspace with a release that the page speaks of, and ordinary photos."""
    root = tmp_path_factory.mktemp("page") / "w"
    sha256 = verified_sha256(lite.check_name(OWN.partition("/")[2]))
    photos: list[tuple[Path, str, str | None]] = [
        (path, WNIDS[n % 2], f"author {n}") for n, (path, _) in enumerate(package_photos[:6])
    ]
    with pytest.MonkeyPatch.context() as patch:
        own = {"name": OWN, "fingerprint": sha256, "libraries": {}}
        patch.setattr(releasing, "MODELS", [own])
        rows = releasing.photo_rows(root, photos)
    releasing.accept(rows, range(6))
    build_release(rows.workspace, "1.0.0", unreviewed=False)
    rows.workspace.close()
    for number, (path, _) in enumerate(package_photos[6:14]):
        place = root / "imagenet" / "val" / WNIDS[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    (root / "models.csv").write_text(TABLE)
    return root


def typed(folder: Path, part: str, monkeypatch: pytest.MonkeyPatch, *more: str) -> dict[str, Any]:
    """The summary of the one command of the page that holds some words."""
    (command,) = (line for line in COMMANDS if part in line)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "caches"))
    monkeypatch.setattr(common.shared, "json", False)  # else one command's option stays
    monkeypatch.setattr(common.shared, "workspace", None)
    words = [STAND_INS.get(word, word) for word in shlex.split(command)]
    with loaded_once():
        done = CliRunner().invoke(app, ["--json", *words[1:], *more])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_command_of_the_page_is_tested_here() -> None:
    parts = ("--standard", "--table models.csv", TIMM, "robustness distance")
    assert len(COMMANDS) == len(parts)
    assert all(any(part in line for line in COMMANDS) for part in parts)


@pytest.mark.slow
def test_a_release_is_measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = typed(folder, "--standard", monkeypatch)
    assert [one["group"] for one in found["models"]] == ["filter", "family", "family"]
    assert found["kept"] is True
    assert found["fit"]["no_fit"]


def test_a_table_is_weighed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = typed(folder, "--table models.csv", monkeypatch)
    groups = {one["model"]: one["group"] for one in found["models"]}
    assert groups.pop("resnet50") == "filter"
    assert groups.pop("resnext50_32x4d") == "family"
    assert set(groups.values()) == {"other"}
    assert found["models"][0]["release"]["high"] < 1.0


def test_imagenet_a_is_told_with_the_figures_of_the_page(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder / "configs" / "published"
    place.mkdir(parents=True)
    shutil.copy(ROOT / "configs" / "published" / "timm-imagenet-a.csv", place)
    found = typed(folder, TIMM, monkeypatch)
    low, high, knee = found["fit"]["low"], found["fit"]["high"], found["knee"]
    ends = knee["interval"]
    page = " ".join(PAGE.split())
    for text in (
        f"{low['n'] + high['n']:,} rows saw ImageNet-1k alone",
        f"bends at {knee['percent']:.2f} % ({ends[0]:.2f} … {ends[1]:.2f})",
        f"is expected at {found['left']['expected']:.2f} %",
    ):
        assert text in page
    (regex,) = re.findall(r"`--family '(resne.*)'`", PAGE)
    apart = typed(folder, TIMM, monkeypatch, "--family", regex)
    low, high = apart["fit"]["low"], apart["fit"]["high"]
    family = apart["groups"]["family"]
    for text in (
        f"they are {family['models']} rows, {-family['beyond_line']:.2f} points below the line",
        f"{low['n'] + high['n']:,} rows are left",
        f"slopes are {low['slope']:.3f} and {high['slope']:.3f}",
        f"at 91.86 % {apart['left']['expected']:.2f} % are expected",
    ):
        assert text in page


@pytest.mark.thorough
@pytest.mark.slow
def test_the_card_of_a_release_of_real_photos_is_that_of_the_page(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way: collect, filter, build, measure, build again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    with (shared_data / "photos" / "labels.csv").open(encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["kind"] == "A"]
    for row in rows:
        ordinary = any(words in row["source"] for words in ("imagenet-sample", "NIPS 2017"))
        folder = tmp_path / ("val" if ordinary else "photos") / row["label"]
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(shared_data / "photos" / row["path"], folder)
    workspace = create_workspace(tmp_path / "w", "imagenet-a")
    workspace.close()

    run = partial(run_curate, workspace=tmp_path / "w")
    run("collect", "folder", tmp_path / "photos")
    run("filter", "--model", OWN)
    run("release", "build", "0.1.0", "--unreviewed")
    relatives = (word for name in STAND_INS.values() for word in ("--model", name))
    run("release", "bias", "0.1.0", "--standard", tmp_path / "val", *relatives)
    run("release", "build", "0.1.1", "--unreviewed")
    run("release", "verify", "0.1.1")
    card = (tmp_path / "w" / "releases" / "0.1.1" / "README.md").read_text(encoding="utf-8")
    told = card.partition("## Selection bias, measured\n")[2].partition("\n## ")[0]
    quoted, _, table = PAGE.partition("<!-- test: card -->\n")[2].partition("\n\n")
    assert " ".join(quoted.replace("> ", "").split()) in " ".join(told.split())
    cells = [line.strip("| ").split(" | ") for line in table.partition("\n\n")[0].splitlines()]
    found = [
        re.split(r" {2,}", line.strip()) for line in told.strip().splitlines()[: len(cells) - 1]
    ]
    assert found == [row for row in cells if "---" not in row]


def test_the_distance_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = typed(folder, "robustness distance", monkeypatch)
    assert (found["a"]["images"], found["b"]["images"]) == (6, 8)
    assert found["dimensions"] == 1280
    assert found["a"]["took_part_in_selection"] is True
    assert found["b"]["took_part_in_selection"] is None
