"""The 83 awkward files: every one that is a file meets what the table expects of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from curate.errors import ImageRefused
from curate.files import sha256_bytes
from curate.images import NEAR_DISTANCE, decode, distance, perceptual_hash, pixel_sha256
from tests.images.awkward import accepted, array


def verdict(data: bytes, name: str) -> tuple[str, str]:
    try:
        decode(data, name=name)
    except ImageRefused as refusal:
        return "reject", refusal.reason
    return "accept", ""


def test_each_awkward_file_gets_the_verdict_of_the_table(
    awkward_files: dict[str, bytes], awkward_table: list[dict[str, str]]
) -> None:
    assert len(awkward_table) == 83
    checked, wrong = 0, []
    for row in awkward_table:
        if row["reason"] in ("symlink", "not-a-file"):
            continue  # No bytes to decode; collecting refuses these.
        expected = (row["expect"], row["reason"])
        if row["reason"].startswith("duplicate"):
            expected = ("accept", "")  # Duplicates are sound by themselves.
        got = verdict(awkward_files[row["file"]], row["file"])
        checked += 1
        if got != expected:
            wrong.append((row["file"], expected, got))
    assert wrong == []
    assert checked == 80


def test_trusted_decoding_gives_the_same_pixels_of_each_accepted_file(
    awkward_files: dict[str, bytes], awkward_table: list[dict[str, str]]
) -> None:
    sound = [row for row in awkward_table if row["expect"] == "accept"]
    for row in sound:
        accepted(awkward_files[row["file"]])
    assert len(sound) == 43


def test_the_group_of_duplicates_is_recognised(awkward_files: dict[str, bytes]) -> None:
    names = ("dup_a.jpg", "dup_b.jpg", "dup_c.png", "dup_d.jpg", "dup_e_flip.jpg")
    files = [awkward_files[name] for name in names]
    pictures = [decode(data)[0] for data in files]
    shas = [sha256_bytes(data) for data in files]
    pixels = [pixel_sha256(picture) for picture in pictures]
    hashes = [perceptual_hash(picture) for picture in pictures]
    assert shas[0] == shas[1] != shas[2]
    assert pixels[0] == pixels[2]
    assert len({pixels[0], pixels[3], pixels[4]}) == 3
    assert max(distance(hashes[0], other) for other in hashes[1:]) <= NEAR_DISTANCE


def test_the_three_rotated_files_agree_upright(awkward_files: dict[str, bytes]) -> None:
    first, *others = (accepted(awkward_files[f"exif_rot{n}.jpg"])[0] for n in (3, 5, 6))
    assert first.shape == (400, 500, 3)
    for other in others:
        # The three are compressed in different directions.
        assert np.abs(first - other).mean() < 5
        assert np.abs(first - other[:, ::-1]).mean() > 20


def test_bad_exif_is_ignored_with_a_note(awkward_files: dict[str, bytes]) -> None:
    assert accepted(awkward_files["exif_garbage.jpg"])[1] == ("exif-unreadable",)
    assert accepted(awkward_files["exif_bad_orientation.jpg"])[1] == ()
    assert accepted(awkward_files["exif_gps.jpg"])[1] == ("has-gps",)


def test_cmyk_colours_are_not_inverted(awkward_files: dict[str, bytes]) -> None:
    """The same photo is among the files, unconverted, under a name with blanks."""
    cmyk = accepted(awkward_files["cmyk.jpg"])[0]
    plain = accepted(awkward_files[" spaces .jpg"])[0]
    assert np.abs(cmyk - plain).mean() < 12
    assert np.abs((255 - cmyk) - plain).mean() > 50


def test_16_bit_grey_keeps_its_range(awkward_files: dict[str, bytes]) -> None:
    """The same photo is there in colour."""
    grey = accepted(awkward_files["gray16.png"])[0]
    colour = Image.fromarray(accepted(awkward_files["percent%2F..%2Fup.jpg"])[0].astype(np.uint8))
    assert np.abs(grey[..., 0] - array(colour.convert("L"))).mean() < 3


@pytest.mark.slow
@pytest.mark.photos
def test_no_real_photo_is_refused_and_trusted_decoding_agrees(real_photos: list[Path]) -> None:
    assert len(real_photos) == 1353
    for path in real_photos:
        accepted(path.read_bytes())


@pytest.mark.photos
def test_photos_without_a_profile_decode_as_pillow_alone_does(real_photos: list[Path]) -> None:
    compared = 0
    for path in real_photos[::20]:
        pixels, notes = accepted(path.read_bytes())
        with Image.open(path) as image:
            plain = array(image.convert("RGB"))
        if "icc-converted" in notes:
            assert (pixels != plain).any()
        else:
            np.testing.assert_array_equal(pixels, plain)
            compared += 1
    assert compared > 50
