"""Label spaces: the lists of classes that softmax runs over and candidates are labelled with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from curate.errors import AmbiguousNameError, LabelSpaceError, UnknownNameError, UsageError
from curate.files import canonical_json, printable, sha256_bytes
from curate.labels.classes import LabelClass, first_fault, fold
from curate.labels.tables import PRESETS, imagenet, preset_classes, read_classes

__all__ = ["CLASS_MAP_COLUMNS", "PRESETS", "LabelClass", "LabelSpace", "load_label_space"]

#: The header of a class map, see `LabelSpace.to_rows`.
CLASS_MAP_COLUMNS = ("wnid", "name", "column")

#: Most characters of a file of class arguments.
_LONGEST_LIST = 10_000_000

_COMMENT = re.compile(r"(^|\s)#.*")


class LabelSpace:
    """An ordered list of classes, each known by its id.

    Args:
        name: a preset's name, or the file name of the user's table.
        classes: at least one class; ids are unique whatever their case, columns are unique.

    Raises:
        LabelSpaceError: the classes make no label space.
    """

    #: What errors call one of its classes.
    noun = "class"

    def __init__(self, name: str, classes: Iterable[LabelClass]) -> None:
        self.name = name
        self.classes = tuple(classes)
        if not self.classes:
            raise LabelSpaceError(f"label space {name} has no classes")
        if (fault := first_fault(self.classes)) is not None:
            position, what = fault
            raise LabelSpaceError(f"label space {name}, class {position + 1}: {what}")
        self.wnids = tuple(item.wnid for item in self.classes)
        self._positions = {wnid: position for position, wnid in enumerate(self.wnids)}

    def __len__(self) -> int:
        return len(self.classes)

    def __iter__(self) -> Iterator[LabelClass]:
        return iter(self.classes)

    def __contains__(self, wnid: object) -> bool:
        return wnid in self._positions

    def __repr__(self) -> str:
        return f"LabelSpace({self.name!r}, {len(self)} classes)"

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over ids and columns in order, in hexadecimal: what can change a verdict."""
        return sha256_bytes(canonical_json([[item.wnid, item.column] for item in self.classes]))

    def position(self, wnid: str) -> int:
        """The place of a class in this label space, from 0.

        Raises:
            UnknownNameError: no class has this id.
        """
        try:
            return self._positions[wnid]
        except KeyError:
            raise self._unknown(wnid) from None

    def get(self, wnid: str) -> LabelClass:
        """The class with this id.

        Raises:
            UnknownNameError: no class has this id.
        """
        return self.classes[self.position(wnid)]

    def name_of(self, wnid: str) -> str:
        """What the class with this id is called first; the id itself where there is no such class.

        A table that was edited since may lack a class that candidates have.
        """
        return self.get(wnid).name if wnid in self else wnid

    def knows(self, text: str) -> bool:
        """Whether an id or name is that of at least one class."""
        return bool(self._find(text))

    def match(self, text: str, *, where: str = "") -> LabelClass:
        """The class that a person or a folder name means.

        An id counts as written. A name counts in any case, with underscores and hyphens for
        blanks. A name that only tells classes apart for text-image models ("construction crane")
        counts where no class has it among its ordinary names.

        Args:
            text: an id or a name.
            where: the file and line that hold it, for the error.

        Raises:
            AmbiguousNameError: several classes carry the name; the text tells them apart.
            UnknownNameError: no class does; the text names the nearest.
        """
        found = self._find(text)
        if not found:
            raise self._unknown(text, where)
        if len(found) > 1:
            told = [item.explain(text) for item in found]
            raise AmbiguousNameError(self.noun, text, told, where=where)
        return found[0]

    def select(self, arguments: Sequence[str], base: Path | None = None) -> tuple[str, ...]:
        """The classes that class arguments name.

        Args:
            arguments: ids, class names and names of presets (for their classes that are in this
                label space), one or several with commas between; or `@FILE` with such a list a
                line, where blank lines and comments after `#` are skipped. Empty means all.
            base: the folder that `@FILE` is relative to; the current one by default.

        Returns:
            Their ids in this label space's order, each once.

        Raises:
            AmbiguousNameError: several classes carry a name.
            UnknownNameError: nothing carries a name.
            UsageError: a file cannot be read, or an argument selects nothing.
        """
        if not arguments:
            return self.wnids
        chosen: set[str] = set()
        for argument in arguments:
            named: set[str] = set()
            if argument.strip().startswith("@"):
                path = (base or Path()) / argument.strip()[1:]
                for line, text in _lines(path):
                    named |= self._listed(text, f"{printable(path)}, line {line}")
            else:
                named = self._listed(argument.strip(), "")
            if not named:
                raise UsageError(f"class argument {argument!r} names no {self.noun}")
            chosen |= named
        return tuple(wnid for wnid in self.wnids if wnid in chosen)

    def columns_in(self, output: LabelSpace) -> list[int]:
        """Which column of a classifier's output each of these classes reads.

        A class reads the column of its id. One whose id the output lacks reads its own `column`,
        if the output is that of ImageNet-1k.

        Args:
            output: the label space of the output: its class at position i is column i.

        Returns:
            One column a class, in this label space's order, no column twice.

        Raises:
            LabelSpaceError: the output lacks a class, or two classes read one column.
        """
        numbered = output.wnids == tuple(imagenet())
        columns: list[int] = []
        missing: list[str] = []
        readers: dict[int, str] = {}
        for item in self.classes:
            column = output._positions.get(item.wnid)
            if column is None and numbered and item.column is not None:
                column = item.column
                if column >= len(output):
                    raise LabelSpaceError(
                        f"label space {self.name}: {item.wnid} reads column {column}, but the "
                        f"columns of {output.name} end at {len(output) - 1}"
                    )
            if column is None:
                missing.append(item.wnid)
                continue
            if column in readers:
                raise LabelSpaceError(
                    f"label space {self.name}: {readers[column]} and {item.wnid} both read "
                    f"column {column} of {output.name}; correct one of them"
                )
            readers[column] = item.wnid
            columns.append(column)
        if missing:
            named = ", ".join(missing[:3]) + (" …" if len(missing) > 3 else "")
            raise LabelSpaceError(
                f"a model's output of the classes of {output.name} lacks {len(missing)} of the "
                f"{len(self)} classes of label space {self.name}: {named}; choose a model trained "
                "on them, or drop them from the label space"
            )
        return columns

    def to_rows(self) -> list[dict[str, Any]]:
        """The class map: a row a class in order, with the keys of `CLASS_MAP_COLUMNS`."""
        return [{key: getattr(item, key) for key in CLASS_MAP_COLUMNS} for item in self.classes]

    @cached_property
    def _by_name(self) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        names: dict[str, list[int]] = {}
        last_resort: dict[str, list[int]] = {}
        for position, item in enumerate(self.classes):
            for name in {fold(name) for name in item.names}:
                names.setdefault(name, []).append(position)
            if item.clip_name:
                last_resort.setdefault(fold(item.clip_name), []).append(position)
        return names, last_resort

    def _find(self, text: str) -> list[LabelClass]:
        if text in self:
            return [self.classes[self._positions[text]]]
        names, last_resort = self._by_name
        key = fold(text)
        return [self.classes[i] for i in names.get(key) or last_resort.get(key) or []]

    def _unknown(self, text: str, where: str = "") -> UnknownNameError:
        if outside := self._outside(text):
            told = " and ".join(f"{item.wnid} ({item.name})" for item in outside)
            note = f"label space {self.name} lacks ImageNet-1k's {told}"
            return UnknownNameError(self.noun, text, (), where=where, note=note)
        spelt = (name for item in self.classes for name in (item.wnid, *item.names))
        return UnknownNameError(self.noun, text, (*PRESETS, *spelt), where=where)

    def _outside(self, text: str) -> list[LabelClass]:
        """The classes of a larger label space that a text names."""
        return [] if self.name == PRESETS[0] else load_label_space(PRESETS[0])._find(text)

    def _listed(self, text: str, where: str) -> set[str]:
        # A name may hold a comma itself, so the whole text goes first.
        if (whole := self._named(text, where)) is not None:
            return whole
        chosen: set[str] = set()
        for part in filter(None, map(str.strip, text.split(","))):
            named = self._named(part, where)
            chosen |= {self.match(part, where=where).wnid} if named is None else named
        return chosen

    def _named(self, text: str, where: str) -> set[str] | None:
        found = self._find(text)
        if len(found) == 1:
            return {found[0].wnid}
        if not found and text in PRESETS:
            shared = {wnid for wnid in load_label_space(text).wnids if wnid in self}
            if not shared:
                place = f"{where}: " if where else ""
                raise UsageError(f"{place}label space {self.name} has no {self.noun} of {text}")
            return shared
        return None


def load_label_space(name_or_path: str, base: Path | None = None) -> LabelSpace:
    """A label space by name, or from the user's table.

    Args:
        name_or_path: one of `PRESETS`, or the path of a CSV file (see `tables.read_classes`).
        base: the folder that a path is relative to, for example the workspace; the current one by
            default.

    Raises:
        UnknownNameError: neither a preset nor a path.
        LabelSpaceError: the file is absent, or its table is unusable.
        UsageError: the file cannot be read.
    """
    if name_or_path in PRESETS:
        return _preset(name_or_path)
    path = (base or Path()) / name_or_path
    if not path.is_file():
        if Path(name_or_path).name == name_or_path and path.suffix.casefold() != ".csv":
            note = f"there are {', '.join(PRESETS)}, or a CSV file's path"
            raise UnknownNameError("label space", name_or_path, PRESETS, note=note)
        raise LabelSpaceError(f"cannot read label space {printable(path)}: no such file")
    return LabelSpace(path.name, read_classes(path))


@lru_cache(maxsize=len(PRESETS))
def _preset(name: str) -> LabelSpace:
    return LabelSpace(name, preset_classes(name))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file that say something, with their numbers."""
    try:
        with path.open(encoding="utf-8-sig") as stream:
            text = stream.read(_LONGEST_LIST + 1)
        if len(text) > _LONGEST_LIST:
            raise UsageError(f"the class list {printable(path)} is too long for one")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UsageError(f"cannot read the class list {printable(path)}: {reason}") from error
    for number, line in enumerate(text.split("\n"), start=1):
        if said := _COMMENT.sub("", line).strip():
            yield number, said
