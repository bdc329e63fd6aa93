"""Concepts: what candidates of the rule outlier are labelled with."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from curate.errors import LabelSpaceError, UnknownNameError
from curate.files import printable
from curate.labels.classes import LabelClass
from curate.labels.space import LabelSpace
from curate.labels.tables import read_classes
from curate.labels.wordnet import Synset, wordnet

#: The concepts that travel with the project: the nouns of WordNet that ImageNet-21k has, and all
#: above them.
WORDNET = "wordnet"


class Concepts(LabelSpace):
    """An ordered list of concepts: found by id and name as the classes of a label space are."""

    noun = "concept"

    def _unknown(self, text: str, where: str = "") -> UnknownNameError:
        outside = [] if self.name == WORDNET else _meant(text)
        if outside:
            told = " and ".join(f"{synset.wnid} ({synset.names[0]})" for synset in outside[:3])
            note = f"{self.name} lacks WordNet's {told}"
            return UnknownNameError(self.noun, text, (), where=where, note=note)
        return super()._unknown(text, where)

    def _outside(self, text: str) -> list[LabelClass]:
        return []


def load_concepts(name_or_path: str, base: Path | None = None) -> Concepts:
    """The concepts that candidates may be labelled with.

    Args:
        name_or_path: `WORDNET`, or the path of a CSV file (see `tables.read_classes`). There a
            WordNet id has WordNet's names, and the column `wordnet` says what an id of the user's
            own shows. A column number means nothing.
        base: the folder that a path is relative to; the current one by default.

    Raises:
        UnknownNameError: neither `WORDNET` nor a path.
        LabelSpaceError: the file is absent, or its table is unusable.
        UsageError: the file cannot be read.
    """
    if name_or_path == WORDNET:
        return _all_of_wordnet()
    path = (base or Path()) / name_or_path
    if not path.is_file():
        if Path(name_or_path).name == name_or_path and path.suffix.casefold() != ".csv":
            note = f"there is {WORDNET}, or a CSV file's path"
            raise UnknownNameError("list of concepts", name_or_path, [WORDNET], note=note)
        raise LabelSpaceError(f"cannot read the concepts {printable(path)}: no such file")
    return Concepts(path.name, (replace(c, column=None) for c in read_classes(path, _known)))


def with_queries(concept: LabelClass) -> LabelClass:
    """A concept with what finds photos of it: its names, and the scientific name of its species.

    A name that several synsets bear is asked together with the name of a parent ("crane bird").
    What the concept says itself stays.
    """
    synsets = [wordnet()[wnid] for wnid in concept.synsets if wnid in wordnet()]
    parents = [wordnet()[wnid].names[0] for one in synsets for wnid in one.parents[:1]]
    taxa = dict.fromkeys(one.taxon for one in synsets if one.taxon)
    queries = [
        f"{name} {parents[0]}" if parents and len(wordnet().named(name)) > 1 else name
        for name in concept.names
        if name not in taxa
    ]
    return replace(
        concept,
        queries=concept.queries or tuple(dict.fromkeys(queries)),
        scientific_names=concept.scientific_names or tuple(taxa),
        taxon_ranks=concept.taxon_ranks or tuple(map(_rank, taxa)),
    )


def _meant(text: str) -> list[Synset]:
    return [wordnet()[text]] if text in wordnet() else wordnet().named(text)


def _rank(taxon: str) -> str:
    return "species" if taxon.count(" ") == 1 else ""


def _known(wnid: str) -> LabelClass | None:
    if wnid not in wordnet():
        return None
    synset = wordnet()[wnid]
    parents = tuple(wordnet()[parent].names[0] for parent in synset.parents)
    return LabelClass(wnid, synset.names[0], synset.names, parents=parents)


@lru_cache(maxsize=1)
def _all_of_wordnet() -> Concepts:
    return Concepts(WORDNET, filter(None, (_known(synset.wnid) for synset in wordnet())))
