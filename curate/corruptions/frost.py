"""Pictures of frost: drawn, or the user's own.

ImageNet-C lays five photos of frost over its images; they are not shipped here. By default frost is
drawn: five pictures of six-armed crystals over a landscape, as bright, as tinted and as rich in
contrast as the five photos, and the same on every machine. It is another frost than the published
one, and no error under it belongs beside a published number. Whoever has the published pictures
names their folder.

Either way a part of one picture, both at random, lies over the photo.
"""

from __future__ import annotations

import hashlib
import io
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from curate.corruptions.plasma import plasma
from curate.corruptions.terms import Floats, Levels, levels
from curate.errors import UsageError

#: Mean of red, green and blue, and standard deviation, in grey levels, of the five photos that the
#: published code draws from (its second and third are one picture).
KINDS = (
    ((78.0, 149.0, 166.0), 19.0),
    ((201.0, 205.0, 214.0), 22.0),
    ((201.0, 205.0, 214.0), 22.0),
    ((138.0, 153.0, 165.0), 28.0),
    ((112.0, 123.0, 135.0), 43.0),
)

#: The published pictures and their SHA-256 (as the package imagecorruptions 1.1.2 ships them), in
#: their order; the sixth, frost6.jpg, is never drawn there.
PUBLISHED = {
    "frost1.png": "ff9f907860bd7a835d459e32f9d588062b7f61ee267343cc7222b56753a14755",
    "frost2.png": "fe211a89b336999c207a852ce05818d4545d0b57c5beadd824b4cc9d9a9b6137",
    "frost3.png": "2d0d50b4a9bb213f38b024ef7768731bb83cc08d2f26b5766bbc167cdfa0e504",
    "frost4.jpg": "3f8b91ca1a9fa7167b09e773da53f5ae60d0a1fd88f02a783f6e328a72887f6e",
    "frost5.jpg": "5fc6a19df4a429ba68abdcc8f8a4278d4c9f81c9ccafd2c92ab0c8cf8992ebd2",
}

_SUFFIXES = frozenset({".png", ".jpg", ".jpeg"})
_MOST_BYTES = 64 << 20
_MOST_PIXELS = 50_000_000
_MOST_PICTURES = 100


@dataclass(frozen=True)
class FrostPictures:
    """The pictures of frost in a folder; small, and what a worker process is handed.

    Attributes:
        folder: where they lie.
        pictures: name and SHA-256 of each, in the order in which they are drawn from.
    """

    folder: Path
    pictures: tuple[tuple[str, str], ...]

    @classmethod
    def open(cls, folder: Path) -> FrostPictures:
        """Look at a folder's pictures.

        Args:
            folder: with the published frost1.png … frost5.jpg, which are then the ones and drawn
                from in that order, or with any PNG and JPEG files, taken by name.

        Raises:
            UsageError: there is no such folder, no picture in it, too many, or one that cannot be
                read.
        """
        try:
            names = sorted(
                path.name for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES
            )
        except OSError as error:
            raise UsageError(f"pictures of frost: {folder}: {error.strerror or error}") from error
        if set(PUBLISHED) <= set(names):
            names = list(PUBLISHED)
        if not names:
            raise UsageError(f"pictures of frost: {folder} holds no PNG or JPEG file")
        if len(names) > _MOST_PICTURES:
            raise UsageError(
                f"pictures of frost: {folder} holds {len(names)} pictures, at most "
                f"{_MOST_PICTURES} are taken"
            )
        found = []
        for name in names:
            data = _bytes_of(folder / name)
            _decoded(data, folder / name)
            found.append((name, hashlib.sha256(data).hexdigest()))
        return cls(folder, tuple(found))

    @property
    def are_published(self) -> bool:
        """Whether these are byte for byte the five pictures that ImageNet-C was made with."""
        return dict(self.pictures) == PUBLISHED

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the pictures' own, in order."""
        return hashlib.sha256("".join(digest for _, digest in self.pictures).encode()).hexdigest()

    def cut(self, shape: tuple[int, int], unit: float, rng: np.random.Generator) -> Levels:
        """A part of one of the pictures, at random; see `part_of`.

        Raises:
            UsageError: a picture is gone, or no longer what it was.
        """
        name, digest = self.pictures[int(rng.integers(len(self.pictures)))]
        return part_of(_picture(self.folder / name, digest), shape, unit, rng)


def drawn_frost(shape: tuple[int, int], unit: float, rng: np.random.Generator) -> Levels:
    """A part of one of the drawn pictures, at random; see `part_of`."""
    return part_of(drawn_picture(int(rng.integers(len(KINDS)))), shape, unit, rng)


def part_of(
    picture: Levels, shape: tuple[int, int], unit: float, rng: np.random.Generator
) -> Levels:
    """A part of a picture, at random.

    A picture that is too small for it is enlarged until it covers it; the published code breaks
    there.

    Args:
        picture: RGB.
        shape: the part's height and width.
        unit: how much larger than the published crop's the pixels' measure is.
        rng: draws row and column.
    """
    height, width = shape
    factor = max(unit, height / picture.shape[0], width / picture.shape[1])
    tall = max(height, round(picture.shape[0] * factor))
    wide = max(width, round(picture.shape[1] * factor))
    top = int(rng.integers(tall - height + 1))
    left = int(rng.integers(wide - width + 1))
    if factor == 1.0:
        return picture[top : top + height, left : left + width]
    from PIL import Image

    down, across = picture.shape[0] / tall, picture.shape[1] / wide
    box = (left * across, top * down, (left + width) * across, (top + height) * down)
    part = Image.fromarray(picture).resize((width, height), Image.Resampling.BILINEAR, box)
    return np.array(part)


def _bytes_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"picture of frost: {path}: {error.strerror or error}") from error
    if len(data) > _MOST_BYTES:
        raise UsageError(f"picture of frost: {path} is larger than {_MOST_BYTES >> 20} MiB")
    return data


def _decoded(data: bytes, path: Path) -> Levels:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as picture:
            if picture.width * picture.height > _MOST_PIXELS:
                raise UsageError(f"picture of frost: {path} has over {_MOST_PIXELS:,} pixels")
            if picture.mode.startswith(("I", "F")):
                # Pillow would cut all above 255 off.
                raise UsageError(f"picture of frost: {path} has 16 bits a pixel: save it with 8")
            return np.array(picture.convert("RGB"))
    except UnidentifiedImageError as error:
        raise UsageError(f"picture of frost: {path} is neither PNG nor JPEG") from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"picture of frost: {path} cannot be decoded: {error}") from error


@lru_cache(maxsize=6)
def _picture(path: Path, digest: str) -> Levels:
    data = _bytes_of(path)
    if hashlib.sha256(data).hexdigest() != digest:
        raise UsageError(f"picture of frost: {path} has been changed since the run began")
    picture = _decoded(data, path)
    picture.flags.writeable = False
    return picture


#: Height and width of a drawn picture: about the published ones'.
_SIZE = (512, 768)

#: Lengths of the arms of each generation of crystals, and how many grow on a picture.
_CRYSTALS = ((14, 2600), (34, 420), (80, 60))

#: Where a crystal's side branches begin along an arm.
_BRANCHES = (0.2, 0.35, 0.5, 0.65, 0.8)


@lru_cache(maxsize=len(KINDS))
def drawn_picture(kind: int) -> Levels:
    """The drawn picture of a kind, 0 … 4.

    Crystals fall at random; their arms fade outwards, and lie over a landscape.
    """
    from scipy import fft

    rng = np.random.Generator(np.random.PCG64(kind))
    tint, deviation = KINDS[kind]
    grown = np.zeros((_SIZE[0], _SIZE[1] // 2 + 1), np.complex64)
    for reach, count in _CRYSTALS:
        # Each generation is turned in several ways: one would look woven.
        for turned in rng.uniform(0.0, 60.0, 3):
            seeds = np.zeros(_SIZE, np.float32)
            places = rng.integers(0, seeds.size, count // 3)
            seeds.reshape(-1)[places] = rng.random(places.size, dtype=np.float32)
            grown += fft.rfft2(seeds) * fft.rfft2(_crystal(reach, turned))
    crystals = np.sqrt(fft.irfft2(grown, _SIZE).clip(0.0))
    ground = plasma(rng, 1024, 1.6)[: _SIZE[0], : _SIZE[1]]
    # Crystals grow where the landscape is high.
    picture = crystals * (ground + np.float32(0.2)) + np.float32(0.5) * ground
    picture -= picture.mean(dtype=np.float64)
    picture *= np.float32(deviation / picture.std(dtype=np.float64))
    drawn = levels(picture[..., None] + np.array(tint, np.float32))
    drawn.flags.writeable = False
    return drawn


def _crystal(reach: int, turned: float) -> Floats:
    """Six arms with side branches, the middle at the origin of a torus."""
    crystal = np.zeros(_SIZE, np.float32)
    for arm in range(6):
        main = math.radians(turned + 60.0 * arm)
        _line(crystal, (0.0, 0.0), main, reach, 1.0)
        for share in _BRANCHES:
            start = (share * reach * math.sin(main), share * reach * math.cos(main))
            for side in (-60.0, 60.0):
                angle = main + math.radians(side)
                _line(crystal, start, angle, 0.45 * (1.0 - share) * reach, 0.7)
    return crystal


def _line(
    onto: Floats, start: tuple[float, float], angle: float, length: float, strength: float
) -> None:
    steps = np.arange(0.0, length, 0.5)
    rows = np.rint(start[0] + steps * math.sin(angle)).astype(np.int64) % onto.shape[0]
    columns = np.rint(start[1] + steps * math.cos(angle)).astype(np.int64) % onto.shape[1]
    bright: NDArray[np.float32] = (strength * (1.0 - steps / length)).astype(np.float32)
    np.maximum.at(onto, (rows, columns), bright)
