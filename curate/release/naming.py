"""What the files of a release are called."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from curate.files import printable

#: By content, or as ImageNet-A names its files.
NAMINGS = ("hash", "paper")

#: Hexadecimal digits of the SHA-256 in a name.
_DIGITS = 16

# Most bytes of a class name in a file name. File systems take 255: two names, two numbers, a whole
# SHA-256 and the extension fit.
_LONGEST = 80

# What Windows refuses in names, and what ends a name or a path anywhere.
_UNSAFE = re.compile(r'[<>:"/\\|?*]')


def hash_stems(digests: Iterable[str], digits: int = _DIGITS) -> dict[str, str]:
    """For each SHA-256 its first digits: as many as tell it from the others, at least `digits`.

    Args:
        digests: all of one length, hexadecimal; repeated ones count once.
        digits: how many are enough where nothing collides.
    """
    ordered = sorted(set(digests))
    shared = [0, *(_shared_digits(a, b) for a, b in pairwise(ordered)), 0]
    return {
        digest: digest[: max(digits, before + 1, after + 1)]
        for digest, before, after in zip(ordered, shared, shared[1:], strict=False)
    }


def paper_stem(p_true: float, predicted: str, second: str, confidence: float) -> str:
    """A file name as ImageNet-A has them, without extension.

    For example "0.000348_chameleon _ box turtle_0.55540705". Signs that some file system refuses
    become an underscore, and long names are cut.

    Args:
        p_true: probability of the true class.
        predicted: name of what the first model predicts.
        second: name of what the second model predicts.
        confidence: probability of the first model's prediction.
    """
    return f"{p_true:.6f}_{_safe(predicted)} _ {_safe(second)}_{confidence:.8f}"


def unique_stems(stems: Sequence[str], digests: Sequence[str]) -> list[str]:
    """The stems of one folder; where several are alike, each gets digits of its SHA-256.

    Alike are stems that differ in case alone: on macOS and Windows they name one file.

    Args:
        stems: one a file.
        digests: the SHA-256 of each file, all different.
    """
    alike = Counter(stem.casefold() for stem in stems)
    told = hash_stems(digests)
    return [
        f"{stem}_{told[digest]}" if alike[stem.casefold()] > 1 else stem
        for stem, digest in zip(stems, digests, strict=True)
    ]


def _shared_digits(a: str, b: str) -> int:
    return next(place for place, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)


def _safe(name: str) -> str:
    text = _UNSAFE.sub("_", unicodedata.normalize("NFC", printable(name)))
    text = "".join("_" if unicodedata.category(sign)[0] == "C" else sign for sign in text)
    return text.encode()[:_LONGEST].decode("utf-8", "ignore")
