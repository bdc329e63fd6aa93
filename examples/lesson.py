"""A corruption table without a photo, a network or a GPU: see how to read one.

    python examples/lesson.py

Discs, squares and triangles of 32 pixels are told apart by the nearest mean picture. Six ways to
damage them, five severities each, go through the same functions as the tables of `curate
robustness corruptions`; bring a model and corruptions of your own in the same way.

The first table hides a total failure (brightness) behind a mild mean, and a cliff (contrast).
In the second one the same model looks at pictures brought to mean 0 and deviation 1, and nothing
was trained anew: brightness and contrast do no harm any more, pixelation more than before.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from PIL import Image
from scipy.ndimage import gaussian_filter

from curate.testbed.corruption_errors import Table, try_corruptions
from curate.testbed.corruption_text import text_table

SIDE = 32
SHAPES = ("disc", "square", "triangle")
DARK, BRIGHT = 0.15, 0.85

Pictures = np.ndarray


def shape_mask(shape: str, radius: int, row: int, column: int) -> np.ndarray:
    """Where a shape covers the picture."""
    down, right = np.ogrid[:SIDE, :SIDE]
    down, right = down - row, right - column
    if shape == "disc":
        return down**2 + right**2 <= radius**2
    height = np.abs(down) <= radius
    # A triangle's half width grows from nothing at its top to the radius at its foot.
    half = radius if shape == "square" else (down + radius) / 2
    return height & (np.abs(right) <= half)


def draw(shape: str, random: np.random.Generator) -> np.ndarray:
    """A bright shape on a dark ground, somewhere near the middle, with a little noise."""
    radius = random.integers(8, 12)
    row, column = (SIDE // 2 + random.integers(-2, 3) for _ in range(2))
    picture = np.where(shape_mask(shape, radius, row, column), BRIGHT, DARK)
    return np.clip(picture + random.normal(0, 0.02, picture.shape), 0, 1)


def sample(count: int, random: np.random.Generator) -> tuple[Pictures, np.ndarray]:
    """Pictures and the numbers of their shapes."""
    labels = random.integers(0, len(SHAPES), size=count)
    return np.stack([draw(SHAPES[label], random) for label in labels]), labels


def as_is(pictures: Pictures) -> Pictures:
    """Pixels as they are."""
    return pictures


def standardised(pictures: Pictures) -> Pictures:
    """Each picture with mean 0 and deviation 1."""
    mean = pictures.mean(axis=(1, 2), keepdims=True)
    deviation = pictures.std(axis=(1, 2), keepdims=True) + 1e-6
    return (pictures - mean) / deviation


@dataclass
class NearestMean:
    """Predicts the class whose mean training picture is nearest."""

    prepare: Callable[[Pictures], Pictures]
    means: np.ndarray

    @classmethod
    def trained(
        cls, prepare: Callable[[Pictures], Pictures], pictures: Pictures, labels: np.ndarray
    ) -> NearestMean:
        """Learn from pictures, each prepared like those to come."""
        of_each = (prepare(pictures[labels == n]).mean(axis=0) for n in range(len(SHAPES)))
        return cls(prepare, np.stack(list(of_each)))

    def __call__(self, pictures: Pictures) -> np.ndarray:
        """The number of the nearest class of each picture."""
        away = self.prepare(pictures)[:, None] - self.means[None]
        return (away**2).sum(axis=(2, 3)).argmin(axis=1)


class Corruptions:
    """Six ways to damage pictures in [0, 1], by severity 1 … 5."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random

    def gaussian_noise(self, pictures: Pictures, severity: int) -> Pictures:
        """As a small sensor sees in the dark."""
        deviation = (0.04, 0.08, 0.12, 0.18, 0.26)[severity - 1]
        return np.clip(pictures + self._random.normal(0, deviation, pictures.shape), 0, 1)

    def blur(self, pictures: Pictures, severity: int) -> Pictures:
        """Out of focus."""
        sigma = (0.6, 1.0, 1.4, 1.9, 2.5)[severity - 1]
        return np.stack([gaussian_filter(picture, sigma) for picture in pictures])

    def contrast(self, pictures: Pictures, severity: int) -> Pictures:
        """Everything nearer to the mean of all."""
        factor, mean = (0.65, 0.5, 0.38, 0.28, 0.18)[severity - 1], pictures.mean()
        return np.clip((pictures - mean) * factor + mean, 0, 1)

    def brightness(self, pictures: Pictures, severity: int) -> Pictures:
        """More light."""
        return np.clip(pictures + (0.1, 0.18, 0.26, 0.34, 0.42)[severity - 1], 0, 1)

    def pixelate(self, pictures: Pictures, severity: int) -> Pictures:
        """Made small and large again."""
        small = (SIDE // (2, 3, 4, 6, 8)[severity - 1],) * 2
        sides = (SIDE, SIDE)
        return from_bytes(
            image.resize(small, Image.Resampling.BOX).resize(sides, Image.Resampling.NEAREST)
            for image in as_bytes(pictures)
        )

    def jpeg(self, pictures: Pictures, severity: int) -> Pictures:
        """Compressed too much."""
        quality = (40, 25, 15, 10, 7)[severity - 1]
        return from_bytes(compressed(image, quality) for image in as_bytes(pictures))

    def by_name(self) -> dict[str, Callable[[Pictures, int], Pictures]]:
        """All of them."""
        return {
            corrupt.__name__: corrupt
            for corrupt in (
                self.gaussian_noise,
                self.blur,
                self.contrast,
                self.brightness,
                self.pixelate,
                self.jpeg,
            )
        }


def as_bytes(pictures: Pictures) -> Iterator[Image.Image]:
    """Pictures with 8 bits a pixel."""
    return (Image.fromarray((picture * 255).astype(np.uint8)) for picture in pictures)


def from_bytes(images: Iterator[Image.Image]) -> Pictures:
    """The reverse."""
    return np.stack([np.asarray(image, np.float64) / 255 for image in images])


def compressed(image: Image.Image, quality: int) -> Image.Image:
    """An image after a JPEG file."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file)


def tables() -> dict[str, Table]:
    """Both tables, by what the model looks at."""
    random = np.random.default_rng(7)
    training, test = sample(300, random), sample(300, random)
    found = {}
    for title, prepare in (
        ("raw pixels", as_is),
        ("same model, each image standardised first", standardised),
    ):
        model = NearestMean.trained(prepare, *training)
        corruptions = Corruptions(random).by_name()
        found[title] = try_corruptions(model, *test, corruptions, classes=len(SHAPES))
    return found


def main() -> None:
    """Print both tables, and below each what its rows are like."""
    for title, table in tables().items():
        print(f"=== {title} ===")
        print("\n".join(text_table(table, marked=False)))
        print("shapes: " + "; ".join(f"{row.corruption} {row.told}" for row in table.rows))
        print()


if __name__ == "__main__":
    main()
