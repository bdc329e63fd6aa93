"""WordNet 3.0: what is a kind of what, for the synsets of ImageNet-21k and all above them.

The table `labels/wordnet.csv.gz` is derived by `tools/wordnet_table.py`. A synset may have several
parents; instances ("Mount Everest") count as kinds. There are no cycles.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from curate.files import data_file
from curate.labels.classes import fold

__all__ = ["PERSON", "Synset", "WordNet", "wordnet"]

#: The synset that all people are kinds of.
PERSON = "n00007846"


@dataclass(frozen=True, slots=True)
class Synset:
    """One synset.

    Attributes:
        wnid: `n` and its eight-digit offset in WordNet 3.0's `data.noun`.
        names: its lemmas, at least one.
        taxon: the scientific name of its species, where it has one; names hold it too.
        parents: the synsets that it is directly a kind or an instance of; the root has none.
        lexfile: what part of the world it belongs to ("animal", "artifact", "act" …).
        parts: its direct parts, members and substances.
        in_imagenet: whether ImageNet-21k has it; the others are here as being above those.
    """

    wnid: str
    names: tuple[str, ...]
    taxon: str | None
    parents: tuple[str, ...]
    lexfile: str
    parts: tuple[str, ...]
    in_imagenet: bool


class WordNet:
    """Synsets by id, and how they are related.

    Args:
        synsets: in any order; all parents and parts are among them.
    """

    def __init__(self, synsets: Iterable[Synset]) -> None:
        self._synsets = {synset.wnid: synset for synset in synsets}
        self._above: dict[str, frozenset[str]] = {}

    def __contains__(self, wnid: object) -> bool:
        return wnid in self._synsets

    def __getitem__(self, wnid: str) -> Synset:
        return self._synsets[wnid]

    def __iter__(self) -> Iterator[Synset]:
        return iter(self._synsets.values())

    def __len__(self) -> int:
        return len(self._synsets)

    def ancestors(self, wnid: str) -> frozenset[str]:
        """Everything that a synset is a kind of, over all parents; without itself.

        Raises:
            KeyError: no such synset.
        """
        if (known := self._above.get(wnid)) is None:
            known = _reached(wnid, lambda one: self._synsets[one].parents)
            self._above[wnid] = known
        return known

    def descendants(self, wnid: str) -> frozenset[str]:
        """Everything that is a kind of a synset; without itself.

        Raises:
            KeyError: no such synset.
        """
        _ = self._synsets[wnid]
        return _reached(wnid, lambda one: self._children.get(one, ()))

    def linked(self, wnid: str) -> frozenset[str]:
        """What a synset is directly a part, member or substance of, and what is one of it.

        Raises:
            KeyError: no such synset.
        """
        return frozenset(self._synsets[wnid].parts) | self._wholes.get(wnid, frozenset())

    def is_person(self, wnid: str) -> bool:
        """Whether a synset is a kind of person, or a person.

        Raises:
            KeyError: no such synset.
        """
        return wnid == PERSON or PERSON in self.ancestors(wnid)

    def named(self, text: str) -> list[Synset]:
        """The synsets that bear a name, in whatever case, by id."""
        return [self._synsets[wnid] for wnid in self._by_name.get(fold(text), ())]

    @cached_property
    def _children(self) -> Mapping[str, list[str]]:
        children: dict[str, list[str]] = {}
        for synset in self:
            for parent in synset.parents:
                children.setdefault(parent, []).append(synset.wnid)
        return children

    @cached_property
    def _wholes(self) -> Mapping[str, frozenset[str]]:
        wholes: dict[str, set[str]] = {}
        for synset in self:
            for part in synset.parts:
                wholes.setdefault(part, set()).add(synset.wnid)
        return {part: frozenset(of) for part, of in wholes.items()}

    @cached_property
    def _by_name(self) -> Mapping[str, list[str]]:
        by_name: dict[str, list[str]] = {}
        for synset in self:
            for name in dict.fromkeys(map(fold, synset.names)):
                by_name.setdefault(name, []).append(synset.wnid)
        return by_name


def _reached(start: str, steps: Callable[[str], Iterable[str]]) -> frozenset[str]:
    found: set[str] = set()
    waiting = list(steps(start))
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += steps(one)
    return frozenset(found)


@lru_cache(maxsize=1)
def wordnet() -> WordNet:
    """The table that travels with the project: 23,548 synsets, 21,844 of them in ImageNet-21k."""
    with gzip.open(
        data_file("labels/wordnet.csv.gz"), "rt", encoding="utf-8", newline=""
    ) as stream:
        rows = csv.reader(stream)
        next(rows)
        return WordNet(_synset(*row) for row in rows)


def _synset(
    wnid: str, names: str, taxon: str, parents: str, lexfile: str, parts: str, in_imagenet: str
) -> Synset:
    listed = tuple(names.split("; "))
    return Synset(
        wnid,
        listed,
        listed[int(taxon) - 1] if taxon else None,
        tuple(parents.split()),
        lexfile,
        tuple(parts.split()),
        in_imagenet == "1",
    )
