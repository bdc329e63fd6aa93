"""What is counted in one part of items in order: whole groups of equal scores.

An item is a number as `Ordered` has it: the score's bits and, as the lowest one, its flag.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from curate.metrics.checks import Bools, Floats, Ints


class Groups(NamedTuple):
    """Distinct scores, lowest first, each with the items that have it.

    Attributes:
        below: items with a lower score, whole numbers, shape (g,).
        size: items with this score; shape (g,).
        hits_below: flagged items with a lower score.
        hits: flagged items with this score.
        tied: whether any score may have several items.
    """

    below: Ints
    size: Ints
    hits_below: Ints
    hits: Ints
    tied: bool


def groups_of(start: int, before: int, part: Ints, room: Ints) -> Groups:
    """The scores that a flagged item has, of a part that begins at `start`.

    Args:
        start: items before the part.
        before: flagged ones among them.
        part: numbers of items.
        room: memory to work in, 2 rows that are no shorter.
    """
    last = _last(_changes(part, room[0]))
    count = int(np.count_nonzero(last))
    if count < part.size // 2:
        return long_groups(start, before, part, np.flatnonzero(last) + 1)
    flagged = np.bitwise_and(part, 1, out=room[1, : part.size]) != 0
    if count < part.size:
        return _short_groups(start, before, part, flagged, last)
    below = np.flatnonzero(flagged)
    ones = np.broadcast_to(np.int64(1), below.shape)
    hits_below = np.arange(before, before + below.size)
    below += start
    return Groups(below, ones, hits_below, ones, False)


def long_groups(start: int, before: int, part: Ints, stop: Ints) -> Groups:
    """The same where several items share a score; the groups end at `stop`."""
    size, hits = np.diff(stop, prepend=0), _hits(part, stop)
    kept = np.flatnonzero(hits)
    below, hits_below = stop - size + start, np.cumsum(hits) - hits + before
    return Groups(below[kept], size[kept], hits_below[kept], hits[kept], True)


def _short_groups(start: int, before: int, part: Ints, flagged: Bools, last: Bools) -> Groups:
    at = np.flatnonzero(flagged)
    upto = np.flatnonzero(last[at])
    size = at[upto]
    upto += 1
    hits = upto.copy()
    hits[1:] -= upto[:-1]
    upto -= hits
    below = at[upto]
    # Of a group that has both, the unflagged items stand before the flagged ones. (Before the
    # first item comes the last one, which ends a score too.)
    mixed = np.flatnonzero(~last[below - 1])
    below[mixed] = _furthest(part, last, below[mixed] - 1, -1)
    size -= below
    size += 1
    below += start
    upto += before
    return Groups(below, size, upto, hits, True)


def expected(part: Ints, room: Ints) -> Floats:
    """Flags from the last item down to each one, the last one first, in whole groups.

    Of equal scores the expected number over all their orders.

    Args:
        part: numbers of items.
        room: memory to work in, the result's too; 3 rows that are no shorter.
    """
    hits = room[2].view(np.float64)[: part.size]
    change = _changes(part, room[0])
    last = _last(change)
    count = int(np.count_nonzero(last))
    if count < part.size // 2:
        return _spread_all(part, np.flatnonzero(last) + 1, hits)
    # Within a group that has both, one unflagged item stands next to a flagged one.
    mixed = np.flatnonzero(change == 1) if count < part.size else None
    flags = np.bitwise_and(part, 1, out=room[0, : part.size])
    # Adding up against the direction of memory is five times faster than along it in NumPy 2 on
    # some processors, where its loop waits for each sum to be written.
    hits[:] = np.cumsum(flags[::-1], out=room[1, : part.size])
    if mixed is not None:
        _spread(part, mixed, last, hits)
    return hits


def _spread_all(part: Ints, stop: Ints, hits: Floats) -> Floats:
    """The same where several items share a score; the groups end at `stop`."""
    flagged, size = _hits(part, stop)[::-1], np.diff(stop, prepend=0)[::-1]
    rank = np.arange(1.0, part.size + 1.0)
    rank -= np.repeat((np.cumsum(size) - size).astype(np.float64), size)
    np.multiply(rank, np.repeat(flagged / size, size), out=hits)
    hits += np.repeat((np.cumsum(flagged) - flagged).astype(np.float64), size)
    return hits


def _spread(part: Ints, mixed: Ints, last: Bools, hits: Floats) -> None:
    """Spread the flags evenly over each group that has both.

    Args:
        part: numbers of items.
        mixed: the last unflagged item of each such group.
        last: whether each item is the last one of its score.
        hits: as if the flagged ones came first, from the last item down; changed.
    """
    end = part.size - 1
    # One of each: whichever comes first, half a flag is expected there.
    pair = last[mixed - 1] & last[mixed + 1]
    hits[end - 1 - mixed[pair]] -= 0.5
    mixed = mixed[~pair]
    start = _furthest(part, last, mixed, -1)
    stop = _furthest(part, last, mixed + 1, 1) + 1
    size, flagged = stop - start, stop - (mixed + 1)
    above = hits[end - start] - flagged
    rank = np.arange(1, int(size.sum()) + 1) - np.repeat(np.cumsum(size) - size, size)
    spread = np.repeat(above, size) + rank * np.repeat(flagged / size, size)
    hits[end - np.repeat(stop, size) + rank] = spread


def _furthest(part: Ints, last: Bools, at: Ints, step: int) -> Ints:
    """Of each place the last one with its score, going upwards or, with step -1, downwards."""
    at, below = at.copy(), int(step < 0)
    left = np.flatnonzero(~last[at - below])
    for _ in range(4):
        at[left] += step
        left = left[~last[at[left] - below]]
    # Most have arrived; the rest is searched for.
    if step > 0:
        at[left] = np.searchsorted(part, part[at[left]] | 1, side="right") - 1
    else:
        at[left] = np.searchsorted(part, part[at[left]] & ~1)
    return at


def _changes(part: Ints, out: Ints) -> Ints:
    """Bits in which each number differs from the next: 1 for the flag alone, more for the score."""
    return np.bitwise_xor(part[1:], part[:-1], out=out[: part.size - 1])


def _last(changes: Ints) -> Bools:
    """Whether each item is the last one of its score."""
    last = np.ones(changes.size + 1, np.bool_)
    np.greater(changes.view(np.uint64), 1, out=last[:-1])
    return last


def _hits(part: Ints, stop: Ints) -> Ints:
    """How many items are flagged in each group; they stand last."""
    if stop.size < part.size // 64:
        return stop - np.searchsorted(part, part[stop - 1] | 1)
    return np.add.reduceat(part & 1, np.append(0, stop[:-1]))
