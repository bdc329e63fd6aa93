"""A user's own corruption is code that may do anything: what of it reaches the run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import typer

from curate.cli.common import shared
from curate.cli.main import app
from curate.corruptions import load_file, registry
from curate.labels.space import load_label_space
from curate.progress import StopNow
from pipelines.corruption_work import Damage, damage_all, processes
from tests.pipelines.zoo import loaded_once


@pytest.fixture(autouse=True)
def _none_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_USERS", {})


RAISING = """
class Silent(Exception):
    def __str__(self):
        raise self

def raises(image, severity, rng):
    raise ERROR
"""


def outcome(name: str) -> object:
    damage = Damage(name, 1, 0, "none", None, False, None, None)
    bright = np.full((4, 5, 3), 9, np.uint8)
    (found,) = damage_all([(bright, "0" * 64)], damage)
    return found


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("ValueError('a\\nb')", "ValueError: a b"),
        ("Silent", "Silent"),
        ("SystemExit(0)", "SystemExit: 0"),
        ("KeyboardInterrupt", "KeyboardInterrupt"),
        ("GeneratorExit", "GeneratorExit"),
        ("MemoryError('x' * 10**6)", "MemoryError: xxx"),
    ],
)
def test_whatever_a_corruption_raises_costs_one_image_alone(
    tmp_path: Path, error: str, told: str
) -> None:
    path = tmp_path / "own.py"
    path.write_text(RAISING.replace("ERROR", error))
    load_file(path)
    found = outcome("raises")
    assert isinstance(found, str)
    assert found.startswith("corruption-failed: ")
    assert told in found
    assert len(found) <= 200
    assert "\n" not in found


def test_only_the_users_wish_to_stop_at_once_goes_through(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text("from curate.progress import StopNow\n" + RAISING.replace("ERROR", "StopNow"))
    load_file(path)
    with pytest.raises(StopNow):
        outcome("raises")


PRINTING = """
import sys
print("loaded")

def printing(image, severity, rng):
    print("damaged")
    sys.stdout.write("once more")
    return 255 - image
"""


def test_what_a_corruption_prints_is_no_part_of_the_summary(
    tmp_path: Path,
    package_photos: list[tuple[Path, int]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    own, (photo, column) = tmp_path / "own.py", package_photos[0]
    own.write_text(PRINTING)
    folder = tmp_path / "photos" / load_label_space("imagenet-1k").wnids[column]
    folder.mkdir(parents=True)
    shutil.copy(photo, folder)
    command = ["robustness", "corruptions", str(tmp_path / "photos"), "--corruption", str(own)]
    command += ["--model", "lite/efficientnet_lite0", "--severity", "1", "--json"]
    try:
        with loaded_once():
            typer.main.get_command(app).main(command, standalone_mode=False)
    finally:
        shared.json = False
    out, err = capsys.readouterr()
    assert [row["corruption"] for row in json.loads(out)["rows"]] == ["printing"]
    assert {"loaded", "damaged"} <= set(err.splitlines())


@pytest.mark.slow
def test_nor_is_what_it_prints_in_another_process(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.py"
    own.write_text(PRINTING)
    with processes(1, [str(own)]) as pool:
        found = pool.submit(outcome_of_printing).result()
    assert isinstance(found, np.ndarray)
    out, err = capfd.readouterr()
    assert out == ""
    assert "damaged" in err


def outcome_of_printing() -> object:
    return outcome("printing")
