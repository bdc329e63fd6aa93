"""Accuracies of many models in many settings, from a table in any of the usual shapes.

Wide: a row a model and a column a setting. Long: the columns `model`, `setting` and `accuracy`, a
row a cell. Within, all accuracies are percent. Whether a file holds percent or fractions is said
by whoever knows, or found out; a file in which both seem to stand is refused, since one model in
fractions among percentages would pass for a very bad one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar, get_args

import numpy as np

from curate.errors import UnknownNameError, UsageError
from curate.metrics.checks import Bools, Floats
from curate.testbed.cells import Cells

#: What accuracies of a file may be.
Unit = Literal["percent", "fraction"]

#: The same as names.
UNITS: tuple[Unit, ...] = get_args(Unit)

#: The columns of a long table; the last one may be absent and says how many images a setting has.
LONG = ("model", "setting", "accuracy", "images")

_Told = TypeVar("_Told", str, bool)

#: A cell of at most 1 in a column whose other cells all reach this is taken for a fraction.
_CLEARLY_PERCENT = 10.0


@dataclass(frozen=True, eq=False)
class ModelTable:
    """Accuracies, in percent.

    Attributes:
        file: the printable name of the file that they are from.
        models: names, in the file's order; none twice.
        types: of each model, such as "STANDARD"; empty where the table does not say.
        settings: of each setting, by name, an accuracy a model; NaN where the cell is empty.
        sizes: how many images a setting has, where that is known.
        unit: what the file holds.
        detected: whether that was found out, and not said.
    """

    file: str
    models: tuple[str, ...]
    types: tuple[str, ...]
    settings: Mapping[str, Floats]
    sizes: Mapping[str, int]
    unit: Unit
    detected: bool

    def __len__(self) -> int:
        return len(self.models)

    def column(self, setting: str) -> Floats:
        """The accuracies of a setting, in the order of the models.

        Raises:
            UnknownNameError: the table has no such setting.
        """
        if setting not in self.settings:
            raise UnknownNameError("setting", setting, self.settings, where=self.file)
        return self.settings[setting]

    def row(self, model: str) -> int:
        """The place of a model.

        Raises:
            UnknownNameError: the table has no such model.
        """
        try:
            return self.models.index(model)
        except ValueError:
            raise UnknownNameError("model", model, self.models, where=self.file) from None

    def chosen(self, names: Sequence[str]) -> Bools:
        """Whether each model is among those named.

        Raises:
            UnknownNameError: the table has no such model.
        """
        found = np.zeros(len(self), np.bool_)
        for name in names:
            found[self.row(name)] = True
        return found

    def with_sizes(self, sizes: Mapping[str, int]) -> ModelTable:
        """The same, where more sizes of settings are known; these win.

        Raises:
            UnknownNameError: the table has no such setting.
            UsageError: a setting without an image.
        """
        for setting, images in sizes.items():
            self.column(setting)
            if images < 1:
                raise UsageError(f"setting {setting!r} has {images} images: at least 1 is needed")
        return replace(self, sizes={**self.sizes, **sizes})


def is_long(cells: Cells) -> bool:
    """Whether a table has a row a model and setting."""
    return set(LONG[:3]) <= set(cells.columns)


def setting_columns(cells: Cells, besides: Sequence[str]) -> list[str]:
    """The settings of a table, in its order.

    Args:
        cells: the table.
        besides: columns of a wide table that hold something else.
    """
    if is_long(cells):
        return list(dict.fromkeys(cells.names("setting")))
    return [name for name in cells.columns if name not in besides]


def read_table(
    cells: Cells,
    settings: Sequence[str],
    *,
    kind: str | None = None,
    unit: Unit | None = None,
    naming: str = "--model",
) -> ModelTable:
    """Check a table and take some settings from it.

    Args:
        cells: the table.
        settings: which ones.
        kind: the column of their types; None where there is none.
        unit: what the accuracies are; None finds out.
        naming: the option that names the columns of names, for advice.

    Raises:
        UsageError: a model or a cell is there twice, an unknown column, a cell that is no number
            or out of range, or percent and fractions in one table. All name the place.
    """
    if unit is not None and unit not in UNITS:
        raise UnknownNameError("unit", unit, UNITS)
    if not settings:
        raise UsageError(f"{cells.file} has no column of accuracies")
    read = _read_long if is_long(cells) else _read_wide
    wheres, models, types, values, sizes = read(cells, settings, kind, naming)
    for setting, column in values.items():
        bad = (column < 0.0) | (column > (1.0 if unit == "fraction" else 100.0))
        if (bad | np.isinf(column)).any():
            row = int(np.argmax(bad | np.isinf(column)))
            raise UsageError(
                f"{_at(wheres, setting, row)}: {column[row]:.12g} is outside "
                f"{'0 … 1, for fractions' if unit == 'fraction' else '0 … 100'}"
            )
    found = unit or _detect(cells.file, values, wheres)
    if found == "fraction":
        values = {setting: column * 100.0 for setting, column in values.items()}
    return ModelTable(cells.file, models, types, values, sizes, found, unit is None)


#: Of each setting and model, how people call the cell.
_Wheres = Mapping[str, Sequence[str]]
_Read = tuple[_Wheres, tuple[str, ...], tuple[str, ...], dict[str, Floats], dict[str, int]]


def _at(wheres: _Wheres, setting: str, row: int) -> str:
    return wheres[setting][row]


def _read_wide(cells: Cells, settings: Sequence[str], kind: str | None, naming: str) -> _Read:
    models = cells.names("model")
    seen: dict[str, int] = {}
    for row, name in enumerate(models):
        if (first := seen.setdefault(name, row)) != row:
            raise UsageError(
                f"{cells.place(row, 'model')}: model {name!r} was in {cells.where[first]} "
                f"already; {naming}, repeated, joins columns to names"
            )
    values = {setting: _floats(cells.numbers(setting)) for setting in settings}
    wheres = {
        setting: [cells.place(row, setting) for row in range(len(models))] for setting in settings
    }
    types = tuple(cells.texts(kind)) if kind else ()
    return wheres, tuple(models), types, values, {}


def _read_long(cells: Cells, settings: Sequence[str], kind: str | None, naming: str) -> _Read:
    names, at = cells.names("model"), cells.names("setting")
    texts = cells.column("accuracy")
    kinds = cells.texts(kind) if kind else []
    images = cells.column("images") if "images" in cells.columns else [""] * len(names)
    models = list(dict.fromkeys(names))
    place = {name: number for number, name in enumerate(models)}
    for setting in settings:
        if setting not in at:
            raise UnknownNameError("setting", setting, dict.fromkeys(at), where=cells.file)
    values = {setting: np.full(len(models), np.nan) for setting in settings}
    wheres = {setting: [f"{cells.file}, setting {setting!r}"] * len(models) for setting in settings}
    types: dict[str, str] = {}
    sizes: dict[str, int] = {}
    seen: dict[tuple[str, str], int] = {}
    for row, (name, setting) in enumerate(zip(names, at, strict=True)):
        where = cells.place(row, "accuracy")
        if (first := seen.setdefault((name, setting), row)) != row:
            raise UsageError(
                f"{cells.place(row, 'model')}: model {name!r} in setting {setting!r} was in "
                f"{cells.where[first]} already"
            )
        if kinds and types.setdefault(name, kinds[row]) != kinds[row]:
            raise UsageError(
                f"{cells.place(row, kind or '')}: model {name!r} is of type {kinds[row]!r} here "
                f"and {types[name]!r} before"
            )
        if setting not in values:
            continue
        number = cells.number(row, "accuracy", texts[row])
        values[setting][place[name]] = np.nan if number is None else number
        wheres[setting][place[name]] = where
        size = cells.number(row, "images", images[row])
        if size is not None and (
            size < 1 or not size.is_integer() or sizes.setdefault(setting, int(size)) != size
        ):
            raise UsageError(
                f"{cells.place(row, 'images')}: {size:g} is no number of images that setting "
                f"{setting!r} has for every model"
            )
    return wheres, tuple(models), tuple(types[name] for name in models if kinds), values, sizes


def of_models(cells: Cells, table: ModelTable, column: str, values: Sequence[_Told]) -> list[_Told]:
    """What a column says of each model of a table that was read from the same cells.

    Args:
        cells: the table as it was found.
        table: what was read from it.
        column: the column's name.
        values: of its rows.

    Raises:
        UsageError: two rows of a long table say different things of one model.
    """
    found: dict[str, _Told] = {}
    for row, (name, value) in enumerate(zip(cells.column("model"), values, strict=True)):
        if found.setdefault(name, value) != value:
            raise UsageError(
                f"{cells.place(row, column)}: model {name!r} has {value!r} here and "
                f"{found[name]!r} before"
            )
    return [found[name] for name in table.models]


def _floats(numbers: Sequence[float | None]) -> Floats:
    return np.array([math.nan if number is None else number for number in numbers], np.float64)


def _detect(file: str, values: Mapping[str, Floats], wheres: _Wheres) -> Unit:
    """Whether a table holds percent or fractions; refuses one in which both seem to stand."""
    hint = "give all in one unit, or say --unit percent where they are percentages"
    largest = {s: float(np.nanmax(column)) for s, column in values.items() if _known(column).any()}
    if not largest:
        raise UsageError(f"{file}: every accuracy is missing")
    top = max(largest, key=lambda setting: largest[setting])
    if largest[top] <= 1.0:
        return "fraction"
    for setting, most in largest.items():
        if 0.0 < most <= 1.0:
            raise UsageError(
                f"{file}: column {setting!r} seems to hold fractions (at most {most:g}) and "
                f"{top!r} percentages (up to {largest[top]:g}); {hint}"
            )
    for setting, column in values.items():
        others = column[column > 1.0]
        alone = (column > 0.0) & (column <= 1.0)
        if alone.any() and others.size and others.min() >= _CLEARLY_PERCENT:
            row = int(np.argmax(alone))
            raise UsageError(
                f"{_at(wheres, setting, row)}: {column[row]:g} seems to be a fraction, since all "
                f"others there are {others.min():g} or more; {hint}"
            )
    return "percent"


def _known(column: Floats) -> Bools:
    known: Bools = ~np.isnan(column)
    return known
