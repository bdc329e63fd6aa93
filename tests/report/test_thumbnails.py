"""Thumbnails: small, upright, and nothing in them but pixels."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from curate.errors import ImageRefused
from curate.report.thumbnails import LONGEST_SIDE, Thumbnail, make_thumbnail


def jpeg_of(thumbnail: Thumbnail) -> bytes:
    head, _, body = thumbnail.uri.partition(",")
    assert head == "data:image/jpeg;base64"
    return base64.b64decode(body, validate=True)


def open_thumbnail(thumbnail: Thumbnail) -> Image.Image:
    return Image.open(io.BytesIO(jpeg_of(thumbnail)), formats=["JPEG"])


def markers(jpeg: bytes) -> set[int]:
    """The second bytes of the markers before the first scan."""
    found, at = set(), 2
    while jpeg[at + 1] != 0xDA:
        assert jpeg[at] == 0xFF
        found.add(jpeg[at + 1])
        at += 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
    return found


def encoded(image: Image.Image, form: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, form, **options)
    return stream.getvalue()


def test_the_longest_side_is_bounded_and_the_proportions_stay(
    package_photos: list[tuple[Path, int]],
) -> None:
    for path, _ in package_photos[:4]:
        data = path.read_bytes()
        width, height = Image.open(io.BytesIO(data)).size
        thumbnail = make_thumbnail(data, 100)
        assert max(thumbnail.width, thumbnail.height) == 100
        assert open_thumbnail(thumbnail).size == (thumbnail.width, thumbnail.height)
        assert thumbnail.width / thumbnail.height == pytest.approx(width / height, rel=0.02)


def test_a_small_photo_is_not_enlarged(package_photos: list[tuple[Path, int]]) -> None:
    small = Image.open(package_photos[0][0]).convert("RGB").resize((90, 80))
    thumbnail = make_thumbnail(encoded(small, "PNG"))
    assert (thumbnail.width, thumbnail.height) == (90, 80)
    assert LONGEST_SIDE > 90


def test_a_photo_on_its_side_is_shown_upright(package_photos: list[tuple[Path, int]]) -> None:
    upright = Image.open(package_photos[0][0]).convert("RGB").resize((200, 120))
    lying = upright.transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6
    shown = open_thumbnail(make_thumbnail(encoded(lying, "JPEG", quality=95, exif=exif)))
    assert shown.size == (200, 120)
    difference = np.abs(np.asarray(shown, float) - np.asarray(upright, float)).mean()
    assert difference < 6


def test_nothing_but_pixels_is_in_a_thumbnail(package_photos: list[tuple[Path, int]]) -> None:
    photo = Image.open(package_photos[0][0]).convert("RGB")
    exif = Image.Exif()
    exif[0x010E] = "taken at home"
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    data = encoded(
        photo,
        "JPEG",
        exif=exif,
        icc_profile=profile,
        comment=b"a comment",
        xmp=b"<x:xmpmeta>where it was</x:xmpmeta>",
    )
    assert markers(data) >= {0xE1, 0xE2, 0xFE}
    jpeg = jpeg_of(make_thumbnail(data))
    assert markers(jpeg) <= {0xE0, 0xDB, 0xC0, 0xC2, 0xC4}
    assert b"home" not in jpeg
    assert b"comment" not in jpeg


def test_a_picture_with_transparency_lies_on_white() -> None:
    clear = Image.new("RGBA", (120, 120), (200, 0, 0, 255))
    clear.paste((0, 0, 0, 0), (0, 0, 120, 60))
    shown = np.asarray(open_thumbnail(make_thumbnail(encoded(clear, "PNG"))))
    assert shown[20, 60].min() > 245


def test_a_narrow_picture_keeps_a_width_of_one_pixel_at_least() -> None:
    noise = np.random.default_rng(0).integers(0, 255, (4000, 3, 3), np.uint8)
    thumbnail = make_thumbnail(encoded(Image.fromarray(noise), "PNG"), 100)
    assert (thumbnail.width, thumbnail.height) == (1, 100)


def test_the_same_bytes_give_the_same_thumbnail(package_photos: list[tuple[Path, int]]) -> None:
    data = package_photos[1][0].read_bytes()
    assert make_thumbnail(data) == make_thumbnail(data)


@pytest.mark.parametrize("data", [b"", b"\xff\xd8\xff", b"<svg onload=alert(1)>"])
def test_bytes_that_are_no_picture_are_refused(data: bytes) -> None:
    with pytest.raises(ImageRefused):
        make_thumbnail(data)
