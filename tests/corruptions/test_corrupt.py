"""`curate.corrupt`: any size, the same bytes from the same seed, and one line for what is wrong."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import curate
from curate.corruptions import SEVERITIES, corrupt, describe, names, seed_of
from curate.corruptions.catalogue import BUILT_IN
from curate.errors import UnknownNameError

RANDOM = tuple(name for name, one in BUILT_IN.items() if one.is_random)


@pytest.fixture(scope="module")
def photo(package_photos: list[tuple[Path, int]]) -> Any:
    with Image.open(package_photos[0][0]) as opened:
        return np.array(opened.convert("RGB").resize((160, 128)))


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(tuple(BUILT_IN)),
    severity=st.sampled_from(SEVERITIES),
    height=st.integers(1, 70),
    width=st.integers(1, 70),
    scale=st.sampled_from(("none", "short-side")),
    seed=st.integers(0, 2**70),
)
def test_any_image_keeps_its_shape_and_gets_the_same_bytes_from_the_same_seed(
    name: str, severity: int, height: int, width: int, scale: Any, seed: int
) -> None:
    image = np.random.default_rng(height).integers(0, 256, (height, width, 3), dtype=np.uint8)
    before = image.copy()
    result = corrupt(image, name, severity, seed, scale=scale)
    assert result.shape == image.shape
    assert result.dtype == np.uint8
    assert not np.shares_memory(result, image)
    np.testing.assert_array_equal(image, before)
    np.testing.assert_array_equal(result, corrupt(image, name, severity, seed, scale=scale))


@pytest.mark.parametrize("name", tuple(BUILT_IN))
def test_only_what_is_random_depends_on_the_seed(name: str, photo: Any) -> None:
    for severity in (1, 5):
        same = np.array_equal(corrupt(photo, name, severity, 1), corrupt(photo, name, severity, 2))
        assert same is (name not in RANDOM)


@pytest.mark.parametrize("value", [0, 255])
@pytest.mark.parametrize("scale", ["none", "short-side"])
def test_black_and_white_images_are_corrupted_without_a_warning(value: int, scale: Any) -> None:
    image = np.full((24, 40, 3), value, np.uint8)
    with np.errstate(divide="raise", invalid="raise", over="raise"):
        for name in BUILT_IN:
            for severity in (1, 3, 5):
                assert corrupt(image, name, severity, 0, scale=scale).shape == image.shape


def distance(image: Any, name: str, severity: int) -> float:
    seeds = range(3 if name in RANDOM else 1)
    made = [corrupt(image, name, severity, seed).astype(int) for seed in seeds]
    return float(np.mean([np.abs(one - image).mean() for one in made]))


#: Published constants that do not move every photo further with each severity: glass alternates
#: reach and rounds, elastic two kinds, saturation both directions; the others' layouts differ.
UNEVEN = {"glass_blur", "elastic_transform", "saturate", "frost", "fog", "spatter", "snow"}


@pytest.mark.parametrize("name", sorted(set(BUILT_IN) - UNEVEN))
def test_a_photo_is_further_from_itself_with_every_severity(name: str, photo: Any) -> None:
    away = [distance(photo, name, severity) for severity in SEVERITIES]
    assert away == sorted(away)
    assert away[0] > 0.3


#: Of two images and seven corruptions, what one thread of this process makes of them.
DIGESTS = """
import sys
import tracemalloc
import numpy as np
from hashlib import sha256
from curate.corruptions import corrupt
image = np.random.default_rng(0).integers(0, 256, (45, 64, 3), dtype=np.uint8)
digest = sha256()
for name in sys.argv[1:]:
    digest.update(corrupt(image, name, 4, 9).tobytes())
print(digest.hexdigest())
"""


def test_processes_threads_and_orders_give_the_same_bytes() -> None:
    image = np.random.default_rng(0).integers(0, 256, (45, 64, 3), dtype=np.uint8)
    alone = [corrupt(image, name, 4, 9).tobytes() for name in BUILT_IN]
    np.random.seed(1)
    with ThreadPoolExecutor(4) as threads:
        backwards = list(BUILT_IN)[::-1]
        beside = list(threads.map(lambda name: corrupt(image, name, 4, 9).tobytes(), backwards))
    assert beside[::-1] == alone
    done = subprocess.run(
        [sys.executable, "-c", DIGESTS, *BUILT_IN],
        env={"OMP_NUM_THREADS": "2", "PYTHONHASHSEED": "7"},
        cwd=Path(curate.__file__).parent.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [sha256(b"".join(alone)).hexdigest()]


def test_nothing_global_is_drawn_from() -> None:
    image = np.zeros((20, 20, 3), np.uint8)
    np.random.seed(5)
    before = pickle.dumps(np.random.get_state())
    for name in BUILT_IN:
        corrupt(image, name, 3, 0)
    assert pickle.dumps(np.random.get_state()) == before


def test_a_picture_of_pillows_and_a_view_are_images(photo: Any) -> None:
    expected = corrupt(photo, "fog", 2, 0)
    np.testing.assert_array_equal(corrupt(Image.fromarray(photo), "fog", 2, 0), expected)
    mirrored = np.ascontiguousarray(photo[:, ::-1])
    np.testing.assert_array_equal(
        corrupt(photo[:, ::-1], "fog", 2, 0), corrupt(mirrored, "fog", 2, 0)
    )
    read_only = photo.copy()
    read_only.flags.writeable = False
    np.testing.assert_array_equal(corrupt(read_only, "fog", 2, 0), expected)


IMAGE = np.zeros((8, 9, 3), np.uint8)


@pytest.mark.parametrize(
    ("image", "told"),
    [
        (np.full((8, 9, 3), np.nan), r"image is float64: expected uint8 \(it holds NaN\)"),
        (np.zeros((8, 9, 3), np.float32), "image is float32: expected uint8, from 0 to 255"),
        (np.zeros((8, 9, 3), np.int64), "image is int64: expected uint8"),
        (np.zeros((8, 9), np.uint8), r"image has shape \(8, 9\): expected \(height, width, 3\)"),
        (np.zeros((8, 9, 4), np.uint8), r"image has shape \(8, 9, 4\)"),
        (np.zeros((1, 8, 9, 3), np.uint8), r"image has shape \(1, 8, 9, 3\)"),
        (np.zeros((0, 9, 3), np.uint8), r"image is empty \(shape \(0, 9, 3\)\)"),
        (None, "image is object: expected uint8"),
        ([[1], [2, 3]], "image is no array"),
    ],
)
def test_what_is_no_rgb_image_is_one_line(image: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        corrupt(image, "fog", 1, 0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("severity", "seed", "told"),
    [
        (0, 0, r"severity is 0: it must be in 1 … 5"),
        (6, 0, r"severity is 6: it must be in 1 … 5"),
        (True, 0, "severity must be a whole number, not True"),
        (2.0, 0, "severity must be a whole number, not 2.0"),
        ("3", 0, "severity must be a whole number, not '3'"),
        (1, -1, "seed is -1: it must be at least 0"),
        (1, None, "seed must be a whole number, not None"),
    ],
)
def test_what_is_no_severity_or_seed_is_one_line(severity: Any, seed: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        corrupt(IMAGE, "fog", severity, seed)


def test_an_unknown_corruption_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="unknown corruption 'gausian_blur'; did you mean g"):
        corrupt(IMAGE, "gausian_blur", 1, 0)
    with pytest.raises(ValueError, match="unknown corruption 'x'; there are gaussian_noise, shot"):
        describe("x")
    with pytest.raises(ValueError, match="scale is 'long'"):
        corrupt(IMAGE, "fog", 1, 0, scale="long")  # type: ignore[arg-type]


def test_numpys_whole_numbers_are_welcome() -> None:
    expected = corrupt(IMAGE, "fog", 2, 3)
    np.testing.assert_array_equal(corrupt(IMAGE, "fog", np.int64(2), np.uint8(3)), expected)


def test_the_package_hands_on_what_the_contract_names() -> None:
    assert curate.corrupt is corrupt
    assert len(curate.corruptions.NAMES) == 15
    assert len(curate.corruptions.EXTRA_NAMES) == 4
    assert curate.corruptions.FURTHER_NAMES == ("greyscale",)
    assert names()[:20] == tuple(BUILT_IN)


@given(st.binary(min_size=32, max_size=32), st.sampled_from(SEVERITIES), st.integers(0, 2**64))
def test_a_seed_depends_on_each_of_its_four(content: bytes, severity: int, seed: int) -> None:
    digest = content.hex()
    own = seed_of(digest, "fog", severity, seed)
    assert own == seed_of(digest.upper(), "fog", severity, seed)
    assert 0 <= own < 2**63
    assert own not in {
        seed_of(digest, "snow", severity, seed),
        seed_of(digest, "fog", severity % 5 + 1, seed),
        seed_of(digest, "fog", severity, seed + 1),
        seed_of(sha256(content).hexdigest(), "fog", severity, seed),
    }


def test_a_seed_is_what_it_was() -> None:
    assert seed_of("ab" * 32, "fog", 3, 7) == SEED
    with pytest.raises(ValueError, match="sha256 is 'ab': expected 64 hexadecimal digits"):
        seed_of("ab", "fog", 1)


SEED = 438009992389000059


@pytest.mark.parametrize("name", tuple(BUILT_IN))
def test_a_description_tells_what_a_report_records(name: str) -> None:
    told = describe(name, scale="short-side")
    assert told["name"] == name
    assert told["scale"] == "short-side"
    assert len(told["constants"]) == 5
    assert told["scaling"]
    assert told["frost"] == ("drawn" if name == "frost" else None)
    assert told["origin"].startswith("ImageNet-C") is (name != "greyscale")


def test_greyscale_ends_in_grey_alone(photo: Any) -> None:
    grey = corrupt(photo, "greyscale", 5, 0)
    expected = np.asarray(Image.fromarray(photo).convert("L"))
    assert np.abs(grey.astype(int) - expected[..., None]).max() <= 1


def resized(image: Any) -> Any:
    return np.asarray(Image.fromarray(image).resize((224, 224), Image.Resampling.BOX)).astype(int)


@pytest.mark.parametrize(
    "name",
    ["gaussian_blur", "defocus_blur", "zoom_blur", "pixelate", "brightness", "contrast"],
)
def test_at_the_short_sides_scale_a_large_photo_looks_as_the_crop_does(
    name: str, package_photos: list[tuple[Path, int]]
) -> None:
    with Image.open(package_photos[2][0]) as opened:
        large = np.array(opened.convert("RGB").resize((672, 672), Image.Resampling.BICUBIC))
    crop = np.uint8(resized(large))
    for severity in (2, 5):
        at_camera = resized(corrupt(large, name, severity, 0, scale="short-side"))
        at_crop = corrupt(crop, name, severity, 0).astype(int)
        assert np.abs(at_camera - at_crop).mean() < 2.0
        if name in {"gaussian_blur", "defocus_blur", "pixelate"}:
            # Constants that are pixels of the large photo do much less.
            unscaled = resized(corrupt(large, name, severity, 0))
            assert np.abs(unscaled - crop).mean() < 0.7 * np.abs(at_crop - crop).mean()


@pytest.mark.parametrize(
    "name",
    ["motion_blur", "glass_blur", "elastic_transform", "snow", "frost", "fog", "spatter"],
)
def test_so_does_one_under_what_is_drawn_from_the_same_seed(
    name: str, package_photos: list[tuple[Path, int]]
) -> None:
    with Image.open(package_photos[2][0]) as opened:
        large = np.array(opened.convert("RGB").resize((672, 672), Image.Resampling.BICUBIC))
    crop = np.uint8(resized(large))
    for severity in (2, 5):
        at_crop = corrupt(crop, name, severity, 0).astype(int)
        away, unscaled = (
            np.abs(resized(corrupt(large, name, severity, 0, scale=scale)) - at_crop).mean()
            for scale in ("short-side", "none")
        )
        assert away < 0.35 * unscaled, severity


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("name", tuple(BUILT_IN))
@pytest.mark.parametrize("scale", ["none", "short-side"])
def test_a_large_photo_takes_no_more_than_twenty_times_its_size(
    name: str, scale: Any, photo: Any
) -> None:
    large = np.tile(photo, (8, 10, 1))
    corrupt(photo, name, 5, 0)
    tracemalloc.start()
    try:
        corrupt(large, name, 5, 0, scale=scale)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 20 * large.nbytes


@pytest.mark.parametrize("scale", ["none", "short-side"])
def test_a_narrow_strip_costs_no_square(scale: Any) -> None:
    strip = np.full((2, 6000, 3), 100, np.uint8)
    tracemalloc.start()
    try:
        for name in ("fog", "snow", "spatter", "elastic_transform"):
            assert corrupt(strip, name, 3, 0, scale=scale).shape == strip.shape
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 300 << 20
