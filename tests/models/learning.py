"""Small folders to learn from, made of real photos: a class is the photo that a tile comes from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from PIL import Image

NAMES = ("red crane", "harbour", "meadow", "tower", "bridge")


def make_tiles(
    root: Path, photos: Sequence[Path], each: int, *, side: int = 96, first: int = 0
) -> Path:
    """Class folders c0, c1 … of tiles, lossless, the same each time."""
    for number, path in enumerate(photos):
        folder = root / f"c{number}"
        folder.mkdir(parents=True)
        image = Image.open(path).convert("RGB")
        image = image.resize((256, 256))
        for tile in range(first, first + each):
            random = Random(f"{number}:{tile}")
            left, top = (int(random.random() * (256 - side)) for _ in range(2))
            box = (left, top, left + side, top + side)
            image.crop(box).save(folder / f"{tile:02}.png")
    return root


def make_labels(path: Path, many: int) -> Path:
    """A label space of the classes c0, c1 …"""
    rows = [f"c{n},{NAMES[n]}\n" for n in range(many)]
    path.write_text("id,name\n" + "".join(rows), encoding="utf-8")
    return path
