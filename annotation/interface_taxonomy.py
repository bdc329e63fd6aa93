"""The classes of a label space as a list to choose from: a thousand of them, in groups.

Groups are synsets of WordNet, so that whoever does not find a class by typing its name finds it
among its like. There is one level of groups: more of them would have to be opened one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from xml.etree import ElementTree

from curate.labels.classes import LabelClass, fold
from curate.labels.space import LabelSpace
from curate.labels.wordnet import wordnet

#: Most classes of one group, and fewest that make one of their own.
MOST, FEWEST = 40, 4

#: Longest text of one entry: other names are there to be found by.
LONGEST = 100

# What XML cannot hold, and what turns the direction of what follows. A dollar sign before a word
# stands for data of the task in what Label Studio shows; an invisible sign keeps them apart.
_DROPPED = (*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF)
_REPLACED: dict[int, str | None] = dict.fromkeys(
    (*_DROPPED, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
)
_REPLACED[ord("$")] = "\u2060$\u2060"


@dataclass(frozen=True)
class Group:
    """Some classes of one kind.

    Attributes:
        key: unique among the groups of a label space; no id of a class.
        name: what they are kinds of.
        classes: at most `MOST`, by name.
    """

    key: str
    name: str
    classes: tuple[LabelClass, ...]


@dataclass
class _Node:
    wnid: str
    own: list[LabelClass] = field(default_factory=list)
    below: dict[str, _Node] = field(default_factory=dict)
    count: int = 0

    def classes(self) -> Iterator[LabelClass]:
        yield from self.own
        for node in self.below.values():
            yield from node.classes()


@lru_cache(maxsize=8)
def groups(space: LabelSpace) -> tuple[Group, ...]:
    """Every class of a label space in one group, by the groups' names.

    A class that WordNet does not know is in a group of such classes.
    """
    root, unplaced = _Node(""), []
    for item in space:
        chain = _chain(item)
        if not chain:
            unplaced.append(item)
            continue
        node = root
        node.count += 1
        for wnid in chain:
            node = node.below.setdefault(wnid, _Node(wnid))
            node.count += 1
        node.own.append(item)
    found, rest = _divided(root)
    found += _parted("other", "other classes", [*rest, *unplaced])
    return tuple(sorted(found, key=lambda group: (fold(group.name), group.key)))


def taxonomy(space: LabelSpace, **attributes: str) -> ElementTree.Element:
    """A tag to choose from a label space with; each class's entry is told by its id.

    Args:
        space: the classes.
        attributes: further ones of the tag, for example its name.
    """
    # An id holds no blank, so that a path is never taken apart in the wrong place.
    tag = ElementTree.Element("Taxonomy", {"leafsOnly": "true", **attributes})
    texts, seen = dict(zip(space.wnids, entries(space.classes), strict=True)), set[str]()
    for group in groups(space):
        # Of two entries with one text beside each other Label Studio shows one.
        span = f"{group.name} ({group.classes[0].name} – {group.classes[-1].name})"
        names = map(shown, (group.name, span, group.key))
        text = next(name for name in names if name not in seen)
        seen.add(text)
        inside = ElementTree.SubElement(tag, "Choice", {"value": text, "alias": group.key})
        for item in group.classes:
            entry = {"value": texts[item.wnid], "alias": item.wnid}
            ElementTree.SubElement(inside, "Choice", entry)
    return tag


def entries(classes: Sequence[LabelClass], longest: int = LONGEST) -> list[str]:
    """What classes are called in a list, no two of them alike: all their names, if there is room.

    Args:
        classes: the whole list.
        longest: as long as a text with other names may be.

    Returns:
        Texts that Label Studio shows as they are, in the order of the classes.
    """
    first = Counter(fold(item.name) for item in classes)
    told = []
    for item in classes:
        names = item.names
        if first[fold(item.name)] > 1:
            kinds = item.clip_name or f"a kind of {' and '.join(item.parents) or item.wnid}"
            names = (f"{item.name} ({kinds})", *item.names[1:])
        text = names[0]
        for name in names[1:]:
            if len(text) + len(name) + 2 <= longest:
                text = f"{text}, {name}"
        told.append(shown(text))
    twice = Counter(told)
    return [
        text if twice[text] == 1 and text else f"{text} ({item.wnid})".strip()
        for item, text in zip(classes, told, strict=True)
    ]


def shown(text: str, longest: int = 2 * LONGEST) -> str:
    """A text as Label Studio may have it in a page's description: no sign in it means anything.

    Args:
        text: from wherever.
        longest: what is longer is cut.
    """
    short = text if len(text) <= longest else text[: longest - 1] + "…"
    return short.translate(_REPLACED)


def _chain(item: LabelClass) -> list[str]:
    """Where a class stands, from WordNet's root to itself, along the first parents."""
    wnid = next((wnid for wnid in item.synsets if wnid in wordnet()), None)
    chain: list[str] = []
    while wnid is not None:
        chain.append(wnid)
        wnid = next(iter(wordnet()[wnid].parents), None)
    return chain[::-1]


def _divided(node: _Node) -> tuple[list[Group], list[LabelClass]]:
    """The groups of the classes below a synset, and the classes that are too few for one."""
    while not node.own and len(node.below) == 1:
        (node,) = node.below.values()
    if node.wnid and FEWEST <= node.count <= MOST:
        return list(_parted(node.wnid, wordnet()[node.wnid].names[0], node.classes())), []
    found, rest = [], list(node.own)
    for below in node.below.values():
        inside, left = _divided(below)
        found += inside
        rest += left
    if node.wnid and len(rest) >= FEWEST:
        name = wordnet()[node.wnid].names[0]
        found += _parted(node.wnid, f"{name}, other" if found else name, rest)
        rest = []
    return found, rest


def _parted(key: str, name: str, classes: Iterable[LabelClass]) -> Iterator[Group]:
    """A group, or several in order of the names where it would have too many classes."""
    ordered = sorted(classes, key=lambda item: (fold(item.name), item.wnid))
    parts = -(-len(ordered) // MOST)
    for part in range(parts):
        some = ordered[len(ordered) * part // parts : len(ordered) * (part + 1) // parts]
        span = f" ({some[0].name} – {some[-1].name})" if parts > 1 else ""
        yield Group(f"({key}-{part})", name + span, tuple(some))
