from __future__ import annotations

import csv
import json
import os
import re
import shutil
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from curate.corruptions import corrupt, seed_of
from curate.errors import BusyError, Interrupted, UnknownNameError, UsageError
from curate.files import hold, sha256_file
from curate.images.views import ViewRecipe, resize_short_side, view
from curate.labels.space import load_label_space
from curate.models import zoo
from curate.models.classifier import Classifier, Preprocessing
from curate.models.runtime import BATCH_SIZES
from curate.report import plots
from curate.testbed.corruption_tables import latex, notes, text_summary
from pipelines.corruption_cache import Cache
from pipelines.corruption_page import page_of
from pipelines.corruption_plan import drawn, is_validation
from pipelines.corruptions import corruptions
from pipelines.datasets import open_dataset
from pipelines.evaluate import evaluate
from tests.browser import PICTURES, browser_page
from tests.pipelines.zoo import loaded_once
from tests.running import ROOT, dying
from tests.waiting import interrupt

MODEL = "lite/efficientnet_lite0"
THOUSAND = load_label_space("imagenet-1k")

#: A network that sees a crop of 32 pixels in no time, for what is about the engine alone.
TINY = "tiny"

#: One that is random and one that is not, and few severities: what differs is in the engine.
FEW: dict[str, Any] = {"names": ["fog", "contrast"], "severities": [1, 5]}

Photos = list[tuple[Path, int]]


def tiny_network() -> Classifier:
    generator = torch.Generator().manual_seed(4)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 4, stride=4),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(256, len(THOUSAND)),
    )
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return Classifier(
        name=TINY,
        architecture=TINY,
        module=module,
        output=THOUSAND,
        preprocessing=Preprocessing(
            ViewRecipe(40, 32, "bilinear"), (0.5, 0.5, 0.5), (0.25, 0.25, 0.25), "test"
        ),
    )


@pytest.fixture(scope="module", autouse=True)
def models() -> Iterator[None]:
    """Each model is loaded once, and the tiny one has a name."""
    network = tiny_network()
    with loaded_once(), pytest.MonkeyPatch.context() as patch:
        load = zoo.load_classifier
        patch.setattr(
            zoo,
            "load_classifier",
            lambda name, *a, **options: network if name == TINY else load(name, *a, **options),
        )
        yield


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, package_photos: Photos) -> Path:
    """Four photos, one of them under a wrong class."""
    root = tmp_path_factory.mktemp("sets") / "four"
    for place, (path, column) in enumerate(package_photos[:4]):
        folder = root / THOUSAND.wnids[column if place else column + 1]
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / path.name)
    return root


@pytest.fixture(scope="module")
def own_set(tmp_path_factory: pytest.TempPathFactory, package_photos: Photos) -> Path:
    """Four small photos under what the tiny network takes them for, but one."""
    root = tmp_path_factory.mktemp("sets") / "own"
    network = tiny_network()
    for place, (path, _) in enumerate(package_photos[:4]):
        photo = Image.open(path).convert("RGB").resize((60, 48))
        file = root / f"{path.stem}.png"
        root.mkdir(exist_ok=True)
        photo.save(file)
        crop = view(resize_short_side(photo, network.preprocessing.recipe), 0, 32)
        column = int(network.logits(crop[None]).argmax())
        folder = root / THOUSAND.wnids[column if place else column - 1]
        folder.mkdir(exist_ok=True)
        file.rename(folder / file.name)
    return root


def settings(summary: dict[str, Any], table: int = 0) -> dict[tuple[str, int], dict[str, Any]]:
    return {
        (row["corruption"], one["severity"]): one
        for row in summary["results"][table]["rows"]
        for one in row["severities"]
    }


def without_times(summary: dict[str, Any]) -> dict[str, Any]:
    """What does not depend on how long something took, or on what was kept from before."""
    changing = {"forward_share", "forward_passes", "report"}
    return {
        key: value
        for key, value in summary.items()
        if key not in changing and not key.endswith("seconds")
    }


def plain(
    path: Path, name: str, severity: int, at: str, jpeg: bool, seed: int, model: str = MODEL
) -> np.ndarray:
    """A crop under a corruption, step by step."""
    recipe = zoo.load_classifier(model).preprocessing.recipe
    photo = Image.open(path).convert("RGB")
    own = seed_of(sha256_file(path), name, severity, seed)
    if at == "crop":
        photo = Image.fromarray(view(resize_short_side(photo, recipe), 0, recipe.crop).copy())
    scale = "none" if at == "crop" else "short-side"
    photo = Image.fromarray(corrupt(np.asarray(photo), name, severity, own, scale=scale))
    if jpeg:
        file = path.parent.parent.parent / "plain.jpg"
        photo.save(file, "JPEG", quality=85, optimize=True)
        photo = Image.open(file).convert("RGB")
    if at == "crop":
        return np.asarray(photo)
    return view(resize_short_side(photo, recipe), 0, recipe.crop)


@pytest.mark.parametrize(
    ("at", "jpeg", "goes_through_jpeg"),
    [("crop", None, True), ("camera", None, False)],
)
def test_the_numbers_equal_a_plain_loop(
    dataset: Path, at: str, jpeg: bool | None, goes_through_jpeg: bool
) -> None:
    summary = corruptions(
        dataset, [MODEL], at=at, jpeg=jpeg, seed=3, names=FEW["names"], severities=[4]
    )
    classifier = zoo.load_classifier(MODEL)
    for (name, severity), one in settings(summary).items():
        right, confidence = [], []
        for path in sorted(dataset.glob("*/*")):
            crop = plain(path, name, severity, at, goes_through_jpeg, 3)
            logits = classifier.logits(crop[None])[0].double()
            top = logits.softmax(0).max(0)
            confidence.append(float(top.values))
            right.append(THOUSAND.wnids[int(top.indices)] == path.parent.name)
        assert one["accuracy"]["value"] == np.mean(right), (name, severity)
        assert one["mean_confidence"] == pytest.approx(np.mean(confidence), abs=1e-5)
        assert one["overconfidence"] == pytest.approx(
            np.mean(confidence) - np.mean(right), abs=1e-5
        )
        assert one["accuracy"]["low"] < one["accuracy"]["value"] or not any(right)
    assert summary["results"][0]["conditions"]["jpeg"] == goes_through_jpeg


def test_the_clean_images_give_the_numbers_of_an_evaluation(dataset: Path) -> None:
    summary = corruptions(dataset, [MODEL], **FEW)
    clean = summary["results"][0]["clean"]
    metrics = evaluate([dataset], [MODEL], resamples=2)["results"][0]["metrics"]
    for key in ("value", "low", "high", "n"):
        assert clean["accuracy"][key] == metrics["accuracy"][key]
    rms = metrics["rms_calibration_error"]["value"]
    assert clean["rms_calibration_error"] == pytest.approx(rms, abs=1e-12)
    rows = {row["corruption"]: row for row in summary["rows"]}
    assert list(rows) == ["fog", "contrast"]
    for row in rows.values():
        assert row["model"] == MODEL
        assert row["mean_error"] == pytest.approx(1 - np.mean(row["accuracies"]))
        assert row["relative_error"] == pytest.approx(row["mean_error"] / clean["error"])
        assert row["shape"] is None, "two severities have no shape"
    assert summary["mce"] is None
    assert summary["relative_mce"] is None
    assert "13 are absent" in summary["note"]


def test_a_rerun_goes_on_from_what_is_kept_and_writes_the_same(
    own_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = corruptions(own_set, [TINY], report=tmp_path / "a", **FEW)
    assert first["forward_passes"] == 5 * 4
    files = ("index.html", "results.csv", "results.md", "results.tex")
    before = {name: (tmp_path / "a" / name).read_bytes() for name in files}
    again = corruptions(own_set, [TINY], report=tmp_path / "a", **FEW)
    assert again["forward_passes"] == 0
    assert without_times(again) == without_times(first)
    assert {name: (tmp_path / "a" / name).read_bytes() for name in files} == before
    monkeypatch.setattr("pipelines.corruption_page._plots", lambda _: [])
    with monkeypatch.context() as patch:
        patch.setattr("pipelines.corruption_run.processor", lambda: ["of another make"])
        elsewhere = corruptions(own_set, [TINY], report=tmp_path / "a", **FEW)
    assert elsewhere["forward_passes"] == 5 * 4, "another processor adds in another order"
    for file in sorted((tmp_path / "a" / "cache").glob("*.parquet"), key=os.path.getmtime)[5:]:
        file.unlink()
    # Cut off, of another content, and no Parquet at all.
    kept = sorted((tmp_path / "a" / "cache").glob("*.parquet"))
    assert len(kept) == 5
    kept[0].write_bytes(kept[0].read_bytes()[:-9])
    shutil.copy(kept[2], kept[1])
    kept[3].write_text("nothing")
    mended = corruptions(own_set, [TINY], report=tmp_path / "a", **FEW)
    assert mended["forward_passes"] == 3 * 4
    assert without_times(mended) == without_times(first)
    more = corruptions(own_set, [TINY], report=tmp_path / "a", names=["fog"], severities=[1, 2])
    assert more["forward_passes"] == 4
    other = corruptions(own_set, [TINY], report=tmp_path / "a", seed=1, **FEW)
    assert other["forward_passes"] == 4 * 4, "the clean images need no seed"
    assert settings(other) != settings(first)


@pytest.fixture(scope="module")
def kept_before(
    tmp_path_factory: pytest.TempPathFactory, own_set: Path
) -> tuple[Path, dict[str, Any]]:
    """A folder with frost, a user's corruption, and what is kept of a run with it."""
    folder = tmp_path_factory.mktemp("kept")
    noise = np.random.default_rng(0).integers(0, 256, (300, 300, 3), dtype=np.uint8)
    (folder / "frost").mkdir()
    Image.fromarray(noise).save(folder / "frost" / "a.png")
    (folder / "mine.py").write_text(MINE)
    first = corruptions(own_set, [TINY], report=folder / "report", **kept_settings(folder))
    return folder, first


MINE = "def mine(image, severity, rng):\n    return image // 2\n"


def kept_settings(folder: Path, **changed: Any) -> dict[str, Any]:
    names = ["fog", "frost", str(folder / "mine.py")]
    return {"names": names, "severities": [3], "seed": 2, **changed}


@pytest.mark.parametrize(
    ("changed", "differing"),
    [
        ({"at": "crop", "jpeg": False}, {"fog", "frost"}),
        ({"jpeg": True}, {"fog", "frost", "mine"}),
        ({"views": ["paper"]}, {"fog", "frost", "mine"}),
        ({"seed": 3}, {"fog", "frost"}),
        ({"frost": "frost"}, {"frost"}),
        ({"text": MINE.replace("2", "5")}, {"mine"}),
    ],
)
def test_what_is_kept_counts_only_where_everything_is_as_it_was(
    kept_before: tuple[Path, dict[str, Any]],
    own_set: Path,
    changed: dict[str, Any],
    differing: set[str],
) -> None:
    folder, first = kept_before
    options = kept_settings(folder, **changed)
    (folder / "mine.py").write_text(options.pop("text", MINE))
    if "frost" in options:
        options["frost"] = folder / options["frost"]
    alone = settings(corruptions(own_set, [TINY], **options))
    again = settings(corruptions(own_set, [TINY], report=folder / "report", **options))
    assert again == alone
    before = settings(first)
    assert {
        name for name, severity in alone if alone[name, severity] != before[name, severity]
    } >= (differing)


def test_an_interrupted_run_keeps_what_is_whole(
    own_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, kept = Cache.put, []

    def interrupting(self: Cache, *arguments: Any) -> None:
        put(self, *arguments)
        kept.append(arguments)
        if len(kept) == 2:
            interrupt()

    # Chunks of one photo, so that the interrupt finds a setting of which some are done.
    monkeypatch.setitem(BATCH_SIZES, "cpu", 1)
    monkeypatch.setattr("pipelines.corruption_forward._CHUNK", 1)
    monkeypatch.setattr("pipelines.corruption_page._plots", lambda _: [])
    monkeypatch.setattr(Cache, "put", interrupting)
    report, names = tmp_path / "report", ["fog", "contrast", "snow"]
    with pytest.raises(Interrupted, match=r"stopped at .*; \d finished settings are kept"):
        corruptions(own_set, [TINY], report=report, names=names)
    monkeypatch.setattr(Cache, "put", put)
    assert not (report / "results.json").exists()
    after = corruptions(own_set, [TINY], report=report, names=names)
    assert after["forward_passes"] == (16 - len(kept)) * 4 < 16 * 4
    assert without_times(after) == without_times(corruptions(own_set, [TINY], names=names))


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_results(dataset: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    command = ["robustness", "corruptions", dataset, "--model", MODEL, "--report", report]
    command += ["--corruption", "contrast", "--limit", "2"]
    assert dying(*command, at="replace:5") is None, "it was to be killed"
    kept = len(list((report / "cache").glob("*.parquet")))
    assert kept == 2, "each file is renamed once, with a moment before and after"
    wanted: dict[str, Any] = {"names": ["contrast"], "limit": 2}
    after = corruptions(dataset, [MODEL], report=report, **wanted)
    assert after["forward_passes"] == (6 - kept) * 2
    assert without_times(after) == without_times(corruptions(dataset, [MODEL], **wanted))


#: Of four photos two are darker.
DARK = 105

OWN = """
import numpy as np

def darkness(image, severity, rng):
    if image.mean() < LIMIT and severity == 2:
        raise RuntimeError("too <b>dark</b> already")
    noise = rng.integers(0, 3, image.shape)
    return np.clip(image.astype(int) - 30 * severity - noise, 0, 255).astype(np.uint8)
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a corruption of a user's."""
    path = tmp_path_factory.mktemp("own") / "own.py"
    path.write_text(OWN.replace("LIMIT", str(DARK)))
    return path


def darkest(folder: Path) -> list[str]:
    found = []
    for path in sorted(folder.glob("*/*")):
        pixels = np.asarray(Image.open(path).convert("RGB"))
        if pixels.mean() < DARK:
            found.append(f"{path.parent.name}/{path.name}")
    return found


def test_an_image_that_fails_is_named_and_left_out_of_that_setting_alone(
    own_set: Path, own: Path
) -> None:
    failing = darkest(own_set)
    assert 0 < len(failing) < 4
    summary = corruptions(own_set, [TINY], names=[str(own), "contrast"], severities=[1, 2])
    assert [row["corruption"] for row in summary["rows"]] == ["darkness", "contrast"]
    counts = {key: (one["n"], one["failed"]) for key, one in settings(summary).items()}
    assert counts == {
        ("darkness", 1): (4, 0),
        ("darkness", 2): (4 - len(failing), len(failing)),
        ("contrast", 1): (4, 0),
        ("contrast", 2): (4, 0),
    }
    assert summary["failed"] == len(failing)
    assert [one["path"] for one in summary["failures"]] == failing
    for one in summary["failures"]:
        assert one["settings"] == ["darkness at severity 2"]
        assert "RuntimeError: too <b>dark</b> already" in one["reason"]
    (told,) = [one for one in summary["corruptions"] if one["name"] == "darkness"]
    assert told["origin"] == "own.py", "folders of this machine are nobody's business"
    assert told["sha256"] == sha256_file(own)


FICKLE = """
from pathlib import Path

def fickle(image, severity, rng):
    if severity == 2:
        (Path(__file__).parent / "there").read_text()
    return 255 - image
"""


def test_an_image_that_failed_is_tried_again_by_the_same_command(
    own_set: Path, tmp_path: Path
) -> None:
    """What made a corruption fail may be mended outside everything that the numbers are kept by."""
    own = tmp_path / "fickle.py"
    own.write_text(FICKLE)
    bad = tmp_path / "set"
    shutil.copytree(own_set, bad)
    (next(iter(sorted(bad.iterdir()))) / "bad.png").write_bytes(b"no image")
    wanted: dict[str, Any] = {"names": [str(own)], "severities": [1, 2], "report": tmp_path / "r"}
    assert corruptions(bad, [TINY], **wanted)["failed"] == 5
    (tmp_path / "there").touch()
    again = corruptions(bad, [TINY], **wanted)
    assert again["failed"] == 1
    assert again["forward_passes"] == 4, "the setting that failed, and no other"
    assert corruptions(bad, [TINY], **wanted)["forward_passes"] == 0
    del wanted["report"]
    assert again["rows"] == corruptions(bad, [TINY], **wanted)["rows"]


@pytest.mark.slow
def test_processes_give_what_threads_give(own_set: Path, own: Path) -> None:
    wanted: dict[str, Any] = {"names": [str(own), "glass_blur"], "severities": [2]}
    here = corruptions(own_set, [TINY], workers=0, **wanted)
    there = corruptions(own_set, [TINY], workers=2, **wanted)
    assert here["failed"] > 0
    assert without_times(here) == without_times(there)


def test_an_unreadable_image_is_left_out_of_every_setting(own_set: Path, tmp_path: Path) -> None:
    shutil.copytree(own_set, tmp_path / "set")
    bad = next(iter(sorted((tmp_path / "set").iterdir()))) / "0-cut-off.png"
    bad.write_bytes(next(own_set.glob("*/*.png")).read_bytes()[:4000])
    summary = corruptions(tmp_path / "set", [TINY], **FEW)
    (failure,) = summary["failures"]
    assert failure == {
        "path": f"{bad.parent.name}/0-cut-off.png",
        "reason": "truncated",
        "settings": [],
    }
    assert all(one["n"] == 4 and one["failed"] == 1 for one in settings(summary).values())
    sound = corruptions(own_set, [TINY], **FEW)
    for table, other in zip(summary["rows"], sound["rows"], strict=True):
        assert table["accuracies"] == other["accuracies"]
    for path in (tmp_path / "set").glob("*/*"):
        path.write_bytes(b"no image")
    with pytest.raises(UsageError, match=r"none of the 5 images of set can be used; the first is"):
        corruptions(tmp_path / "set", [TINY], **FEW)


def on_disk(own_set: Path, root: Path) -> Path:
    """What the crop gives in memory, as files in ImageNet-C's layout."""
    for name in FEW["names"]:
        for severity in FEW["severities"]:
            for path in sorted(own_set.glob("*/*")):
                folder = root / name / str(severity) / path.parent.name
                folder.mkdir(parents=True)
                pixels = plain(path, name, severity, "crop", False, 0, TINY)
                file = folder / f"{path.stem}.JPEG"
                Image.fromarray(pixels).save(file, quality=85, optimize=True)
    return root


def test_a_folder_in_imagenet_cs_layout_gives_what_memory_gives(
    own_set: Path, tmp_path: Path
) -> None:
    root = on_disk(own_set, tmp_path / "c")
    memory = corruptions(own_set, [TINY], at="crop", **FEW)
    report = tmp_path / "report"
    disk = corruptions(own_set, [TINY], folder=root, report=report, **FEW)
    assert disk["missing"] == disk["unlike"] == []
    for key, one in settings(memory).items():
        assert settings(disk)[key]["accuracy"] == one["accuracy"]
        assert settings(disk)[key]["mean_confidence"] == pytest.approx(one["mean_confidence"])
    assert disk["results"][0]["clean"] == memory["results"][0]["clean"]
    again = corruptions(own_set, [TINY], folder=root, report=report, **FEW)
    assert again["forward_passes"] == 0
    shutil.rmtree(root / "fog" / "5")
    (root / "own" / "1").mkdir(parents=True)
    shutil.copytree(root / "fog" / "1", root / "own" / "1", dirs_exist_ok=True)
    some = corruptions(None, [TINY], folder=root, names=["fog", "own"], severities=[1, 5])
    assert some["missing"] == ["fog/5", "own/5"]
    assert some["results"][0]["clean"] is None
    fog, own = some["rows"]
    assert (
        fog["accuracies"] == own["accuracies"] == [settings(memory)["fog", 1]["accuracy"]["value"]]
    )
    assert fog["relative_error"] is None
    first = next((root / "own" / "1").glob("*/*"))
    shutil.copy(first, first.with_suffix(".png"))
    twice = corruptions(own_set, [TINY], folder=root, names=["own"], severities=[1])
    assert twice["unlike"] == ["own/1"]
    first.with_suffix(".png").unlink()
    first.unlink()
    fewer = corruptions(own_set, [TINY], folder=root, names=["fog", "own"], severities=[1])
    assert fewer["unlike"] == ["own/1"]
    assert any("1 settings hold other photos" in note for note in notes(fewer))
    with pytest.raises(UsageError, match="holds no snow/1"):
        corruptions(own_set, [TINY], folder=root, names=["snow"])
    with pytest.raises(UsageError, match="leave --jpeg out"):
        corruptions(own_set, [TINY], folder=root, jpeg=True)


def test_two_ways_of_cutting_stand_side_by_side_and_an_earlier_report_before_both(
    own_set: Path, tmp_path: Path
) -> None:
    corruptions(own_set, [TINY], names=["fog"], seed=5, report=tmp_path / "before")
    summary = corruptions(
        own_set,
        [TINY],
        names=["contrast", "fog"],
        views=["native", "paper"],
        beside=tmp_path / "before" / "results.json",
    )
    ways, earlier = summary["comparisons"]
    assert (ways["first"], ways["second"]) == (TINY, f"{TINY} (paper views)")
    assert [row["corruption"] for row in ways["rows"]] == ["contrast", "fog"]
    assert ways["differs"] == ways["only_one"] == []
    assert ways["better"] + ways["worse"] + ways["equal"] == 2
    native, paper = (one["rows"] for one in summary["results"])
    for row, first, second in zip(ways["rows"], native, paper, strict=True):
        assert row["mean_error"]["difference"] == pytest.approx(
            second["mean_error"] - first["mean_error"]
        )
        for place, one in enumerate(row["severities"]):
            assert one["first"] == first["accuracies"][place]
            assert one["second"] == second["accuracies"][place]
    assert earlier["first"] == f"{TINY} in before"
    assert earlier["only_one"] == ["contrast"]
    assert earlier["differs"] == ["seed"]


def test_a_baseline_goes_through_the_same_and_is_named(
    own_set: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The model is its own baseline, and every ratio is 100, however its view is cut.
    summary = corruptions(
        own_set, [TINY], baseline=TINY, at="crop", seed=1, views=["native", "paper"]
    )
    native, paper = summary["results"]
    assert native["rows"] != paper["rows"]
    for result in (native, paper):
        means = result["means"]
        assert means["mean"] == pytest.approx(100), means["note"]
        assert all(ce == pytest.approx(100) for ce in means["ce"].values())
        assert means["called"] == f"mean corruption error against {TINY}, procedural frost"
    assert summary["mce"] is None, "drawn frost gives no mCE"
    alone = corruptions(own_set, [TINY], limit=1, at="crop", seed=1)
    assert alone["mce"] is None
    for told in ("1 images, not 50,000", "procedural", "--baseline"):
        assert told in alone["note"]
    as_published = corruptions(own_set, [TINY], limit=1, at="crop", seed=1, views=["paper"])
    cut = "not the 224 crop of a short side of 256 was corrupted"
    assert cut in alone["note"], "the tiny network's own view is another one"
    assert cut not in as_published["note"]
    whole = corruptions(own_set, [TINY], limit=1, at="camera", seed=1, views=["paper"])
    assert cut in whole["note"]


def test_a_baseline_gives_each_row_its_ratio_though_there_is_no_mean(
    own_set: Path, tmp_path: Path
) -> None:
    names = ["contrast", "fog"]
    summary = corruptions(own_set, [TINY], names=names, baseline=TINY, report=tmp_path)
    (result,) = summary["results"]
    errors = {row["corruption"]: row["mean_error"] for row in result["rows"]}
    assert all(errors.values())
    assert {row["corruption"]: row["ce"] for row in result["rows"]} == pytest.approx(
        dict.fromkeys(names, 100)
    )
    assert summary["mce"] is None
    assert f"13 are absent, the first is gaussian_noise; CE of a row is against {TINY}" in str(
        summary["note"]
    )
    assert '<th class="num">CE</th>' in (tmp_path / "index.html").read_text()


def test_a_photo_and_its_corrupted_form_are_drawn_together(dataset: Path, tmp_path: Path) -> None:
    for path in dataset.glob("*/*"):
        (tmp_path / path.parent.name / "inner").mkdir(parents=True, exist_ok=True)
        (tmp_path / path.parent.name / "inner" / f"{path.stem}.png").touch()
    for seed in range(5):
        first, second = (drawn(open_dataset(one), 3, seed) for one in (dataset, tmp_path))
        stems = [
            {(wnid, Path(path).stem) for wnid, path in zip(one.wnids, one.paths, strict=True)}
            for one in (first, second)
        ]
        assert stems[0] == stems[1]
        assert len(stems[0]) == 3


def test_a_lot_depends_on_seed_and_name_alone(dataset: Path) -> None:
    whole = open_dataset(dataset)
    two, three = drawn(whole, 2, 0), drawn(whole, 3, 0)
    assert set(two.paths) < set(three.paths) < set(whole.paths)
    assert list(three.paths) == [path for path in whole.paths if path in three.paths]
    assert [item.path.name for item in three.layout] == [p.split("/")[1] for p in three.paths]
    assert len({drawn(whole, 2, seed).paths for seed in range(20)}) > 3


def test_the_validation_set_is_known_by_number_names_and_classes(dataset: Path) -> None:
    from dataclasses import replace

    def named(count: int, suffix: str = ".JPEG") -> Any:
        wnids = [THOUSAND.wnids[n % 1000] for n in range(count)]
        paths = [f"{w}/ILSVRC2012_val_{n + 1:08}{suffix}" for n, w in enumerate(wnids)]
        return replace(open_dataset(dataset), paths=tuple(paths), wnids=tuple(wnids))

    whole = named(50_000)
    assert is_validation(whole)
    assert not is_validation(named(49_000))
    assert not is_validation(replace(whole, wnids=whole.wnids[:-1] + whole.wnids[:1]))
    assert not is_validation(replace(whole, paths=(*whole.paths[:-1], "n01/other.JPEG")))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"names": ["fogg"]}, "unknown corruption 'fogg'; did you mean fog"),
        ({"severities": [6]}, "severity 6 does not exist"),
        ({"severities": [0]}, "severity 0 does not exist"),
        ({"at": "cropp"}, "did you mean crop"),
        ({"views": ["nativ"]}, "did you mean native"),
        ({"limit": 0}, "at least one image"),
        ({"seed": -1}, "seed is -1"),
        ({"models": []}, "--model"),
        ({"models": ["lite/efficientnet_lite00"]}, "unknown model"),
        ({"folder": "absent"}, "is not a folder"),
        ({"beside": "absent.json"}, "cannot read absent.json"),
        ({"names": ["absent.py"]}, "absent.py"),
        ({"frost": "absent"}, "absent"),
        ({"label_space": "imagenet-2k"}, "imagenet-2k"),
        ({"labels": Path("absent.txt")}, "absent.txt"),
    ],
)
def test_what_cannot_work_is_one_line(own_set: Path, wrong: dict[str, Any], told: str) -> None:
    options: dict[str, Any] = {"models": [TINY], **wrong}
    for key in ("folder", "beside", "frost"):
        if key in options:
            options[key] = Path(options[key])
    models = options.pop("models")
    with pytest.raises((UsageError, UnknownNameError), match=told) as caught:
        corruptions(own_set, models, **options)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_report_is_refused(own_set: Path, tmp_path: Path) -> None:
    for text in ("[]", '{"results": [{"rows": 1}]}', '{"results": []}', "no JSON"):
        (tmp_path / "results.json").write_text(text)
        with pytest.raises(UsageError, match=r"results\.json") as caught:
            corruptions(own_set, [TINY], beside=tmp_path, **FEW)
        assert "\n" not in str(caught.value)


def test_a_second_command_on_one_report_is_told_who_holds_it(own_set: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    with (
        hold(tmp_path / "cache" / "in-use", "a corruption run", "it"),
        pytest.raises(BusyError, match="a corruption run"),
    ):
        corruptions(own_set, [TINY], report=tmp_path, **FEW)


@pytest.fixture(scope="module")
def hostile(
    tmp_path_factory: pytest.TempPathFactory, own_set: Path, own: Path
) -> tuple[Path, dict[str, Any]]:
    """A report of photos whose names are markup."""
    root = tmp_path_factory.mktemp("hostile") / "<img src=x onerror=alert(1)>_{x}"
    shutil.copytree(own_set, root)
    for path in sorted(root.glob("*/*")):
        path.rename(path.with_name(f"<script>document.title='owned'<{path.stem}\u202egpj.jpg"))
    paths = [f"{path.parent.name}/{path.name}" for path in sorted(root.glob("*/*"))]
    told = {"path": paths, "attribution": ["by <i>them"] * 4, "licence": ["CC-BY-4.0"] * 4}
    pq.write_table(pa.table(told), root / "manifest.parquet")
    report = root.parent / "report"
    summary = corruptions(root, [TINY], names=["fog", str(own)], report=report)
    return report, summary


def test_a_report_holds_every_row_and_foreign_names_are_text(
    hostile: tuple[Path, dict[str, Any]],
) -> None:
    report, summary = hostile
    assert json.loads((report / "results.json").read_text()) == json.loads(json.dumps(summary))
    page = (report / "index.html").read_text()
    assert "<script" not in page
    assert "<img src=x" not in page
    assert page.count("<bdi>by &lt;i&gt;them</bdi>") == 1
    assert page.count("data:image/jpeg;base64,") == 1 + 2 * 3
    assert page.count('class="drawing"') == 4
    with (report / "results.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["corruption"], row["severity"]) for row in rows] == [
        ("clean", "0"),
        *((name, str(severity)) for name in ("fog", "darkness") for severity in range(1, 6)),
    ]
    for row in rows[1:]:
        one = settings(summary)[row["corruption"], int(row["severity"])]
        assert float(row["accuracy"]) == one["accuracy"]["value"]
        assert float(row["overconfidence"]) == one["overconfidence"]
    text = (report / "results.md").read_text()
    assert re.search(r"(?<!\\)<img", text) is None
    assert "| fog | " in text
    tex = (report / "results.tex").read_text()
    assert "\\toprule" in tex
    assert "\\_\\{x\\}" in tex
    assert tex.count("\\\\\n") == 1 + 1 + 1 + 2
    assert all(None not in row and None not in row.values() for row in rows), "a cell a column"


def test_what_is_told_and_drawn_of_a_table_is_in_its_rows(
    hostile: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (result,) = hostile[1]["results"]
    for row in result["rows"]:
        for whole, part in (
            ("mean_overconfidence", "overconfidence"),
            ("mean_rms_calibration_error", "rms_calibration_error"),
        ):
            assert row[whole] == pytest.approx(np.mean([one[part] for one in row["severities"]]))
    most = max(one["overconfidence"] for row in result["rows"] for one in row["severities"])
    assert f" {most:+.3f} (confident " in text_summary(hostile[1])
    drawn: list[Any] = []
    monkeypatch.setattr(plots, "line_curves", lambda series, **_: drawn.extend(series) or "")
    page = page_of(hostile[1], None)
    worst = max(result["rows"], key=lambda row: row["mean_error"])
    assert page.tables[0].worst is not None
    assert page.tables[0].worst.corruption == worst["corruption"]
    accuracies, confidences = drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :]
    rows = {row["corruption"]: row for row in result["rows"]}
    for series, key in ((accuracies, "value"), (confidences, "overconfidence")):
        assert {one.name for one in series} == set(rows)
        for one in series:
            settings_of = [result["clean"], *rows[one.name]["severities"]]
            told = [s["accuracy"][key] if key == "value" else s[key] for s in settings_of]
            assert (list(one.x), list(one.y)) == ([0, 1, 2, 3, 4, 5], told)


def test_a_number_below_nothing_has_a_minus_in_latex(
    hostile: tuple[Path, dict[str, Any]],
) -> None:
    summary = deepcopy(hostile[1])
    summary["results"][0]["rows"][0]["mean_overconfidence"] = -0.05
    assert " & $-$0.050 & " in latex(summary)


def test_a_model_that_took_part_in_selecting_the_photos_is_flagged(
    hostile: tuple[Path, dict[str, Any]],
) -> None:
    summary = deepcopy(hostile[1])
    assert not any("took part" in note for note in notes(summary))
    summary["results"][0]["took_part_in_selection"] = True
    (note,) = [note for note in notes(summary) if "took part" in note]
    assert note.startswith(TINY)


@pytest.mark.slow
def test_the_page_fits_a_phone_and_runs_nothing(
    hostile: tuple[Path, dict[str, Any]], browser_path: str
) -> None:
    with browser_page(browser_path, 390, 844) as page:
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.goto((hostile[0] / "index.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert "owned" not in page.title()
        assert page.evaluate("document.querySelectorAll('.drawing').length") == 4
        assert all(page.evaluate(PICTURES))
        assert said == []


def test_without_matplotlib_the_page_comes_and_says_so(
    own_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    corruptions(own_set, [TINY], report=tmp_path, names=["contrast"], severities=[3])
    page = (tmp_path / "index.html").read_text()
    assert "natadv-curate[plots]" in page
    assert "<svg" not in page


def test_the_command_prints_one_object_and_the_table(
    own_set: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import typer

    from curate.cli.common import shared
    from curate.cli.main import app

    command = ["robustness", "corruptions", str(own_set), "--model", TINY]
    command += ["--corruption", "contrast", "--severity", "3", "--limit", "2"]
    group = typer.main.get_command(app)
    try:
        group.main([*command, "--json"], standalone_mode=False)
        summary = json.loads(capsys.readouterr().out)
    finally:
        shared.json = False
    assert {"mce", "relative_mce", "note", "rows", "results", "forward_share"} <= set(summary)
    group.main(command, standalone_mode=False)
    printed = capsys.readouterr().out
    assert "contrast" in printed
    assert "no mCE: a mean needs the fifteen corruptions" in printed
    assert "2 images are few" in printed


@pytest.mark.slow
def test_every_command_of_the_docs_runs(
    own_set: Path, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import typer

    from curate.cli.main import app

    page = (ROOT / "docs" / "corruptions.md").read_text()
    commands = re.findall(r"^curate (robustness corruptions .*)$", page, re.MULTILINE)
    assert len(commands) >= 6
    shutil.copytree(own_set, tmp_path / "photos")
    shutil.copytree(own_set, tmp_path / "imagenet-c" / "fog" / "1")
    (mine,) = re.findall(r"```\n(import numpy.*?)```", page, re.DOTALL)
    (tmp_path / "mine.py").write_text(mine.replace("darkness", "more_darkness"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pipelines.corruption_page._plots", lambda _: [])
    group = typer.main.get_command(app)
    for command in commands:
        words = re.sub(r"lite/efficientnet_lite\d", TINY, command).split()
        if "--baseline" in words:
            words += ["--limit", "1"]
        elif not {"--in", "--corruption"} & set(words):
            words += ["--corruption", "contrast"]
        group.main(words, standalone_mode=False)
    for report in ("results", "before", "after"):
        assert (tmp_path / report / "index.html").is_file()
