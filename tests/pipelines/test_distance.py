"""`curate robustness distance`, on cut-outs of real photos and a network with 64 features."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from curate.cli import common
from curate.cli.main import app
from curate.errors import Interrupted, UsageError, VerificationError
from curate.files import sha256_file
from curate.images.views import resize_short_side, view
from curate.metrics.frechet import frechet_distance, gaussian
from curate.models.checkpoint import build
from curate.models.features import FeatureReader
from curate.models.zoo import load_classifier
from curate.progress import Stop
from pipelines import distance_pass
from pipelines.distance import distance_between
from pipelines.distance_pass import FeaturePass

Photos = list[tuple[Path, int]]

#: Images of each set: more than twice the 64 features in all, so that halves have full rank.
MANY = 132


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small network without trained weights."""
    from safetensors.torch import save_file

    path = tmp_path_factory.mktemp("net") / "net.safetensors"
    save_file(build("timm/test_vit", 1000).module.state_dict(), path)
    return f"checkpoint/{path}?arch=timm/test_vit"


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory, package_photos: Photos) -> tuple[Path, Path]:
    """Cut-outs of ten photos, and of ten others."""
    root = tmp_path_factory.mktemp("sets")
    random = np.random.RandomState(0)
    for name, photos in (("one", package_photos[:10]), ("other", package_photos[10:])):
        (root / name / "any name").mkdir(parents=True)
        opened = [Image.open(path).convert("RGB") for path, _ in photos]
        for number in range(MANY):
            picture = opened[number % 10]
            x, y = (int(random.randint(side - 100)) for side in picture.size)
            cut = picture.crop((x, y, x + 100, y + 100))
            cut.save(root / name / "any name" / f"{number:03}.png", compress_level=1)
    return root / "one", root / "other"


@pytest.fixture(scope="module")
def few(sets: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Nine images of each set, in folders of the same names."""
    root = tmp_path_factory.mktemp("few")
    for folder in sets:
        (root / folder.name).mkdir()
        for path in sorted(folder.rglob("*.png"))[:9]:
            shutil.copy(path, root / folder.name)
    return root / "one", root / "other"


def measured(a: Path, b: Path, model: str, **more: Any) -> dict[str, Any]:
    found = distance_between(a, b, model, device="cpu", **more)
    json.dumps(found, allow_nan=False)
    return found


def test_it_is_the_distance_of_the_features_of_all_images_whatever_the_chunks(
    sets: tuple[Path, Path], model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = measured(*sets, model)
    reader = FeatureReader(load_classifier(model))
    recipe = reader.classifier.preprocessing.recipe
    features = []
    for folder in sets:
        crops = [
            view(resize_short_side(Image.open(path).convert("RGB"), recipe), 0, recipe.crop)
            for path in sorted(folder.rglob("*.png"))
        ]
        features.append(reader.features(np.stack(crops)).numpy())
    one, other = features
    plain = frechet_distance(gaussian(one), gaussian(other))
    assert found["distance"] == pytest.approx(plain, rel=1e-4)
    assert found["dimensions"] == 64
    for folder, side, told in zip(sets, features, (found["a"], found["b"]), strict=True):
        assert told["images"] == MANY
        assert told["halves"]["images"] == [MANY // 2, MANY // 2]
        order = np.argsort([sha256_file(path) for path in sorted(folder.rglob("*.png"))])
        lots = side[order[: MANY // 2]], side[order[MANY // 2 :]]
        apart = frechet_distance(*map(gaussian, lots))
        assert told["halves"]["distance"] == pytest.approx(apart, rel=1e-4)
        assert 0.0 < apart < plain
    assert found["extrapolated"] < found["distance"]
    assert not [note for note in found["notes"] if "singular" in note]
    monkeypatch.setattr(distance_pass, "_CHUNK", 8)
    again = measured(*reversed(sets), model)
    assert again["distance"] == pytest.approx(found["distance"], rel=1e-9)


def test_a_set_is_at_no_distance_from_itself_and_is_told_to_be_the_same(
    few: tuple[Path, Path], model: str
) -> None:
    found = measured(few[0], few[0], model)
    assert found["distance"] == pytest.approx(0.0, abs=1e-9)
    # Halves of four and five images for 64 features: noise is not of the first order.
    assert found["extrapolated"] is None
    assert found["shared"] == 9
    assert any("9 images are in both sets" in note for note in found["notes"])


def test_what_was_computed_before_is_taken_and_gives_the_same_bits(
    few: tuple[Path, Path], model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    first = measured(*few, model, cache=cache)
    with monkeypatch.context() as patch:
        patch.setattr(FeatureReader, "features", None)
        assert measured(*few, model, cache=cache) == first
    less = tmp_path / "one"
    shutil.copytree(few[0], less)
    next(less.glob("*.png")).unlink()
    other = measured(less, few[1], model, cache=cache)
    assert (other["a"]["images"], other["distance"] != first["distance"]) == (8, True)
    for path in cache.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    assert measured(*few, model, cache=cache) == first


def test_an_image_that_changes_meanwhile_is_told_and_looked_at_another_time(
    few: tuple[Path, Path], model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, cache, digests = tmp_path / "some", tmp_path / "cache", FeaturePass.digests
    shutil.copytree(few[0], folder)
    image, other = sorted(folder.rglob("*.png"))[:2]
    data = image.read_bytes()

    def changed(self: FeaturePass, stop: Stop) -> Any:
        found = digests(self, stop)
        if self.dataset.layout.root == folder:
            image.write_bytes(other.read_bytes())
        return found

    with monkeypatch.context() as patch:
        patch.setattr(FeaturePass, "digests", changed)
        found = measured(folder, few[1], model, cache=cache)
    assert [one["reason"] for one in found["a"]["failures"]] == ["altered"]
    image.write_bytes(data)
    assert measured(folder, few[1], model, cache=cache)["a"]["failures"] == []


def test_a_stop_is_told_and_finished_folders_are_kept(
    few: tuple[Path, Path], model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, cache = FeaturePass.run, tmp_path / "cache"

    def stopped(self: FeaturePass, stop: Stop) -> Any:
        if self.dataset.name == "other":
            stop.request()
        return run(self, stop)

    with monkeypatch.context() as patch:
        patch.setattr(FeaturePass, "run", stopped)
        with pytest.raises(Interrupted, match=r"stopped at .*other; finished folders are kept"):
            measured(*few, model, cache=cache)
    assert len(list(cache.iterdir())) == 1
    assert measured(*few, model, cache=cache) == measured(*few, model)


def test_images_that_cannot_be_used_are_told_and_make_strict_fail(
    few: tuple[Path, Path], model: str, tmp_path: Path
) -> None:
    folder = tmp_path / "some"
    folder.mkdir()
    for path in sorted(few[0].rglob("*.png"))[:4]:
        shutil.copy(path, folder)
    (folder / "001.png").write_text("no image")
    (folder / "notes.txt").write_text("no name of an image")
    found = measured(folder, few[1], model)
    assert (found["a"]["images"], found["a"]["failed"]) == (3, 1)
    assert found["a"]["failures"] == [{"path": "001.png", "reason": "not-an-image"}]
    assert sorted(found["a"]["halves"]["images"]) == [1, 2]
    assert found["a"]["halves"]["distance"] is None
    assert found["extrapolated"] is None
    assert any("3 images for 64 features" in note for note in found["notes"])
    assert any("1 images of" in note and "001.png" in note for note in found["notes"])
    with pytest.raises(VerificationError, match="1 images could not be used"):
        measured(folder, few[1], model, strict=True)


def test_what_has_no_distance_is_refused_in_one_line(
    few: tuple[Path, Path], model: str, tmp_path: Path
) -> None:
    one, none, broken = (tmp_path / name for name in ("one", "none", "broken"))
    for folder in (one, none, broken):
        folder.mkdir()
    shutil.copy(next(few[0].rglob("*.png")), one)
    (broken / "a\n.jpg").write_text("no image")
    squeezed = "checkpoint/none.safetensors?arch=torchvision/squeezenet1_1"
    for folder, name, text in (
        (one, model, r"1 of 1 images of .* at least two$"),
        (broken, model, r"0 of 1 images of .* at least two; the first is 'a\\n.jpg' \(not-an"),
        (none, model, "holds no images"),
        (tmp_path / "absent", model, "absent"),
        (few[0], "lite/efficientnet_lite9", "efficientnet_lite9"),
        (few[0], squeezed, "none.safetensors"),
    ):
        for pair in ((folder, few[1]), (few[1], folder)):
            with pytest.raises(UsageError, match=text) as caught:
                measured(*pair, name)
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda seen: seen * float("nan"), "is nan"),
        (lambda seen: seen[:, None, :], "must have a row an item"),
    ],
)
def test_features_that_are_no_numbers_are_told_with_the_model(
    few: tuple[Path, Path],
    model: str,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[torch.Tensor], torch.Tensor],
    text: str,
) -> None:
    plain = FeatureReader.features
    monkeypatch.setattr(FeatureReader, "features", lambda self, views: spoil(plain(self, views)))
    with pytest.raises(UsageError, match=rf"test_vit gives no usable features: .*{text}"):
        measured(*few, model)


def test_the_command_prints_both_sets_and_what_a_reader_must_know(
    sets: tuple[Path, Path], model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common.shared, "json", False)
    words = ["robustness", "distance", *map(str, sets), "--model", model, "--no-cache"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "the square, on the 64 features of" in done.stdout
    assert "extrapolated to endless sets: " in done.stdout
    assert "note: numbers compare only with those of the same model" in done.stdout
    assert done.stdout.count(str(MANY)) >= 2
