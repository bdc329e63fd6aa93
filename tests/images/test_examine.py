"""Checking without pixels: the verdict of `decode`, whatever the bytes."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from curate.images import examine, jpeg_samples, visible
from tests.images.awkward import (
    accepted,
    decoded,
    examined,
    save,
    segment,
    small,
    with_segment,
    without_pixels,
)


def damaged(photos: list[Path], count: int, seed: int = 0) -> list[bytes]:
    """JPEGs of many kinds, with bytes changed, left out or put in anywhere, or cut off."""
    chance = random.Random(seed)
    small_ones = []
    for path in photos:
        with Image.open(path) as image:
            small_ones.append(image.convert("RGB").resize((136, 100)))
    found = []
    for _ in range(count):
        photo = chance.choice(small_ones).convert(chance.choice(["RGB", "RGB", "RGB", "L"]))
        data = bytearray(
            save(
                photo,
                "JPEG",
                quality=chance.choice([30, 60, 75, 85, 90, 95, 97, 98, 99, 100]),
                subsampling=chance.choice([0, 1, 2]),
                progressive=chance.random() < 0.3,
                optimize=chance.random() < 0.5,
            )
        )
        # The first 700 bytes are nearly all headers.
        at = chance.randrange(chance.choice([700, len(data)]))
        length = chance.choice([1, 1, 2, 5, 20, 40])
        match chance.randrange(6):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1 | 2:
                data[at : at + length] = bytes(byte ^ 0xFF for byte in data[at : at + length])
            case 3:
                data[at : at + length] = chance.randbytes(length)
            case 4:
                del data[at : at + length]
            case 5:
                data[at:] = b"\xff\xd9" if chance.random() < 0.5 else b""
        found.append(bytes(data))
    return found


@pytest.mark.parametrize(("is_careless", "is_same"), [(False, True), (True, False)])
def test_damaged_jpegs_get_the_verdict_of_decoding(
    package_photos: list[tuple[Path, int]],
    is_careless: bool,
    is_same: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An examination that leaves the samples out differs: so this test can fail."""
    files = damaged([path for path, _ in package_photos], 500)
    expected = [decoded(data) for data in files]
    reasons = Counter(one if isinstance(one, str) else "accepted" for one in expected)
    assert min(reasons["accepted"], reasons["corrupt-data"], reasons["truncated"]) > 20
    if is_careless:
        monkeypatch.setattr(jpeg_samples, "check", lambda *_: None)
        monkeypatch.setattr(jpeg_samples, "upper_halves_suffice", lambda *_: True)
    assert ([examined(data) for data in files] == expected) is is_same


def test_awkward_files_get_the_verdict_of_decoding(awkward_files: dict[str, bytes]) -> None:
    for name, data in awkward_files.items():
        assert examined(data, name=name) == decoded(data, name=name), name


@pytest.mark.slow
def test_real_photos_get_the_verdict_of_decoding_mostly_without_pixels(
    real_photos: list[Path],
) -> None:
    without = 0
    for path in real_photos:
        data = path.read_bytes()
        assert examined(data) == decoded(data), path
        without += without_pixels(data)
    assert without > 0.8 * len(real_photos)


def test_photos_of_a_package_need_no_pixels(package_photos: list[tuple[Path, int]]) -> None:
    files = [path.read_bytes() for path, _ in package_photos]
    assert [examined(data) for data in files] == [decoded(data) for data in files]
    assert sum(map(without_pixels, files)) >= 16


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_size_is_that_of_the_upright_photo(photo: Image.Image, orientation: int) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    data = save(small(photo), "JPEG", exif=exif)
    assert without_pixels(data)
    assert examined(data) == decoded(data)


def test_metadata_give_the_same_notes(photo: Image.Image) -> None:
    exif = Image.Exif()
    exif.get_ifd(34853).update({1: "N", 2: (51.0, 30.0, 0.0)})
    plain = save(small(photo), "JPEG")
    for data in (
        save(small(photo).convert("L"), "JPEG"),
        save(small(photo), "JPEG", exif=exif),
        with_segment(plain, 0xE1, b"Exif\0\0damaged"),
        with_segment(plain, 0xE1, b"http://ns.adobe.com/xap/1.0/\0<a exif:GPSLatitude='1'/>"),
        with_segment(plain, 0xE2, b"ICC_PROFILE\0\1\1damaged"),
        plain + b"more",
    ):
        assert without_pixels(data)
        assert examined(data) == decoded(data)
        assert accepted(data)[1]


def test_only_a_profile_that_changes_colours_needs_the_pixels(photo: Image.Image) -> None:
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    swapped = srgb.replace(b"rXYZ", b"tmp!").replace(b"gXYZ", b"rXYZ").replace(b"tmp!", b"gXYZ")
    for profile, is_cheap in ((srgb, True), (swapped, False)):
        for mode in ("RGB", "L"):
            data = save(small(photo).convert(mode), "JPEG", icc_profile=profile)
            assert examined(data) == decoded(data)
            if mode == "RGB":
                assert without_pixels(data) is is_cheap


def test_what_shows_nothing_or_two_colours_is_refused_as_by_decoding() -> None:
    rows, columns = np.indices((96, 96))
    two = np.where((rows // 8 + columns // 8) % 2, 255, 0).astype(np.uint8)
    rest = np.where(rows < 48, 130, 120).astype(np.uint8)
    for samples in (two, np.full_like(two, 77), rest):
        for mode in ("L", "RGB"):
            image = Image.fromarray(samples).convert(mode)
            data = save(image, "JPEG", quality=100, subsampling=0)
            assert not without_pixels(data)
            assert examined(data) == decoded(data)


def test_luminance_that_no_colour_shows_is_no_contrast() -> None:
    """A colour outside RGB is clamped: here luminance alone varies, and all is magenta."""
    luminance = np.random.default_rng(0).choice([78, 105, 133], (96, 96)).repeat(8, 0)[:, :96]
    planes = [luminance, np.full((768, 96), 255), np.full((768, 96), 255)]
    image = Image.merge("YCbCr", [Image.fromarray(plane.astype(np.uint8)) for plane in planes])
    data = save(image, "JPEG", quality=100, subsampling=0)
    assert examined(data) == decoded(data)


def test_the_least_difference_of_luminance_that_is_one_of_colour() -> None:
    """Over all of luminance and every fifth value of both colour differences."""
    luminance, blue, red = np.ogrid[:256, -128:128:5, -128:128:5]
    shown = np.stack(
        np.broadcast_arrays(
            luminance + 1.402 * red,
            luminance - 0.344136 * blue - 0.714136 * red,
            luminance + 1.772 * blue,
        )
    )
    keys = np.rint(shown.clip(0, 255)).astype(np.int64).reshape(3, -1)
    key = keys[0] << 16 | keys[1] << 8 | keys[2]
    value = np.broadcast_to(luminance, shown.shape[1:]).reshape(-1)
    order = np.lexsort((value, key))
    key, value = key[order], value[order]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    last = np.append(first[1:], key.size) - 1
    spread = (value[last] - value[first]).max()
    assert 60 < spread < visible._TWO_COLOURS


def test_an_unusual_subsampling_needs_the_pixels(photo: Image.Image) -> None:
    data = bytearray(save(small(photo), "JPEG", subsampling=0))
    frame = data.index(b"\xff\xc0")
    data[frame + 11], data[frame + 14], data[frame + 17] = 0x31, 0x21, 0x11
    assert examined(bytes(data)) == decoded(bytes(data))


def test_other_formats_are_decoded(photo: Image.Image) -> None:
    for kind in ("PNG", "GIF", "WEBP", "TIFF", "BMP", "AVIF"):
        data = save(small(photo), kind)
        assert not without_pixels(data)
        assert examine(data) == decoded(data)
    cmyk = save(small(photo).convert("CMYK"), "JPEG")
    rgb = save(small(photo), "JPEG", keep_rgb=True)
    multi = with_segment(save(small(photo), "JPEG"), 0xE2, b"MPF\0")
    for data in (cmyk, rgb, multi + segment(0xE0, b"")):
        assert examined(data) == decoded(data)
