"""What docs/runs.md and CONTRIBUTING say of models, settings and runs holds when it is typed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from curate.cli import common
from curate.cli.main import app
from curate.labels.space import load_label_space
from curate.testbed.known_settings import SETTINGS
from tests.pipelines.zoo import loaded_once
from tests.running import ROOT

PAGE = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
WNIDS = load_label_space("imagenet-1k").wnids


@pytest.fixture
def folder(
    tmp_path: Path, package_photos: list[tuple[Path, int]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A working folder with `val`, in which one photo of three stands under a wrong class."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(common.shared, "json", False)  # else one command's option stays
    for number, (path, column) in enumerate(package_photos[:3]):
        target = tmp_path / "val" / WNIDS[column if number else column + 1]
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    with loaded_once():
        yield tmp_path


def block(text: str, kind: str) -> str:
    (found,) = re.findall(rf"<!-- test: {kind} -->\n```\w*\n(.*?)```", text, re.DOTALL)
    return str(found)


def typed(commands: str) -> list[dict[str, Any]]:
    """The summaries of some lines."""
    told = []
    for line in commands.splitlines():
        words = shlex.split(line)
        assert words[0] == "curate"
        done = CliRunner().invoke(app, ["--json", *words[1:]])
        assert done.exit_code == 0, done.output
        told.append(json.loads(done.stdout))
    return told


@pytest.mark.slow
def test_a_run_gives_the_table_that_the_testbed_draws(folder: Path) -> None:
    run, placed = typed(block(PAGE, "run"))
    assert run["computed"] == 3 * 7
    assert len(placed["models"]) == 3
    assert {"testbed.html", "models.csv", "plots"} <= {
        path.name for path in (folder / "testbed").iterdir()
    }
    assert list((folder / "testbed" / "plots").glob("*.svg"))


def test_the_ten_lines_of_a_model_are_enough(folder: Path) -> None:
    for text in (PAGE, CONTRIBUTING):
        (folder / "mine.py").write_text(block(text, "model"))
        (summary,) = typed(block(PAGE, "own"))
        assert list(summary["models"]) == ["mine"]
        assert (folder / "mine.csv").read_text().splitlines()[1].startswith("mine,ROBUST_INTV,val,")


def test_strict_names_what_is_not_as_published_and_nothing_that_is(folder: Path) -> None:
    (folder / "mine.py").write_text(block(PAGE, "model"))
    words = shlex.split(block(PAGE, "own"))[1:]
    done = CliRunner().invoke(app, [*words, "--strict"])
    assert done.exit_code == 1
    assert str(done.exception) == "1 note on sets that are not the published ones"


def test_the_example_setting_of_contributing_is_one(folder: Path) -> None:
    (folder / "nights.py").write_text(block(CONTRIBUTING, "setting"))
    (folder / "mine.py").write_text(block(PAGE, "model"))
    (folder / "val").rename(folder / "nights")
    command = "curate robustness run --model-file mine.py --setting-file nights.py"
    (summary,) = typed(f"{command} --settings nights=nights")
    (cell,) = summary["results"]
    assert (cell["setting"], cell["images"]) == ("nights", 3)


def test_every_family_of_settings_is_on_the_page() -> None:
    table = PAGE.partition("| setting | folder |")[2].partition("\n\n")[0]
    for setting in SETTINGS:
        assert any(f"`{name}`" in table for name in setting.names), setting.about
