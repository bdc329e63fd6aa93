"""Placeholders: known stand-ins are told, photos are not."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import pytest
from PIL import Image

from curate.errors import UsageError
from curate.files import sha256_bytes, sha256_file
from curate.sources.placeholders import Placeholders

# Pixels that servers and pages send where there is nothing to show.
PIXELS = [
    "R0lGODlhAQABAIABAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAICTAEAOw==",
    "R0lGODlhAQABAIAAAP///wAAACH5BAEAAAAALAAAAAABAAEAAAICRAEAOw==",
    "R0lGODlhAQABAIAAAP///////yH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==",
    "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAICRAEAOw==",
    "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7",
    "R0lGODlhAQABAIAAAP///wAAACwAAAAAAQABAAACAkQBADs=",
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAAC0lEQVR42mNgAAIAAAUAAen63NgAAAAASUVORK5CYII=",
]


@pytest.fixture(scope="module")
def placeholders() -> Placeholders:
    return Placeholders.load()


@pytest.mark.parametrize(
    "url",
    [
        "https://s.yimg.com/pw/images/en-us/photo_unavailable.png",
        "https://s.yimg.com/pw/images/en-us/photo_unavailable_l.png",
        "http://S.YIMG.com:80/pw/images/photo%5Funavailable_z.png?x=1#y",
        "https://www.inaturalist.org/assets/media-hidden-square.png",
        "https://i.imgur.com/removed.png",
    ],
)
def test_known_addresses_are_told(placeholders: Placeholders, url: str) -> None:
    assert placeholders.by_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://live.staticflickr.com/65535/1_a_b.jpg",
        "https://evil.example/s.yimg.com/photo_unavailable.png",
        "https://s.yimg.com.evil.example/photo_unavailable.png",
        "https://s.yimg.com/photos/1.jpg?photo_unavailable",
        "https://i.imgur.com/removed.png/other.png",
        "https://inaturalist-open-data.s3.amazonaws.com/photos/1/large.jpg",
        "https:///removed.png",
        "https://[::1]/removed.png",
    ],
)
def test_other_addresses_are_not(placeholders: Placeholders, url: str) -> None:
    assert placeholders.by_url(url) is None


@pytest.mark.parametrize("pixel", PIXELS)
def test_known_pixels_are_told_by_their_content(placeholders: Placeholders, pixel: str) -> None:
    data = base64.b64decode(pixel)
    assert Image.open(io.BytesIO(data)).size == (1, 1)
    assert placeholders.by_sha256(sha256_bytes(data))
    assert placeholders.by_sha256(sha256_bytes(data + b"\0")) is None


def test_no_real_photo_is_one(
    placeholders: Placeholders, package_photos: list[tuple[Path, int]]
) -> None:
    assert all(placeholders.by_sha256(sha256_file(path)) is None for path, _ in package_photos)


def test_a_file_of_the_user_adds_to_them(tmp_path: Path) -> None:
    own = tmp_path / "own.csv"
    own.write_text(
        "kind,pattern,note\nurl,*.shop.example/gone-?.jpg,sold\nsha256," + "AB" * 32 + ",grey\n"
    )
    both = Placeholders.load(own)
    assert both.by_url("https://img.shop.example/gone-1.jpg") == "sold"
    assert both.by_url("https://i.imgur.com/removed.png")
    assert both.by_sha256("ab" * 32) == "grey"


@pytest.mark.parametrize(
    "row", ["sha256,abc,short", "url,*,everything", "url,*/*,everything", "md5,00,other", "url,,x"]
)
def test_a_row_that_says_nothing_or_everything_is_refused(tmp_path: Path, row: str) -> None:
    own = tmp_path / "own.csv"
    own.write_text(f"kind,pattern,note\n{row}\n")
    with pytest.raises(UsageError, match=r"own\.csv, line 2"):
        Placeholders.load(own)
