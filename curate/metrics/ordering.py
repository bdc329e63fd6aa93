"""Items in order of their score, so that equal scores leave no trace of the order they came in.

Sorting plain 64-bit numbers is several times faster than sorting indices by score, and needs no
array of indices. So score and flag become one number: the score's bits, made to count upwards, and
below them the flag. What is asked afterwards is counted in one pass over the sorted numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from curate.metrics.blocks import blocks
from curate.metrics.checks import Bools, Floats, Ints, finite_array
from curate.metrics.ordered_parts import Groups, expected, groups_of, long_groups

#: All bits of a double but its sign; without the sign, numbers count upwards as their bits do.
_MAGNITUDE = np.int64(0x7FFF_FFFF_FFFF_FFFF)

#: Bits of 2⁻⁵¹¹, less one. Taken from a magnitude they leave one bit free for each number whose
#: absolute value is 0 or in [2⁻⁵¹¹, 2⁵¹²): every score that a model gives.
_OFFSET = np.int64((512 << 52) - 1)
_LIMIT = np.int64(1 << 62)

#: `blocks` of rows this wide: the arrays of a pass then stay within a processor's second cache.
_WIDTH = 8


class Ordered:
    """Scored items, lowest first; of equal scores those without a flag come first.

    Args:
        parts: scores and flags, one array of each a part; a flag for a whole part may be one
            truth value.
        names: how a message calls the scores of each part; `scores` where none is given.

    Raises:
        ValueError: a score is NaN or infinite. It comes to light when the numbers are made, which
            spares a pass over the scores.
    """

    def __init__(self, *parts: tuple[Floats, Bools | bool], names: Sequence[str] = ()) -> None:
        self._keys = np.empty(sum(len(scores) for scores, _ in parts), dtype=np.int64)
        self._levels: Floats | None = None
        start = 0
        for scores, flagged in parts:
            if not _fill(self._keys[start : start + len(scores)], scores, flagged):
                for (own, _), name in zip(parts, names or ["scores"] * len(parts), strict=True):
                    finite_array(own, name)
                self._rank(parts)
                break
            start += len(scores)
        self._keys.sort()

    def _rank(self, parts: tuple[tuple[Floats, Bools | bool], ...]) -> None:
        """Scores beyond the usual range count by their rank among the distinct ones."""
        scores = np.concatenate([scores for scores, _ in parts])
        self._levels, ranks = np.unique(scores, return_inverse=True)
        flagged = np.concatenate([np.broadcast_to(f, len(s)) for s, f in parts])
        np.left_shift(ranks, 1, out=self._keys)
        self._keys |= flagged

    def __len__(self) -> int:
        return self._keys.size

    @cached_property
    def _hits(self) -> list[int]:
        """Flagged items before each block, and at last all of them."""
        counts = [0]
        for block in blocks(len(self), _WIDTH):
            counts.append(counts[-1] + int(np.sum(self.flags(block))))
        return counts

    @property
    def hits(self) -> int:
        """How many items are flagged."""
        return self._hits[-1]

    @property
    def part_size(self) -> int:
        """Items in the longest part that `expected_hits` may give."""
        return next(blocks(len(self), _WIDTH)).stop

    @cached_property
    def distinct(self) -> bool:
        """Whether no two items have the same score."""
        for block in blocks(len(self) - 1, _WIDTH):
            level = self._keys[block.start : block.stop + 1] >> 1
            if not np.all(level[1:] != level[:-1]):
                return False
        return True

    def flags(self, part: slice) -> Ints:
        """0 or 1 an item."""
        return self._keys[part] & 1

    def scores(self, part: slice | Ints) -> Floats:
        """The scores again, lowest first, of a stretch of items or of places in rising order."""
        level = self._keys[part] >> 1
        if self._levels is not None:
            return self._levels[level]
        lowest, highest = level[0], level[-1]
        bits = np.abs(level) if lowest < 0 else level
        zero = bits == 0 if lowest <= 0 <= highest else None
        bits = bits + _OFFSET
        if zero is not None:
            bits[zero] = 0
        values = bits.view(np.float64)
        return np.copysign(values, level) if lowest < 0 else values

    def place(self, hit: int) -> int:
        """Where the flagged item stands that has `hit` flagged ones before it."""
        number = int(np.searchsorted(self._hits, hit, side="right")) - 1
        block = list(blocks(len(self), _WIDTH))[number]
        inside = np.flatnonzero(self.flags(block))[hit - self._hits[number]]
        return block.start + int(inside)

    def spans(self, places: Ints) -> tuple[Ints, Ints, Ints]:
        """Of the score of the item at each place: its first item, its last one's successor, and
        its first flagged item (or that successor, where none is flagged).
        """
        first = self._keys[places] & ~1
        # Neighbours with one score are looked for once.
        new = np.append(True, first[1:] != first[:-1])
        first, same = first[new], np.cumsum(new) - 1
        return (
            np.searchsorted(self._keys, first, side="left")[same],
            np.searchsorted(self._keys, first | 1, side="right")[same],
            np.searchsorted(self._keys, first | 1, side="left")[same],
        )

    def tied_with_next(self, places: Ints) -> Bools:
        """Whether the item at each place has the score of the one after it."""
        return (self._keys[places] >> 1) == (self._keys[places + 1] >> 1)

    def groups(self) -> Iterator[Groups]:
        """All distinct scores that a flagged item has, in parts."""
        room = self._room(2)
        start, before = 0, 0
        for stop in self._cuts():
            part = self._keys[start:stop]
            if part[0] >> 1 == part[-1] >> 1:
                group = long_groups(start, before, part, np.array([part.size]))
            else:
                group = groups_of(start, before, part, room)
            start = stop
            if group.hits.size:
                before = int(group.hits_below[-1] + group.hits[-1])
                yield group

    def expected_hits(self) -> Iterator[Floats]:
        """How many of the j highest items are flagged, j = 1 … n, in parts.

        Of equal scores it is the expected number over all their orders. A part may be written
        to, and holds until the next one is asked for.
        """
        room = self._room(3)
        stop, found = len(self), 0
        for start in [0, *self._cuts()][-2::-1]:
            if self._keys[start] >> 1 == self._keys[stop - 1] >> 1:
                # One group, which may be as long as all there is.
                own = self._keys[start:stop]
                flagged = own.size - int(np.searchsorted(own, own[0] | 1))
                for part in blocks(stop - start, _WIDTH):
                    ranks = np.arange(part.start + 1, part.stop + 1)
                    yield found + ranks * (flagged / (stop - start))
                found += flagged
                stop = start
                continue
            hits = expected(self._keys[start:stop], room)
            hits += found
            # A part holds whole groups, so a whole number of flags.
            found = int(hits[-1])
            stop = start
            yield hits

    def in_input_order(self, scores: Floats, flagged: Bools) -> Ints:
        """0 or 1 an item, lowest first; of equal scores the earlier item first.

        Args:
            scores: of the very items that it was made of, and `flagged` theirs.
        """
        n = len(self)
        places = n.bit_length()
        lowest = int(self._keys[0]) >> 1
        # As much of a score as leaves a place in the input and the flag room below it. Where that
        # keeps all scores apart, one sort of numbers again does what one of indices would.
        cut = max(0, ((int(self._keys[-1]) >> 1) - lowest).bit_length() + places + 1 - 63)
        if self._levels is not None or not self._apart(lowest, cut):
            return flagged[np.argsort(scores, kind="stable")].astype(np.int64)
        keys = np.empty(n, np.int64)
        _fill(keys, scores, False)
        for block in blocks(n, _WIDTH):
            key = keys[block]
            key >>= 1
            key -= lowest
            key >>= cut
            key <<= places
            key |= np.arange(block.start, block.stop)
            key <<= 1
            key |= flagged[block]
        keys.sort()
        keys &= 1
        return keys

    def _apart(self, lowest: int, cut: int) -> bool:
        """Whether distinct scores differ without as many of their lowest bits."""
        for block in blocks(len(self) - 1, _WIDTH) if cut else ():
            level = (self._keys[block.start : block.stop + 1] >> 1) - lowest
            new = level[1:] != level[:-1]
            level >>= cut
            if np.count_nonzero(level[1:] != level[:-1]) != np.count_nonzero(new):
                return False
        return True

    def memory(self) -> Floats:
        """Its own memory, lowest item first, for what comes from `expected_hits`.

        A part's items are not looked at again once it has been given. Nothing else works then.
        """
        return self._keys.view(np.float64)

    def _room(self, rows: int) -> Ints:
        """What the passes over one part write to: new memory for each costs as much as a pass."""
        return np.empty((rows, self.part_size), np.int64)

    def _cuts(self) -> Iterator[int]:
        """Where parts of about a block end, so that none parts a group."""
        keys, n = self._keys, len(self)
        start = 0
        while start < n:
            stop = start + next(blocks(n - start, _WIDTH)).stop
            if stop < n and keys[stop - 1] >> 1 == keys[stop] >> 1:
                stop = int(np.searchsorted(keys, keys[stop - 1] & ~1, side="left"))
                if stop == start:
                    stop = int(np.searchsorted(keys, keys[start] | 1, side="right"))
            yield stop
            start = stop


def _fill(keys: Ints, scores: Floats, flagged: Bools | bool) -> bool:
    """Write the numbers of some items; False where a score is beyond the usual range."""
    for block in blocks(len(keys), _WIDTH):
        bits = np.ascontiguousarray(scores[block], dtype=np.float64).view(np.int64)
        key = keys[block]
        magnitude, lowest = bits, bits.min()
        signed = lowest < 0
        if signed:
            magnitude = np.bitwise_and(bits, _MAGNITUDE, out=key)
            lowest = magnitude.min()
        highest = magnitude.max()
        if highest - _OFFSET >= _LIMIT:
            return False
        # The lowest but 0, which comes out as the highest without a sign.
        if lowest <= _OFFSET and (magnitude - 1).view(np.uint64).min() < _OFFSET:
            return False
        np.subtract(magnitude, _OFFSET, out=key)
        if lowest == 0:
            key[key < 0] = 0
        if signed:
            sign = bits >> 63
            key ^= sign
            key -= sign
        key <<= 1
        key |= flagged if isinstance(flagged, bool) else flagged[block]
    return True
