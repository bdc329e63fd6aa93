"""What a class is, in words for people who are asked about it.

WordNet's own explanations do not travel with the project. Where WordNet 3.0 is installed they are
read from its file, where each synset stands at the byte that its id names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from curate.labels.classes import LabelClass, fold
from curate.labels.wordnet import Synset, wordnet

#: The variable that names WordNet's folder, and where Debian puts it.
FOLDER_VARIABLE = "WNSEARCHDIR"
FOLDER = Path("/usr/share/wordnet")

#: Longest explanation, and most other names.
LONGEST, NAMES = 600, 8

# A line of the file is shorter; what is longer is another file.
_LINE = 30_000
# Above this many kinds a synset says nothing ("object", "whole").
_GENERAL = 1500


def definition(item: LabelClass) -> str:
    """What a class is: WordNet's explanation where there is one, other names, what it is a kind of.

    Args:
        item: a class of a label space, or a concept.

    Returns:
        Sentences in one line, from the user's own table where it is the user's own class, so not
        to be trusted; empty where nothing is known but the name.
    """
    return _definition(item, _nouns())


@lru_cache(maxsize=4096)
def _definition(item: LabelClass, nouns: Path) -> str:
    synsets = [wordnet()[wnid] for wnid in item.synsets if wnid in wordnet()]
    taxa = dict.fromkeys([*(one.taxon for one in synsets if one.taxon), *item.scientific_names])
    listed = (*item.names, *(name for one in synsets for name in one.names))
    skipped = {fold(item.name), *map(fold, taxa)}
    others = {fold(name): name for name in reversed(listed) if fold(name) not in skipped}
    sentences = [text for one in synsets[:2] if (text := _gloss(nouns, one))]
    if others:
        sentences.append(f"Also called {_listed(list(others.values())[::-1][:NAMES], 'or')}")
    if taxa:
        sentences.append(f"Scientific name: {_listed(list(taxa)[:NAMES], 'or')}")
    if kinds := _kinds(item, synsets):
        sentences.append(f"A kind of {kinds}")
    return " ".join(f"{' '.join(sentence.split())}." for sentence in sentences)


def gloss(synset: Synset) -> str:
    """WordNet's explanation of a synset, without its examples; empty where it is not installed."""
    return _gloss(_nouns(), synset)


def _nouns() -> Path:
    folder = os.environ.get(FOLDER_VARIABLE)
    return (Path(folder) if folder else FOLDER) / "data.noun"


@lru_cache(maxsize=4096)
def _gloss(nouns: Path, synset: Synset) -> str:
    try:
        with nouns.open("rb") as stream:
            stream.seek(int(synset.wnid[1:]))
            line = stream.readline(_LINE).decode("utf-8", errors="replace")
    except (OSError, ValueError):
        return ""
    head, _, text = line.partition(" | ")
    fields = head.split(" ")
    # Another version of WordNet may have another synset at this very byte.
    named = len(fields) > 4 and fold(fields[4]) in map(fold, synset.names)
    if fields[0] != synset.wnid[1:] or not named:
        return ""
    said = text.split('; "')[0].strip().rstrip(";.")
    said = "".join(sign if sign.isprintable() else " " for sign in said)
    said = said[:1].upper() + said[1:]
    return said if len(said) <= LONGEST else said[: LONGEST - 1] + "…"


def _kinds(item: LabelClass, synsets: list[Synset]) -> str:
    """What a class is a kind of, from its parents to the widest that still says something."""
    told = list(item.parents)
    for synset in synsets[:2]:
        told += [wordnet()[wnid].names[0] for wnid in synset.parents]
        told += _above(synset)
    named = dict.fromkeys(name for name in told if fold(name) != fold(item.name))
    return ", ".join(list(named)[:5])


def _above(synset: Synset) -> Iterator[str]:
    while synset.parents:
        synset = wordnet()[synset.parents[0]]
        if _below(synset.wnid) > _GENERAL:
            return
        yield synset.names[0]


@lru_cache(maxsize=4096)
def _below(wnid: str) -> int:
    return len(wordnet().descendants(wnid))


def _listed(names: list[str], word: str) -> str:
    *first, last = names
    return f"{', '.join(first)} {word} {last}" if first else last
