"""What speaks against a concept, or against two classes of one label space.

The rule outlier wants concepts that no classifier of the ensemble was trained on: neither a class,
nor anything above one (a photo of a dog may show a beagle), nor anything below one. What else makes
a poor concept is told as well. Source: WordNet 3.0 over all parents; the further filters follow
Hendrycks et al. 2021 in spirit, which names none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

from curate.files import data_file, read_csv
from curate.labels.classes import LabelClass, fold
from curate.labels.space import LabelSpace
from curate.labels.tables import imagenet
from curate.labels.wordnet import Synset, wordnet

Severity = Literal["refused", "warned"]

#: What may speak against something, how much, and what it means.
KINDS: dict[str, tuple[Severity, str]] = {
    "same": ("refused", "a trained class; in a label space: two classes are one synset"),
    "ancestor": ("refused", "above a trained class; in a label space: above another class"),
    "descendant": ("refused", "below a trained class"),
    "shared-name": ("refused", "bears the name of a trained class; in a label space: a warning"),
    "person": ("refused", "a kind of person"),
    "part-or-whole": ("warned", "directly a part, member or substance of the other, or has it"),
    "near": ("warned", "shares a parent with a trained class"),
    "general": ("warned", "more general than any class of ImageNet-1k"),
    "abstract": ("warned", "no animal, artifact, food, natural object or plant"),
    "unplaced": ("warned", "WordNet does not know it, so that only names are compared"),
    "look-alike": ("warned", "photos of the two classes look alike"),
}

#: Against these no concept is ever taken: the rule itself forbids them.
OVERLAPS = ("same", "ancestor", "descendant")

#: The parts of WordNet whose synsets a photo shows.
THINGS = ("animal", "artifact", "food", "object", "plant")


@dataclass(frozen=True)
class Problem:
    """One thing that speaks against a concept or class.

    Attributes:
        wnid, name: the concept or class.
        kind: a key of `KINDS`.
        severity: "refused" or "warned".
        other, other_name: the class that it is about, if one.
        text: a sentence.
    """

    wnid: str
    name: str
    kind: str
    severity: Severity
    other: str | None
    other_name: str | None
    text: str


class Trained:
    """The classes that an ensemble was trained on, to compare concepts with.

    Args:
        spaces: what the classifiers' outputs stand for; a class may be in several.
    """

    def __init__(self, spaces: Iterable[LabelSpace]) -> None:
        self.classes = {item.wnid: item for space in spaces for item in space}
        self._places: dict[str, LabelClass] = {}
        self._above: dict[str, list[LabelClass]] = {}
        self._parents: dict[str, LabelClass] = {}
        self._names: dict[str, LabelClass] = {}
        net = wordnet()
        for item in self.classes.values():
            for name in map(fold, item.names):
                self._names.setdefault(name, item)
            for wnid in item.synsets:
                if wnid in net:
                    self._places.setdefault(wnid, item)
                    for above in net.ancestors(wnid):
                        self._above.setdefault(above, []).append(item)
                    for parent in net[wnid].parents:
                        self._parents.setdefault(parent, item)

    def __len__(self) -> int:
        return len(self.classes)

    def overlap(self, concept: LabelClass) -> Problem | None:
        """Why a concept is not outside what was trained, or None: one of `OVERLAPS`.

        A concept without a place in WordNet that bears a trained class's name is taken for it.
        """
        if concept.wnid in self.classes:
            text = f"{_told(concept)} is a trained class"
            return _problem(concept, "same", self.classes[concept.wnid], text)
        placed = [wnid for wnid in concept.synsets if wnid in wordnet()]
        for wnid in placed:
            if (there := self._places.get(wnid)) is not None:
                return _problem(concept, "same", there, f"{_told(concept)} is {_trained(there)}")
        for wnid in placed:
            if below := self._above.get(wnid):
                many = f"{len(below)} trained classes, such as {_told(below[0])}"
                text = f"{_told(concept)} is above {many if len(below) > 1 else _trained(below[0])}"
                return _problem(concept, "ancestor", below[0], text)
        for wnid in placed:
            for above in sorted(wordnet().ancestors(wnid) & self._places.keys()):
                other = self._places[above]
                text = f"{_told(concept)} is a kind of {_trained(other)}"
                return _problem(concept, "descendant", other, text)
        named = None if placed else self._named(concept)
        if named is not None:
            text = (
                f"{_told(concept)} bears the name of {_trained(named)}; if it is something else, "
                "name its WordNet id in the column wordnet"
            )
            return _problem(concept, "same", named, text)
        return None

    def problems(self, concept: LabelClass) -> list[Problem]:
        """Everything that speaks against a concept, the gravest first; none for a good one."""
        if (overlap := self.overlap(concept)) is not None:
            return [overlap]
        synsets = [wordnet()[wnid] for wnid in concept.synsets if wnid in wordnet()]
        if any(wordnet().is_person(synset.wnid) for synset in synsets):
            text = f"{_told(concept)} is a kind of person: photos would label people"
            return [_problem(concept, "person", None, text)]
        found = []
        if (named := self._named(concept)) is not None:
            text = f"{_told(concept)} shares a name with {_trained(named)}"
            found.append(_problem(concept, "shared-name", named, text))
        if not synsets:
            text = f"{_told(concept)} has no place in WordNet: only its names are compared"
            found.append(_problem(concept, "unplaced", None, text + _senses(concept)))
        for synset in synsets:
            found += self._of_synset(concept, synset)
        return found

    def _of_synset(self, concept: LabelClass, synset: Synset) -> Iterator[Problem]:
        told = _told(concept)
        for wnid in sorted(wordnet().linked(synset.wnid) & self._places.keys()):
            other = self._places[wnid]
            text = f"{told} is directly a part, member or substance of {_trained(other)}, or has it"
            yield _problem(concept, "part-or-whole", other, text)
        for parent in synset.parents:
            if (sibling := self._parents.get(parent)) is not None:
                text = f"{told} and {_trained(sibling)} are both kinds of {_named(parent)}"
                yield _problem(concept, "near", sibling, text)
                break
        most_below, most_beside = _most_general()
        below = len(wordnet().descendants(synset.wnid))
        if below > most_below:
            text = f"{told} has {below:,} kinds, more than any class of ImageNet-1k"
            yield _problem(concept, "general", None, text)
        elif (beside := _beside(synset)) > most_beside:
            parent = _named(synset.parents[0])
            text = f"{told} is one of {beside:,} kinds of {parent}, and stands right below it"
            yield _problem(concept, "general", None, text)
        if synset.lexfile not in THINGS:
            text = f"{told} stands under {synset.lexfile!r} in WordNet, not among {_listed(THINGS)}"
            yield _problem(concept, "abstract", None, text)

    def _named(self, concept: LabelClass) -> LabelClass | None:
        for name in concept.names:
            if (other := self._names.get(fold(name))) is not None:
                return other
        return None


def space_problems(space: LabelSpace) -> list[Problem]:
    """What speaks against a label space by itself: pairs of classes that are hard to tell apart.

    Two classes that bear one name, look alike, or are part and whole are warned of; a class that
    is another one, or above it, is refused: a photo of the lower one is right under both.
    """
    return [*_same_and_above(space), *_shared_names(space), *_parts(space), *_look_alikes(space)]


def _same_and_above(space: LabelSpace) -> Iterator[Problem]:
    places = _places(space)
    seen: dict[str, LabelClass] = {}
    for wnid, item in places:
        if (other := seen.setdefault(wnid, item)) is not item:
            text = f"{_told(item)} and {_told(other)} are one synset of WordNet, {wnid}"
            yield _problem(item, "same", other, text)
    for wnid, item in places:
        for above in sorted(wordnet().ancestors(wnid) & seen.keys()):
            other = seen[above]
            text = f"{_told(other)} is above {_told(item)}: a photo of the latter shows both"
            yield _problem(other, "ancestor", item, text)


def _shared_names(space: LabelSpace) -> Iterator[Problem]:
    bearers: dict[str, list[LabelClass]] = {}
    for item in space:
        for name in dict.fromkeys(map(fold, item.names)):
            bearers.setdefault(name, []).append(item)
    for name, (first, *others) in bearers.items():
        for other in others:
            text = f"{_told(first)} and {_told(other)} are both called {name!r}"
            yield _problem(first, "shared-name", other, text, "warned")


def _parts(space: LabelSpace) -> Iterator[Problem]:
    places = dict(_places(space))
    for wnid, item in places.items():
        for part in wordnet()[wnid].parts:
            if (other := places.get(part)) is not None:
                text = f"{_told(other)} is directly a part, member or substance of {_told(item)}"
                yield _problem(item, "part-or-whole", other, text)


def _look_alikes(space: LabelSpace) -> Iterator[Problem]:
    places = dict(_places(space))
    for a, b, reason in _look_alike_table():
        if a in places and b in places:
            text = f"{_told(places[a])} and {_told(places[b])} look alike: {reason}"
            yield _problem(places[a], "look-alike", places[b], text)


def _places(space: LabelSpace) -> list[tuple[str, LabelClass]]:
    return [(wnid, item) for item in space for wnid in item.synsets if wnid in wordnet()]


@lru_cache(maxsize=1)
def _look_alike_table() -> tuple[tuple[str, str, str], ...]:
    rows = read_csv(data_file("labels/look-alikes.csv"), ["wnid", "other", "reason"])
    return tuple((row["wnid"], row["other"], row["reason"]) for _, row in rows)


@lru_cache(maxsize=1)
def _most_general() -> tuple[int, int]:
    """The most kinds that a class of ImageNet-1k has, and the most that are beside one."""
    synsets = [wordnet()[wnid] for wnid in imagenet()]
    below = max(len(wordnet().descendants(synset.wnid)) for synset in synsets)
    return below, max(map(_beside, synsets))


def _beside(synset: Synset) -> int:
    """How many kinds the narrowest parent of a synset has."""
    return min((_below(parent) for parent in synset.parents), default=len(wordnet()))


@cache
def _below(wnid: str) -> int:
    return len(wordnet().descendants(wnid))


def _senses(concept: LabelClass) -> str:
    found = {s.wnid: s.names[0] for name in concept.names for s in wordnet().named(name)}
    if not found:
        return ""
    told = [f"{wnid} ({name})" for wnid, name in sorted(found.items())[:3]]
    return f"; the column wordnet may say that it is {' or '.join(told)}"


def _problem(
    item: LabelClass,
    kind: str,
    other: LabelClass | None,
    text: str,
    severity: Severity | None = None,
) -> Problem:
    return Problem(
        wnid=item.wnid,
        name=item.name,
        kind=kind,
        severity=severity or KINDS[kind][0],
        other=None if other is None else other.wnid,
        other_name=None if other is None else other.name,
        text=text,
    )


def _told(item: LabelClass) -> str:
    return item.wnid if item.name == item.wnid else f"{item.wnid} ({item.name})"


def _trained(item: LabelClass) -> str:
    return f"the trained class {_told(item)}"


def _named(wnid: str) -> str:
    return wordnet()[wnid].names[0]


def _listed(words: Iterable[str]) -> str:
    *first, last = (f"{word!r}" for word in words)
    return f"{', '.join(first)} and {last}"
