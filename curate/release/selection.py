"""Which of the images that could be released are, where there are more than wanted of a class.

The order depends on the seed and on content alone, never on scores: whoever takes the most
confident mistakes first makes another, harder dataset without saying so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from curate.errors import UsageError
from curate.files import sha256_bytes


def ranks(classes: Mapping[str, str], seed: int) -> dict[str, int]:
    """The place of each candidate in the order of its class, from 1.

    Args:
        classes: key of the candidate to the class that it is counted by.
        seed: of the order.
    """
    by_class: dict[str, list[str]] = defaultdict(list)
    for key, name in classes.items():
        by_class[name].append(key)
    return {
        key: place
        for keys in by_class.values()
        for place, key in enumerate(sorted(keys, key=lambda k: _lot(seed, k)), start=1)
    }


def falling_short(
    counts: Mapping[str, int] | Counter[str], wanted: Iterable[str], least: int
) -> dict[str, int]:
    """The classes with fewer than `least` images, sorted, each with how many it has.

    Args:
        counts: images by class.
        wanted: classes that count although they may have none.
        least: images that each class should have.
    """
    names = sorted({*wanted, *counts})
    return {name: counts.get(name, 0) for name in names if counts.get(name, 0) < least}


def check_limits(least: int | None, most: int | None) -> None:
    """Refuse limits that no class can keep.

    Raises:
        UsageError: one is below 1, or the smaller one is the larger.
    """
    for name, value in (("--per-class-min", least), ("--per-class-max", most)):
        if value is not None and value < 1:
            raise UsageError(f"{name} is {value}: it must be at least 1")
    if least is not None and most is not None and least > most:
        raise UsageError(
            f"--per-class-min is {least} and --per-class-max {most}: the minimum must not be "
            "the larger one"
        )


def _lot(seed: int, key: str) -> str:
    return sha256_bytes(f"select:{seed}:{key}".encode())
