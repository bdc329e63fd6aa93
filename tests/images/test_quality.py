"""Numbers of a picture's quality, and the flags that follow from them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFilter

from curate.choices import QUALITY_FLAGS
from curate.images.decode import decode
from curate.images.quality import Quality, flags, measure
from curate.settings import QualitySettings

DEFAULTS = QualitySettings()


@pytest.fixture(scope="module")
def pictures(package_photos: list[tuple[Path, int]]) -> list[Image.Image]:
    found = []
    for path, _ in package_photos:
        with Image.open(path) as image:
            found.append(image.convert("RGB"))
    return found


def flagged(image: Image.Image) -> tuple[str, ...]:
    return flags(measure(image), DEFAULTS)


def scaled(image: Image.Image, gain: float) -> Image.Image:
    return image.point([round(level * gain) for level in range(256)] * 3)


def blurred(image: Image.Image, pixels: float) -> Image.Image:
    """Blurred by so many pixels at a short side of 256."""
    return image.filter(ImageFilter.GaussianBlur(pixels * max(1, min(image.size) / 256)))


def test_real_photos_have_no_flags(pictures: list[Image.Image]) -> None:
    assert [flagged(picture) for picture in pictures] == [()] * len(pictures)


def test_each_flag_catches_what_it_is_named_after(pictures: list[Image.Image]) -> None:
    for picture in pictures:
        assert flagged(picture.resize((150, 200))) == ("small",)
        assert "dark" in flagged(scaled(picture, 0.1))
        bright = picture.point([245 + level // 26 for level in range(256)] * 3)
        assert {"bright", "uniform"} <= set(flagged(bright))
        assert "blurred" in flagged(blurred(picture, 2))
        assert "blurred" in flagged(picture.resize((60, 60)).resize(picture.size))
        strip = picture.resize((800, 600)).crop((0, 0, 800, 300))
        assert "odd-aspect" in flagged(strip)
        assert "odd-aspect" in flagged(strip.transpose(Image.Transpose.ROTATE_90))
        lost = Image.new("RGB", picture.size, (250, 250, 250))
        lost.paste(picture.resize((60, 60)), (40, 40))
        assert "uniform" in flagged(lost)


def test_a_picture_smeared_in_one_direction_is_blurred(pictures: list[Image.Image]) -> None:
    """As a moving camera does; the other direction stays sharp."""
    for picture in pictures[:5]:
        wide, tall = picture.size
        for narrow in ((wide // 8, tall), (wide, tall // 8)):
            assert "blurred" in flagged(picture.resize(narrow).resize(picture.size))


def test_the_numbers_are_those_of_the_grey_picture() -> None:
    """A chequerboard in two tones, worked out by hand."""
    board = np.indices((200, 180)).sum(axis=0) % 2
    image = Image.fromarray(np.repeat((50 + 100 * board)[..., None], 3, axis=2).astype(np.uint8))
    quality = measure(image)
    assert (quality.width, quality.height) == (180, 200)
    assert quality.brightness == round(100 / 255, 4)
    assert quality.contrast == round(50 / 255, 4)
    assert quality.one_tone == 0.5
    # Neighbours differ by 100, their means over three pixels by 100/3; halved, nothing is left.
    assert quality.sharpness == 0.0


def test_sharpness_is_that_of_the_plain_formula(pictures: list[Image.Image]) -> None:
    """Means over three pixels computed as such, on a picture that is not reduced first."""
    grey = np.asarray(pictures[0].convert("L").crop((0, 0, 240, 200)), float)
    halved = grey.reshape(100, 2, 120, 2).mean(axis=(1, 3))
    found = []
    for picture in (grey, grey.T, halved, halved.T):
        mean = np.apply_along_axis(np.convolve, 0, picture, np.ones(3) / 3, "valid")
        plain, soft = (np.abs(np.diff(values, axis=0)) for values in (picture[1:-1], mean))
        found.append(np.maximum(plain - soft, 0).sum() / plain.sum())
    crop = pictures[0].crop((0, 0, 240, 200))
    assert measure(crop).sharpness == pytest.approx(min(found), abs=5e-5)


def test_size_hardly_changes_the_numbers(pictures: list[Image.Image]) -> None:
    for picture in pictures:
        small = measure(picture.resize((256, 256), Image.Resampling.BOX))
        large = measure(picture.resize((1024, 1024), Image.Resampling.BICUBIC))
        assert small.brightness == pytest.approx(large.brightness, abs=0.01)
        assert small.contrast == pytest.approx(large.contrast, abs=0.01)
        assert small.sharpness == pytest.approx(large.sharpness, abs=0.15)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 19), st.floats(0.5, 4), st.floats(1.25, 2))
def test_more_blur_is_never_sharper_nor_richer_in_contrast(
    pictures: list[Image.Image], which: int, pixels: float, times: float
) -> None:
    plain = measure(pictures[which])
    soft, softer = (measure(blurred(pictures[which], p)) for p in (pixels, pixels * times))
    assert plain.sharpness > soft.sharpness
    # Rounding to whole grey levels passes for detail once nothing else is left.
    assert soft.sharpness > softer.sharpness - 0.02
    assert plain.contrast >= soft.contrast >= softer.contrast


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 19), st.floats(0.1, 1), st.floats(0.1, 1))
def test_less_light_is_never_brighter(
    pictures: list[Image.Image], which: int, gain: float, more: float
) -> None:
    dark, darker = (measure(scaled(pictures[which], g)) for g in (gain, gain * more))
    assert measure(pictures[which]).brightness >= dark.brightness >= darker.brightness
    assert dark.contrast >= darker.contrast - 0.002


def test_less_light_does_not_pass_for_blur(pictures: list[Image.Image]) -> None:
    """As it would with the variance of the Laplacian, the most used measure."""
    for picture in pictures:
        dim = measure(scaled(picture, 0.3)).sharpness
        assert dim == pytest.approx(measure(picture).sharpness, abs=0.06)


sizes = st.tuples(st.integers(1, 40), st.integers(1, 40))


@settings(max_examples=50, deadline=None)
@given(sizes, st.integers(0, 2**32 - 1))
def test_any_picture_has_numbers_within_their_ranges(size: tuple[int, int], seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    quality = measure(Image.fromarray(pixels))
    assert (quality.height, quality.width) == size
    assert quality.aspect >= 1
    for value in (quality.brightness, quality.one_tone, quality.sharpness, 2 * quality.contrast):
        assert 0 <= value <= 1


def test_flat_and_tiny_pictures_do_not_divide_by_zero() -> None:
    for size in ((1, 1), (3, 300), (300, 3), (300, 300)):
        quality = measure(Image.new("RGB", size, (128, 128, 128)))
        assert (quality.contrast, quality.one_tone, quality.sharpness) == (0, 1, 0)


def test_what_is_stored_gives_the_same_quality_back(pictures: list[Image.Image]) -> None:
    quality = measure(pictures[0])
    stored = json.loads(json.dumps(quality.to_dict()))
    assert Quality.from_dict(stored) == quality
    assert all(len(str(value)) <= 6 for value in stored.values())


def test_numbers_of_another_version_count_as_none(pictures: list[Image.Image]) -> None:
    stored = measure(pictures[0]).to_dict()
    assert Quality.from_dict(None) is None
    assert Quality.from_dict(stored | {"colourfulness": 0.5}) is None
    assert Quality.from_dict({k: v for k, v in stored.items() if k != "sharpness"}) is None


def test_flags_follow_the_settings_and_keep_their_order() -> None:
    quality = Quality(1000, 100, 0.05, 0.01, 0.99, 0.1)
    assert flags(quality, DEFAULTS) == ("small", "uniform", "dark", "blurred", "odd-aspect")
    none = QualitySettings(
        small_below=0,
        contrast_below=0,
        one_tone_above=1,
        dark_below=0,
        bright_above=1,
        blurred_below=0,
        aspect_above=100,
    )
    assert flags(quality, none) == ()
    every = none.model_copy(update={"bright_above": 0.01, "small_below": 101})
    assert set(flags(quality, every)) == {"small", "bright"} <= set(QUALITY_FLAGS)


def test_only_rgb_is_measured(photo: Image.Image) -> None:
    with pytest.raises(ValueError, match="mode RGB, got L"):
        measure(photo.convert("L"))


@pytest.mark.slow
@pytest.mark.photos
def test_the_default_limits_flag_the_shares_that_are_told(real_photos: list[Path]) -> None:
    found = [flagged(decode(path.read_bytes())[0]) for path in real_photos]
    shares = {f: sum(f in of_one for of_one in found) / len(found) for f in QUALITY_FLAGS}
    assert {flag: round(100 * share, 1) for flag, share in shares.items()} == {
        "small": 5.3,
        "uniform": 0.3,
        "dark": 0.7,
        "bright": 1.6,
        "blurred": 0.5,
        "odd-aspect": 2.9,
    }
