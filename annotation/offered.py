"""Which classes the follow-up offers, after a photo was found to be what its label says.

The paper's single-class check: is what a model saw there really there as well? Whoever knew which
of the classes are predictions would look for these alone, or trust them. So others of their kind
stand among them, and neither place nor kind tells which is which.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from annotation.interface_taxonomy import groups
from curate.labels.classes import fold
from curate.labels.overlaps import space_problems
from curate.labels.space import LabelSpace
from curate.labels.wordnet import wordnet

# Something with more kinds than this is no part of anything in particular ("piece", "whole").
_GENERAL = 500


def offered(
    predicted: Collection[str],
    claimed: str | None,
    space: LabelSpace,
    key: str,
    distractors: int = 4,
    most: int = 12,
) -> tuple[str, ...]:
    """The classes that a candidate's follow-up offers.

    Args:
        predicted: ids of what any model said of any view, the most frequent first.
        claimed: id of the weak label, which is never offered; under the rule outlier that of the
            concept, or None.
        space: the classes that may be offered.
        key: the candidate's key, the seed of choice and order.
        distractors: how many classes to add that no model said. They are of the groups that the
            predictions are in (without predictions: that the claimed class is in), as long as there
            are any, and never the claimed class by another name, above or below it, a part or the
            whole of it, or hard to tell from it in a photo.
        most: of more than that many in all, the least frequent predictions are left out.

    Returns:
        Ids, each once, in an order that depends on the key and on which they are alone.

    Raises:
        UnknownNameError: a predicted class is not in the label space.
        ValueError: fewer than 0 distractors, or more of them than there may be classes.
    """
    if not 0 <= distractors <= most:
        raise ValueError(f"{distractors} distractors among at most {most} classes")
    said = [space.get(wnid).wnid for wnid in dict.fromkeys(predicted) if wnid != claimed]
    said = said[: most - distractors]
    near = _near(claimed, space) if claimed is not None else frozenset()
    like = said or [wnid for wnid in (claimed,) if wnid is not None and wnid in space]
    drawn = _drawn(like, near.union(said), _index(space), key)
    chosen = [*said, *islice(drawn, distractors)]
    return tuple(sorted(chosen, key=lambda wnid: _hash(key, "place", wnid)))


def _drawn(like: list[str], without: frozenset[str], index: _Index, key: str) -> Iterator[str]:
    """Classes in an order of the key's: first, by turns, those in a group with some classes."""
    groups_of = dict.fromkeys(index.group[wnid] for wnid in like)
    queues = {group: iter(_shuffled(index.members[group], without, key)) for group in groups_of}
    while queues:
        for group in tuple(queues):
            if (found := next(queues[group], None)) is None:
                del queues[group]
            else:
                yield found
    others = (wnid for wnid, group in index.group.items() if group not in groups_of)
    yield from _shuffled(others, without, key)


def _shuffled(wnids: Iterable[str], without: frozenset[str], key: str) -> list[str]:
    kept = (wnid for wnid in wnids if wnid not in without)
    return sorted(kept, key=lambda wnid: _hash(key, "draw", wnid))


@dataclass(frozen=True)
class _Index:
    """Of a label space: each class's group, each group's classes, and what finds classes."""

    group: dict[str, str]
    members: dict[str, list[str]]
    placed: dict[str, set[str]]
    named: dict[str, set[str]]
    alike: dict[str, set[str]]


@lru_cache(maxsize=8)
def _index(space: LabelSpace) -> _Index:
    members = {group.key: [item.wnid for item in group.classes] for group in groups(space)}
    group = {wnid: key for key, wnids in members.items() for wnid in wnids}
    placed, named, alike = defaultdict(set), defaultdict(set), defaultdict(set)
    for item in space:
        for synset in item.synsets:
            placed[synset].add(item.wnid)
        for name in item.names:
            named[fold(name)].add(item.wnid)
    for problem in space_problems(space):
        if problem.other is not None:
            alike[problem.wnid].add(problem.other)
            alike[problem.other].add(problem.wnid)
    return _Index(group, members, dict(placed), dict(named), dict(alike))


@lru_cache(maxsize=4096)
def _near(claimed: str, space: LabelSpace) -> frozenset[str]:
    """The classes that a photo of the claimed one may show by the label's own meaning."""
    net, index = wordnet(), _index(space)
    item = space.get(claimed) if claimed in space else None
    places = {wnid for wnid in (item.synsets if item else (claimed,)) if wnid in net}
    near = set(places)
    for wnid in places:
        # What a car has a taxi has as well, and a part of it is a part of a taxi.
        linked = {one for kind in (wnid, *net.ancestors(wnid)) for one in net.linked(kind)}
        near |= net.ancestors(wnid) | net.descendants(wnid) | linked
        kinds = [below for below in map(net.descendants, linked) if len(below) <= _GENERAL]
        near |= set().union(*kinds)
    names = [*(item.names if item else ()), *(name for wnid in places for name in net[wnid].names)]
    found = {claimed} | index.alike.get(claimed, set())
    for synset in near & index.placed.keys():
        found |= index.placed[synset]
    for name in map(fold, names):
        found |= index.named.get(name, set())
    return frozenset(found)


def _hash(key: str, what: str, wnid: str) -> str:
    return hashlib.sha256(f"{key}\0{what}\0{wnid}".encode("utf-8", "surrogatepass")).hexdigest()
