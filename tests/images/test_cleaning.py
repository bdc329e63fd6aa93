"""What tells of people and places leaves a file, and nothing of the picture does."""

from __future__ import annotations

import io
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms, PngImagePlugin, features

from curate.images import exif as blocks
from curate.images.cleaning import without_metadata
from curate.images.decode import decode, decode_trusted
from curate.images.sniffing import Format

OWNER, SERIAL, NOTICE = "Ann Owner", "SN-4711-0815", "(c) 2026 a photographer"
XMP = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><exif:GPSLatitude>48,8.1N</exif:GPSLatitude>'
    b"<dc:creator>a photographer</dc:creator></x:xmpmeta>"
)
MILD = b"<x:xmpmeta xmlns:x='adobe:ns:meta/'><dc:creator>a photographer</dc:creator></x:xmpmeta>"
FORMS: list[Format] = ["JPEG", "PNG", "WEBP", "TIFF"]


def _exif(orientation: int = 6) -> Image.Exif:
    exif = Image.Exif()
    exif[274] = orientation
    exif[271] = "A maker"
    exif[33432] = NOTICE
    exif[316] = OWNER + "'s computer"
    exif.get_ifd(34665).update({42032: OWNER, 42033: SERIAL, 37500: b"note of " + OWNER.encode()})
    exif.get_ifd(34665)[33434] = 0.01
    exif.get_ifd(34853).update({1: "N", 2: (48.0, 8.0, 14.0), 3: "E", 4: (11.0, 34.0, 31.0)})
    return exif


@cache
def _profile() -> bytes:
    # It holds the time at which it was made.
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def _file(photo: Path, form: Format, xmp: bytes = XMP, **more: Any) -> bytes:
    if form == "WEBP" and not features.check("webp"):
        pytest.skip("this Pillow reads no WebP")
    buffer = io.BytesIO()
    options: dict[str, Any] = {"exif": _exif(), "icc_profile": _profile()}
    if form in ("JPEG", "WEBP"):
        options["xmp"] = xmp
    if form == "PNG":
        info = PngImagePlugin.PngInfo()
        info.add_itxt("XML:com.adobe.xmp", xmp.decode(), zip=True)
        info.add_text("Comment", "a text")
        info.add_text("Raw profile type exif", OWNER.encode().hex(), zip=True)
        options["pnginfo"] = info
    with Image.open(photo) as image:
        image.convert("RGB").resize((160, 96)).save(buffer, form, **options | more)
    return buffer.getvalue()


def _told(data: bytes) -> bytes:
    """All that a file says besides its pixels, unpacked."""
    told = data
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        told += repr({key: value for key, value in image.info.items() if key != "exif"}).encode()
        exif = image.getexif()
        told += repr([dict(exif), exif.get_ifd(34665), exif.get_ifd(34853)]).encode()
    return told


@pytest.mark.parametrize("form", FORMS)
def test_positions_and_owners_go_and_pixels_and_notices_stay(
    package_photos: list[tuple[Path, int]], form: Format
) -> None:
    data = _file(package_photos[0][0], form)
    before = _told(data)
    assert OWNER.encode() in before or form == "PNG"
    cleaned = without_metadata(data, form)
    after = _told(cleaned)
    for secret in (OWNER, SERIAL, "GPSLatitude", "48.0, 8.0", OWNER.encode().hex()):
        assert secret.encode() not in after
    assert NOTICE.encode() in after
    assert b"A maker" in after
    image, info = decode(cleaned)
    assert image.tobytes() == decode(data)[0].tobytes()
    # Pillow writes no position into a TIFF.
    assert "has-gps" in decode(data)[1].notes or form == "TIFF"
    assert "has-gps" not in info.notes
    assert "exif-orientation-applied" in info.notes
    # Once clean it stays as it is.
    assert without_metadata(cleaned, form) == cleaned


@pytest.mark.parametrize("form", FORMS[:3])
def test_all_metadata_go_but_what_the_pixels_need(
    package_photos: list[tuple[Path, int]], form: Format
) -> None:
    data = _file(package_photos[0][0], form)
    stripped = without_metadata(data, form, everything=True)
    for said in (OWNER, NOTICE, "A maker", "photographer", "a text"):
        assert said.encode() not in _told(stripped)
    with Image.open(io.BytesIO(stripped)) as image:
        assert dict(image.getexif()) == {274: 6}
        assert image.info["icc_profile"] == _profile()
    assert decode(stripped)[0].tobytes() == decode(data)[0].tobytes()


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_tells_nothing_keeps_its_bytes(
    package_photos: list[tuple[Path, int]], form: Format
) -> None:
    exif = Image.Exif()
    exif[33432], exif[274] = NOTICE, 3
    data = _file(package_photos[1][0], form, MILD, exif=exif, pnginfo=None)
    if form != "PNG":
        assert b"photographer" in data
    assert without_metadata(data, form) == data


def test_what_follows_the_picture_of_a_phone_goes(package_photos: list[tuple[Path, int]]) -> None:
    first = package_photos[0][0].read_bytes()
    data = first + b"ftypmp42" + OWNER.encode()
    assert without_metadata(data, "JPEG") == first
    buffer = io.BytesIO()
    with Image.open(package_photos[0][0]) as one, Image.open(package_photos[1][0]) as two:
        one.save(buffer, "MPO", save_all=True, append_images=[two])
    data = buffer.getvalue()
    cleaned = without_metadata(data, "JPEG")
    assert len(cleaned) < len(data)
    assert decode(data)[1].notes == ("first-frame-of-mpo",)
    assert decode(cleaned)[1].notes == ()
    assert decode(cleaned)[0].tobytes() == decode(data)[0].tobytes()


def test_damaged_exif_goes_as_a_whole_and_the_orientation_stays(
    package_photos: list[tuple[Path, int]],
) -> None:
    block = bytearray(_exif().tobytes()[6:])
    # The directory of the camera begins behind the block's end.
    at = blocks.read_directory(bytes(block), 8, "<" if block[:2] == b"II" else ">").entries[34665]
    struct.pack_into("<I" if block[:2] == b"II" else ">I", block, at[2], 2**31)
    data = _file(package_photos[0][0], "JPEG", MILD, exif=b"Exif\0\0" + bytes(block))
    cleaned = without_metadata(data, "JPEG")
    assert OWNER.encode() not in cleaned
    assert decode(cleaned)[0].tobytes() == decode(data)[0].tobytes()


def tiff_of_a_camera(camera_at: int = 0, left: bytes = b"") -> bytes:
    """A TIFF with a position and the computer's owner, and another directory wherever it is told.

    Args:
        camera_at: where the directory of the camera begins; 0 for none.
        left: bytes that no directory leads to.
    """
    buffer = io.BytesIO()
    exif = Image.Exif()
    exif[316] = OWNER + "'s computer"
    Image.radial_gradient("L").convert("RGB").save(buffer, "TIFF", exif=exif)
    data = buffer.getvalue() + left
    data += b"\0" * (len(data) % 2)
    assert data[:4] == b"II*\0"
    first = blocks.read_directory(data, struct.unpack_from("<I", data, 4)[0], "<")
    entries = {
        tag: struct.pack("<HHI", tag, kind, count) + data[at : at + 4]
        for tag, (kind, count, at) in first.entries.items()
    }
    # A latitude of 48 degrees north: one reference, which stands in its entry.
    gps = struct.pack("<HHHI4sI", 1, 1, 2, 2, b"N\0\0\0", 0)
    entries[34853] = struct.pack("<HHII", 34853, 4, 1, len(data))
    if camera_at:
        entries[34665] = struct.pack("<HHII", 34665, 4, 1, camera_at)
    listed = b"".join(entries[tag] for tag in sorted(entries))
    directory = struct.pack("<H", len(entries)) + listed + bytes(4)
    data = data[:4] + struct.pack("<I", len(data) + len(gps)) + data[8:]
    return data + gps + directory


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(tiff_of_a_camera(2**31), id="damaged"),
        pytest.param(tiff_of_a_camera(left=b"<exif:GPSLatitude>48,8.1N<"), id="left over"),
    ],
)
def test_a_tiff_whose_metadata_cannot_go_alone_is_no_clean_file(data: bytes) -> None:
    assert "has-gps" in decode(data)[1].notes
    with pytest.raises(ValueError, match="cannot be removed alone"):
        without_metadata(data, "TIFF")
    # The whole one loses both.
    whole = tiff_of_a_camera()
    cleaned = without_metadata(whole, "TIFF")
    assert OWNER.encode() in whole
    assert OWNER.encode() not in cleaned
    assert "has-gps" not in decode(cleaned)[1].notes
    assert decode(cleaned)[0].tobytes() == decode(whole)[0].tobytes()


@pytest.mark.parametrize("form", FORMS[:3])
@pytest.mark.parametrize("coding", ["ascii", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    "left", ["exif:GPSLatitude=48,8.1N", "gps position 48.1, 11.5", f"OwnerName {OWNER}"]
)
def test_what_no_directory_of_exif_leads_to_goes_as_well(
    package_photos: list[tuple[Path, int]], form: Format, coding: str, left: str
) -> None:
    block = _exif().tobytes() + left.encode(coding)
    data = _file(package_photos[0][0], form, MILD, exif=block, pnginfo=None)
    assert left.encode(coding) in data
    cleaned = without_metadata(data, form)
    assert left.encode(coding) not in cleaned
    assert decode(cleaned)[0].tobytes() == decode(data)[0].tobytes()
    assert without_metadata(cleaned, form) == cleaned


@settings(max_examples=40, deadline=None)
@given(
    junk=st.binary(max_size=60),
    at=st.integers(0, 300),
    value=st.integers(0, 2**32 - 1),
    form=st.sampled_from(["JPEG", "PNG"]),
)
@example(b"exif:GPSLatitude", 10, 0, "JPEG")
@example(b"exif:GPSLatitude", 10, 0, "PNG")
def test_no_exif_changes_a_pixel_or_fails(junk: bytes, at: int, value: int, form: Format) -> None:
    block = bytearray(_exif(1).tobytes()[6:])
    at = min(at, len(block) - 4)
    struct.pack_into(">I", block, at, value)
    block += junk
    buffer = io.BytesIO()
    Image.radial_gradient("L").resize((80, 80)).convert("RGB").save(buffer, form)
    plain = buffer.getvalue()
    if form == "JPEG":
        body = b"Exif\0\0" + bytes(block)
        data = plain[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + plain[2:]
    else:
        content = b"eXIf" + bytes(block)
        chunk = struct.pack(">I", len(block)) + content + struct.pack(">I", zlib.crc32(content))
        data = plain[:33] + chunk + plain[33:]
    for everything in (False, True):
        cleaned = without_metadata(data, form, everything=everything)
        assert decode_trusted(cleaned).tobytes() == decode_trusted(data).tobytes()
        assert "has-gps" not in decode(cleaned)[1].notes
