"""Tables of classes: those that travel with the project, and the user's own CSV files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from curate.errors import LabelSpaceError, nearest
from curate.files import csv_plain, data_file, printable, read_csv
from curate.labels.classes import MAX_CLASSES, LabelClass, first_fault

#: The label spaces that travel with the project.
PRESETS = ("imagenet-1k", "imagenet-a", "imagenet-o")

# What a user's table may call a column; one of each is read, all others are ignored.
_ID = ("wnid", "id")
_NAMES = ("names", "synonyms")
_COLUMN = ("column", "index")
_WORDNET = "wordnet"


@lru_cache(maxsize=1)
def imagenet() -> dict[str, LabelClass]:
    """The 1,000 classes by WordNet id, in the order of an ImageNet-1k output.

    Classes of ImageNet-A and ImageNet-O carry their search terms and taxa.
    """
    facts: dict[str, dict[str, str]] = {}
    for preset in PRESETS[1:]:
        for _, row in read_csv(data_file(f"labels/{preset}.csv"), ["wnid"]):
            facts[row["wnid"]] = row
    classes = {}
    for _, row in read_csv(data_file("labels/imagenet-1k.csv"), ["column", "wnid", "name"]):
        known = facts.get(row["wnid"], {})
        classes[row["wnid"]] = LabelClass(
            wnid=row["wnid"],
            name=row["name"],
            names=_list(row["names"]),
            column=int(row["column"]),
            clip_name=row["clip_name"],
            parents=_list(row["parent_name"]),
            queries=_list(known.get("query_terms", "")),
            scientific_names=(taxa := _list(known.get("scientific_name", ""))),
            taxon_ranks=_ranks(known.get("taxon_rank", ""), len(taxa)),
        )
    return classes


def preset_classes(preset: str) -> list[LabelClass]:
    """The classes of one of `PRESETS`, in their order."""
    known = imagenet()
    return [known[row["wnid"]] for _, row in read_csv(data_file(f"labels/{preset}.csv"), ["wnid"])]


def read_classes(
    path: Path, known: Callable[[str], LabelClass | None] | None = None
) -> list[LabelClass]:
    """The classes of a user's table, in its order.

    The CSV file has a header with `wnid` or `id`, and optionally `name`, `names` or `synonyms`
    (separated by semicolons, or by commas where no semicolon occurs), `column` or `index`: the
    column of an ImageNet-1k output that the class reads, and `wordnet`: ids of WordNet that say
    what an id of the user's own shows. For a WordNet id of ImageNet-1k names and column are filled
    in. Further columns are ignored.

    Args:
        path: the table.
        known: gives the class of an id whose names are to be filled in; those of ImageNet-1k by
            default.

    Raises:
        LabelSpaceError: the table is unusable; the text names the line.
        UsageError: the file cannot be read as CSV.
    """
    classes: list[LabelClass] = []
    lines: list[int] = []
    known = known or imagenet().get
    header: tuple[str, str | None, str | None] | None = None
    for line, row in read_csv(path, []):
        where = f"{printable(path)}, line {line}"
        if header is None:
            header = _header(row, path)
        if len(classes) == MAX_CLASSES:
            raise LabelSpaceError(f"{where}: more than {MAX_CLASSES:,} classes")
        id_column, names_column, number_column = header
        classes.append(
            _own_class(
                wnid=row[id_column].strip(),
                name=_blanks(csv_plain(row.get("name", ""))),
                names=_list(csv_plain(row[names_column]) if names_column else ""),
                number=row[number_column].strip() if number_column else "",
                wordnet=row.get(_WORDNET, ""),
                known=known,
                where=where,
            )
        )
        lines.append(line)
    if not classes:
        raise LabelSpaceError(
            f"{printable(path)} holds no classes: write a header with 'wnid' or 'id', "
            "then one class a line"
        )
    if (fault := first_fault(classes)) is not None:
        position, what = fault
        raise LabelSpaceError(f"{printable(path)}, line {lines[position]}: {what}")
    return classes


def _ranks(text: str, count: int) -> tuple[str, ...]:
    """A rank for each taxon; one that stands alone holds for all."""
    ranks = tuple(rank.strip() for rank in text.split(";") if rank.strip())
    return ranks * count if len(ranks) == 1 else ranks


def _header(columns: Iterable[str], path: Path) -> tuple[str, str | None, str | None]:
    columns = list(columns)

    def spelt(options: tuple[str, ...]) -> str | None:
        found = [option for option in options if option in columns]
        if len(found) > 1:
            raise LabelSpaceError(
                f"{printable(path)}: the header has both {found[0]!r} and {found[1]!r}: keep one"
            )
        return found[0] if found else None

    wnid = spelt(_ID)
    if wnid is None:
        near = [column for option in _ID for column in nearest(option, columns, 1)]
        hint = f" (is it {near[0]!r}?)" if near else ""
        raise LabelSpaceError(
            f"{printable(path)}: the header has no column 'wnid' or 'id'{hint}; "
            f"it has {', '.join(repr(column) for column in columns)}"
        )
    return wnid, spelt(_NAMES), spelt(_COLUMN)


def _own_class(
    wnid: str,
    name: str,
    names: tuple[str, ...],
    number: str,
    wordnet: str,
    known: Callable[[str], LabelClass | None],
    where: str,
) -> LabelClass:
    if number and not re.fullmatch(r"-?[0-9]{1,9}", number):
        raise LabelSpaceError(f"{where}: column {number!r} is not a whole number")
    column = int(number) if number else None
    synsets = _synsets(wordnet, where)
    there = known(wnid)
    if there is None:
        name = name or (names[0] if names else wnid)
        return LabelClass(wnid, name, names, column, wordnet=synsets)
    if there.column is not None and column not in (None, there.column):
        raise LabelSpaceError(
            f"{where}: {wnid} ({there.name}) is column {there.column} of an ImageNet-1k output, "
            f"not {column}: correct the cell or leave it empty"
        )
    return replace(
        there,
        name=name or (names[0] if names else there.name),
        names=(*names, *there.names),
        wordnet=synsets,
    )


def _synsets(cell: str, where: str) -> tuple[str, ...]:
    """The WordNet ids of a cell, separated by blanks, commas or semicolons."""
    wnids = tuple(dict.fromkeys(re.split(r"[\s,;]+", cell.strip()))) if cell.strip() else ()
    if wnids:
        from curate.labels.wordnet import wordnet

        for wnid in wnids:
            if wnid not in wordnet():
                raise LabelSpaceError(
                    f"{where}: the column 'wordnet' holds {wnid!r}, which is none of the ids of "
                    "WordNet 3.0 that ImageNet-21k has or has below it"
                )
    return wnids


def _list(cell: str) -> tuple[str, ...]:
    parts = cell.split(";" if ";" in cell else ",")
    return tuple(part for part in map(_blanks, parts) if part)


def _blanks(text: str) -> str:
    return " ".join(text.split())
