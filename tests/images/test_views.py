"""The ten views, against torchvision, bit for bit."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import CenterCrop, InterpolationMode, Resize, TenCrop

from curate.images import PAPER, VIEW_NAMES, ViewRecipe, resize_short_side, ten_views, view

FILTERS = {
    "nearest": InterpolationMode.NEAREST,
    "box": InterpolationMode.BOX,
    "bilinear": InterpolationMode.BILINEAR,
    "hamming": InterpolationMode.HAMMING,
    "bicubic": InterpolationMode.BICUBIC,
    "lanczos": InterpolationMode.LANCZOS,
}
# torchvision gives the corners first and the centre last, and then the same of the mirrored photo.
CENTRE_FIRST = (4, 0, 1, 2, 3, 9, 5, 6, 7, 8)


def noise(width: int, height: int) -> Image.Image:
    rng = np.random.default_rng(width * 10_000 + height)
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))


def torchvision_views(image: Image.Image, crop: int) -> np.ndarray:
    return np.stack([np.asarray(v) for v in TenCrop(crop)(image)])[list(CENTRE_FIRST)]


@settings(max_examples=120, deadline=None)
@given(
    width=st.integers(1, 400),
    height=st.integers(1, 400),
    resize=st.integers(1, 64),
    share=st.floats(0, 1),
    interpolation=st.sampled_from(sorted(FILTERS)),
)
@example(width=500, height=333, resize=256, share=0.875, interpolation="bilinear")
@example(width=256, height=1000, resize=256, share=0.875, interpolation="bilinear")
@example(width=3, height=2000, resize=9, share=0.5, interpolation="bicubic")
def test_resized_photo_and_views_are_torchvisions(
    width: int, height: int, resize: int, share: float, interpolation: str
) -> None:
    recipe = ViewRecipe(resize, max(1, round(resize * share)), interpolation)
    image = noise(width, height)
    expected = Resize(resize, FILTERS[interpolation])(image)
    resized = resize_short_side(image, recipe)
    np.testing.assert_array_equal(resized, np.asarray(expected))
    assert resized.dtype == np.uint8
    views = ten_views(resized, recipe.crop)
    np.testing.assert_array_equal(views, torchvision_views(expected, recipe.crop))
    for index in range(10):
        np.testing.assert_array_equal(view(resized, index, recipe.crop), views[index])


@pytest.mark.parametrize("size", [(256, 341), (341, 256), (257, 256), (225, 224), (224, 224)])
def test_odd_margins_fall_where_torchvision_puts_them(size: tuple[int, int]) -> None:
    """Half margins round to even, and the mirrored centre is that of the mirrored photo."""
    image = noise(*size)
    views = ten_views(np.asarray(image), 224)
    np.testing.assert_array_equal(views, torchvision_views(image, 224))
    np.testing.assert_array_equal(views[0], np.asarray(CenterCrop(224)(image)))


def test_the_mirrored_centre_is_not_the_mirrored_view_where_the_margin_is_odd() -> None:
    views = ten_views(np.asarray(noise(227, 224)), 224)
    assert (views[5] != views[0][:, ::-1]).any()


def test_a_real_photo_is_cut_as_the_paper_does(photo: Image.Image) -> None:
    resized = resize_short_side(photo, PAPER)
    expected = torchvision_views(Resize(256)(photo), 224)
    np.testing.assert_array_equal(ten_views(resized, PAPER.crop), expected)


def test_a_photo_of_the_right_size_is_unchanged() -> None:
    image = noise(256, 400)
    np.testing.assert_array_equal(resize_short_side(image, PAPER), np.asarray(image))


def test_views_have_their_names_in_order() -> None:
    assert VIEW_NAMES[:2] == ("centre", "top-left")
    assert VIEW_NAMES[5:7] == ("centre mirrored", "top-left mirrored")
    assert len(set(VIEW_NAMES)) == 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((256, 257, "bilinear"), "does not fit"),
        ((256, 0, "bilinear"), "does not fit"),
        ((256, 224, "trilinear"), "unknown interpolation 'trilinear'"),
    ],
)
def test_an_impossible_recipe_is_refused(arguments: tuple[int, int, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ViewRecipe(*arguments)


def test_impossible_views_are_refused() -> None:
    pixels = np.zeros((100, 90, 3), np.uint8)
    for index, crop in ((10, 50), (-1, 50), (0, 91), (0, 0)):
        with pytest.raises(ValueError, match="does not"):
            view(pixels, index, crop)
    with pytest.raises(ValueError, match="mode RGB"):
        resize_short_side(Image.new("L", (300, 300)), PAPER)
