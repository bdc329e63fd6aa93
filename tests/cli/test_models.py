"""`curate models check` and `curate models finetune`, as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.models.learning import make_labels, make_tiles
from tests.running import run_curate


@pytest.fixture(scope="module")
def tiles(package_photos: list[tuple[Path, int]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tiles") / "tiles"
    return make_tiles(root, [path for path, _ in package_photos[:3]], 4)


@pytest.mark.slow
def test_what_finetune_makes_check_reads(tiles: Path, tmp_path: Path) -> None:
    labels, output = make_labels(tmp_path / "my three.csv", 3), tmp_path / "my.safetensors"
    command = [
        *("models", "finetune", tiles, "--label-space", labels, "--output", output),
        *("--model", "torchvision/shufflenet_v2_x0_5", "--init", "none", "--image-size", "32"),
        *("--epochs", "1", "--val-share", "0.25", "--device", "cpu"),
    ]
    (tiles / "c0" / "broken.png").write_bytes(b"no photo")
    text = run_curate(*command).stdout
    assert f"use it as      --model 'checkpoint/{output}'" in text
    assert "learned from   9 photos, 1 epochs" in text
    assert "refused        1 (not-an-image 1; see " in text
    summary = json.loads(run_curate("--json", *command).stdout)
    assert summary["accuracy"]["n"] == 3
    assert summary["refused"] == {"not-an-image": 1}
    run_curate(*command, "--strict", expect=1)
    for name in (summary["model"], summary["model_in_full"]):
        check = ("models", "check", name, "--folder", tiles, "--device", "cpu")
        checked = json.loads(run_curate(*check, "--json").stdout)
        assert checked["model"]["fingerprint"] == summary["fingerprint"]
        assert checked["label_space"] == "my three.csv"
        assert checked["accuracy"]["native"]["n"] == checked["accuracy"]["paper"]["n"] == 12
        assert checked["failed"] == 1
    text = run_curate(*check).stdout
    assert "of 12 photos, native view" in text
    assert "failed         1 photos (listed with --json)" in text
    run_curate(*check, "--strict", expect=1)
