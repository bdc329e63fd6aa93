"""Fingerprints of pictures: of the exact pixels, and of what they look like."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from PIL import Image, ImageOps

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Key = TypeVar("Key")

#: Pictures whose hashes differ in at most so many of 64 bits are called near duplicates. On 1,353
#: photos, resizing, re-encoding and mirroring changed at most 4; the nearest two different photos
#: (studio pictures of like objects in one pose) differed in 6.
NEAR_DISTANCE = 4

_DOMAIN = b"curate pixels 1: rgb8\0"
_PIXELS_AT_ONCE = 1_000_000
_SIDE = 32
_DIGITS = 16


def pixel_sha256(image: Image.Image) -> str:
    """The SHA-256 of a picture's size and pixels, whatever file they came from.

    Args:
        image: of mode RGB.

    Returns:
        64 hexadecimal digits: of a fixed prefix, width and height in eight bytes each, and the
        pixels row by row, three bytes each.

    Raises:
        ValueError: another mode.
    """
    if image.mode != "RGB":
        raise ValueError(f"expected an image of mode RGB, got {image.mode}")
    width, height = image.size
    digest = hashlib.sha256(_DOMAIN)
    digest.update(width.to_bytes(8, "big") + height.to_bytes(8, "big"))
    step = max(1, _PIXELS_AT_ONCE // max(width, 1))
    for top in range(0, height, step):
        # A crop is a copy, which a picture of one piece can do without.
        whole = step >= height
        piece = image if whole else image.crop((0, top, width, min(top + step, height)))
        digest.update(piece.tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class PerceptualHash:
    """What a picture and its mirror image look like, in 64 bits each.

    Attributes:
        picture: DCT hash of the picture, 0 to 2**64 - 1.
        mirror: DCT hash of its mirror image.
    """

    picture: int
    mirror: int

    def __str__(self) -> str:
        """32 hexadecimal digits, from which `from_text` makes the same hash."""
        return f"{self.picture:0{_DIGITS}x}{self.mirror:0{_DIGITS}x}"

    @classmethod
    def from_text(cls, text: str) -> PerceptualHash:
        """The hash that was written as `text`.

        Raises:
            ValueError: not 32 hexadecimal digits.
        """
        if len(text) != 2 * _DIGITS:
            raise ValueError(f"expected {2 * _DIGITS} hexadecimal digits, got {text!r}")
        return cls(int(text[:_DIGITS], 16), int(text[_DIGITS:], 16))


def perceptual_hash(image: Image.Image) -> PerceptualHash:
    """Hash what a picture looks like, so that resizing and re-encoding change few bits.

    The hash is that of the library imagehash (`phash`): the 8 x 8 lowest frequencies of the DCT of
    the picture in 32 x 32 grey pixels, each above the median or not. The picture is reduced once,
    and the small one mirrored.

    Args:
        image: of mode RGB.
    """
    import imagehash

    # Reduced by averaging to no less than three times the size first: a tenth of the time.
    small = image.resize((_SIDE, _SIDE), Image.Resampling.LANCZOS, reducing_gap=3.0).convert("L")
    return PerceptualHash(
        int(str(imagehash.phash(small)), 16), int(str(imagehash.phash(ImageOps.mirror(small))), 16)
    )


def distance(a: PerceptualHash, b: PerceptualHash) -> int:
    """In how many of 64 bits two pictures differ, mirrored or not, whichever is least."""
    return min((x ^ y).bit_count() for x in (a.picture, a.mirror) for y in (b.picture, b.mirror))


class NearIndex(Generic[Key]):
    """Finds the nearest of many perceptual hashes, by comparing with all of them.

    A million hashes take 16 MB, and a look at them some milliseconds.
    """

    def __init__(self) -> None:
        import numpy as np

        self._keys: list[Key] = []
        # One row the pictures, one their mirror images; the columns grow by doubling.
        self._hashes: NDArray[np.uint64] = np.empty((2, 1024), np.uint64)

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: Key, value: PerceptualHash) -> None:
        """Add a hash under a key; keys need not differ."""
        import numpy as np

        count = len(self._keys)
        if count == self._hashes.shape[1]:
            self._hashes = np.concatenate([self._hashes, np.empty_like(self._hashes)], axis=1)
        self._hashes[:, count] = value.picture, value.mirror
        self._keys.append(key)

    def nearest(self, value: PerceptualHash, within: int = NEAR_DISTANCE) -> tuple[Key, int] | None:
        """The key of the nearest hash and its `distance`; the first added of equally near ones.

        Args:
            value: what to look for.
            within: the largest distance that counts.

        Returns:
            None where no hash is as near as that.
        """
        import numpy as np

        if not self._keys:
            return None
        stored = self._hashes[:, : len(self._keys)]
        bits = np.minimum(
            np.bitwise_count(stored ^ np.uint64(value.picture)).min(axis=0),
            np.bitwise_count(stored ^ np.uint64(value.mirror)).min(axis=0),
        )
        place = int(bits.argmin())
        return (self._keys[place], int(bits[place])) if bits[place] <= within else None
