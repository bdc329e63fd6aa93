"""Frost: drawn by default, or parts of the user's pictures."""

from __future__ import annotations

import pickle
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from curate.corruptions import FrostPictures, corrupt, describe
from curate.corruptions.apply import generator
from curate.corruptions.catalogue import BUILT_IN
from curate.corruptions.frost import KINDS, PUBLISHED, drawn_picture
from curate.errors import UsageError
from tests.corruptions.published import published

IMAGE = np.random.default_rng(0).integers(0, 256, (40, 56, 3), dtype=np.uint8)


def filled(folder: Path, *names: str, size: tuple[int, int] = (70, 90)) -> list[Any]:
    """A folder with pictures of noise; what they hold, once they were decoded."""
    pictures = []
    for number, name in enumerate(names):
        noise = np.random.default_rng(number).integers(0, 256, (*size, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / name)
        with Image.open(folder / name) as opened:
            pictures.append(np.array(opened.convert("RGB")))
    return pictures


def test_a_users_pictures_are_laid_over_as_published(tmp_path: Path) -> None:
    pictures = filled(tmp_path, "a.png", "b.jpg", "c.JPEG")
    (tmp_path / "notes.txt").write_text("none of them")
    frost = FrostPictures.open(tmp_path)
    assert [name for name, _ in frost.pictures] == ["a.png", "b.jpg", "c.JPEG"]
    for severity, constants in enumerate(BUILT_IN["frost"].constants, 1):
        rng = generator("frost", severity, 3)
        expected = published(IMAGE, "frost", constants, rng, pictures=pictures).astype(int)
        made = corrupt(IMAGE, "frost", severity, 3, frost=frost)
        assert np.abs(made - expected).max() <= 1


def test_the_sixth_of_the_published_names_is_never_drawn(tmp_path: Path) -> None:
    filled(tmp_path, *PUBLISHED, "frost6.jpg", "more.png")
    frost = FrostPictures.open(tmp_path)
    assert [name for name, _ in frost.pictures] == list(PUBLISHED)
    # The names alone do not make them the published ones.
    assert not frost.are_published
    told = describe("frost", frost=frost)
    assert told["frost"] == "pictures of the user's"
    assert told["sha256"] == frost.fingerprint
    assert FrostPictures(tmp_path, tuple(PUBLISHED.items())).are_published


def test_pictures_are_handed_to_another_process_by_name(tmp_path: Path) -> None:
    filled(tmp_path, "a.png")
    frost = FrostPictures.open(tmp_path)
    handed = pickle.dumps(frost)
    assert len(handed) < 1000
    expected = corrupt(IMAGE, "frost", 2, 0, frost=frost)
    np.testing.assert_array_equal(
        corrupt(IMAGE, "frost", 2, 0, frost=pickle.loads(handed)), expected
    )


@pytest.mark.parametrize("scale", ["none", "short-side"])
def test_a_picture_that_is_smaller_than_the_photo_is_enlarged(scale: Any, tmp_path: Path) -> None:
    Image.new("RGB", (9, 5), (10, 200, 100)).save(tmp_path / "small.png")
    frost = FrostPictures.open(tmp_path)
    black = np.zeros((300, 70, 3), np.uint8)
    made = corrupt(black, "frost", 5, 0, frost=frost, scale=scale)
    np.testing.assert_array_equal(made, np.broadcast_to([7, 150, 75], black.shape))


def test_a_picture_that_was_changed_or_is_gone_is_one_line(tmp_path: Path) -> None:
    filled(tmp_path, "a.png")
    frost = FrostPictures.open(tmp_path)
    filled(tmp_path, "b.png", "a.png")
    with pytest.raises(UsageError, match=r"a.png has been changed since the run began"):
        corrupt(IMAGE, "frost", 1, 0, frost=frost)
    (tmp_path / "a.png").unlink()
    with pytest.raises(UsageError, match=r"a.png: No such file or directory"):
        corrupt(IMAGE, "frost", 1, 0, frost=frost)


def header_of(width: int, height: int) -> bytes:
    """A PNG file that promises so many pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    whole = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    return b"\x89PNG\r\n\x1a\n" + whole + struct.pack(">I", 1 << 20) + b"IDAT"


def test_a_folder_without_usable_pictures_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="absent: No such file or directory"):
        FrostPictures.open(tmp_path / "absent")
    with pytest.raises(UsageError, match="holds no PNG or JPEG file"):
        FrostPictures.open(tmp_path)
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    with pytest.raises(UsageError, match=r"broken.png (cannot be decoded|is neither)") as caught:
        FrostPictures.open(tmp_path)
    assert "\n" not in str(caught.value)
    (tmp_path / "broken.png").write_bytes(b"nothing of the kind")
    with pytest.raises(UsageError, match=r"broken.png is neither PNG nor JPEG$"):
        FrostPictures.open(tmp_path)
    Image.fromarray(np.full((9, 9), 40_000, np.uint16)).save(tmp_path / "broken.png")
    with pytest.raises(UsageError, match=r"broken.png has 16 bits a pixel: save it with 8"):
        FrostPictures.open(tmp_path)
    (tmp_path / "broken.png").unlink()
    (tmp_path / "huge.png").write_bytes(header_of(8000, 7000))
    with pytest.raises(UsageError, match=r"huge.png has over 50,000,000 pixels"):
        FrostPictures.open(tmp_path)


def test_drawn_frost_is_as_bright_as_the_published_pictures() -> None:
    for kind, (tint, deviation) in enumerate(KINDS):
        picture = drawn_picture(kind).astype(float)
        np.testing.assert_allclose(picture.mean(axis=(0, 1)), tint, atol=2.0)
        np.testing.assert_allclose(picture.std(axis=(0, 1)), deviation, atol=4.0)


def test_drawn_frost_is_not_one_picture() -> None:
    black = np.zeros((30, 30, 3), np.uint8)
    made = {corrupt(black, "frost", 1, seed).tobytes() for seed in range(20)}
    assert len(made) == 20
