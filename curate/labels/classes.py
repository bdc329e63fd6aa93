"""One class of a label space, and what makes a list of classes usable."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

#: Most classes of one label space.
MAX_CLASSES = 100_000

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_BLANKS = re.compile(r"[\s_\-\u2010-\u2015]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# An id names a folder of a release, and these open devices on Windows.
_DEVICE = re.compile(r"con|prn|aux|nul|(com|lpt)[1-9]", re.IGNORECASE)
# The one file beside these folders whose name could be an id.
_SUMS = "sha256sums"


def cannot_be_a_folder(name: str) -> bool:
    """Whether a name opens a device on Windows, or is that of a file of every release there."""
    return bool(_DEVICE.fullmatch(name)) or name.casefold() == _SUMS


@dataclass(frozen=True)
class LabelClass:
    """One class.

    Args:
        wnid: WordNet 3.0 id such as "n02268443", or the user's own id: 1 to 64 of
            `A-Z a-z 0-9 _ -`, the first a letter or digit. It names folders.
        name: what people call it first.
        names: all names, `name` among them (put in front where it is left out).
        column: the column of an ImageNet-1k output that stands for it, from 0; None where the
            user's own class has none.
        clip_name: a name that text-image models are given to tell classes apart, where there is one
            ("construction crane").
        parents: names of its WordNet parents ("lifting device").
        queries: search terms that find photos of it.
        scientific_names: taxa whose photos show it, for living things.
        taxon_ranks: the rank of each of these ("suborder"): names of different taxa may be equal.
        wordnet: WordNet ids of what it shows, where its own id is none.
    """

    wnid: str
    name: str
    names: tuple[str, ...] = ()
    column: int | None = None
    clip_name: str | None = None
    parents: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()
    scientific_names: tuple[str, ...] = ()
    taxon_ranks: tuple[str, ...] = ()
    wordnet: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(dict.fromkeys((self.name, *self.names))))

    @property
    def synsets(self) -> tuple[str, ...]:
        """Where it stands in WordNet: what it names there, else its own id, which may be none."""
        return self.wordnet or (self.wnid,)

    def explain(self, asked: str) -> str:
        """The id with what tells this class from others that carry the name `asked`.

        For example "n03126707 (construction crane, a kind of lifting device)" for "crane".
        """
        told = [
            name for name in (self.clip_name, *self.names) if name and fold(name) != fold(asked)
        ]
        name = told[0] if told else self.name
        kinds = [parent for parent in self.parents if fold(parent) != fold(name)]
        kind = f", a kind of {' and '.join(kinds)}" if kinds else ""
        return f"{self.wnid} ({name}{kind})"


def fold(name: str) -> str:
    """What two spellings of one name share: case, underscores, hyphens and extra blanks go."""
    # Some file systems hand names on with accents as signs of their own.
    composed = unicodedata.normalize("NFC", name)
    return _BLANKS.sub(" ", composed).strip().replace("’", "'").casefold()


def first_fault(classes: Sequence[LabelClass]) -> tuple[int, str] | None:
    """What makes a list of classes unusable as a label space.

    Returns:
        The position of the first class at fault and the fault, or None where there is none.
    """
    ids: dict[str, str] = {}
    columns: dict[int, str] = {}
    for position, item in enumerate(classes):
        wnid, column = item.wnid, item.column
        if not _ID.fullmatch(wnid):
            return position, (
                f"id {wnid!r} is unusable: write 1 to 64 of A-Z a-z 0-9 _ -, "
                "starting with a letter or digit"
            )
        if _DEVICE.fullmatch(wnid):
            return position, f"id {wnid!r} is the name of a device on Windows: choose another"
        if wnid.casefold() == _SUMS:
            return position, f"id {wnid!r} is the name of a file of every release: choose another"
        # Folders whose names differ in case alone are one folder on macOS and Windows.
        if (other := ids.get(wnid.casefold())) is not None:
            how = "occurs twice" if other == wnid else f"differs from {other!r} in case alone"
            return position, f"id {wnid!r} {how}"
        ids[wnid.casefold()] = wnid
        for name in item.names:
            if not name.strip() or _CONTROL.search(name):
                return position, f"name {name!r} is empty or holds a control character"
        if column is not None:
            if column < 0:
                return position, f"column {column} is negative"
            if column in columns:
                return position, f"column {column} belongs to {columns[column]!r} already"
            columns[column] = wnid
    return None
