from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from curate.errors import LabelSpaceError
from curate.labels.space import load_label_space
from curate.models.told_classes import refuse_other_classes

SPACE = load_label_space("imagenet-a")
THOUSAND = load_label_space("imagenet-1k")
ORDER = list(SPACE.wnids)
REVERSED = ORDER[::-1]


@pytest.mark.parametrize(
    "held",
    [
        {},
        {"classes": ORDER},
        {"class_to_idx": {wnid: place for place, wnid in enumerate(ORDER)}},
        {"label2id": {wnid: str(place) for place, wnid in enumerate(ORDER)}},
        {"classes": [f"name {place}" for place in range(200)]},
        {"classes": 200, "class_to_idx": None, "labels": [1, 2], "wnids": "n01440764"},
        {"class_to_idx": {"a": 0, "b": 5}},
        {"classes": []},
    ],
)
def test_what_tells_the_same_or_nothing_passes(held: dict[str, Any]) -> None:
    refuse_other_classes(held, SPACE, "x.pt")


@pytest.mark.parametrize(
    ("held", "fault"),
    [
        ({"classes": REVERSED}, f"output 0 is {REVERSED[0]}, not {ORDER[0]}"),
        ({"class_to_idx": dict(zip(REVERSED, range(200), strict=True))}, "another order"),
        ({"classes": list(THOUSAND.wnids)}, "tells 1000 classes, but imagenet-a has 200"),
        ({"label_names": [*ORDER[:-1], "n00000001"]}, "output 199 is n00000001"),
    ],
)
def test_another_order_is_refused(held: dict[str, Any], fault: str) -> None:
    with pytest.raises(LabelSpaceError, match=rf"x\.pt: .*{fault}.*labels=FILE") as caught:
        refuse_other_classes(held, SPACE, "x.pt")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_checkpoint_with_its_classes_in_another_order_is_refused(tmp_path: Path) -> None:
    import timm
    import torch

    from curate.models.zoo import load_classifier

    module = timm.create_model("resnet18", num_classes=200)
    path = tmp_path / "x.pt"
    name = f"checkpoint/{path}?arch=timm/resnet18.a1_in1k&labels=imagenet-a"
    torch.save({"state_dict": module.state_dict(), "classes": ORDER}, path)
    assert load_classifier(name, "imagenet-a").output.wnids == SPACE.wnids
    torch.save({"state_dict": module.state_dict(), "classes": REVERSED}, path)
    with pytest.raises(LabelSpaceError, match="tells another order of classes than imagenet-a"):
        load_classifier(name, "imagenet-a")


def test_the_zoos_own_order_is_that_of_imagenet_1k() -> None:
    from timm.data import ImageNetInfo
    from torchvision.models import ResNet50_Weights

    assert tuple(ImageNetInfo().label_names()) == THOUSAND.wnids
    for weights in ResNet50_Weights:
        names = weights.meta["categories"]
        known = [name in item.names for name, item in zip(names, THOUSAND, strict=True)]
        # Some are spelt otherwise; none of them is another class's name.
        assert sum(known) > 900
        assert all(
            there or not any(name in item.names for item in THOUSAND)
            for there, name in zip(known, names, strict=True)
        )
