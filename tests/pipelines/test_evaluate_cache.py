from __future__ import annotations

import gc
import json
import os
import shutil
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curate.labels.space import load_label_space
from curate.models.classifier import Classifier
from pipelines.evaluate import evaluate
from pipelines.evaluate_cache import Cache
from tests.pipelines.zoo import loaded_once

MODEL = "lite/efficientnet_lite0"
THOUSAND = load_label_space("imagenet-1k")

Photos = list[tuple[Path, int]]


@pytest.fixture
def zoo() -> Iterator[None]:
    """Loads each model once."""
    with loaded_once():
        yield


@pytest.fixture
def dataset(tmp_path: Path, package_photos: Photos) -> Path:
    """Three photos in class folders, and one that is none."""
    for path, column in package_photos[:3]:
        folder = tmp_path / "three" / THOUSAND.wnids[column]
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder)
    (folder / "text.jpg").write_text("no image")
    return tmp_path / "three"


@pytest.fixture
def forwards(zoo: None, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all batches that classifiers compute, but those that only try them."""
    sizes: list[int] = []
    logits = Classifier.logits

    def counted(self: Classifier, views: Any) -> Any:
        if isinstance(views, np.ndarray):
            sizes.append(len(views))
        return logits(self, views)

    monkeypatch.setattr(Classifier, "logits", counted)
    return sizes


def test_the_same_again_runs_no_forward_pass_and_gives_the_same(
    tmp_path: Path, dataset: Path, forwards: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "cache"
    written = []
    for number in (1, 2):
        report = tmp_path / f"report{number}"
        evaluate([dataset], [MODEL], report=report, resamples=5, cache=cache)
        assert sum(forwards) == 3
        written.append({path.name: path.read_bytes() for path in report.iterdir()})
    told = [json.loads(files.pop("results.json")) for files in written]
    assert told[0].pop("report") != told[1].pop("report")
    assert told[0] == told[1]
    assert told[1]["results"][0]["failures"][0]["detail"]
    assert written[0] == written[1]
    assert "computed before" in capfd.readouterr().err
    evaluate([dataset], [MODEL], resamples=5)
    assert sum(forwards) == 6


@pytest.mark.slow
def test_whatever_makes_the_numbers_is_part_of_the_key(
    tmp_path: Path, dataset: Path, forwards: list[int]
) -> None:
    cache = tmp_path / "cache"

    def computed(**options: Any) -> int:
        before = sum(forwards)
        model = options.pop("model", MODEL)
        evaluate([options.pop("root", dataset)], [model], resamples=2, cache=cache, **options)
        return sum(forwards) - before

    assert computed() == 3
    # What does not bear on the numbers is none: another seed, another name of the folder.
    assert computed(seed=1) == 0
    assert computed(root=shutil.copytree(dataset, tmp_path / "renamed")) == 0
    assert computed(views="paper") == 3
    assert computed(model="lite/efficientnet_lite1") == 3
    assert computed(label_space="imagenet-1k") == 0
    table = tmp_path / "own.csv"
    names = sorted(path.name for path in dataset.iterdir())
    table.write_text("id,name\n" + "".join(f"{name},{name}\n" for name in names))
    assert computed(label_space=str(table)) == 3
    # The same names and sizes with other content.
    (first, *_) = sorted(dataset.glob("*/imagenet*"))
    data = bytearray(first.read_bytes())
    status = first.stat()
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    os.utime(first, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert computed() == 3
    # A photo under another class has another rank.
    first.rename(first.parent.parent / names[-1] / first.name)
    assert computed() == 3


def test_a_damaged_file_is_computed_anew(
    tmp_path: Path, dataset: Path, forwards: list[int]
) -> None:
    cache = tmp_path / "cache"
    first = evaluate([dataset], [MODEL], resamples=2, cache=cache)
    (path,) = cache.iterdir()
    data = path.read_bytes()
    for damaged in (
        b"",
        data[: len(data) // 2],
        data[:500] + bytes([data[500] ^ 1]) + data[501:],
        b"f" * 64 + data[64:],
    ):
        path.write_bytes(damaged)
        assert Cache(cache).find(path.stem) is None
    # Whole, but in another's place.
    Cache(cache).keep("other", {"predicted": np.zeros(3, np.int32), "about": np.array("{}")})
    (cache / "other.scores").replace(path)
    assert Cache(cache).find(path.stem) is None
    # Whole, but of other images.
    Cache(cache).keep(path.stem, {"predicted": np.zeros(9, np.int32), "about": np.array("{}")})
    assert Cache(cache).find(path.stem) is not None
    assert evaluate([dataset], [MODEL], resamples=2, cache=cache) == first
    assert sum(forwards) == 6
    assert path.read_bytes() == data


def test_a_folder_that_refuses_is_told_once_and_changes_nothing(
    zoo: None, tmp_path: Path, dataset: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    models = [MODEL, "lite/efficientnet_lite1"]
    summary = evaluate([dataset], models, resamples=2, cache=tmp_path / "file" / "cache")
    assert len(summary["results"]) == 2
    assert capfd.readouterr().err.count("not kept for another time") == 1


def test_what_was_used_longest_ago_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path / "cache")
    numbers = {"numbers": np.zeros(1000)}
    for key in "abc":
        cache.keep(key, numbers)
    for age, key in enumerate("bca"):  # b was used longest ago
        os.utime(tmp_path / "cache" / f"{key}.scores", (age + 1, age + 1))
    assert cache.find("b") is not None  # and is used again, so that now it is c
    size = (tmp_path / "cache" / "a.scores").stat().st_size
    monkeypatch.setattr("pipelines.evaluate_cache.MOST_BYTES", 3 * size)
    cache.keep("d", numbers)
    assert [key for key in "abcd" if cache.find(key) is not None] == ["a", "b", "d"]


@pytest.mark.slow
def test_one_model_is_gone_before_the_next_is_loaded(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: list[weakref.ref[Classifier]] = []
    most = 0
    made = Classifier.__init__

    def counted(self: Classifier, **options: Any) -> None:
        nonlocal most
        gc.collect()
        made(self, **options)
        alive.append(weakref.ref(self))
        most = max(most, sum(one() is not None for one in alive))

    monkeypatch.setattr(Classifier, "__init__", counted)
    evaluate([dataset], [MODEL, "lite/efficientnet_lite1"], resamples=2)
    assert len(alive) == 4
    assert most == 1
