from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from curate.errors import LabelSpaceError, UsageError
from curate.labels.space import load_label_space
from curate.metrics import clopper_pearson
from pipelines.checking import check_model
from pipelines.evaluate import evaluate

MODEL = "lite/efficientnet_lite0"


@pytest.fixture(scope="module")
def folder(
    package_photos: list[tuple[Path, int]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Twelve photos in folders named by id."""
    root = tmp_path_factory.mktemp("check") / "photos"
    wnids = load_label_space("imagenet-1k").wnids
    for path, column in package_photos[:12]:
        (root / wnids[column]).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / wnids[column])
    return root


def test_without_a_folder_it_tells_what_the_model_is() -> None:
    summary = check_model(MODEL)
    assert summary["label_space"] == "imagenet-1k"
    assert summary["columns"] == list(range(1000))
    assert summary["model"]["preprocessing"]["crop"] == 224
    assert "accuracy" not in summary
    fewer = check_model(MODEL, label_space="imagenet-a")
    assert len(fewer["columns"]) == 200


def test_the_accuracy_is_that_of_evaluate_for_both_views(folder: Path) -> None:
    summary = check_model(MODEL, folder=folder, device="cpu")
    for views in ("native", "paper"):
        (result,) = evaluate(
            [folder], [MODEL], label_space="imagenet-1k", device="cpu", views=views, resamples=1
        )["results"]
        expected = result["metrics"]["accuracy"]
        found = summary["accuracy"][views]
        assert (found["value"], found["low"], found["high"], found["n"]) == (
            expected["value"],
            expected["low"],
            expected["high"],
            expected["n"],
        )
    assert summary["photos"] == 12
    assert summary["failed"] == 0


def test_folders_may_bear_names_and_what_cannot_be_used_is_told(
    folder: Path, tmp_path: Path
) -> None:
    root = shutil.copytree(folder, tmp_path / "photos")
    space = load_label_space("imagenet-1k")
    wnid = sorted(path.name for path in root.iterdir())[0]
    (root / wnid).rename(root / space.get(wnid).name.replace(" ", "_"))
    other = sorted(path.name for path in root.iterdir() if path.name != wnid)[1]
    (root / other / "broken.jpg").write_bytes(b"no photo")
    (root / other / "link.jpg").symlink_to("broken.jpg")
    (root / "of no class").mkdir()
    (root / "of no class" / "x.jpg").write_bytes(b"x")
    summary = check_model(MODEL, folder=root, device="cpu")
    assert summary["accuracy"]["native"]["n"] == 12
    assert summary["failed"] == 2
    assert [one["reason"] for one in summary["failures"]] == ["symlink", "not-an-image"]
    assert summary["passed_over"] == {"of no class": 1}
    whole = check_model(MODEL, folder=folder, device="cpu")
    assert summary["accuracy"] == whole["accuracy"]


@pytest.mark.slow
def test_a_view_that_the_network_does_not_take_is_a_note(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    from curate.models.checkpoint import build

    path, net = tmp_path / "net.safetensors", "timm/eva02_tiny_patch14_336"
    save_file(build(net, 1000).module.state_dict(), path)
    summary = check_model(f"checkpoint/{path}?arch={net}", folder=folder, device="cpu")
    assert summary["accuracy"]["native"]["n"] == 12
    assert summary["accuracy"]["paper"]["value"] is None
    assert "does not take views of 224 pixels" in summary["accuracy"]["paper"]["note"]


def test_a_folder_of_which_no_photo_can_be_used_is_an_error(folder: Path, tmp_path: Path) -> None:
    wnid = sorted(path.name for path in folder.iterdir())[0]
    (tmp_path / "photos" / wnid).mkdir(parents=True)
    (tmp_path / "photos" / wnid / "a.jpg").write_bytes(b"no photo")
    with pytest.raises(UsageError, match=r"none of the 1 photos of photos can be used.*a\.jpg"):
        check_model(MODEL, folder=tmp_path / "photos", device="cpu")


def test_a_label_space_that_the_model_lacks_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("id\nmy-class\n", encoding="utf-8")
    with pytest.raises(LabelSpaceError, match="lacks 1 of the 1 classes"):
        check_model(MODEL, label_space=str(tmp_path / "own.csv"))


def test_the_interval_is_exact(folder: Path) -> None:
    found = check_model(MODEL, folder=folder, device="cpu")["accuracy"]["native"]
    right = round(found["value"] * found["n"])
    assert (found["low"], found["high"]) == clopper_pearson(right, found["n"], 0.95)
