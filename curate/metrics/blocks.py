"""Long arrays in parts, so that what is computed on the way stays small."""

from __future__ import annotations

from collections.abc import Iterator

#: Numbers in a part: a few arrays of it as float64 fit into a processor's cache.
SIZE = 1 << 18


def blocks(count: int, width: int = 1) -> Iterator[slice]:
    """Slices over `count` rows of `width` numbers each, about `SIZE` numbers a slice."""
    step = max(1, SIZE // width)
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))
