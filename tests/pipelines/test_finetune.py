from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from curate.errors import (
    BusyError,
    CurateError,
    LabelSpaceError,
    StorageError,
    UsageError,
    WeightsError,
)
from curate.files import hold, sha256_file
from curate.images.views import ViewRecipe
from curate.models import bound_threads, load_classifier
from curate.models import finetune_state as states
from pipelines.checking import check_model
from pipelines.finetune import finetune
from tests.models.learning import make_labels, make_tiles
from tests.running import ROOT, dying, killed_until_done, run_curate
from tests.waiting import PATIENCE

TINY: dict[str, Any] = {
    "model": "torchvision/shufflenet_v2_x0_5",
    "init": "none",
    "image_size": 32,
    "epochs": 2,
    "batch_size": 8,
    "lr": 0.05,
    "backbone": 1.0,
    "device": "cpu",
}


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    with bound_threads(1):
        yield


@pytest.fixture(scope="module")
def tiles(package_photos: list[tuple[Path, int]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten tiles of each of three photos."""
    root = tmp_path_factory.mktemp("tiles") / "tiles"
    return make_tiles(root, [path for path, _ in package_photos[:3]], 10)


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_labels(tmp_path_factory.mktemp("labels") / "three.csv", 3))


@pytest.fixture(scope="module")
def made(
    tiles: Path, labels: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """A finished run, and its summary."""
    output = tmp_path_factory.mktemp("made") / "tiny.safetensors"
    with bound_threads(1):
        return output, finetune(tiles, output, label_space=labels, **TINY)


def same(one: Path, other: Path) -> bool:
    return one.read_bytes() == other.read_bytes()


def record_of(output: Path) -> dict[str, Any]:
    return json.loads(output.with_name(f"{output.name}.json").read_bytes())


@pytest.mark.slow
def test_the_head_of_a_trained_network_learns_real_photos(
    package_photos: list[tuple[Path, int]], tmp_path: Path
) -> None:
    photos = [path for path, _ in package_photos[:5]]
    root = make_tiles(tmp_path / "tiles", photos, 12, side=128)
    space = str(make_labels(tmp_path / "five.csv", 5))
    summary = finetune(
        root,
        tmp_path / "five.safetensors",
        label_space=space,
        model="lite/efficientnet_lite0",
        freeze=True,
        image_size=128,
        epochs=3,
        batch_size=12,
        val_share=0.25,
        label_smoothing=0.0,
        device="cpu",
    )
    found = summary["accuracy"]
    assert found["n"] == 15
    assert found["low"] > 0.5, found  # chance is 0.2
    assert summary["history"][-1]["loss"] < summary["history"][0]["loss"]
    # The other layers, their statistics included, stay what they were.
    trained = load_classifier("lite/efficientnet_lite0").module.state_dict()
    for key, value in load_file(tmp_path / "five.safetensors").items():
        assert key.startswith("classifier.") or torch.equal(value, trained[key]), key


@pytest.mark.slow
@pytest.mark.photos
def test_the_head_of_a_trained_network_learns_five_classes_of_real_photos(
    shared_data: Path, tmp_path: Path
) -> None:
    wnids = ("n02219486", "n02690373", "n02206856", "n07720875", "n02007558")
    for wnid in wnids:
        (tmp_path / "photos" / wnid).mkdir(parents=True)
        found = sorted((shared_data / "photos" / "images" / "A" / wnid).iterdir())[:20]
        for path in found:
            shutil.copy(path, tmp_path / "photos" / wnid)
    (tmp_path / "five.csv").write_text("id\n" + "\n".join(wnids), encoding="utf-8")
    summary = finetune(
        tmp_path / "photos",
        tmp_path / "five.safetensors",
        label_space=str(tmp_path / "five.csv"),
        model="lite/efficientnet_lite0",
        freeze=True,
        image_size=128,
        epochs=4,
        batch_size=20,
        val_share=0.3,
        device="cpu",
    )
    assert summary["accuracy"]["n"] >= 25
    assert summary["accuracy"]["low"] > 0.5, summary["accuracy"]  # chance is 0.2


@pytest.mark.slow
def test_a_whole_network_learns_a_handful_of_photos_by_heart(
    package_photos: list[tuple[Path, int]], tmp_path: Path
) -> None:
    photos = [path for path, _ in package_photos[:6]]
    for number, path in enumerate(photos):
        folder = tmp_path / "handful" / f"c{number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.open(path).convert("RGB").resize((64, 64)).save(folder / f"{number}.png")
    space = str(make_labels(tmp_path / "three.csv", 3))
    changes = {"model": "timm/test_vit", "optimizer": "adamw", "lr": 0.01, "image_size": None}
    summary = finetune(
        tmp_path / "handful",
        tmp_path / "all.safetensors",
        label_space=space,
        val_share=0.0,
        smallest_crop=0.9,
        label_smoothing=0.0,
        seed=1,
        **{**TINY, **changes, "epochs": 30, "batch_size": 6},
    )
    assert summary["accuracy"] is None
    assert summary["history"][-1]["loss"] < 0.2 < summary["history"][0]["loss"]
    checked = check_model(summary["model"], folder=tmp_path / "handful", device="cpu")
    assert checked["accuracy"]["native"]["value"] >= 5 / 6  # chance is 1/3


def test_what_it_made_is_a_classifier_at_once_with_labels_and_preprocessing(
    made: tuple[Path, dict[str, Any]], labels: str
) -> None:
    output, summary = made
    short = load_classifier(summary["model"], labels)
    assert summary["model"] == f"checkpoint/{output}"
    full = load_classifier(summary["model_in_full"], labels)
    assert summary["model_in_full"].endswith(
        "?arch=torchvision/shufflenet_v2_x0_5&labels=" + labels
    )
    for one in (short, full):
        assert one.output.wnids == ("c0", "c1", "c2")
        assert [item.name for item in one.output] == ["red crane", "harbour", "meadow"]
        its = one.preprocessing
        assert its.recipe == ViewRecipe(37, 32, "bilinear")
        assert its.source.endswith("ShuffleNet_V2_X0_5_Weights.IMAGENET1K_V1, at 32 pixels")
        assert one.fingerprint == sha256_file(output) == summary["fingerprint"]
    with safe_open(output, framework="pt") as file:
        assert list(file.metadata()) == ["curate"]


def test_the_record_says_what_made_it(made: tuple[Path, dict[str, Any]]) -> None:
    output, summary = made
    record = record_of(output)
    assert {key: summary[key] for key in record if key != "refused"} == {
        key: value for key, value in record.items() if key != "refused"
    }
    assert record["learned_from"] == {"c0": 9, "c1": 9, "c2": 9}
    assert record["measured_on"] == {"c0": 1, "c1": 1, "c2": 1}
    assert [entry["epoch"] for entry in record["history"]] == [1, 2]
    last = record["history"][-1]
    assert record["accuracy"]["value"] == last["correct"] / last["photos"]
    assert record["accuracy"]["interval"] == "Clopper-Pearson, 95%"
    assert record["settings"]["fingerprint_of"] == "state-dict"
    assert record["settings"]["seed"] == 0
    (maker,) = record["made_by"]
    assert maker["threads"] == 1
    assert torch.__version__.startswith(maker["torch"].partition("+")[0])
    assert record["classifier"]["libraries"]["torchvision"]
    assert str(output.parent) not in json.dumps(record)
    assert not output.with_name("tiny.safetensors.run").exists()


def test_the_same_seed_gives_the_same_bytes_whatever_the_workers_and_another_seed_others(
    tiles: Path, labels: str, made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    # Files of other names, found in another order.
    moved = tmp_path / "moved"
    for path in sorted(tiles.glob("*/*")):
        target = moved / path.parent.name / f"{hashlib.sha256(path.name.encode()).hexdigest()}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    finetune(moved, tmp_path / "again.safetensors", label_space=labels, workers=4, **TINY)
    assert same(tmp_path / "again.safetensors", made[0])
    finetune(tiles, tmp_path / "other.safetensors", label_space=labels, seed=1, **TINY)
    assert not same(tmp_path / "other.safetensors", made[0])


def test_the_callers_random_numbers_go_on_undisturbed(
    tiles: Path, labels: str, tmp_path: Path
) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    finetune(tiles, tmp_path / "x.safetensors", label_space=labels, **{**TINY, "epochs": 1})
    assert torch.equal(torch.rand(3), expected)


def test_the_finished_command_returns_its_summary_again(
    tiles: Path, labels: str, made: tuple[Path, dict[str, Any]]
) -> None:
    output, summary = made
    before = output.stat().st_mtime_ns, output.stat().st_ino
    again = finetune(tiles, output, label_space=labels, **TINY)
    assert (output.stat().st_mtime_ns, output.stat().st_ino) == before
    assert {**again, "seconds": 0} == {**summary, "seconds": 0}
    assert not output.with_name("tiny.safetensors.run").exists()


def test_bf16_learns_too_and_other_weights(
    tiles: Path, labels: str, made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    summary = finetune(
        tiles, tmp_path / "bf16.safetensors", label_space=labels, precision="bf16", **TINY
    )
    assert summary["settings"]["precision"] == "bf16"
    exact = made[1]["history"]
    for low, full in zip(summary["history"], exact, strict=True):
        assert low["loss"] != full["loss"]
    # Later epochs of so few photos go where rounding leads them, on each processor elsewhere.
    assert summary["history"][0]["loss"] == pytest.approx(exact[0]["loss"], rel=0.2)
    assert {v.dtype for v in load_file(tmp_path / "bf16.safetensors").values()} == {
        torch.float32,
        torch.int64,
    }


def test_folders_are_named_by_id_or_name_and_those_of_no_class_are_passed_over(
    tiles: Path, labels: str, tmp_path: Path
) -> None:
    root = tmp_path / "named"
    shutil.copytree(tiles / "c0", root / "Red_Crane")
    shutil.copytree(tiles / "c1", root / "c1")
    shutil.copytree(tiles / "c2", root / "meadow")
    shutil.copytree(tiles / "c2", root / "n01440764")
    (root / "README.txt").write_text("no photo")
    summary = finetune(
        root, tmp_path / "named.safetensors", label_space=labels, **{**TINY, "epochs": 1}
    )
    assert summary["learned_from"] == {"c0": 9, "c1": 9, "c2": 9}
    assert summary["passed_over"] == {"n01440764": 10}
    assert summary["refused"] == {}


def test_unusable_photos_are_counted_and_named(tiles: Path, labels: str, tmp_path: Path) -> None:
    root = shutil.copytree(tiles, tmp_path / "tiles")
    (root / "c0" / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 this is no photo")
    (root / "c0" / "empty.png").write_bytes(b"")
    (root / "c1" / "notes.txt").write_text("hello")
    (root / "c1" / "link.png").symlink_to(root / "c0" / "00.png")
    shutil.copy(root / "c0" / "00.png", root / "c2" / "twin.png")
    summary = finetune(
        root, tmp_path / "x.safetensors", label_space=labels, **{**TINY, "epochs": 1}
    )
    assert summary["refused"] == {
        "symlink": 1,
        "truncated": 1,
        "empty-file": 1,
        "not-an-image": 1,
        "duplicate-exact": 1,
    }
    listed = {
        one["name"]: one["reason"] for one in record_of(tmp_path / "x.safetensors")["refused"]
    }
    assert listed["c1/link.png"] == "symlink"
    assert listed["c2/twin.png"] == "duplicate-exact"
    assert summary["learned_from"] == {"c0": 9, "c1": 9, "c2": 9}


def test_a_validation_folder_is_measured_on_and_shares_no_photo(
    tiles: Path, labels: str, package_photos: list[tuple[Path, int]], tmp_path: Path
) -> None:
    photos = [path for path, _ in package_photos[:2]]
    val = make_tiles(tmp_path / "val", photos, 3, first=50)
    shutil.copy(tiles / "c0" / "00.png", val / "c0" / "seen.png")
    summary = finetune(
        tiles, tmp_path / "x.safetensors", label_space=labels, val=val, **{**TINY, "epochs": 1}
    )
    assert summary["learned_from"] == {"c0": 10, "c1": 10, "c2": 10}
    assert summary["measured_on"] == {"c0": 3, "c1": 3}
    assert summary["refused"] == {"duplicate-exact": 1}
    assert summary["accuracy"]["n"] == 6


def test_its_own_checkpoint_can_be_fine_tuned_on(
    tiles: Path, labels: str, made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    two = make_labels(tmp_path / "two.csv", 2)
    recipe = {**TINY, "init": "pretrained", "image_size": None, "epochs": 1, "freeze": True}
    recipe["model"] = f"checkpoint/{made[0]}"
    summary = finetune(tiles, tmp_path / "x.safetensors", label_space=str(two), **recipe)
    assert summary["settings"]["model"] == "checkpoint/tiny.safetensors"
    assert summary["settings"]["fingerprint"] == made[1]["fingerprint"]
    assert summary["settings"]["architecture"] == "torchvision/shufflenet_v2_x0_5"
    assert summary["classifier"]["preprocessing"]["crop"] == 32
    before, after = load_file(made[0]), load_file(tmp_path / "x.safetensors")
    assert torch.equal(before["conv5.0.weight"], after["conv5.0.weight"])
    assert after["fc.weight"].shape == (2, 1024)


# Bad input


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"epochs": 0}, "--epochs is 0: write 1"),
        ({"batch_size": 1}, "--batch-size is 1: write 2"),
        ({"lr": float("nan")}, "--lr is nan: write above 0"),
        ({"warmup": 3.0}, "--warmup is 3.0: write 0 … the number of epochs"),
        ({"val_share": 1.0}, "--val-share is 1.0: write 0 … below 1"),
        ({"image_size": 4}, "--image-size is 4: write 16"),
        ({"workers": 0}, "--workers is 0: write 1"),
        ({"optimizer": "adam"}, "did you mean adamw?"),
        ({"precision": "fp61"}, "did you mean fp16"),
        ({"precision": "fp16"}, "fp16 is for CUDA alone"),
        ({"device": "cuda:99"}, "is not on this machine"),
        ({"model": "torchvision/resnet81"}, "did you mean torchvision/resnet18"),
        ({"model": "checkpoint/x.safetensors"}, "name its network instead"),
        ({"label_space": "imagenet-b"}, "or imagenet-a?"),
        ({"output": "x.pt"}, "its name must end in .safetensors"),
        ({"output": "none/x.safetensors"}, "its folder does not exist"),
        ({"output": "x?.safetensors"}, "leave out question marks"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_an_unusable_setting_is_one_line(
    tiles: Path, labels: str, tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    call = {"label_space": labels, **TINY, **changes}
    output = tmp_path / call.pop("output", "x.safetensors")
    with pytest.raises(UsageError) as caught:
        finetune(tiles, output, **call)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_classes_without_a_photo_are_named_unless_allowed(tiles: Path, tmp_path: Path) -> None:
    root = shutil.copytree(tiles, tmp_path / "tiles")
    (root / "c2").rename(root / "medow")
    four = str(make_labels(tmp_path / "four.csv", 4))
    call = {**TINY, "label_space": four, "epochs": 1}
    with pytest.raises(
        UsageError,
        match=r"2 of the 4 classes of four\.csv have no photo in .*: c2 \(meadow\), c3 \(tower\); "
        "no class is called 'medow'; add photos, or give --allow-missing",
    ):
        finetune(root, tmp_path / "x.safetensors", **call)
    assert not (tmp_path / "x.safetensors.run").exists()
    summary = finetune(root, tmp_path / "x.safetensors", allow_missing=True, **call)
    assert summary["without_photos"] == ["c2", "c3"]
    assert len(load_classifier(summary["model"], four).output) == 4


def test_a_class_whose_photos_are_all_unusable_is_named(
    tiles: Path, labels: str, tmp_path: Path
) -> None:
    root = shutil.copytree(tiles, tmp_path / "tiles")
    for path in (root / "c1").iterdir():
        path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UsageError, match=r"1 of the 3 .* have no usable photo in .*c1 \(harbour\)"):
        finetune(root, tmp_path / "x.safetensors", label_space=labels, **TINY)
    assert not (tmp_path / "x.safetensors.run").exists()


def test_a_folder_of_other_classes_or_of_nothing_is_refused(
    tiles: Path, labels: str, tmp_path: Path
) -> None:
    output = tmp_path / "x.safetensors"
    with pytest.raises(UsageError, match=r"'c0'.*none of its 3 folders is a class of imagenet-a"):
        finetune(tiles, output, label_space="imagenet-a", **TINY)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"holds no photos in folders named by a class of three"):
        finetune(tmp_path / "empty", output, label_space=labels, **TINY)
    with pytest.raises(UsageError, match=r"is not a folder"):
        finetune(tiles / "c0" / "00.png", output, label_space=labels, **TINY)
    with pytest.raises(UsageError, match=r"the class folders are one level down"):
        finetune(tiles.parent, output, label_space=labels, **TINY)


def test_weights_that_need_code_or_are_damaged_begin_nothing(
    tiles: Path, labels: str, made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    class Attack:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path / 'ran'}",)

    torch.save({"fc.weight": Attack()}, tmp_path / "code.pt")
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(made[0].read_bytes()[:-1000])
    arch = "?arch=torchvision/resnet18"
    recipe = {**TINY, "init": "pretrained", "label_space": labels}
    for name, told in (
        (f"code.pt{arch}", "needs pickled code"),
        ("damaged.safetensors", "is damaged or no file of weights"),
        (f"damaged.safetensors{arch}", "is damaged or no file of weights"),
    ):
        call = {**recipe, "model": f"checkpoint/{tmp_path / name}"}
        with pytest.raises(WeightsError, match=told):
            finetune(tiles, tmp_path / "x.safetensors", **call)
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "x.safetensors.run").exists()


def test_absent_weights_say_what_to_put_where(
    tiles: Path, labels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    with pytest.raises(WeightsError, match=r"save https?://.*shufflenetv2.* as .*torch/hub"):
        call = {**TINY, "init": "pretrained"}
        finetune(tiles, tmp_path / "x.safetensors", label_space=labels, **call)


def test_a_loss_that_is_no_number_stops_with_one_line_and_overwrites_nothing(
    tiles: Path, labels: str, made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    output = tmp_path / "x.safetensors"
    shutil.copy(made[0], output)
    shutil.copy(f"{made[0]}.json", f"{output}.json")
    call = {**TINY, "lr": 100.0, "epochs": 30, "warmup": 0.0, "label_space": labels}
    with pytest.raises(
        CurateError, match=r"no number at step \d+ of epoch \d+.*--lr 100"
    ) as caught:
        finetune(tiles, output, force=True, **call)
    assert caught.value.exit_code == 1
    assert same(output, made[0])
    # With a lower rate it begins anew, and not from what diverged.
    summary = finetune(tiles, output, force=True, label_space=labels, **{**TINY, "lr": 0.04})
    assert summary["settings"]["lr"] == 0.04
    assert not same(output, made[0])


def test_another_output_is_not_overwritten(
    tiles: Path, labels: str, made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    output = tmp_path / "x.safetensors"
    save_file({"a": torch.zeros(2)}, output)
    foreign = output.read_bytes()
    call = {**TINY, "label_space": labels}
    with pytest.raises(UsageError, match=r"x\.safetensors is not of this run: choose another"):
        finetune(tiles, output, **call)
    assert output.read_bytes() == foreign
    shutil.copy(made[0], output)
    shutil.copy(f"{made[0]}.json", f"{output}.json")
    with pytest.raises(UsageError, match=r"was made with epochs 2, not 3: choose another --output"):
        finetune(tiles, output, **{**call, "epochs": 3})
    fewer = shutil.copytree(tiles, tmp_path / "fewer")
    (fewer / "c0" / "00.png").unlink()
    with pytest.raises(UsageError, match="was made from other photos"):
        finetune(fewer, output, **call)
    assert same(output, made[0])
    output.unlink()
    Path(f"{output}.json").write_text('{"settings": "my own notes"}')
    with pytest.raises(UsageError, match=r"x\.safetensors\.json is in the place of the record"):
        finetune(tiles, output, **call)


def test_a_table_that_is_called_as_a_preset_is_refused_before_the_first_photo(
    tiles: Path, labels: str, tmp_path: Path
) -> None:
    table = shutil.copy(labels, tmp_path / "imagenet-a")
    with pytest.raises(LabelSpaceError, match="its 3 classes are not those of imagenet-a"):
        finetune(tiles, tmp_path / "x.safetensors", label_space=str(table), **TINY)
    assert [path.name for path in tmp_path.iterdir()] == ["imagenet-a"]


def test_a_second_command_for_the_same_output_names_the_first(
    tiles: Path, labels: str, tmp_path: Path
) -> None:
    output = tmp_path / "x.safetensors"
    folder = tmp_path / "x.safetensors.run"
    folder.mkdir()
    with (
        hold(folder / "finetune", "curate models finetune"),
        pytest.raises(BusyError, match=r"curate models finetune \(process \d+.*holds .*x\.safe"),
    ):
        finetune(tiles, output, label_space=labels, **TINY)


def test_a_full_disk_is_one_line_and_the_run_goes_on_later(
    tiles: Path,
    labels: str,
    made: tuple[Path, dict[str, Any]],
    tmp_path: Path,
) -> None:

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    output = tmp_path / "x.safetensors"
    try:
        # The state is larger than this, and what begins the run is not.
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
        with pytest.raises(StorageError, match=r"the disk is full while writing .*state\.safe"):
            finetune(tiles, output, label_space=labels, **TINY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert not output.exists()
    assert not list((tmp_path / "x.safetensors.run").glob(".partial-*"))
    finetune(tiles, output, label_space=labels, **TINY)
    assert same(output, made[0])


@pytest.mark.parametrize("becomes", ["absent", "another photo"])
def test_a_photo_that_changes_meanwhile_is_told_and_the_run_goes_on_when_it_is_back(
    tiles: Path,
    labels: str,
    made: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    becomes: str,
) -> None:
    root = shutil.copytree(tiles, tmp_path / "tiles")
    output, lost = tmp_path / "x.safetensors", root / "c1" / "03.png"
    save = states.save

    def after(*args: Any) -> None:
        save(*args)
        lost.rename(tmp_path / "lost.png")
        if becomes != "absent":
            shutil.copy(root / "c2" / "05.png", lost)
        monkeypatch.setattr(states, "save", save)

    monkeypatch.setattr(states, "save", after)
    with pytest.raises(CurateError, match=r"c1/03\.png is not what it was when the run began"):
        finetune(root, output, label_space=labels, **TINY)
    with pytest.raises(UsageError, match="began with other photos: bring them back"):
        finetune(root, output, label_space=labels, **TINY)
    (tmp_path / "lost.png").replace(lost)
    finetune(root, output, label_space=labels, **TINY)
    assert same(output, made[0])


def test_a_damaged_state_is_told(
    tiles: Path, labels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, save = tmp_path / "x.safetensors", states.save

    def once(*args: Any) -> None:
        save(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(states, "save", once)
    with pytest.raises(KeyboardInterrupt):
        finetune(tiles, output, label_space=labels, **TINY)
    monkeypatch.setattr(states, "save", save)
    state = tmp_path / "x.safetensors.run" / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-100])
    with pytest.raises(StorageError, match=r"state\.safetensors is damaged .*delete"):
        finetune(tiles, output, label_space=labels, **TINY)
    # Other settings, with and without force.
    with pytest.raises(UsageError, match=r"holds an unfinished run with lr 0\.05, not 0\.06"):
        finetune(tiles, output, label_space=labels, **{**TINY, "lr": 0.06})
    summary = finetune(tiles, output, label_space=labels, force=True, **{**TINY, "lr": 0.06})
    assert summary["settings"]["lr"] == 0.06
    assert not (tmp_path / "x.safetensors.run").exists()


# Kills and interrupts, in processes of their own.


def command(tiles: Path, labels: str, output: Path, *more: str) -> list[str | Path]:
    return [
        "models",
        "finetune",
        tiles,
        *("--label-space", labels),
        *("--output", output),
        *("--model", str(TINY["model"])),
        *("--init", "none", "--image-size", "32", "--epochs", "2", "--batch-size", "8"),
        *("--lr", "0.05", "--backbone", "1", "--device", "cpu"),
        *more,
    ]


def files_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.slow
def test_killed_while_it_learns_it_goes_on_and_ends_in_the_same_bytes(
    tiles: Path, labels: str, made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    output = tmp_path / "tiny.safetensors"
    # After the verdicts, before the first epoch's state, after it, and after the second one's.
    kills = ["replace:2", "replace:5", "replace:2", "replace:3"]
    killed_until_done(command(tiles, labels, output), kills)
    assert same(output, made[0])
    assert same(Path(f"{output}.json"), Path(f"{made[0]}.json"))
    assert files_of(tmp_path) == ["tiny.safetensors", "tiny.safetensors.json"]


@pytest.mark.thorough
@pytest.mark.slow
def test_killed_while_it_publishes_it_ends_in_the_same_bytes_and_leaves_nothing(
    tiles: Path,
    labels: str,
    made: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    output = tmp_path / "tiny.safetensors"
    with monkeypatch.context() as patch:
        patch.setattr("pipelines.finetune_place.Place.publish", killed)
        with pytest.raises(KeyboardInterrupt):
            finetune(tiles, output, label_space=labels, **TINY)
    run = command(tiles, labels, output)
    # Between the two renames that publish, after both, and while what led to them is removed.
    assert dying(*run, at="replace:6") is None
    assert files_of(tmp_path) == ["tiny.safetensors", "tiny.safetensors.run"]
    assert dying(*run, at="replace:8") is None
    assert files_of(tmp_path)[1:] == ["tiny.safetensors.json", "tiny.safetensors.run"]
    killed_until_done(run, ["unlink:3"])
    assert same(output, made[0])
    assert same(Path(f"{output}.json"), Path(f"{made[0]}.json"))
    assert files_of(tmp_path) == ["tiny.safetensors", "tiny.safetensors.json"]


@pytest.mark.thorough
@pytest.mark.slow
def test_the_kills_find_a_state_that_is_not_written_atomically(
    tiles: Path, labels: str, tmp_path: Path
) -> None:
    output = tmp_path / "tiny.safetensors"
    run = command(tiles, labels, output)
    assert dying("--fault", "direct", *run, at="half:3") is None
    done = run_curate(*run, expect=1)
    assert "state.safetensors is damaged" in done.stderr


@pytest.mark.thorough
@pytest.mark.slow
def test_an_interrupt_stops_within_an_epoch_and_the_same_command_goes_on(
    tiles: Path, labels: str, tmp_path: Path
) -> None:
    whole, output = tmp_path / "whole.safetensors", tmp_path / "stopped.safetensors"
    longer = ("--epochs", "12", "--batch-size", "4")
    run_curate(*command(tiles, labels, whole, *longer))
    process = subprocess.Popen(
        [sys.executable, "-m", "curate", *map(str, command(tiles, labels, output, *longer))],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("epoch 2 "):
            process.send_signal(signal.SIGINT)
            break
    told = process.stderr.read()
    assert process.wait(timeout=PATIENCE) == 130
    assert "the same command goes on from there" in told
    step = states.read_numbers(tmp_path / "stopped.safetensors.run" / "state.safetensors")["step"]
    assert 14 <= step < 84
    done = run_curate(*command(tiles, labels, output, *longer))
    assert f"going on after step {step} of 84" in done.stderr
    assert same(whole, output)
