"""Real photos for the tests of decoding."""

from __future__ import annotations

import csv
import tarfile
from pathlib import Path

import pytest
from PIL import Image

from curate.files import printable


@pytest.fixture(scope="session")
def photo_bytes(package_photos: list[tuple[Path, int]]) -> bytes:
    """A real JPEG (progressive, 512 x 512)."""
    return package_photos[2][0].read_bytes()


@pytest.fixture(scope="session")
def photo(package_photos: list[tuple[Path, int]]) -> Image.Image:
    """The same, decoded by Pillow alone."""
    with Image.open(package_photos[2][0]) as image:
        return image.convert("RGB")


@pytest.fixture(scope="session")
def real_photos(shared_data: Path) -> list[Path]:
    """The 1,353 real photos."""
    folder = shared_data / "photos"
    with (folder / "labels.csv").open(encoding="utf-8", newline="") as stream:
        return [folder / row["path"] for row in csv.DictReader(stream)]


@pytest.fixture(scope="session")
def awkward_files(shared_data: Path) -> dict[str, bytes]:
    """The regular files of nasty.tar, by their names as nasty.csv writes them."""
    found = {}
    with tarfile.open(shared_data / "nasty.tar") as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is not None:
                found[printable(member.name.removeprefix("./"))] = stream.read()
    return found


@pytest.fixture(scope="session")
def awkward_table(shared_data: Path) -> list[dict[str, str]]:
    with (shared_data / "nasty.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))
