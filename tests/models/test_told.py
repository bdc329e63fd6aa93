from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from curate.errors import LabelSpaceError, UsageError, WeightsError
from curate.files import sha256_file
from curate.images.views import ViewRecipe
from curate.labels.space import LabelClass, LabelSpace, load_label_space
from curate.models import Preprocessing, load_classifier
from curate.models.checkpoint import build, rooted
from curate.models.classifier import public_name
from curate.models.told import Told, read_told

NET = "torchvision/shufflenet_v2_x0_5"
PREPROCESSING = Preprocessing(
    ViewRecipe(80, 64, "bicubic"), (0.5, 0.4, 0.3), (0.2, 0.2, 0.1), "by hand", ("a note",)
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def state() -> dict[str, torch.Tensor]:
    return build(NET, 200).module.state_dict()


@pytest.fixture
def told() -> Told:
    return Told(NET, load_label_space("imagenet-a"), PREPROCESSING, "0123456789ab")


@pytest.fixture
def saved(tmp_path: Path, state: dict[str, torch.Tensor], told: Told) -> Path:
    save_file(state, tmp_path / "my.safetensors", told.metadata())
    return tmp_path / "my.safetensors"


def test_the_path_alone_is_enough(saved: Path) -> None:
    one = load_classifier(f"checkpoint/{saved}", "imagenet-a")
    assert one.architecture == NET
    assert one.output is load_label_space("imagenet-a")
    assert one.preprocessing == PREPROCESSING
    assert one.fingerprint == sha256_file(saved)
    assert one.record()["name"] == "checkpoint/my.safetensors"


@pytest.mark.parametrize(
    "query",
    [
        f"arch={NET}",
        f"arch={NET}:IMAGENET1K_V1",
        "labels=imagenet-a",
        f"arch={NET}&labels=imagenet-a",
    ],
)
def test_a_name_that_agrees_says_it_once_more(saved: Path, query: str) -> None:
    one = load_classifier(f"checkpoint/{saved}?{query}", "imagenet-a")
    assert one.preprocessing == PREPROCESSING


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        ("arch=torchvision/resnet18", WeightsError, f"tells arch={NET}, the name says arch=torch"),
        ("arch=timm/resnet18", WeightsError, "the name says arch=timm/resnet18; leave it out"),
        ("labels=imagenet-o", LabelSpaceError, "tells labels=imagenet-a .200 classes., the name"),
        ("labels=imagenet-1k", LabelSpaceError, "the name says other ones or another order"),
    ],
)
def test_a_name_that_contradicts_the_file_is_refused(
    saved: Path, query: str, error: type[UsageError], message: str
) -> None:
    with pytest.raises(error, match=message):
        load_classifier(f"checkpoint/{saved}?{query}", None)


def test_lite_and_its_name_in_timm_are_one_network(tmp_path: Path) -> None:
    space = LabelSpace("two.csv", [LabelClass("a", "one"), LabelClass("b", "two", column=3)])
    told = Told("lite/efficientnet_lite0", space, PREPROCESSING, "0123456789ab")
    path = tmp_path / "lite.safetensors"
    save_file(build("lite/efficientnet_lite0", 2).module.state_dict(), path, told.metadata())
    one = load_classifier(f"checkpoint/{path}?arch=timm/tf_efficientnet_lite0", space)
    assert [item.name for item in one.output] == ["one", "two"]
    assert one.output.fingerprint == space.fingerprint
    assert one.preprocessing.mean == (0.5, 0.4, 0.3)


def test_a_file_of_another_program_still_needs_its_architecture(
    tmp_path: Path, state: dict[str, torch.Tensor]
) -> None:
    path = tmp_path / "plain.safetensors"
    save_file(state, path, {"format": "pt"})
    with pytest.raises(UsageError, match=r"lacks its architecture: write checkpoint/PATH\?arch="):
        load_classifier(f"checkpoint/{path}", None)
    with pytest.raises(WeightsError, match=r"none\.safetensors: no such file of weights"):
        load_classifier(f"checkpoint/{tmp_path / 'none.safetensors'}", None)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(WeightsError, match=r"plain\.safetensors is damaged or no file of weights"):
        load_classifier(f"checkpoint/{path}", None)


def changed(told: Told, change: Any) -> dict[str, str]:
    record = json.loads(told.metadata()["curate"])
    change(record)
    return {"curate": json.dumps(record)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(format=2), "not understood: format: input should be 1"),
        (lambda r: r.pop("labels"), "not understood: labels: field required"),
        (lambda r: r.update(more=1), "not understood: more: extra inputs"),
        (lambda r: r["preprocessing"].update(crop=10**9), r"preprocessing\.crop: input should be"),
        (lambda r: r["preprocessing"].update(crop=90), "90 pixels does not fit a photo resized"),
        (lambda r: r["preprocessing"].update(interpolation="x"), "unknown interpolation 'x'"),
        (lambda r: r["preprocessing"].update(std=[1, 0, 1]), r"preprocessing\.std\.1"),
        (lambda r: r["preprocessing"].update(mean=[0.5, float("nan"), 0.5]), "mean.1"),
        (lambda r: r.update(architecture="a\nb"), "not understood: architecture"),
        (lambda r: r.update(architecture="x" * 501), "not understood: architecture"),
        (lambda r: r["labels"]["classes"].clear(), "not understood: labels.classes"),
        (lambda r: r["labels"]["classes"].pop(), "its 199 classes are not those of imagenet-a"),
        (lambda r: r["labels"]["classes"][0].update(wnid="../x"), "id '../x' is unusable"),
        (lambda r: r.update(architecture="checkpoint/x.pt"), "unknown model"),
        (lambda r: r.update(architecture="torchvision/none"), "unknown model"),
    ],
)
def test_what_a_hostile_file_tells_is_refused_in_one_line(
    tmp_path: Path, state: dict[str, torch.Tensor], told: Told, change: Any, message: str
) -> None:
    path = tmp_path / "hostile.safetensors"
    save_file(state, path, changed(told, change))
    with pytest.raises(UsageError, match=message) as caught:
        load_classifier(f"checkpoint/{path}", None)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"format": 1}'])
def test_metadata_that_are_no_record_are_refused(
    tmp_path: Path, state: dict[str, torch.Tensor], text: str
) -> None:
    path = tmp_path / "hostile.safetensors"
    save_file(state, path, {"curate": text})
    with pytest.raises(WeightsError, match="what it tells of itself is not understood"):
        read_told(path)


def test_outputs_other_than_the_told_labels_are_refused(
    tmp_path: Path, told: Told, state: dict[str, torch.Tensor]
) -> None:
    path = tmp_path / "less.safetensors"
    less = {k: v[:150].clone() if k.startswith("fc.") else v for k, v in state.items()}
    save_file(less, path, told.metadata())
    with pytest.raises(LabelSpaceError, match="150 outputs, but labels=imagenet-a has 200"):
        load_classifier(f"checkpoint/{path}", None)


def test_names_without_a_query_are_rooted_and_told_without_folders(tmp_path: Path) -> None:
    assert rooted("checkpoint/w/my.safetensors", tmp_path) == (
        f"checkpoint/{tmp_path / 'w' / 'my.safetensors'}"
    )
    assert public_name(f"checkpoint/{tmp_path}/what?/my.safetensors") == "checkpoint/my.safetensors"
