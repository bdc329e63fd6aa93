"""What must be said beside a model's numbers: on the page, in tables, and by --strict."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from curate.cli.main import app
from curate.errors import VerificationError
from curate.labels.space import load_label_space
from curate.models import zoo
from tests.pipelines.made_release import mark_as_release
from tests.pipelines.zoo import loaded_once

MODELS = ("lite/efficientnet_lite0", "lite/efficientnet_lite1")
O = load_label_space("imagenet-o")  # noqa: E741
THOUSAND = load_label_space("imagenet-1k")


@pytest.fixture(scope="module", autouse=True)
def _loaded_once() -> Iterator[None]:
    with loaded_once():
        yield


@pytest.fixture(scope="module")
def sets(
    tmp_path_factory: pytest.TempPathFactory, package_photos: list[tuple[Path, int]]
) -> tuple[Path, Path]:
    """A release of outliers that the first model took part in selecting, and another folder."""
    root = tmp_path_factory.mktemp("sets")
    found = {THOUSAND.wnids[column] in O: (path, column) for path, column in package_photos}
    (outside, _), (inside, column) = found[False], found[True]
    selected = [{"fingerprint": zoo.load_classifier(MODELS[0]).fingerprint}]
    release = mark_as_release(root / "release", O, layout="imagenet-o", models=selected)
    for path, folder in (
        (outside, release / O.wnids[0]),
        (inside, root / "val" / THOUSAND.wnids[column]),
    ):
        folder.mkdir(parents=True)
        shutil.copy(path, folder)
    return release, root / "val"


def words(sets: tuple[Path, Path], *more: str) -> list[str]:
    models = [word for model in MODELS for word in ("--model", model)]
    return ["evaluate", str(sets[0]), "--in-distribution", str(sets[1]), *models, *more]


def badges(page: str, flag: str) -> int:
    return page.count(f'<span class="badge">{flag}</span>')


def test_a_model_that_took_part_is_flagged_everywhere_and_strict_refuses_it(
    sets: tuple[Path, Path], tmp_path: Path
) -> None:
    report = tmp_path / "report"
    done = CliRunner().invoke(app, words(sets, "--no-cache", "--strict", "--report", str(report)))
    assert done.exit_code == 1
    assert isinstance(done.exception, VerificationError)
    assert str(done.exception) == f"{MODELS[0]} took part in selecting release"
    assert f"note: {MODELS[0]} took part in selecting release" in done.stdout
    page = (report / "index.html").read_text()
    assert badges(page, "took part in selection") == 2, "in the table and at its own part"
    assert badges(page, "trained on ImageNet-21k") == 0
    assert "took part in selecting release" in (report / "results.md").read_text()


def test_a_model_that_saw_imagenet_21k_is_flagged_everywhere_and_strict_refuses_it(
    sets: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The weights at hand have seen ImageNet-1k alone.
    monkeypatch.setattr("pipelines.evaluate_about.trained_on_imagenet_21k", MODELS[1].__eq__)
    report = tmp_path / "report"
    done = CliRunner().invoke(app, words(sets, "--no-cache", "--strict", "--report", str(report)))
    assert done.exit_code == 1
    assert str(done.exception) == (
        f"{MODELS[0]} took part in selecting release; {MODELS[1]} was trained on ImageNet-21k"
    )
    page = (report / "index.html").read_text()
    assert badges(page, "trained on ImageNet-21k") == 2
    assert f"{MODELS[1]} was trained on ImageNet-21k" in done.stdout
