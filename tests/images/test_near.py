"""Near duplicates by hash: every pair is found, groups do not chain, full buckets do not hurt."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from curate.images import clusters as grouping
from curate.images import near
from curate.images.clusters import clusters, nearest, neighbours
from curate.images.hashing import NEAR_DISTANCE, PerceptualHash, distance, perceptual_hash
from curate.images.near import Hashes, near_pairs

#: A few centres with few bits flipped: most sets of them hold pairs at every distance.
SOME = st.builds(
    lambda centre, flips: centre ^ sum(1 << bit for bit in flips),
    st.sampled_from([0, 0x0F0F_F0F0_1234_5678, 2**64 - 1]),
    st.sets(st.integers(0, 63), max_size=5),
)
HASHES = st.lists(st.builds(PerceptualHash, SOME, SOME), max_size=25)
WITHIN = st.integers(0, 8)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes small sets take the way of large ones."""
    make_large_ways_small(monkeypatch)


def make_large_ways_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "_PIECE", 16)
    monkeypatch.setattr(near, "_FULL_BUCKET", 64)
    monkeypatch.setattr(near, "_SORTING", 0)
    monkeypatch.setattr(grouping, "_MOST_PAIRS", 50)


def all_pairs(a: list[PerceptualHash], b: list[PerceptualHash], within: int) -> list[tuple]:
    found = [(i, j, distance(x, y)) for i, x in enumerate(a) for j, y in enumerate(b)]
    return sorted(pair for pair in found if pair[2] <= within)


def told_pairs(a: list[PerceptualHash], b: list[PerceptualHash], within: int) -> list[tuple]:
    pieces = near_pairs(Hashes.of(a), Hashes.of(b), within)
    return sorted(tuple(map(int, pair)) for piece in pieces for pair in zip(*piece, strict=True))


@settings(max_examples=80, deadline=None)
@given(a=HASHES, b=HASHES, within=WITHIN, large=st.booleans())
def test_every_near_pair_is_found_once(
    a: list[PerceptualHash], b: list[PerceptualHash], within: int, large: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if large:
            make_large_ways_small(patch)
        assert told_pairs(a, b, within) == all_pairs(a, b, within)


@pytest.mark.parametrize("fault", [None, "too few tables", "no mirrors"])
def test_the_comparison_with_all_pairs_sees_a_search_that_misses_some(
    tables: None, monkeypatch: pytest.MonkeyPatch, fault: str | None
) -> None:
    chance = random.Random(3)
    a = [PerceptualHash(chance.getrandbits(64), chance.getrandbits(64)) for _ in range(60)]
    b = []
    for one in a:
        flips = sum(1 << bit for bit in chance.sample(range(64), 4))
        b.append(PerceptualHash(chance.getrandbits(64), one.picture ^ flips))
    if fault == "too few tables":
        monkeypatch.setattr(near, "combinations", lambda *args: [tuple(range(args[1]))])
    if fault == "no mirrors":
        monkeypatch.setattr(Hashes, "both", property(lambda self: self.picture))
    same = told_pairs(a, b, 4) == all_pairs(a, b, 4)
    assert same == (fault is None)


def check_clusters(hashes: list[PerceptualHash], within: int) -> list[tuple[int, int]]:
    kept, away = clusters(Hashes.of(hashes), within)
    for i, (mine, bits) in enumerate(zip(kept, away, strict=True)):
        assert kept[mine] == mine <= i
        assert distance(hashes[i], hashes[mine]) == bits <= within
    own = [i for i, mine in enumerate(kept) if mine == i]
    for place, i in enumerate(own):
        assert all(distance(hashes[i], hashes[j]) > within for j in own[:place])
    return list(zip(kept.tolist(), away.tolist(), strict=True))


@settings(max_examples=80, deadline=None)
@given(hashes=HASHES, within=WITHIN)
def test_groups_lie_within_the_distance_of_their_kept_one_and_kept_ones_beyond_it(
    hashes: list[PerceptualHash], within: int
) -> None:
    plain = check_clusters(hashes, within)
    with pytest.MonkeyPatch.context() as patch:
        make_large_ways_small(patch)
        assert check_clusters(hashes, within) == plain


def test_a_chain_of_near_pictures_is_no_group() -> None:
    chain = [PerceptualHash((1 << 3 * step) - 1, (1 << 3 * step) - 1) for step in range(10)]
    kept, away = clusters(Hashes.of(chain), 4)
    assert kept.tolist() == [0, 0, 2, 2, 4, 4, 6, 6, 8, 8]
    assert away.tolist() == [0, 3] * 5


@settings(max_examples=60, deadline=None)
@given(hashes=HASHES, within=WITHIN)
def test_a_confirmation_that_never_refuses_changes_nothing(
    hashes: list[PerceptualHash], within: int
) -> None:
    plain = clusters(Hashes.of(hashes), within)
    asked = clusters(
        Hashes.of(hashes), within, confirm=lambda i, found: np.ones(len(found), np.bool_)
    )
    for mine, theirs in zip(plain, asked, strict=True):
        assert mine.tolist() == theirs.tolist()


def test_what_a_confirmation_refuses_stands_for_itself() -> None:
    same = Hashes.of([PerceptualHash(5, 6)] * 4)
    kept, _ = clusters(same, 4, confirm=lambda i, found: found % 2 == i % 2)
    assert kept.tolist() == [0, 1, 0, 1]


@settings(max_examples=100, deadline=None)
@given(a=HASHES, b=HASHES, within=WITHIN)
def test_the_nearest_is_the_first_of_the_nearest(
    a: list[PerceptualHash], b: list[PerceptualHash], within: int
) -> None:
    places, away = nearest(Hashes.of(a), Hashes.of(b), within)
    asked = nearest(
        Hashes.of(a), Hashes.of(b), within, confirm=lambda i, found: np.ones(len(found), np.bool_)
    )
    for i, one in enumerate(a):
        best = min(((distance(one, other), j) for j, other in enumerate(b)), default=(99, -1))
        expected = best if best[0] <= within else (0, -1)
        assert (away[i], places[i]) == expected
        assert (asked[1][i], asked[0][i]) == expected


def test_half_a_million_equal_hashes_and_a_band_that_all_share_cost_little() -> None:
    chance = np.random.default_rng(1)
    some = chance.integers(0, 2**64, 20_000, dtype=np.uint64)
    some[:10_000] &= np.uint64(0xFFFF_FFFF)
    values = np.concatenate([np.zeros(500_000, np.uint64), some])
    hashes = Hashes(values, values)
    kept, _ = clusters(hashes, NEAR_DISTANCE)
    assert not kept[:500_000].any()
    assert len(np.unique(kept)) > 19_000
    places, _ = nearest(hashes, hashes, NEAR_DISTANCE)
    assert not places[:500_000].any()


def test_too_many_pairs_are_looked_at_in_smaller_blocks(tables: None) -> None:
    same = Hashes.of([PerceptualHash(7, 7)] * 100)
    found = [(i, len(places)) for i, places, _ in neighbours(same, same, 2)]
    assert found == [(i, 100) for i in range(100)]


@pytest.mark.parametrize("within", [-1, 13])
def test_a_distance_that_is_out_of_range_is_refused(within: int) -> None:
    nothing = Hashes.of([])
    with pytest.raises(ValueError, match="must be 0 to 12 bits"):
        next(near_pairs(nothing, nothing, within))


def test_copies_of_photos_are_found_among_others(package_photos: list[tuple[Path, int]]) -> None:
    photos = [Image.open(path).convert("RGB") for path, _ in package_photos]
    originals = Hashes.of(perceptual_hash(photo) for photo in photos)
    assert clusters(originals, NEAR_DISTANCE)[0].tolist() == list(range(20))
    for change in (
        lambda photo: photo.resize((photo.width // 2, photo.height // 2)),
        ImageOps.mirror,
    ):
        copies = Hashes.of(perceptual_hash(change(photo)) for photo in photos)
        places, away = nearest(copies, originals, NEAR_DISTANCE)
        assert places.tolist() == list(range(20))
        assert away.max() <= NEAR_DISTANCE
