"""`curate models check` and `curate models finetune`, as a user calls them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from curate.cli.common import shared
from curate.cli.main import app
from curate.errors import VerificationError
from tests.models.learning import make_labels, make_tiles
from tests.running import ROOT, run_curate


@pytest.fixture(scope="module")
def tiles(package_photos: list[tuple[Path, int]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tiles") / "tiles"
    return make_tiles(root, [path for path, _ in package_photos[:3]], 4)


def test_the_page_names_every_option_with_its_default_and_no_other() -> None:
    from typer.main import get_command

    group = get_command(app).commands["models"]  # type: ignore[attr-defined]
    options = {
        option.opts[0]: option.default
        for command in ("check", "finetune")
        for option in group.commands[command].params
        if option.param_type_name == "option"
    }
    page = (ROOT / "docs" / "finetuning.md").read_text(encoding="utf-8")
    named = set(re.findall(r"--[a-z][a-z-]*", page))
    assert named <= {*options, "--model"}, named - set(options)
    shared = {"--json", "--debug", "--device", "--seed", "--help"}
    assert set(options) - named <= shared, set(options) - named
    for row in re.findall(r"^\| `(--[^|]+) \|[^|]+\| ([^|]+) \|$", page, re.MULTILINE):
        numbers = re.findall(r"[0-9.]+", row[1].replace("(`adamw`: 0.001)", ""))
        for name, told in zip(re.findall(r"--[a-z][a-z-]*", row[0]), numbers, strict=False):
            if isinstance(options[name], (int, float)) and not isinstance(options[name], bool):
                assert float(told) == options[name], name


def called(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> Any:
    """A command in this process: others would import PyTorch for it anew."""
    monkeypatch.setattr(shared, "json", False)
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.mark.slow
def test_what_finetune_makes_check_reads(
    tiles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    # The same command again, which has nothing left to do.
    again = called(monkeypatch, "--json", *command, "--strict")
    assert isinstance(again.exception, VerificationError)
    summary = json.loads(again.stdout)
    assert summary["accuracy"]["n"] == 3
    assert summary["refused"] == {"not-an-image": 1}
    folder = ("--folder", tiles, "--device", "cpu")
    its = ("models", "check", summary["model"], *folder, "--json")
    checked = json.loads(called(monkeypatch, *its).stdout)
    assert checked["model"]["fingerprint"] == summary["fingerprint"]
    assert checked["label_space"] == "my three.csv"
    assert checked["accuracy"]["native"]["n"] == checked["accuracy"]["paper"]["n"] == 12
    assert checked["failed"] == 1
    in_full = ("models", "check", summary["model_in_full"], *folder, "--strict")
    text = run_curate(*in_full, expect=1).stdout
    assert f"fingerprint    {summary['fingerprint']}" in text
    assert "of 12 photos, native view" in text
    assert "failed         1 photos (listed with --json)" in text
