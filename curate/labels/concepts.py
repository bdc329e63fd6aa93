"""Concepts: what candidates of the rule outlier are labelled with."""

from __future__ import annotations

from pathlib import Path

from curate.errors import LabelSpaceError
from curate.labels.space import LabelSpace
from curate.labels.tables import read_classes

#: The concepts that travel with the project: the nouns of WordNet that ImageNet-21k has.
WORDNET = "wordnet"


def load_concepts(name_or_path: str, base: Path | None = None) -> LabelSpace:
    """The concepts that candidates may be labelled with.

    Args:
        name_or_path: `WORDNET`, or the path of a CSV file (see `tables.read_classes`).
        base: the folder that a path is relative to; the current one by default.

    Raises:
        LabelSpaceError: the table is unusable.
        UsageError: the file cannot be read.
    """
    if name_or_path == WORDNET:
        raise LabelSpaceError("set concepts to a CSV file of yours: the table of WordNet is absent")
    path = (base or Path()) / name_or_path
    return LabelSpace(path.name, read_classes(path))
