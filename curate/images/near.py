"""All near duplicates among many perceptual hashes, exactly.

Two hashes that differ in at most d bits agree wholly in at least b - d of any b bands that their
bits are dealt to (the pigeonhole principle). So each choice of b - d bands is one table: hashes are
sorted by these bands, and those that agree are compared. Bits that vary most are dealt first, one
to each band, so that bits which all share spoil no band; a table's bucket that is still too full
is searched in the same way by its other bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from curate.images.hashing import PerceptualHash

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bits = NDArray[np.uint64]
    Places = NDArray[np.int64]
    Pairs = tuple[Places, Places, NDArray[np.uint8]]

#: The largest distance that `near_pairs` is made for, in bits of 64.
FARTHEST = 12

_PIECE = 1 << 20
_FULL_BUCKET = 1 << 24
_SAMPLE = 1 << 15
_MOST_TABLES = 500

#: What sorting a hash into a table costs, in comparisons of two hashes.
_SORTING = 12


def no_news(_: float) -> None:
    """What is told of progress by default goes nowhere."""


@dataclass(frozen=True)
class Hashes:
    """Many perceptual hashes.

    Attributes:
        picture: the hashes of the pictures [n].
        mirror: those of their mirror images [n].
    """

    picture: Bits
    mirror: Bits

    def __len__(self) -> int:
        return len(self.picture)

    def __getitem__(self, places: Places | NDArray[np.bool_] | slice) -> Hashes:
        return Hashes(self.picture[places], self.mirror[places])

    @classmethod
    def of(cls, hashes: Iterable[PerceptualHash]) -> Hashes:
        """From single ones."""
        pairs = [(one.picture, one.mirror) for one in hashes]
        both = np.array(pairs, np.uint64).reshape(-1, 2)
        return cls(both[:, 0].copy(), both[:, 1].copy())

    @property
    def both(self) -> Bits:
        """The hashes of the pictures, then those of the mirror images [2 n]."""
        return np.concatenate([self.picture, self.mirror])


def distances(a: Hashes, b: Hashes) -> NDArray[np.uint8]:
    """The distances of hashes at the same places (see `curate.images.hashing.distance`)."""
    return _four(a, b).min(axis=0)


def _four(a: Hashes, b: Hashes) -> NDArray[np.uint8]:
    return np.stack(
        [np.bitwise_count(x ^ y) for x in (a.picture, a.mirror) for y in (b.picture, b.mirror)]
    )


def near_pairs(
    a: Hashes, b: Hashes, within: int, told: Callable[[float], None] = no_news
) -> Iterator[Pairs]:
    """Every pair of one hash of `a` and one of `b` that is near, mirrored or not; each pair once.

    Args:
        a: where the first of each pair is from.
        b: where the second is from; it may be `a`, and then each comes with itself as well.
        within: the largest distance that counts, in bits: 0 to `FARTHEST`.
        told: called now and then with the share of the work that is done, 0 to 1.

    Yields:
        Places in `a`, places in `b`, and distances, in pieces of bounded size.

    Raises:
        ValueError: `within` is out of range.
    """
    if not 0 <= within <= FARTHEST:
        raise ValueError(f"the distance must be 0 to {FARTHEST} bits, not {within}")
    for x, y in _search(a.both, b.both, within, told):
        i, j = x % len(a), y % len(b)
        four = _four(a[i], b[j])
        # Up to four of the comparisons of two pictures are near: the nearest of them stands for it.
        code = 2 * (x >= len(a)) + (y >= len(b))
        first = four.argmin(axis=0) == code
        yield i[first], j[first], four.min(axis=0)[first]


def _search(
    x: Bits, y: Bits, within: int, told: Callable[[float], None] = no_news
) -> Iterator[tuple[Places, Places]]:
    """The places of all pairs that differ in at most `within` bits, each pair once."""
    if not len(x) or not len(y):
        return
    bands = _plan(x, y, within)
    if bands is None:
        yield from _compare_all(x, y, within, told)
        return
    tables = list(combinations(range(len(bands)), len(bands) - within))
    for number, chosen in enumerate(tables, start=1):
        mask = np.bitwise_or.reduce(bands[list(chosen)])
        others = [bands[k] for k in range(chosen[-1]) if k not in chosen]
        for i, j in _agreeing(x, y, mask, within):
            differing = x[i] ^ y[j]
            # A pair that agrees in more bands is found in several tables; the first one tells it.
            mine = np.ones(len(i), np.bool_)
            for band in others:
                mine &= (differing & band) != 0
            yield i[mine], j[mine]
        told(number / len(tables))


def _plan(x: Bits, y: Bits, within: int) -> Bits | None:
    """The bands to deal the bits to, as masks; None where comparing all with all is cheapest."""
    cost = float(len(x) * len(y))
    if cost <= _PIECE:
        return None
    varying = int(np.bitwise_or.reduce(x ^ x[0]) | np.bitwise_or.reduce(y ^ x[0]))
    samples = x[:: -(-len(x) // _SAMPLE)], y[:: -(-len(y) // _SAMPLE)]
    scale = cost / (len(samples[0]) * len(samples[1]))
    share = [float(((samples[1] >> np.uint64(bit)) & np.uint64(1)).mean()) for bit in range(64)]
    bits = [bit for bit in range(64) if varying >> bit & 1]
    bits.sort(key=lambda bit: (abs(share[bit] - 0.5), bit))
    best = None
    for count in range(within + 1, len(bits) + 1):
        tables = math.comb(count, within)
        if tables > _MOST_TABLES:
            break
        bands = np.array(
            [sum(1 << bit for bit in bits[start::count]) for start in range(count)], np.uint64
        )
        mask = np.bitwise_or.reduce(bands[: count - within])
        found = _collisions(samples[0] & mask, samples[1] & mask) * scale
        this = tables * (_SORTING * (len(x) + len(y)) + found)
        if this < cost:
            best, cost = bands, this
    return best


def _collisions(x: Bits, y: Bits) -> float:
    keys, counts = np.unique(y, return_counts=True)
    places = np.searchsorted(keys, x)
    places[places == len(keys)] = 0
    return float(counts[places][keys[places] == x].sum())


def _compare_all(
    x: Bits, y: Bits, within: int, told: Callable[[float], None]
) -> Iterator[tuple[Places, Places]]:
    rows = max(1, _PIECE // len(y))
    for start in range(0, len(x), rows):
        piece = x[start : start + rows, None] ^ y[None, :]
        i, j = np.nonzero(np.bitwise_count(piece) <= within)
        yield i + start, j
        told(min(1.0, (start + rows) / len(x)))


def _agreeing(x: Bits, y: Bits, mask: np.uint64, within: int) -> Iterator[tuple[Places, Places]]:
    """The places of pairs that agree in the bits of `mask` and are near."""
    order_x, order_y = np.argsort(x & mask), np.argsort(y & mask)
    sorted_x, sorted_y = x[order_x], y[order_y]
    keys_x, keys_y = sorted_x & mask, sorted_y & mask
    starts = np.searchsorted(keys_y, keys_x, "left")
    counts = np.searchsorted(keys_y, keys_x, "right") - starts
    for low, high in _full_buckets(keys_x, counts):
        few, many = order_x[low:high], order_y[starts[low] : starts[low] + counts[low]]
        for i, j in _search(x[few], y[many], within):
            yield few[i], many[j]
        counts[low:high] = 0
    hit = np.flatnonzero(counts)
    starts, counts = starts[hit], counts[hit]
    ends = np.cumsum(counts)
    low = 0
    while low < len(hit):
        before = int(ends[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(ends, before + _PIECE, "right")))
        each = counts[low:high]
        i = np.repeat(hit[low:high], each)
        # Within each bucket of y the places follow one another.
        shift = starts[low:high] - (ends[low:high] - each - before)
        j = np.arange(len(i)) + np.repeat(shift, each)
        near = np.flatnonzero(np.bitwise_count(sorted_x[i] ^ sorted_y[j]) <= within)
        yield order_x[i[near]], order_y[j[near]]
        low = high


def _full_buckets(keys: Bits, counts: Places) -> list[tuple[int, int]]:
    """Stretches of equal keys whose members have too many partners to compare with all of them."""
    # No stretch is longer than `keys`, so others cannot be too full.
    heavy = np.flatnonzero(counts * len(keys) > _FULL_BUCKET)
    found = []
    for key in np.unique(keys[heavy]):
        low, high = (int(np.searchsorted(keys, key, side)) for side in ("left", "right"))
        if (high - low) * int(counts[low]) > _FULL_BUCKET:
            found.append((low, high))
    return found
