"""`curate.filter_images`: the filter without a workspace."""

from __future__ import annotations

from pathlib import Path

import pytest

import curate
from curate.errors import UnknownNameError


@pytest.fixture(scope="module")
def ensemble() -> curate.Ensemble:
    return curate.Ensemble(["lite/efficientnet_lite0"])


def test_verdicts_come_in_the_order_of_the_input_and_a_bad_file_fails_alone(
    ensemble: curate.Ensemble, package_photos: list[tuple[Path, int]], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"<html>")
    eagle, dog = package_photos[17][0], package_photos[0][0]
    paths = [eagle, bad, eagle, tmp_path / "absent.jpg", dog]
    labels = ["bald eagle", "dragonfly", "dragonfly", "dragonfly", "n02268443"]
    result = curate.filter_images(paths, labels, ensemble)
    told = [(v.outcome, v.reason) for v in result.verdicts]
    assert told == [
        ("removed", "correct"),
        ("failed", "not-an-image"),
        ("survivor", None),
        ("failed", "missing"),
        ("survivor", None),
    ]
    assert sorted(result.shortlist) == [2, 4]
    assert result.verdicts[2].predicted == result.label_space.position("n01614925")
    assert curate.filter_images(paths, labels, ensemble, cap=1).shortlist == result.shortlist
    assert curate.filter_images(paths, labels, ensemble, threshold=0.0).shortlist == []


def test_wrong_arguments_are_value_errors_and_unknown_classes_name_the_nearest(
    ensemble: curate.Ensemble, package_photos: list[tuple[Path, int]]
) -> None:
    path = package_photos[0][0]
    with pytest.raises(ValueError, match="1 paths, but 2 labels"):
        curate.filter_images([path], ["dragonfly"] * 2, ensemble)
    with pytest.raises(ValueError, match="threshold"):
        curate.filter_images([path], ["dragonfly"], ensemble, threshold=1.5)
    with pytest.raises(ValueError, match="cap"):
        curate.filter_images([path], ["dragonfly"], ensemble, cap=0)
    with pytest.raises(ValueError, match="there are no paths"):
        curate.filter_images([], [], ensemble)
    with pytest.raises(ValueError, match="dragonfly") as caught:
        curate.filter_images([path], ["dragonfli"], ensemble)
    assert isinstance(caught.value, UnknownNameError)


def test_the_ensemble_brings_its_label_space_and_names_will_do(
    package_photos: list[tuple[Path, int]],
) -> None:
    eagle = package_photos[17][0]
    names = ["lite/efficientnet_lite0"]
    assert curate.filter_images([eagle], ["dragonfly"], names).label_space.name == "imagenet-1k"
    for ensemble, space in (
        (curate.Ensemble(names, "imagenet-a"), None),
        (names, "imagenet-a"),
        (curate.Ensemble(names), "imagenet-a"),
    ):
        result = curate.filter_images([eagle], ["dragonfly"], ensemble, label_space=space)
        assert result.label_space.name == "imagenet-a"


def test_public_names_are_there_and_importing_is_light() -> None:
    import subprocess
    import sys

    for name in curate.__all__:
        assert getattr(curate, name) is not None
    code = "import curate, sys; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="absent"):
        curate.absent  # noqa: B018
