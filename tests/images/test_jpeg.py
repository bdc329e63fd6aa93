"""Damage in JPEG files that plain decoding does not notice."""

from __future__ import annotations

import io
import random
import time
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFilter

from curate.errors import ImageRefused
from curate.images import decode, jpeg
from tests.images.awkward import accepted, reason, save, segment, small, with_segment


def scan_starts(data: bytes) -> int:
    return next(s.end for s in jpeg.walk(data).segments if s.marker == 0xDA)


def verdict(data: bytes) -> str | None:
    try:
        jpeg.check_pixels(data, jpeg.walk(data))
    except ImageRefused as refusal:
        return refusal.reason
    return None


def test_most_flips_of_40_bytes_are_noticed_and_pillow_alone_notices_few(
    package_photos: list[tuple[Path, int]],
) -> None:
    chance = random.Random(0)
    noticed = silent = 0
    for path, _ in package_photos:
        with Image.open(path) as image:
            data = bytearray(save(image.convert("RGB"), "JPEG", quality=90))
        at = chance.randrange(scan_starts(bytes(data)), len(data) - 100)
        data[at : at + 40] = bytes(byte ^ 0xFF for byte in data[at : at + 40])
        noticed += verdict(bytes(data)) == "corrupt-data"
        try:
            Image.open(io.BytesIO(data)).load()
            silent += 1
        except OSError:
            pass
    assert noticed >= 17
    assert silent >= 15


def test_damage_that_still_decodes_without_a_warning_is_noticed_by_its_samples(
    awkward_files: dict[str, bytes],
) -> None:
    data = awkward_files["bitrot.jpg"]
    simplejpeg.decode_jpeg(data, strict=True)
    with pytest.raises(ImageRefused, match="impossible samples"):
        jpeg.check_pixels(data, jpeg.walk(data))


pictures = st.sampled_from(["photo", "sharp", "noise", "corners", "white", "black", "ramp"])


@settings(max_examples=60, deadline=None)
@given(
    picture=pictures,
    quality=st.integers(1, 100),
    subsampling=st.sampled_from([0, 1, 2]),
    progressive=st.booleans(),
    fast=st.booleans(),
    side=st.integers(72, 140),
)
def test_what_an_encoder_wrote_is_never_called_damaged(
    package_photos: list[tuple[Path, int]],
    picture: str,
    quality: int,
    subsampling: int,
    progressive: bool,
    fast: bool,
    side: int,
) -> None:
    chance = np.random.default_rng(side)
    size = (side, 97)
    with Image.open(package_photos[3][0]) as image:
        photo = image.convert("RGB").resize(size)
    made = {
        "photo": photo,
        "sharp": photo.filter(ImageFilter.UnsharpMask(3, 500, 0)),
        "noise": Image.fromarray(chance.integers(0, 256, (97, side, 3), dtype=np.uint8)),
        "corners": Image.fromarray(chance.integers(0, 2, (97, side, 3), dtype=np.uint8) * 255),
        "white": Image.new("RGB", size, "white"),
        "black": Image.new("RGB", size, "black"),
        "ramp": Image.linear_gradient("L").resize(size).convert("RGB"),
    }[picture]
    if fast:
        data = simplejpeg.encode_jpeg(np.ascontiguousarray(made), quality=quality, fastdct=True)
    else:
        data = save(made, "JPEG", quality=quality, subsampling=subsampling, progressive=progressive)
    assert verdict(data) is None


def test_grey_rgb_and_cmyk_jpegs_are_checked_too(photo: Image.Image) -> None:
    for image, options in (
        (small(photo).convert("L"), {}),
        (small(photo), {"keep_rgb": True}),
        (small(photo).convert("CMYK"), {}),
    ):
        data = save(image, "JPEG", quality=90, **options)
        accepted(data)
        start = scan_starts(data)
        hole = data[:start] + bytes(600) + data[start + 600 :]
        assert reason(hole) == "corrupt-data"


def test_an_unusual_subsampling_is_accepted(photo: Image.Image) -> None:
    data = simplejpeg.encode_jpeg(np.asarray(small(photo)), colorsubsampling="411")
    accepted(data)
    tall = simplejpeg.encode_jpeg(np.asarray(small(photo)), colorsubsampling="440")
    accepted(tall)


def test_a_thumbnail_inside_exif_does_not_end_the_photo(photo: Image.Image) -> None:
    thumbnail = save(photo.resize((40, 40)), "JPEG")
    exif = Image.Exif()
    exif[0x927C] = thumbnail
    data = save(small(photo), "JPEG", exif=exif)
    assert data.count(b"\xff\xd9") == 2
    accepted(data)
    assert reason(data[:-2]) == "truncated"


def test_a_missing_end_marker_is_truncated_though_the_picture_is_whole(
    photo: Image.Image,
) -> None:
    assert reason(save(small(photo), "JPEG")[:-2]) == "truncated"


def test_a_segment_that_overshoots_a_whole_file_is_corrupt(photo: Image.Image) -> None:
    data = save(small(photo), "JPEG")
    assert reason(data[:4] + b"\xff\xff" + data[6:]) == "corrupt-data"


def test_thousands_of_scans_are_refused_at_once(photo: Image.Image) -> None:
    """A few bytes a scan keep libjpeg busy over the whole picture each time."""
    data = save(photo, "JPEG", progressive=True)
    scan = segment(0xDA, b"\x01\x01\x00\x01\x05\x63") + b"\0"
    started = time.thread_time()
    with pytest.raises(ImageRefused, match="more scans or segments than any photo has"):
        decode(data[:-2] + scan * 5000 + data[-2:])
    assert time.thread_time() - started < 1


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (b"\x0c\x00\x64\x00\x64\x01\x01\x11\x00", "unsupported-mode"),
        (b"\x08\x00\x64\x00\x64\x02\x01\x11\x00\x02\x11\x00", "unsupported-mode"),
        (b"\x08\x00\x64\x00\x64\x03\x01\x11\x00", "corrupt-data"),
    ],
)
def test_frames_of_another_kind_are_refused(frame: bytes, expected: str) -> None:
    head = b"\xff\xd8" + segment(0xC1, frame) + segment(0xDA, b"\x01\x01\x00\x00\x3f\x00")
    assert reason(head + b"\0\xff\xd9") == expected


def test_jpeg_ls_and_hierarchical_jpeg_are_unsupported() -> None:
    frame = b"\x08\x00\x64\x00\x64\x01\x01\x11\x00"
    scan = segment(0xDA, b"\x01\x01\x00\x00\x3f\x00") + b"\0\xff\xd9"
    for marker in (0xF7, 0xC5):
        assert reason(b"\xff\xd8" + segment(marker, frame) + scan) == "unsupported-format"


def test_a_profile_in_pieces_is_joined_in_order(photo: Image.Image) -> None:
    from PIL import ImageCms

    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    swapped = profile.replace(b"rXYZ", b"tmp!").replace(b"gXYZ", b"rXYZ").replace(b"tmp!", b"gXYZ")
    plain = save(small(photo), "JPEG")
    middle = len(swapped) // 2
    pieces = [
        b"ICC_PROFILE\0" + bytes([number, 2]) + part
        for number, part in ((2, swapped[middle:]), (1, swapped[:middle]))
    ]
    whole = save(small(photo), "JPEG", icc_profile=swapped)
    apart = with_segment(with_segment(plain, 0xE2, pieces[0]), 0xE2, pieces[1])
    reverse = with_segment(with_segment(plain, 0xE2, pieces[1]), 0xE2, pieces[0])
    for data in (apart, reverse):
        np.testing.assert_array_equal(accepted(data)[0], accepted(whole)[0])
    assert accepted(with_segment(plain, 0xE2, pieces[1]))[1] == ("icc-unreadable",)
