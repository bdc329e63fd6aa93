"""Groups of near duplicates, each with the one to keep, and the nearest picture of another set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from curate.images.near import Hashes, near_pairs, no_news

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from curate.images.near import Pairs, Places

#: Pairs that are held at a time; each takes some 40 bytes while they are sorted.
_MOST_PAIRS = 8_000_000


def neighbours(
    a: Hashes,
    b: Hashes,
    within: int,
    *,
    first: NDArray[np.bool_] | None = None,
    second: NDArray[np.bool_] | None = None,
    told: Callable[[int], None] = no_news,
) -> Iterator[tuple[int, Places, NDArray[np.uint8]]]:
    """For each hash of `a` that has any, in order: the places in `b` near it, and the distances.

    Memory is bounded: where there are too many pairs, fewer hashes of `a` are looked at together.

    Args:
        a: what to go through.
        b: what to find.
        within: the largest distance that counts.
        first: which of `a` to look at. Like `second` it is asked anew now and then, and may be
            changed between two results; what was unset only then may still come.
        second: which of `b` to find.
        told: called with how many more of `a` are done.
    """
    start, size, said = 0, len(a), 0

    def share_done(share: float) -> None:
        nonlocal said
        place = start + int(share * (end - start))
        if place > said:
            told(place - said)
            said = place

    while start < len(a):
        end = min(len(a), start + size)
        mine = np.arange(start, end) if first is None else start + np.flatnonzero(first[start:end])
        theirs = np.arange(len(b)) if second is None else np.flatnonzero(second)
        most = _MOST_PAIRS if len(mine) > 1 else len(theirs)
        pairs = _held(near_pairs(a[mine], b[theirs], within, share_done), most)
        if pairs is None:
            size = max(1, min(size, len(mine)) // 16)
            continue
        i, j, distance = pairs
        order = np.lexsort((j, distance, i))
        i, j, distance = i[order], theirs[j[order]], distance[order]
        cuts = np.flatnonzero(np.diff(i, prepend=-1))
        for low, high in zip(cuts, np.append(cuts[1:], len(i)), strict=False):
            yield int(mine[i[low]]), j[low:high], distance[low:high]
        share_done(1)
        start, size = end, size * 4


def _held(found: Iterator[Pairs], most: int) -> Pairs | None:
    """All pairs together; None where they are more than `most`."""
    pieces: list[Pairs] = []
    count = 0
    for piece in found:
        count += len(piece[0])
        if count > most:
            return None
        if len(piece[0]):
            pieces.append(piece)
    if not pieces:
        nothing = np.empty(0, np.int64)
        return nothing, nothing, np.empty(0, np.uint8)
    i, j, distance = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    return i, j, distance


Confirm = Callable[[int, "Places"], "NDArray[np.bool_]"]


def clusters(
    hashes: Hashes,
    within: int,
    *,
    confirm: Confirm | None = None,
    told: Callable[[int], None] = no_news,
) -> tuple[Places, NDArray[np.uint8]]:
    """Which of many pictures to keep, so that no two that are kept are near duplicates.

    The first one is kept and stands for all that are near it; so is the first one that is left, and
    so on. Nothing chains: every picture lies within the distance of the one that stands for it.

    Args:
        hashes: the best picture first: of two near ones the earlier is kept.
        within: the largest distance of two near duplicates, in bits.
        confirm: asked about a picture that is kept and others near it by hash: which of them are
            its duplicates. Without it all are.
        told: called with how many more hashes are done.

    Returns:
        For each picture the place of the one that stands for it (its own where it is kept), and
        the distance to that one.
    """
    if confirm is None:
        places, group = _distinct(hashes)
        kept, distance = _clusters(hashes[places], within, None, told)
        told(len(hashes) - len(places))
        return places[kept][group], distance[group]
    return _clusters(hashes, within, confirm, told)


def _clusters(
    hashes: Hashes, within: int, confirm: Confirm | None, told: Callable[[int], None]
) -> tuple[Places, NDArray[np.uint8]]:
    kept = np.arange(len(hashes))
    distance = np.zeros(len(hashes), np.uint8)
    left = np.ones(len(hashes), np.bool_)
    for i, found, away in neighbours(hashes, hashes, within, first=left, second=left, told=told):
        if not left[i]:
            continue
        later = left[found] & (found > i)
        found, away = found[later], away[later]
        if confirm is not None and len(found):
            sure = confirm(i, found)
            found, away = found[sure], away[sure]
        kept[found], distance[found] = i, away
        left[found] = left[i] = False
    return kept, distance


def _distinct(hashes: Hashes) -> tuple[Places, Places]:
    """The first place of each distinct hash, in order, and for each hash its place among them."""
    both = np.stack([hashes.picture, hashes.mirror], axis=1)
    _, first, group = np.unique(both, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return first[order], rank[group.reshape(-1)]


def nearest(
    a: Hashes,
    b: Hashes,
    within: int,
    *,
    confirm: Confirm | None = None,
    told: Callable[[int], None] = no_news,
) -> tuple[Places, NDArray[np.uint8]]:
    """For each hash of `a` the nearest of `b`, the first of equally near ones.

    Args:
        a: what to look for.
        b: where to look.
        within: the largest distance that counts, in bits.
        confirm: as in `clusters`, with a place in `a` and places in `b`.
        told: called with how many more of `a` are done.

    Returns:
        For each hash of `a` a place in `b`, -1 where none is near, and the distance.
    """
    found, distance = np.full(len(a), -1), np.zeros(len(a), np.uint8)
    if confirm is not None:
        for place, near, bits in neighbours(a, b, within, told=told):
            sure = np.flatnonzero(confirm(place, near))
            if len(sure):
                found[place], distance[place] = near[sure[0]], bits[sure[0]]
        return found, distance
    firsts, group = _distinct(a)
    theirs, _ = _distinct(b)
    none = np.iinfo(np.int64).max
    best = np.full(len(firsts), none)
    said = 0

    def share_done(share: float) -> None:
        nonlocal said
        told(int(share * len(a)) - said)
        said = int(share * len(a))

    # Streamed: of each hash only the best match so far is held.
    for i, j, away in near_pairs(a[firsts], b[theirs], within, share_done):
        np.minimum.at(best, i, (away.astype(np.int64) << 32) | theirs[j])
    matched = best < none
    share_done(1)
    found = np.where(matched, best & 0xFFFF_FFFF, -1)[group]
    distance = np.where(matched, best >> 32, 0).astype(np.uint8)[group]
    return found, distance


def having_neighbours(
    a: Hashes, b: Hashes | None, within: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which hashes have one in the other set that is near.

    Args:
        a: one set.
        b: the other; None compares the hashes of `a` with one another.
        within: the largest distance that counts, in bits.

    Returns:
        For each of `a` and for each of `b` (`a` again for None) whether it has.
    """
    theirs = a if b is None else b
    (firsts, group), (their_firsts, their_group) = _distinct(a), _distinct(theirs)
    mine, others = np.zeros(len(firsts), np.bool_), np.zeros(len(their_firsts), np.bool_)
    if b is None:
        mine |= np.bincount(group, minlength=len(firsts)) > 1
    for i, j, _ in near_pairs(a[firsts], theirs[their_firsts], within):
        apart = i != j if b is None else slice(None)
        mine[i[apart]] = others[j[apart]] = True
    return mine[group], (mine if b is None else others)[their_group]
