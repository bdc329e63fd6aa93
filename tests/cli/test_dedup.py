"""`curate dedup` as it is typed: one JSON object, one-line errors, exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.running import run_curate


@pytest.fixture(scope="module")
def workspace(
    tmp_path_factory: pytest.TempPathFactory, package_photos: list[tuple[Path, int]]
) -> Path:
    """Two photos of one class, and a smaller copy of the first."""
    folder = tmp_path_factory.mktemp("dedup")
    photos = folder / "photos" / "n01614925"
    photos.mkdir(parents=True)
    for path, _ in package_photos[:2]:
        shutil.copy(path, photos)
    with Image.open(package_photos[0][0]) as photo:
        photo.convert("RGB").resize((200, 200)).save(photos / "small.jpg", quality=80)
    run_curate("init", folder / "workspace", "--preset", "imagenet-1k")
    run_curate("collect", "folder", folder / "photos", workspace=folder / "workspace")
    return folder / "workspace"


def test_duplicates_are_told_as_text_and_as_one_object(workspace: Path) -> None:
    text = run_curate("dedup", workspace=workspace).stdout
    assert "checked 3: 0 exact and 1 near duplicates, 1 dropped, 2 kept" in text
    assert str(workspace / "lists" / "duplicates.html") in text
    told = json.loads(run_curate("dedup", "--json", workspace=workspace).stdout)
    assert {key: told[key] for key in ("checked", "exact", "near", "against", "dropped")} == {
        "checked": 3,
        "exact": 0,
        "near": 1,
        "against": 0,
        "dropped": 1,
    }
    assert Path(told["page"]).is_file()
    status = run_curate("status", workspace=workspace).stdout
    assert "duplicates left out of the filter: 1" in status


def test_a_set_is_hashed_once_and_compared_with(workspace: Path, tmp_path: Path) -> None:
    photos = workspace.parent / "photos"
    (photos / "n01614925" / "page.jpg").write_bytes(b"<html>")
    out = tmp_path / "set.parquet"
    made = run_curate("dedup", "hashes", photos, "--out", out, "--json")
    assert json.loads(made.stdout) == {
        "images": 3,
        "refused": {"not-an-image": 1},
        "path": str(out),
    }
    strict = run_curate("dedup", "hashes", photos, "-o", out, "--strict", expect=1)
    assert strict.stderr.strip().endswith("1 file was of no use")
    text = run_curate("dedup", "--against", out, workspace=workspace).stdout
    assert "3 exact and 0 near duplicates, 3 dropped, 0 kept" in text
    assert "set.parquet: 3 of the candidates are among its 3 images" in text
    run_curate("dedup", workspace=workspace)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--against", "absent"], "cannot read absent: No such file"),
        (["--distance", "13"], "'--distance': Input should be less than or equal to 12"),
        (["--across-labels", "both"], "'both' is not one of"),
        (["--embedding", "lite/efficientnet_lite9"], "did you mean lite/efficientnet_lite"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    workspace: Path, arguments: list[str], expected: str
) -> None:
    failed = run_curate("dedup", *arguments, workspace=workspace, expect=2)
    assert failed.stdout == ""
    (line,) = failed.stderr.strip().splitlines()
    assert expected in line
