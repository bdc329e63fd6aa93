"""GIF, WebP, TIFF, BMP and AVIF: what their structure must satisfy."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from PIL import Image

from curate.settings import ImageLimits
from tests.images.awkward import accepted, array, reason, save, small


def test_a_gif_frame_larger_than_its_screen_counts_by_the_frame(photo: Image.Image) -> None:
    data = bytearray(save(small(photo), "GIF"))
    data[6:10] = struct.pack("<HH", 10, 10)
    assert accepted(bytes(data))[0].shape == (90, 120, 3)
    at = data.index(b",", 13 + 768)
    data[at + 5 : at + 9] = struct.pack("<HH", 60000, 60000)
    assert reason(bytes(data)) == "too-many-pixels"


def test_a_gif_with_a_stray_byte_between_blocks_is_corrupt(photo: Image.Image) -> None:
    data = save(small(photo), "GIF")
    assert reason(data[:-1] + b"x;") == "corrupt-data"


def test_a_gif_without_a_frame_is_corrupt() -> None:
    assert reason(b"GIF89a" + struct.pack("<HHBBB", 100, 100, 0, 0, 0) + b";") == "corrupt-data"


def test_webp_metadata_beyond_the_limit_is_refused(photo: Image.Image) -> None:
    data = save(small(photo), "WEBP", xmp=bytes(5000))
    assert reason(data, limits=ImageLimits(max_metadata_bytes=4999)) == "metadata-bomb"
    accepted(data, limits=ImageLimits(max_metadata_bytes=5000))


def test_a_webp_canvas_is_refused_before_the_decoder_allocates_it(photo: Image.Image) -> None:
    data = bytearray(save(small(photo).convert("RGBA"), "WEBP", xmp=b"x"))
    assert data[12:16] == b"VP8X"
    data[24:30] = (16_383).to_bytes(3, "little") * 2
    assert reason(bytes(data)) == "too-many-pixels"


def test_a_webp_chunk_that_exceeds_the_file_is_corrupt(photo: Image.Image) -> None:
    data = bytearray(save(small(photo), "WEBP"))
    data[16:20] = struct.pack("<I", len(data))
    assert reason(bytes(data)) == "corrupt-data"


def tiff_with(data: bytes, tag: int, kind: int, count: int, value: int) -> bytes:
    """A little-endian TIFF whose entry for `tag` says something else."""
    (at,) = struct.unpack_from("<I", data, 4)
    (entries,) = struct.unpack_from("<H", data, at)
    for entry in range(at + 2, at + 2 + 12 * entries, 12):
        if struct.unpack_from("<H", data, entry)[0] == tag:
            return data[: entry + 2] + struct.pack("<HII", kind, count, value) + data[entry + 12 :]
    raise KeyError(tag)


def test_tiff_strips_behind_the_end_are_truncated(photo: Image.Image) -> None:
    data = save(small(photo), "TIFF")
    assert reason(tiff_with(data, 273, 4, 1, len(data))) == "truncated"


def test_a_tiff_with_millions_of_strips_is_refused_at_once(photo: Image.Image) -> None:
    data = save(small(photo), "TIFF")
    assert reason(tiff_with(data, 273, 4, 100_000_000, 8)) == "corrupt-data"


def test_a_camera_raw_file_is_named(photo: Image.Image) -> None:
    data = save(small(photo), "TIFF", tiffinfo={254: 1})
    assert reason(data) == "unsupported-format"


def test_a_bmp_of_32_bits_and_an_upside_down_one_decode(photo: Image.Image) -> None:
    np.testing.assert_array_equal(
        accepted(save(small(photo).convert("RGBA"), "BMP"))[0], array(small(photo))
    )
    rows = np.asarray(small(photo))[..., ::-1]
    head = struct.pack("<2sIHHI", b"BM", 54 + rows.nbytes, 0, 0, 54)
    info = struct.pack("<IiiHHIIiiII", 40, 120, -90, 1, 24, 0, 0, 0, 0, 0, 0)
    np.testing.assert_array_equal(accepted(head + info + rows.tobytes())[0], array(small(photo)))


@pytest.mark.parametrize("turn", [Image.Transpose.ROTATE_90, Image.Transpose.FLIP_LEFT_RIGHT])
def test_avif_is_turned_as_its_own_properties_say(
    photo: Image.Image, turn: Image.Transpose
) -> None:
    """Pillow writes EXIF orientation as AVIF's rotation and mirror properties."""
    exif = Image.Exif()
    exif[274] = {Image.Transpose.ROTATE_90: 8, Image.Transpose.FLIP_LEFT_RIGHT: 2}[turn]
    pixels, notes = accepted(save(small(photo), "AVIF", exif=exif, quality=90))
    assert np.abs(pixels - array(small(photo).transpose(turn))).mean() < 6
    assert notes == ("exif-orientation-applied",)
