"""What the tests of the filtration share: real photos of many shapes."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image


@pytest.fixture(scope="session")
def pictures(package_photos: list[tuple[Path, int]]) -> list[Image.Image]:
    photos = [Image.open(path).convert("RGB") for path, _ in package_photos]
    # Wide, tall and odd sizes, so that corners and centre differ.
    return [p.crop((0, 0, 180 + 4 * n, 224 - 5 * n)) for n, p in enumerate(photos)]
