"""Folders named by class names are taken alike by every command that reads class folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from curate.cli.common import shared
from curate.cli.main import app
from curate.labels.space import load_label_space
from tests.pipelines.zoo import loaded_once
from tests.running import run_curate

MODEL = "lite/efficientnet_lite0"


@pytest.fixture
def folders(tmp_path: Path, package_photos: list[tuple[Path, int]]) -> tuple[Path, Path]:
    """The same real photos in folders named by id, and in folders named by name."""
    space = load_label_space("imagenet-1k")
    for photo, column in package_photos[:4]:
        one = space.classes[column]
        unique = next(name for name in one.names if len(space.select([name])) == 1)
        for root, name in ((tmp_path / "ids", one.wnid), (tmp_path / "names", unique)):
            (root / name).mkdir(parents=True, exist_ok=True)
            shutil.copy(photo, root / name)
    return tmp_path / "ids", tmp_path / "names"


def told(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    capsys.readouterr()
    try:
        with loaded_once():
            get_command(app).main([*map(str, words), "--json"], standalone_mode=False)
    finally:
        shared.json, shared.workspace = False, None
    return json.loads(capsys.readouterr().out)


def test_names_and_ids_give_the_same_numbers(
    folders: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is collected, evaluated, corrupted and measured in a setting."""
    found = []
    for root in folders:
        workspace = tmp_path / f"of-{root.name}"
        told(capsys, "init", workspace, "--preset", "imagenet-1k")
        collected = told(capsys, "-w", workspace, "collect", "folder", root)
        (evaluated,) = told(capsys, "evaluate", root, "--model", MODEL, "--no-cache")["results"]
        corrupted = told(
            capsys, "robustness", "corruptions", root, "--model", MODEL, "--corruption", "contrast",
            "--severity", "1",
        )  # fmt: skip
        run = told(
            capsys, "robustness", "run", "--models", MODEL, "--settings", f"val={root}",
            "--store", tmp_path / f"store-{root.name}",
        )  # fmt: skip
        numbers = {key: evaluated[key] for key in ("n", "per_class", "confusions", "metrics")}
        found.append((collected["new"], numbers, corrupted["rows"], run["results"]))
    by_id, by_name = found
    assert by_id[0] == by_id[1]["n"] == 4
    assert by_id == by_name


def test_a_name_of_several_classes_is_one_line_that_names_them(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    _, names = folders
    min(names.iterdir()).rename(names / "crane")
    store = ["--store", tmp_path / "store"]
    for words in (
        ["evaluate", names, "--model", MODEL],
        ["robustness", "corruptions", names, "--model", MODEL],
        ["robustness", "run", "--models", MODEL, "--settings", f"val={names}", *store],
    ):
        done = run_curate(*words, expect=2)
        assert done.stderr.count("\n") == 1
        assert "'crane' is ambiguous: write one of n02012849" in done.stderr
        assert "n03126707" in done.stderr
