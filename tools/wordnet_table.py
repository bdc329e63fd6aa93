"""Derive configs/labels/wordnet.csv.gz from WordNet 3.0.

    python tools/wordnet_table.py /usr/share/wordnet/data.noun configs/labels/wordnet.csv.gz
    python tools/wordnet_table.py --check /usr/share/wordnet/data.noun configs/labels/wordnet.csv.gz

Debian's package wordnet-base (version 3.0) has `data.noun`. WordNet 3.1 numbers its synsets
anew and is refused. Which synsets ImageNet-21k has is read from the package timm. The same input
gives the same table.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import importlib.util
import io
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

# The names of the files that WordNet's editors wrote nouns into, from number 3 on.
_LEXFILES = [
    "Tops",
    "act",
    "animal",
    "artifact",
    "attribute",
    "body",
    "cognition",
    "communication",
    "event",
    "feeling",
    "food",
    "group",
    "location",
    "motive",
    "object",
    "person",
    "phenomenon",
    "plant",
    "possession",
    "process",
    "quantity",
    "relation",
    "shape",
    "state",
    "substance",
    "time",
]
_FIRST_LEXFILE = 3

#: The header of the table; configs/labels/README.md explains the columns.
COLUMNS = ("wnid", "names", "taxon", "parents", "lexfile", "parts", "imagenet_21k")

_PARENTS = ("@", "@i")
_PARTS = ("%p", "%m", "%s")

_GENUS = "genus "
_LIVING = ("animal", "plant")

# A synset of the 1,000 classes: at this place in WordNet 3.0 alone stands a tench.
_PROBE = ("n01440764", "tench")


class Noun(NamedTuple):
    """One synset: its lemmas, its direct hypernyms (instances' too), its direct parts."""

    wnid: str
    names: list[str]
    lexfile: str
    parents: list[str]
    parts: list[str]


def nouns(lines: Iterable[str]) -> Iterator[Noun]:
    """The synsets of a `data.noun`, in its order; see wndb(5WN) for the format."""
    for line in lines:
        if line.startswith("  "):  # the licence
            continue
        fields = line.partition("|")[0].split()
        count = int(fields[3], 16)
        words = fields[4 : 4 + 2 * count : 2]
        start = 4 + 2 * count
        pointers = [
            fields[start + 1 + 4 * n : start + 5 + 4 * n] for n in range(int(fields[start]))
        ]

        def targets(kinds: tuple[str, ...], pointers: list[list[str]] = pointers) -> list[str]:
            return [
                f"n{offset}" for kind, offset, pos, _ in pointers if kind in kinds and pos == "n"
            ]

        yield Noun(
            wnid=f"n{fields[0]}",
            names=[word.replace("_", " ") for word in words],
            lexfile=_LEXFILES[int(fields[1]) - _FIRST_LEXFILE],
            parents=targets(_PARENTS),
            parts=sorted(targets(_PARTS)),
        )


def imagenet_21k() -> set[str]:
    """The synsets of ImageNet-21k in all its releases, as timm lists them."""
    spec = importlib.util.find_spec("timm")
    if spec is None or spec.origin is None:
        sys.exit("the package timm is absent: it lists the synsets of ImageNet-21k")
    path = Path(spec.origin).parent / "data" / "_info" / "imagenet_synset_to_lemma.txt"
    return {line.split("\t")[0] for line in path.read_text(encoding="utf-8").splitlines()}


def taxon(noun: Noun, genera: set[str]) -> int:
    """Which of the names is the first scientific one of a species, from 1; 0 if none is."""
    for number, name in enumerate(noun.names, start=1):
        first, *rest = name.split()
        if first in genera and rest and all(word.isalpha() and word.islower() for word in rest):
            return number if noun.lexfile in _LIVING else 0
    return 0


def table(every: Iterable[Noun], chosen: set[str]) -> str:
    """The table of the chosen synsets and all that is above them, sorted by id."""
    known = {noun.wnid: noun for noun in every}
    genera = {
        name.removeprefix(_GENUS)
        for noun in known.values()
        for name in noun.names
        if name.startswith(_GENUS)
    }
    wanted, waiting = set(), sorted(chosen)
    while waiting:
        wnid = waiting.pop()
        if wnid not in wanted:
            wanted.add(wnid)
            waiting += known[wnid].parents
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    for wnid in sorted(wanted):
        noun = known[wnid]
        parts = [part for part in noun.parts if part in wanted]
        writer.writerow(
            (
                wnid,
                "; ".join(noun.names),
                taxon(noun, genera) or "",
                " ".join(noun.parents),
                noun.lexfile,
                " ".join(parts),
                int(wnid in chosen),
            )
        )
    return buffer.getvalue()


def main() -> None:
    """Write the table, or say whether it is what would be written."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="data.noun of WordNet 3.0")
    parser.add_argument("target", type=Path, help="the table")
    parser.add_argument("--check", action="store_true", help="write nothing; compare")
    given = parser.parse_args()
    with given.source.open(encoding="ascii") as stream:
        every = list(nouns(stream))
    if not any(noun.wnid == _PROBE[0] and _PROBE[1] in noun.names for noun in every):
        sys.exit(f"{given.source} is not WordNet 3.0: {_PROBE[0]} is not {_PROBE[1]} in it")
    text = table(every, imagenet_21k())
    if not given.check:
        given.target.write_bytes(gzip.compress(text.encode(), mtime=0))
    elif gzip.decompress(given.target.read_bytes()).decode() != text:
        sys.exit(f"{given.target} is not what {given.source} gives")


if __name__ == "__main__":
    main()
