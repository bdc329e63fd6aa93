"""Every corruption beside its published formula, given the same random numbers."""

from __future__ import annotations

import colorsys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from curate.corruptions import EXTRA_NAMES, FURTHER_NAMES, NAMES, SEVERITIES, corrupt
from curate.corruptions.apply import generator
from curate.corruptions.blur import shuffled
from curate.corruptions.catalogue import BUILT_IN
from curate.corruptions.plasma import plasma
from curate.corruptions.spatter import edge_distance, edges
from curate.metrics.corruption import IMAGENET_C
from tests.corruptions import published as formulas
from tests.corruptions.constants import CONSTANTS
from tests.corruptions.published import published

#: Frost has a test of its own: its formula is of pictures.
COMPARED = tuple(name for name in (*NAMES, *EXTRA_NAMES, *FURTHER_NAMES) if name != "frost")


@pytest.fixture(scope="module")
def photo(package_photos: list[tuple[Path, int]]) -> Any:
    with Image.open(package_photos[3][0]) as opened:
        return np.array(opened.convert("RGB").resize((224, 224)))


def compare(image: Any, name: str, severity: int) -> None:
    constants = BUILT_IN[name].constants[severity - 1]
    expected = published(image, name, constants, generator(name, severity, 5))
    away = np.abs(corrupt(image, name, severity, 5).astype(int) - expected)
    # A value next to a whole number may fall on its other side.
    assert away.max() <= 1, f"{name} {severity}"
    assert np.count_nonzero(away) <= max(1, 0.0005 * away.size), f"{name} {severity}"


def test_the_fifteen_are_those_of_the_mean_and_four_are_extra() -> None:
    assert NAMES == IMAGENET_C
    assert EXTRA_NAMES == ("speckle_noise", "gaussian_blur", "spatter", "saturate")


def test_the_constants_are_the_published_ones() -> None:
    # The formulas below are compared with these constants on both sides.
    assert list(CONSTANTS) == [*NAMES, *EXTRA_NAMES]
    for name, told in CONSTANTS.items():
        for ours, theirs in zip(BUILT_IN[name].constants, told, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-12), name


@pytest.mark.parametrize("name", COMPARED)
def test_a_corruption_is_its_published_formula_within_one_grey_level(name: str, photo: Any) -> None:
    part = np.ascontiguousarray(photo[60:111, 40:113])
    for severity in SEVERITIES:
        compare(part, name, severity)


@pytest.mark.parametrize("name", COMPARED)
def test_so_it_is_where_an_image_is_smaller_than_every_kernel(name: str, photo: Any) -> None:
    for height, width, severity in ((1, 1, 2), (2, 3, 3), (19, 1, 5)):
        compare(np.ascontiguousarray(photo[:height, :width]), name, severity)


@pytest.mark.thorough
@pytest.mark.parametrize("name", COMPARED)
def test_so_it_is_at_the_published_size(name: str, photo: Any) -> None:
    for severity in (2, 5):
        compare(photo, name, severity)


def test_the_comparison_sees_a_constant_that_is_a_little_off(photo: Any) -> None:
    part = photo[60:133, 40:151]
    for name, constants in (("brightness", 0.52), ("motion_blur", (20, 14)), ("contrast", 0.07)):
        wrong = published(part, name, constants, generator(name, 5, 5))
        away = np.abs(corrupt(part, name, 5, 5).astype(int) - wrong)
        assert np.count_nonzero(away) > 0.1 * away.size, name


def test_brightness_and_saturation_agree_with_the_standard_library_by_pixel() -> None:
    rng = np.random.default_rng(3)
    image = rng.integers(0, 256, (12, 20, 3), dtype=np.uint8)
    image[0, :8] = np.arange(8)[:, None] * 36
    for severity in SEVERITIES:
        brighter = corrupt(image, "brightness", severity, 0)
        coloured = corrupt(image, "saturate", severity, 0)
        amount = BUILT_IN["brightness"].constants[severity - 1]
        factor, offset = BUILT_IN["saturate"].constants[severity - 1]
        for place in np.ndindex(image.shape[:2]):
            hue, saturation, value = colorsys.rgb_to_hsv(*(int(one) / 255 for one in image[place]))
            wanted = colorsys.hsv_to_rgb(hue, saturation, min(value + amount, 1.0))
            assert np.abs(brighter[place] - 255 * np.array(wanted)).max() <= 1.0
            saturation = min(max(saturation * factor + offset, 0.0), 1.0)
            wanted = colorsys.hsv_to_rgb(hue, saturation, value)
            assert np.abs(coloured[place] - 255 * np.array(wanted)).max() <= 1.0


def test_glass_takes_over_and_does_not_exchange() -> None:
    shape, reach = (30, 41), 4
    places = shuffled(shape, reach, 2, np.random.default_rng(8))
    drawn = np.random.default_rng(8)
    picture = np.arange(30 * 41).reshape(shape)
    exchanged = picture.copy()
    for _ in range(2):
        moves = drawn.integers(-reach, reach, (30 - 2 * reach, 41 - 2 * reach, 2), np.int8)
        for i, h in enumerate(range(30 - reach, reach, -1)):
            for j, w in enumerate(range(41 - reach, reach, -1)):
                other = h + int(moves[i, j, 1]), w + int(moves[i, j, 0])
                picture[h, w] = picture[other]
                exchanged[h, w], exchanged[other] = exchanged[other], exchanged[h, w]
    np.testing.assert_array_equal(places.reshape(shape), picture)
    assert np.unique(places).size < places.size
    # An exchange, which the published code means, would lose nothing.
    assert np.unique(exchanged).size == exchanged.size


def test_the_landscape_is_that_of_the_point_by_point_loop() -> None:
    quick = plasma(np.random.default_rng(4), 64, 1.7)
    plain = formulas.landscape_by_points(64, 1.7, np.random.default_rng(4))
    np.testing.assert_allclose(quick, plain, atol=1e-5)
    assert quick.min() == 0.0
    assert quick.max() == 1.0


def test_edges_and_distances_are_those_of_the_plain_loops() -> None:
    rng = np.random.default_rng(2)
    for sigma in (1.0, 2.0, 4.0):
        liquid = formulas.gaussian(rng.normal(0.65, 0.3, (60, 75)), sigma)
        liquid[liquid < 0.68] = 0
        grey = (liquid * 255).clip(0, 255).astype(np.uint8)
        found = edges(grey)
        np.testing.assert_array_equal(found, formulas.edges(grey))
        assert found.any()
        rows, columns = np.nonzero(found)
        down, right = np.indices(grey.shape)
        far = np.hypot(down[..., None] - rows, right[..., None] - columns).min(axis=2)
        np.testing.assert_allclose(edge_distance(found), np.minimum(far, 20), atol=1e-6)
    np.testing.assert_array_equal(edge_distance(np.zeros((5, 9), bool)), np.full((5, 9), 20.0))


def test_shot_noise_has_poissons_distribution() -> None:
    grey = np.full((400, 400, 3), 90, np.uint8)
    for severity, photons in enumerate(BUILT_IN["shot_noise"].constants, 1):
        counts = np.rint(corrupt(grey, "shot_noise", severity, 1) / 255 * photons).astype(int)
        chances = stats.poisson.pmf(np.arange(photons), 90 / 255 * photons)
        # White is where counting ends.
        chances = np.append(chances, 1 - chances.sum())
        seen = np.bincount(counts.reshape(-1), minlength=photons + 1)
        expected = chances * counts.size
        often = expected > 20
        assert stats.chisquare(seen[often], expected[often], sum_check=False).pvalue > 1e-4
