"""What classes and classifiers are called on a page."""

from __future__ import annotations

import pytest

from curate.labels.concepts import load_concepts
from curate.labels.space import PRESETS, load_label_space
from curate.models.classifier import public_name
from curate.report.naming import display_names, short_names


@pytest.mark.parametrize("preset", PRESETS)
def test_no_two_classes_of_a_label_space_have_the_same_name_on_a_page(preset: str) -> None:
    space = load_label_space(preset)
    names = display_names(space)
    assert tuple(names) == space.wnids
    assert len(set(names.values())) == len(space)


def test_classes_of_one_name_are_told_apart_in_words_where_there_are_some() -> None:
    names = display_names(load_label_space("imagenet-1k"))
    assert names["n03126707"] == "construction crane"
    assert names["n02268443"] == "dragonfly"


def test_names_are_told_apart_among_those_that_the_page_speaks_of() -> None:
    space = load_concepts("wordnet")
    fruit, tree = "n07764847", "n11706761"
    assert display_names(space, {fruit}) == {fruit: "avocado"}
    both = display_names(space, {fruit, tree})
    assert both == {fruit: f"avocado ({fruit})", tree: f"avocado ({tree})"}


def test_the_folders_of_a_checkpoint_stay_off_the_page() -> None:
    name = "checkpoint//home/ada/a?b/w.pth?arch=torchvision/resnet50&labels=/home/ada/own.csv"
    assert public_name(name) == "checkpoint/w.pth?arch=torchvision/resnet50&labels=own.csv"
    assert public_name("torchvision/resnet50:IMAGENET1K_V2") == "torchvision/resnet50:IMAGENET1K_V2"


def test_captions_have_short_names_unless_these_would_be_ambiguous() -> None:
    assert short_names(["lite/efficientnet_lite0", "timm/resnet50.a1_in1k"]) == [
        "lite0",
        "resnet50.a1_in1k",
    ]
    assert short_names(["checkpoint/w.pth?arch=timm/resnet18"]) == ["w.pth"]
    assert short_names(["mine.csv"]) == ["mine.csv"]
    both = ["torchvision/resnet50", "timm/resnet50"]
    assert short_names(both) == both
