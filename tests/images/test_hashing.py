"""Fingerprints: exact ones and those that survive re-encoding."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import imagehash
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from curate.images import (
    NEAR_DISTANCE,
    NearIndex,
    PerceptualHash,
    decode,
    distance,
    perceptual_hash,
    pixel_sha256,
)
from tests.images.awkward import save

bits = st.integers(0, 2**64 - 1)
hashes = st.builds(PerceptualHash, bits, bits)


def test_the_pixel_hash_depends_on_pixels_alone(photo: Image.Image) -> None:
    as_png, as_bmp = (decode(save(photo, kind))[0] for kind in ("PNG", "BMP"))
    assert pixel_sha256(as_png) == pixel_sha256(as_bmp) == pixel_sha256(photo)
    assert pixel_sha256(ImageOps.mirror(photo)) != pixel_sha256(photo)


def test_the_pixel_hash_is_the_documented_one_in_one_piece_or_many(photo: Image.Image) -> None:
    big = photo.resize((1500, 1501))
    for image in (photo, big):
        width, height = image.size
        plain = b"curate pixels 1: rgb8\0" + width.to_bytes(8) + height.to_bytes(8)
        assert pixel_sha256(image) == hashlib.sha256(plain + image.tobytes()).hexdigest()


def test_pictures_of_other_shape_and_the_same_bytes_differ() -> None:
    data = np.arange(600, dtype=np.uint8)
    wide, tall = (Image.fromarray(data.reshape(h, w, 3)) for h, w in ((10, 20), (20, 10)))
    assert wide.tobytes() == tall.tobytes()
    assert pixel_sha256(wide) != pixel_sha256(tall)


def test_only_rgb_is_hashed(photo: Image.Image) -> None:
    with pytest.raises(ValueError, match="mode RGB, got L"):
        pixel_sha256(photo.convert("L"))


def test_the_perceptual_hash_is_imagehashs_up_to_the_quick_reduction(
    package_photos: list[tuple[Path, int]],
) -> None:
    for path, _ in package_photos:
        with Image.open(path) as image:
            photo = image.convert("RGB")
        exact = int(str(imagehash.phash(photo)), 16)
        assert (perceptual_hash(photo).picture ^ exact).bit_count() <= 2


@pytest.mark.parametrize("change", ["smaller", "worse", "mirrored", "squashed", "grey"])
def test_the_same_picture_stays_near(package_photos: list[tuple[Path, int]], change: str) -> None:
    for path, _ in package_photos:
        with Image.open(path) as image:
            photo = image.convert("RGB")
        changed = {
            "smaller": photo.resize((photo.width // 3, photo.height // 3)),
            "worse": Image.open(io.BytesIO(save(photo, "JPEG", quality=30))),
            "mirrored": ImageOps.mirror(photo),
            "squashed": photo.resize((224, 224)),
            "grey": photo.convert("L").convert("RGB"),
        }[change]
        assert distance(perceptual_hash(photo), perceptual_hash(changed)) <= NEAR_DISTANCE


def test_a_picture_and_its_mirror_have_swapped_hashes(photo: Image.Image) -> None:
    plain, mirrored = perceptual_hash(photo), perceptual_hash(ImageOps.mirror(photo))
    assert distance(plain, mirrored) == 0
    assert (plain.picture ^ mirrored.mirror).bit_count() <= 2


def test_different_photos_are_far_apart(package_photos: list[tuple[Path, int]]) -> None:
    found = []
    for path, _ in package_photos:
        with Image.open(path) as image:
            found.append(perceptual_hash(image.convert("RGB")))
    distances = [distance(a, b) for i, a in enumerate(found) for b in found[:i]]
    assert min(distances) > 2 * NEAR_DISTANCE


@pytest.mark.slow
@pytest.mark.photos
def test_no_two_of_the_real_photos_are_called_near(real_photos: list[Path]) -> None:
    """There are no duplicates among them, as looking at the nearest pairs showed."""
    index: NearIndex[Path] = NearIndex()
    for path in real_photos:
        value = perceptual_hash(decode(path.read_bytes())[0])
        assert index.nearest(value) is None, path
        index.add(path, value)


@given(hashes)
def test_text_brings_a_hash_back(value: PerceptualHash) -> None:
    assert len(str(value)) == 32
    assert PerceptualHash.from_text(str(value)) == value


def test_other_text_is_no_hash() -> None:
    for text in ("", "0" * 31, "x" * 32):
        with pytest.raises(ValueError, match="hexadecimal|invalid literal"):
            PerceptualHash.from_text(text)


@given(hashes, hashes)
def test_distance_is_symmetric_and_blind_to_mirroring(a: PerceptualHash, b: PerceptualHash) -> None:
    assert distance(a, b) == distance(b, a) == distance(PerceptualHash(a.mirror, a.picture), b)
    assert distance(a, a) == 0


@given(st.lists(hashes, max_size=40), hashes, st.integers(0, 64))
def test_the_index_finds_what_comparing_one_by_one_finds(
    stored: list[PerceptualHash], wanted: PerceptualHash, within: int
) -> None:
    index: NearIndex[int] = NearIndex()
    for key, value in enumerate(stored):
        index.add(key, value)
    found = sorted((distance(value, wanted), key) for key, value in enumerate(stored))
    expected = (found[0][1], found[0][0]) if found and found[0][0] <= within else None
    assert index.nearest(wanted, within) == expected
    assert len(index) == len(stored)


def test_the_index_grows_and_keeps_what_it_holds() -> None:
    index: NearIndex[str] = NearIndex()
    values = np.random.default_rng(0).integers(0, 2**63, (5000, 2))
    for number, (picture, mirror) in enumerate(values.tolist()):
        index.add(f"photo {number}", PerceptualHash(picture, mirror))
    for number in (0, 1023, 1024, 4999):
        assert index.nearest(PerceptualHash(*values[number].tolist())) == (f"photo {number}", 0)
