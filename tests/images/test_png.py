"""PNG: every checksum counts, and metadata cannot hurt."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from PIL import Image

from curate.settings import ImageLimits
from tests.images.awkward import accepted, array, chunk, map_chunks, reason, save, small, with_chunk


@pytest.fixture(scope="module")
def png(photo: Image.Image) -> bytes:
    return save(small(photo), "PNG")


def bomb(size: int) -> bytes:
    return zlib.compress(bytes(size), 9)


@pytest.mark.parametrize(
    ("kind", "head"),
    [(b"zTXt", b"k\0\0"), (b"iTXt", b"k\0\x01\0\0\0"), (b"iCCP", b"k\0\0")],
)
def test_a_chunk_that_unpacks_to_too_much_is_a_bomb(
    png: bytes, photo: Image.Image, kind: bytes, head: bytes
) -> None:
    limits = ImageLimits(max_metadata_bytes=3_000_000)
    assert reason(with_chunk(png, kind, head + bomb(3_000_001)), limits=limits) == "metadata-bomb"
    # Pillow's own limit is one MiB; below ours such a chunk is harmless.
    fits = with_chunk(png, kind, head + bomb(2_900_000))
    pixels, notes = accepted(fits, limits=limits)
    np.testing.assert_array_equal(pixels, array(small(photo)))
    assert notes == (("icc-unreadable",) if kind == b"iCCP" else ())


def test_many_small_bombs_are_a_bomb(png: bytes) -> None:
    data = png
    for _ in range(4):
        data = with_chunk(data, b"zTXt", b"k\0\0" + bomb(1_000_000))
    assert reason(data, limits=ImageLimits(max_metadata_bytes=3_999_999)) == "metadata-bomb"
    accepted(data, limits=ImageLimits(max_metadata_bytes=4_000_000))


def test_a_huge_metadata_chunk_is_refused(png: bytes) -> None:
    limits = ImageLimits(max_metadata_bytes=10_000)
    assert reason(with_chunk(png, b"eXIf", bytes(10_001)), limits=limits) == "metadata-bomb"


def test_damaged_text_does_no_harm(png: bytes, photo: Image.Image) -> None:
    for content in (b"", b"k", b"k\0", b"k\0\0broken", b"k\0\x07", b"\0\0\0"):
        for kind in (b"zTXt", b"iTXt", b"tEXt"):
            pixels, _ = accepted(with_chunk(png, kind, content))
            np.testing.assert_array_equal(pixels, array(small(photo)))


def test_one_wrong_bit_anywhere_behind_the_signature_is_refused(png: bytes) -> None:
    rng = np.random.default_rng(0)
    for at in rng.integers(8, len(png), 60):
        wrong = bytearray(png)
        wrong[at] ^= 1 << int(rng.integers(8))
        assert reason(bytes(wrong)) in ("corrupt-data", "truncated", "unsupported-format")


def test_a_wrong_length_in_a_whole_file_is_corrupt(png: bytes) -> None:
    at = png.index(b"IDAT") - 4
    assert reason(png[:at] + b"\0\xff\0\0" + png[at + 4 :]) == "corrupt-data"


def test_image_data_that_end_early_are_refused(png: bytes) -> None:
    def cut(kind: bytes, content: bytes) -> bytes:
        return content[: len(content) // 2] if kind == b"IDAT" else content

    assert reason(map_chunks(png, cut)) in ("truncated", "corrupt-data")


def test_a_png_without_image_data_is_refused(png: bytes) -> None:
    assert reason(png[:33] + chunk(b"IEND", b"")) == "corrupt-data"


def test_two_headers_are_refused(png: bytes) -> None:
    assert reason(with_chunk(png, b"IHDR", png[16:29])) == "corrupt-data"


def test_an_animation_of_one_frame_is_a_still_image(png: bytes, photo: Image.Image) -> None:
    one = with_chunk(png, b"acTL", (1).to_bytes(4) + bytes(4))
    np.testing.assert_array_equal(accepted(one)[0], array(small(photo)))
    many = with_chunk(png, b"acTL", (2).to_bytes(4) + bytes(4))
    assert reason(many) == "animated"


def test_interlaced_and_plain_give_the_same_pixels(awkward_files: dict[str, bytes]) -> None:
    interlaced = accepted(awkward_files["interlaced.png"])[0]
    again = save(Image.fromarray(interlaced.astype(np.uint8)), "PNG")
    np.testing.assert_array_equal(accepted(again)[0], interlaced)
