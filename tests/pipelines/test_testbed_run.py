"""`curate robustness run`: a plain loop's numbers, each computed once, whatever interrupts it."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curate.cli.robustness_run import run_models
from curate.corruptions import corrupt, seed_of
from curate.errors import Interrupted, UnknownNameError, UsageError
from curate.files import sha256_file
from curate.labels.space import load_label_space
from pipelines import testbed_work
from pipelines.testbed import analyse_testbed
from pipelines.testbed_run import run_testbed
from tests.pipelines.zoo import loaded_once

LITE0 = "lite/efficientnet_lite0"
WNIDS = load_label_space("imagenet-1k").wnids


@pytest.fixture(scope="module", autouse=True)
def zoo() -> Iterator[None]:
    with loaded_once():
        yield


@pytest.fixture(scope="module")
def val(tmp_path_factory: pytest.TempPathFactory, package_photos: list[tuple[Path, int]]) -> Path:
    """Seven photos, one of them under a wrong class, and one file that is no photo."""
    root = tmp_path_factory.mktemp("testbed") / "val"
    for number, (path, label) in enumerate(package_photos[:7]):
        folder = root / WNIDS[label if number else label + 1]
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder)
    (root / WNIDS[3]).mkdir(exist_ok=True)
    (root / WNIDS[3] / "bad.jpg").write_bytes(b"no photo")
    return root


def measure(store: Path, *settings: tuple[str, Path], **options: Any) -> dict[str, Any]:
    return run_testbed([LITE0], settings, **{"store": store, "device": "cpu", **options})


def cell(summary: dict[str, Any], setting: str, model: str = LITE0) -> dict[str, Any]:
    (found,) = [
        one for one in summary["results"] if (one["setting"], one["model"]) == (setting, model)
    ]
    return found


def plain(val: Path, severity: int | None = None) -> list[bool]:
    """What a loop without this program's machinery says of the photos that can be read."""
    from PIL import Image

    from curate.images.views import resize_short_side, view
    from curate.models.zoo import load_classifier

    model = load_classifier(LITE0)
    recipe, found = model.preprocessing.recipe, []
    for path in sorted(val.glob("*/*.jpg")):
        if path.name == "bad.jpg":
            continue
        pixels = np.asarray(Image.open(path).convert("RGB"))
        if severity is not None:
            own = seed_of(sha256_file(path), "fog", severity, 0)
            pixels = corrupt(pixels, "fog", severity, own, scale="short-side")
        crop = view(resize_short_side(Image.fromarray(pixels), recipe), 0, recipe.crop)
        logits = model.logits(np.ascontiguousarray(crop)[None])
        found.append(WNIDS[int(logits.argmax())] == path.parent.name)
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, val: Path) -> tuple[dict[str, Any], Path]:
    """One run that several tests look at, and its store."""
    store = tmp_path_factory.mktemp("run") / "store"
    settings = [("val", val), ("imagenet-c.fog.4", val), ("pgd.linf.eps2", val)]
    summary = measure(store, *settings, attack_steps=2, out=store.parent / "table.csv")
    return summary, store


@pytest.mark.slow
def test_the_numbers_are_those_of_a_plain_loop(run: tuple[dict[str, Any], Path], val: Path) -> None:
    summary, _ = run
    for setting, severity in (("val", None), ("imagenet-c.fog.4_in-memory", 4)):
        right, one = plain(val, severity), cell(summary, setting)
        assert one["value"] == pytest.approx(100 * np.mean(right))
        assert (one["images"], one["failed"], one["measure"]) == (7, 1, "accuracy")
        assert one["low"] < one["value"] < one["high"] or one["value"] in (0.0, 100.0)
    assert 0 < cell(summary, "val")["value"] < 100
    attacked = cell(summary, "pgd.linf.eps2.steps2")
    assert attacked["value"] < cell(summary, "val")["value"]
    assert 0 < summary["forward_share"] <= 1
    assert (summary["computed"], summary["kept"], summary["failed"]) == (3, 0, 1)


@pytest.mark.slow
def test_nothing_is_computed_twice_and_what_changes_a_number_is_computed_anew(
    run: tuple[dict[str, Any], Path], val: Path, tmp_path: Path
) -> None:
    summary, store = run
    # Elsewhere, and beside another setting, a photo is the same.
    moved = shutil.copytree(val, tmp_path / "moved")
    on = "val-on-imagenet-a-classes"
    again = measure(store, ("val", moved), ("imagenet-c.fog.4", moved))
    assert (again["computed"], again["kept"], again["forward_share"]) == (0, 2, None)
    assert [one["value"] for one in again["results"]] == [
        one["value"] for one in summary["results"][:2]
    ]
    # The folder of a photo is part of the path by which its answer is kept.
    wrong = next(path for path in moved.glob("*/imagenet_00_*"))
    right = moved / WNIDS[int(wrong.stem.split("_")[2])]
    right.mkdir(exist_ok=True)
    path = wrong.rename(right / wrong.name)
    more = measure(store, ("val", moved))
    assert more["computed"] == 1
    assert cell(more, "val")["value"] > cell(summary, "val")["value"]
    path.write_bytes(path.read_bytes() + b"\0")
    assert measure(store, ("val", moved))["computed"] == 1
    assert measure(store, ("imagenet-c.fog.4", val), seed=1)["computed"] == 1
    # A damaged file of the store is none.
    for file in store.glob("*.parquet"):
        file.write_bytes(file.read_bytes()[:100])
    healed = measure(store, ("val", val))
    assert (healed["computed"], cell(healed, "val")) == (1, cell(summary, "val"))
    assert measure(store, ("val", val), (on, val), limit=3)["computed"] == 2


@pytest.mark.slow
def test_the_table_is_what_the_testbed_reads(
    run: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    summary, store = run
    table = store.parent / "table.csv"
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert list(rows[0]) == ["model", "setting", "accuracy", "images"]
    assert {row["images"] for row in rows} == {"7"}
    placed = analyse_testbed(table, x="val", unit="percent", resamples=5)
    assert placed["sizes"]["val"] == 7
    (model,) = placed["models"]
    assert model["accuracy"]["val"]["value"] == pytest.approx(cell(summary, "val")["value"])


def stopping_after(monkeypatch: pytest.MonkeyPatch, puts: int) -> None:
    """Ask to stop, as an interrupt does, when so many cells are kept."""
    put = testbed_work.Store.put
    seen = [0]

    def counted(self: Any, about: Any, said: Any) -> None:
        put(self, about, said)
        seen[0] += 1
        if seen[0] == puts:
            import signal

            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(testbed_work.Store, "put", counted)


@pytest.mark.slow
def test_an_interrupted_run_goes_on(
    val: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = [(f"imagenet-c.fog.{level}", val) for level in (1, 2, 3, 4)]
    with monkeypatch.context() as patch:
        stopping_after(patch, 1)
        with pytest.raises(Interrupted, match=r"finished and kept in .*store: the same command"):
            measure(tmp_path / "store", *settings, limit=40)
    done = measure(tmp_path / "store", *settings)
    assert done["kept"] >= 1
    assert done["computed"] + done["kept"] == 4
    assert len(done["results"]) == 4


OWN = """
import torch

from curate.images.views import ViewRecipe
from curate.labels.space import load_label_space
from curate.models.classifier import Classifier, Preprocessing


def mine():
    torch.manual_seed(0)
    layers = torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 1000)
    network = torch.nn.Sequential(*layers)
    recipe = ViewRecipe(40, 32, "bilinear")
    seen = Preprocessing(recipe, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), "my training")
    return Classifier(name="mine", architecture="mine", module=network,
                      output=load_label_space("imagenet-1k"), preprocessing=seen)


def _helper():
    return None
"""


def own_run(tmp_path: Path, settings: Sequence[tuple[str, Path]], **options: Any) -> dict[str, Any]:
    (tmp_path / "own.py").write_text(OWN)
    files = [tmp_path / "own.py"]
    options = {"store": tmp_path / "store", "model_files": files, "device": "cpu", **options}
    return run_testbed([], settings, **options)


def test_a_model_of_ones_own_needs_ten_lines(tmp_path: Path, val: Path) -> None:
    summary = own_run(tmp_path, [("val", val)], types={"mine": "ROBUST"}, out=tmp_path / "t.csv")
    assert list(summary["models"]) == ["mine"]
    assert cell(summary, "val", "mine")["images"] == 7
    assert (tmp_path / "t.csv").read_text().splitlines()[1].startswith("mine,ROBUST,val,")
    assert own_run(tmp_path, [("val", val)])["kept"] == 1
    # Another file may do something else with the same weights.
    (tmp_path / "own.py").write_text(OWN.replace("AdaptiveAvgPool2d", "AdaptiveMaxPool2d"))
    changed = run_testbed(
        [],
        [("val", val)],
        store=tmp_path / "store",
        model_files=[tmp_path / "own.py"],
        device="cpu",
    )
    assert changed["computed"] == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def mine():\n    return 3\n", "mine gives int, not a Classifier"),
        ("def mine():\n    return 1 / 0\n", "mine: ZeroDivisionError"),
        ("def mine(x):\n    return x\n", "defines no function without arguments"),
        ("import nothing_of_this_name\n", "ModuleNotFoundError"),
    ],
)
def test_a_file_without_a_model_is_refused(tmp_path: Path, val: Path, text: str, told: str) -> None:
    (tmp_path / "own.py").write_text(text)
    with pytest.raises(UsageError, match=told) as error:
        run_testbed(
            [],
            [("val", val)],
            store=tmp_path / "store",
            model_files=[tmp_path / "own.py"],
            device="cpu",
        )
    assert "\n" not in str(error.value)


def test_every_kind_of_setting_gives_its_number(
    tmp_path: Path, val: Path, package_photos: list[tuple[Path, int]]
) -> None:
    """A small network: what counts is how its answers are counted."""
    from tests.testbed.test_known_settings import objectnet, video

    photos = [path for path, _ in package_photos]
    on = objectnet(tmp_path / "o")
    for number, place in enumerate(sorted(on.glob("images/*/*.png"))):
        shutil.copy(photos[number], place)
    clip = video(tmp_path / "v")
    for number, place in enumerate(sorted(clip.glob("val/clip/*.JPEG"))):
        shutil.copy(photos[number], place)
    of_o = load_label_space("imagenet-o").wnids
    inside = tmp_path / "inside"
    for number in range(3):
        (inside / of_o[number]).mkdir(parents=True)
        shutil.copy(photos[number], inside / of_o[number])
    outside = tmp_path / "outside"
    outside.mkdir()
    shutil.copy(photos[9], outside)
    disk = tmp_path / "c"
    for level in range(1, 6):
        shutil.copytree(val, disk / "fog" / str(level))
    v2 = tmp_path / "v2" / "10"
    v2.mkdir(parents=True)
    shutil.copy(photos[0], v2)
    settings = [
        ("val", inside),
        ("imagenet-o", outside),
        ("objectnet", on),
        ("imagenet-vid-robust", clip),
        ("imagenet-c", disk),
        ("imagenetv2-matched-frequency-format-val", v2.parent),
        ("stylized_imagenet", val),
        ("imagenet-sketch", val),
        ("greyscale", val),
        ("pgd.l2.eps0.1", val),
    ]
    summary = own_run(tmp_path, settings, attack_steps=2, attack_limit=3)
    found = {one["setting"]: one for one in summary["results"]}
    assert list(found) == [
        "val",
        "imagenet-o",
        "objectnet-1.0-beta",
        "imagenet-vid-robust_pm0",
        "imagenet-vid-robust_pm10",
        "imagenet-c.fog.mean5_on-disk",
        "imagenetv2-matched-frequency-format-val",
        "stylized_imagenet",
        "imagenet-sketch",
        "greyscale",
        "pgd.l2.eps0.1.steps2",
    ]
    assert (found["imagenet-o"]["measure"], found["imagenet-o"]["images"]) == ("aupr", None)
    assert found["imagenet-o"]["base_rate"] == pytest.approx(0.25)
    assert found["imagenet-o"]["value"] >= 25.0
    assert found["objectnet-1.0-beta"]["images"] == 2
    assert found["imagenet-vid-robust_pm0"]["images"] == 2
    assert found["imagenet-vid-robust_pm10"]["value"] <= found["imagenet-vid-robust_pm0"]["value"]
    assert len(found["imagenet-c.fog.mean5_on-disk"]["severities"]) == 5
    assert len(summary["notes"]) >= 5
    few = own_run(tmp_path, [("imagenet-vid-robust", clip)], limit=1)
    assert {one["images"] for one in few["results"]} == {1}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"limit": 0}, "limit is 0"),
        ({"attack_limit": 0}, "attack limit is 0"),
        ({"attack_steps": 0}, "attack steps are 0"),
        ({"seed": -1}, "seed is -1"),
        ({"types": {"yours": "ROBUST"}}, "yours"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    tmp_path: Path, val: Path, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        measure(tmp_path / "store", ("val", val), **options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"store": "val"}, "the store val would stand among the images of val"),
        ({"store": "val/n01443537/store"}, "name a folder outside with --store"),
        ({"store": "link/store"}, "among the images of val"),
        ({"out": "val/models.csv"}, "the table val/models.csv would stand among the images of val"),
        ({"out": "mine.py"}, "--out mine.py would be written over a file that is read"),
        ({"out": "./val/../labels.txt"}, "would be written over a file that is read"),
        ({"out": "val"}, "is a folder"),
    ],
)
def test_nothing_is_written_among_the_images_or_over_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "val" / "n01443537").mkdir(parents=True)
    (tmp_path / "link").symlink_to("val")
    for name in ("mine.py", "labels.txt"):
        (tmp_path / name).write_text("as it was")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=told):
        run_testbed(
            ["lite/efficientnet_lite0"],
            [("val", Path("val"))],
            model_files=[Path("mine.py")],
            labels=Path("labels.txt"),
            store=Path(options.get("store", "store")),
            out=Path(options["out"]) if "out" in options else None,
        )
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "mine.py").read_text() == "as it was"


def test_models_and_settings_must_be_named(tmp_path: Path, val: Path) -> None:
    with pytest.raises(UsageError, match="nothing to measure"):
        run_testbed([], [("val", val)], store=tmp_path)
    with pytest.raises(UsageError, match="nowhere to measure"):
        run_testbed([LITE0], [], store=tmp_path)
    with pytest.raises(UsageError, match=f"model {LITE0} is named twice"):
        run_testbed([LITE0, LITE0], [("val", val)], store=tmp_path)
    with pytest.raises(UnknownNameError, match="did you mean lite/efficientnet_lite"):
        run_testbed(["lite/efficientnet_lite9"], [("val", val)], store=tmp_path)
    with pytest.raises(UsageError, match="write SETTING=DIR"):
        run_models(models=[LITE0], settings=["val"])
    with pytest.raises(UsageError, match="write MODEL=TYPE"):
        run_models(models=[LITE0], settings=[f"val={val}"], kind=["STANDARD"])


def test_the_command_tells_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    run_models(list_settings=True)
    told = capsys.readouterr().out
    for name in ("val", "imagenet-vid-robust", "objectnet", "pgd.linf.eps0.5"):
        assert name in told


def test_the_command_prints_a_grid(
    tmp_path: Path, val: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    run_models(
        settings=[f"val={val}", f"imagenet-c.fog={val}"],
        model_file=[tmp_path / "own.py"],
        store=tmp_path / "store",
        out=tmp_path / "new" / "t.csv",
        device="cpu",
    )
    told = capsys.readouterr().out
    assert "imagenet-c.fog.mean5_in-memory" in told
    assert "note: val holds 8 images" in told
    assert "6 computed, 0 kept" in told
    assert f"next: curate robustness testbed {tmp_path}/new/t.csv --x val --report testbed" in told
    rows = list(csv.DictReader((tmp_path / "new" / "t.csv").read_text().splitlines()))
    assert [row["images"] for row in rows] == ["7", ""]
