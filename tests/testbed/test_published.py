from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from curate.labels.space import load_label_space
from curate.testbed.published import AGREES, published_beside, published_numbers, took_part

A, OUTLIERS = load_label_space("imagenet-a"), load_label_space("imagenet-o")
NAME = "0.000348_chameleon _ box turtle_0.55540705.jpg"


def like_imagenet_a(images: int = 7500, name: str = NAME) -> tuple[list[str], list[str]]:
    wnids = [A.wnids[row % 200] for row in range(images)]
    return [f"{wnid}/{name}" for wnid in wnids], wnids


def beside(model: str, paths: list[str], wnids: list[str], **options: Any) -> Any:
    return published_beside(model, paths, wnids, A, **options)


def rows(model: str) -> list[tuple[str, float, str]]:
    told = beside(model, *like_imagenet_a())
    return [(row["model"], row["value"], row["relation"]) for row in told["rows"]]


def test_the_numbers_are_those_that_were_published() -> None:
    numbers = {(n.model, n.dataset): n for n in published_numbers()}
    assert numbers["ResNet-50", "imagenet-a"].value == 0.0217
    assert numbers["ResNet-50", "imagenet-o"].value == 0.162
    assert numbers["DeiT-base", "imagenet-a"].value == 0.282
    assert "0 %" in numbers["ResNet-50", "imagenet-a"].note
    for number in published_numbers():
        assert 0.0 <= number.value <= 1.0
        assert (
            number.measure == {"imagenet-a": "accuracy", "imagenet-o": "aupr_msp"}[number.dataset]
        )
        assert number.source


def test_timms_table_is_whole(shared_data: Path) -> None:
    with (shared_data / "timm_imagenet_a.csv").open(newline="") as stream:
        expected = [
            (row["model"], round(float(row["imagenet_a_top1"]) / 100, 6))
            for row in csv.DictReader(stream)
        ]
    told = [(n.model, n.value) for n in published_numbers() if n.source.startswith("timm")]
    assert told == expected


@pytest.mark.slow
@pytest.mark.thorough
def test_every_name_that_a_number_is_known_by_is_of_the_zoo() -> None:
    import timm
    import torchvision

    known = {f"timm/{name}" for name in timm.list_models()}
    known |= {f"torchvision/{name}" for name in torchvision.models.list_models()}
    for number in published_numbers():
        assert set(number.names) <= known, number.model


def test_a_model_has_the_papers_row_of_its_architecture_and_timms_of_its_name() -> None:
    assert rows("torchvision/resnet50:IMAGENET1K_V2") == [
        ("ResNet-50", 0.0217, "same architecture")
    ]
    assert rows("lite/efficientnet_lite0") == [("ResNet-50", 0.0217, "reference")]
    found = rows("timm/resnet18.a1_in1k")
    assert found[0] == ("ResNet-18", 0.0115, "same architecture")
    assert ("ResNet-50", 0.0217, "reference") in found
    assert {row[2] for row in found[2:]} == {"same name"}
    assert {row[0] for row in found[2:]} == {"resnet18.a1_in1k"}


def test_what_agrees_is_told_and_not_called_verified() -> None:
    told = beside("timm/vgg16", *like_imagenet_a())
    assert told["dataset"] == "ImageNet-A"
    assert told["agreement"] == AGREES
    assert "7,500 images" in told["evidence"]
    assert any("not compared" in one for one in told["evidence"])
    assert "verified" not in " ".join(told["evidence"])


def test_other_sets_have_no_published_numbers() -> None:
    paths, wnids = like_imagenet_a()
    assert beside("m", paths[:-1], wnids[:-1]) is None
    assert beside("m", *like_imagenet_a(name="3f2a.jpg")) is None
    assert beside("m", paths, [A.wnids[0]] * 7500) is None
    assert beside("m", paths, wnids, release=True) is None
    assert beside("m", paths, wnids, kind="ood") is None
    assert published_beside("m", paths, wnids, load_label_space("imagenet-1k")) is None


def test_imagenet_o_is_known_by_its_classes_and_its_size() -> None:
    wnids = [OUTLIERS.wnids[row % 200] for row in range(2000)]
    paths = [f"{wnid}/x{row}.jpg" for row, wnid in enumerate(wnids)]
    inside = [wnid for wnid in OUTLIERS.wnids for _ in range(50)]
    told = published_beside("torchvision/vgg16", paths, wnids, OUTLIERS, kind="ood", inside=inside)
    assert told is not None
    assert [(r["model"], r["measure"], r["value"]) for r in told["rows"]] == [
        ("VGG-16", "aupr_msp", 0.1658),
        ("ResNet-50", "aupr_msp", 0.162),
    ]
    assert published_beside("m", paths, wnids, OUTLIERS) is None
    assert published_beside("m", paths, wnids, A, kind="ood", inside=inside) is None
    for other in ([], inside[:-1], [*inside[:-1], inside[0]], ["" for _ in inside], inside * 2):
        beside_others = published_beside("m", paths, wnids, OUTLIERS, kind="ood", inside=other)
        assert beside_others is None, "AUPR depends on the other side"


@pytest.mark.parametrize(
    "name",
    [
        "0.000348_chameleon _ box turtle_0.55540705.jpg",
        "0.0_digital clock _ digital clock_0.865.JPG",
        "0.12_a_b _ c_1.0.png",
    ],
)
def test_names_in_the_form_of_imagenet_a_are_known(name: str) -> None:
    assert beside("m", *like_imagenet_a(name=name)) is not None


def test_the_filter_of_imagenet_a_is_known_by_its_weights() -> None:
    from torchvision.models import ResNet50_Weights

    told = beside("m", *like_imagenet_a())
    for weights, is_filter in zip(ResNet50_Weights, (True, False), strict=True):
        begins = weights.url.rpartition("-")[2].removesuffix(".pth")
        assert took_part(told, begins + "0" * 56) is is_filter
    assert not took_part(None, "0676ba61" + "0" * 56)
    assert not took_part({**told, "dataset": "ImageNet-O"}, "0676ba61" + "0" * 56)
