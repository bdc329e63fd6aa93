"""The testbed: what a table of many models says of distribution shifts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from curate._version import __version__
from curate.errors import UnknownNameError, UsageError, few
from curate.files import printable, read_csv, sha256_file
from curate.metrics.checks import Bools
from curate.progress import progress
from curate.testbed.cells import Cells, read_cells
from curate.testbed.known_shifts import KnownTestbed, known_testbed
from curate.testbed.model_table import (
    ModelTable,
    Unit,
    of_models,
    read_table,
    setting_columns,
)
from curate.testbed.shift_analysis import (
    RESAMPLES,
    SEED,
    Pivot,
    Shift,
    analyse_shift,
    check_pivot,
    find_pivot,
)
from curate.testbed.shift_beside import CONFIDENCE_LEVEL, correlate, intervals, relative
from curate.testbed.shift_records import (
    best_table,
    correlation_records,
    fit_record,
    fits_table,
    model_records,
    shift_notes,
)
from pipelines.report_place import check_report_place

__all__ = ["analyse_testbed", "best_table", "fits_table", "listed_models", "shift_notes"]

#: Columns of the published table that hold no accuracies, beside those that name models.
_OTHER_COLUMNS = ("nat_type",)

#: Most shifts of one analysis, several times those of the published table; each is held against
#: each other one.
_MOST_SHIFTS = 1000

#: The longest list of models in a file.
_LONGEST_LIST = 10_000_000


@dataclass(frozen=True)
class _Named:
    """What the user says of a table's columns."""

    x: str | None
    y: Sequence[str]
    standard: str | None
    pairs: str | None
    model: Sequence[str]
    kind: str | None


def analyse_testbed(
    file: Path,
    *,
    x: str | None = None,
    y: Sequence[str] = (),
    standard: str | None = None,
    pivot: str | None = None,
    pairs: str | None = None,
    sizes: Mapping[str, int] | None = None,
    unit: Unit | None = None,
    model: Sequence[str] = ("model",),
    kind: str | None = None,
    report: Path | None = None,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> dict[str, Any]:
    """Fit the standard models of a table and place every model against them, shift by shift.

    Args:
        file: accuracies as CSV or Parquet: a row a model and a column a setting, or the columns
            `model`, `setting` and `accuracy`.
        x: the setting that stands for standard accuracy.
        y: the settings under shift. By default all others; without `x` either, the shifts of the
            published testbed whose columns are there.
        standard: a column of 1 and 0, "@" and a file with a name a line, or "all". By default the
            published table's own columns, a column `standard`, or the type STANDARD.
        pivot: a model or a percentage of standard accuracy; both sides of it are fitted apart.
        pairs: a column with the model that each was made from, or "@" and a CSV file with the
            columns `model` and `baseline`.
        sizes: how many images settings have, for intervals.
        unit: "percent" or "fraction"; found out by default.
        model: the column of names; the cells of several are joined.
        kind: the column of types; by default `type`, where there is one.
        report: a folder for results, plots and a page.
        resamples: refits of each band.
        seed: of what they draw.

    Returns:
        `fit` (by shift: lines, who is left out and why), `models` (accuracies, effective and
        relative robustness), `correlations`, `table`, `standard`, `sizes`, and what made them.

    Raises:
        UsageError: the table or an option is unusable, told with its place.
        StorageError: the report cannot be written.
    """
    _check_numbers(resamples, seed)
    listed = [Path(one[1:]) for one in (standard, pairs) if one and one.startswith("@")]
    check_report_place(report, files=(file, *listed), writes=("models.csv", "results.json"))
    written = None
    if report is not None:
        from pipelines.testbed_report import Report

        written = Report(report)
    cells, known = read_cells(file), known_testbed()
    if tuple(model) != ("model",):
        cells = cells.joined(model, "model")
    elif "model" not in cells.columns:
        note = "name the column of the models' names with --model"
        raise UnknownNameError("column", "model", cells.columns, where=cells.file, note=note)
    if kind is None and "type" in cells.columns:
        kind = "type"
    named = _Named(x, y, standard, pairs, model, kind)
    own = known.is_own(cells.columns)
    pairs_of = _choose_settings(cells, known, named)
    settings = list(dict.fromkeys(setting for pair in pairs_of for setting in pair))
    if x is None and not y:
        settings = [name for name in setting_columns(cells, ()) if name in known.labels]
    table = read_table(cells, settings, kind=kind, unit=unit)
    if own:
        table = table.with_sizes(
            {name: size for name, size in known.sizes.items() if name in table.settings}
        )
    table = table.with_sizes(sizes or {})
    fitted, chosen_by = _standard(cells, table, known, named)
    baselines = _baselines(cells, table, known, named)
    shifts = [_shift(table, known, one, pivot, fitted) for one in pairs_of]
    analyses = []
    with progress("shifts", len(shifts), unit="shifts") as bar:
        for shift in shifts:
            analyses.append(analyse_shift(table, shift, fitted, resamples=resamples, seed=seed))
            bar.advance()
    ends = {
        name: intervals(column, table.sizes.get(name)) for name, column in table.settings.items()
    }
    tau = {one.shift.name: relative(table, one.shift.y, baselines) for one in analyses}
    among = _correlated(cells, table, known, fitted)
    summary: dict[str, Any] = {
        "fit": {one.shift.name: fit_record(one) for one in analyses},
        "models": model_records(table, fitted, analyses, ends, baselines, tau),
        "correlations": correlation_records(correlate(table, analyses, among)),
        "correlated_models": int(among.sum()),
        "standard": {"models": int(fitted.sum()), "chosen_by": chosen_by},
        "table": {
            "file": printable(file.name),
            "sha256": sha256_file(file),
            "models": len(table),
            "unit": table.unit,
            "detected": table.detected,
        },
        "sizes": {name: table.sizes.get(name) for name in table.settings},
        "confidence_level": CONFIDENCE_LEVEL,
        "resamples": resamples,
        "seed": seed,
        "made_by": {"curate": __version__, "numpy": metadata.version("numpy")},
        "report": None if report is None else printable(report),
    }
    if written is not None:
        labels = known.run_labels(table.settings)
        # Elsewhere "val" may be of any set.
        labels |= known.labels if own or (x is None and not y) else {}
        written.write(table, analyses, ends, tau, summary, known, labels)
    return summary


def _check_numbers(resamples: int, seed: int) -> None:
    if resamples < 1:
        raise UsageError(f"resamples is {resamples}: at least 1 is needed, {RESAMPLES} is usual")
    if not 0 <= seed < 2**32:
        raise UsageError(f"seed is {seed}: write 0 … {2**32 - 1}")


def _choose_settings(cells: Cells, known: KnownTestbed, named: _Named) -> list[tuple[str, str]]:
    """The shifts, as pairs of settings."""
    for column in filter(None, (named.kind, *_columns(named))):
        cells.column(column)  # an unknown one is told here, before it makes another fault
    besides = {"model", "type", "standard", "baseline", *named.model, named.kind}
    besides |= {named.standard, named.pairs, *known.standard, *known.correlated, *_OTHER_COLUMNS}
    there = setting_columns(cells, [name for name in besides if name])
    for name in filter(None, (named.x, *named.y)):
        if name not in there:
            raise UnknownNameError("setting", name, there, where=cells.file)
    if named.x is not None:
        pairs = [(named.x, y) for y in named.y or there if y != named.x]
        if not pairs:
            raise UsageError(f"{cells.file}: no setting is left to compare {named.x!r} with")
        if len(pairs) > _MOST_SHIFTS:
            raise UsageError(
                f"{cells.file}: {len(pairs):,} settings under shift; name at most "
                f"{_MOST_SHIFTS:,} with --y"
            )
        return list(dict.fromkeys(pairs))
    if not named.y:
        if found := known.shifts_in(there):
            return [(one.x, one.y) for one in found]
        raise UsageError(
            f"{cells.file}: name the setting of standard accuracy with --x, and those under shift "
            f"with --y; there are {few(list(map(repr, there)), 8)}"
        )
    pairs = []
    for y in dict.fromkeys(named.y):
        found_one = known.shift(None, y)
        if found_one is None or found_one.x not in there:
            raise UsageError(f"name the setting to compare {y!r} with: --x SETTING")
        pairs.append((found_one.x, y))
    return pairs


def _columns(named: _Named) -> list[str]:
    """The options that name a column, and neither a file nor everything."""
    told = [named.standard, named.pairs]
    return [one for one in told if one and not one.startswith("@") and one != "all"]


def _shift(
    table: ModelTable,
    known: KnownTestbed,
    pair: tuple[str, str],
    pivot: str | None,
    standard: Bools,
) -> Shift:
    x, y = pair
    one = known.shift(x, y)
    name = y if one is None or one.name in table.settings else one.name
    if pivot is not None:
        shift = Shift(name, x, y, find_pivot(table, x, pivot))
        check_pivot(table, shift, standard)
        return shift
    if one is None or one.pivot is None:
        return Shift(name, x, y)
    own = one.pivot_model
    if own in table.models and not np.isnan(table.column(x)[table.row(own or "")]):
        return Shift(name, x, y, find_pivot(table, x, own or ""))
    return Shift(name, x, y, Pivot(one.pivot))


def _standard(
    cells: Cells, table: ModelTable, known: KnownTestbed, named: _Named
) -> tuple[Bools, str | None]:
    """Which models are standard, and what says so."""
    if named.standard == "all":
        return np.ones(len(table), np.bool_), "--standard all"
    if named.standard is not None and named.standard.startswith("@"):
        path = Path(named.standard[1:])
        return table.chosen(listed_models(path)), printable(path)
    columns: tuple[str, ...] = ()
    if named.standard is not None:
        columns = (named.standard,)
    elif set(known.standard) <= set(cells.columns):
        columns = known.standard
    elif "standard" in cells.columns:
        columns = ("standard",)
    if columns:
        flags = [of_models(cells, table, one, cells.flags(one)) for one in columns]
        return np.all(flags, axis=0), " and ".join(f"column {one!r}" for one in columns)
    found = np.array([kind.casefold() == "standard" for kind in table.types], np.bool_)
    if found.any():
        return found, f"column {named.kind!r}"
    return np.ones(len(table), np.bool_), None


def _correlated(cells: Cells, table: ModelTable, known: KnownTestbed, standard: Bools) -> Bools:
    """The models that are not standard: neither fitted nor of a type that is."""
    kinds = {kind for kind, fitted in zip(table.types, standard, strict=False) if fitted}
    found = ~standard
    if table.types:
        found &= np.array([kind not in kinds for kind in table.types])
    if known.is_own(cells.columns):
        for column in known.correlated:
            found &= np.array(of_models(cells, table, column, cells.flags(column)))
    return found


def _baselines(
    cells: Cells, table: ModelTable, known: KnownTestbed, named: _Named
) -> dict[str, str]:
    """From each model to the one that it was made from, where that is known."""
    if named.pairs is None and "baseline" not in cells.columns:
        there = set(table.models)
        return {
            one: base
            for one, base in known.baselines.items()
            if known.is_own(cells.columns) and {one, base} <= there
        }
    if named.pairs is not None and named.pairs.startswith("@"):
        return _pairs_of_file(Path(named.pairs[1:]), table)
    column = named.pairs or "baseline"
    told = of_models(cells, table, column, cells.texts(column))
    found = {one: base for one, base in zip(table.models, told, strict=True) if base}
    for one, base in found.items():
        if base not in table.models:
            where = f"{cells.file}, column {column!r} of {one!r}"
            raise UnknownNameError("model", base, table.models, where=where)
    return found


def _pairs_of_file(path: Path, table: ModelTable) -> dict[str, str]:
    found: dict[str, str] = {}
    for line, row in read_csv(path, ["model", "baseline"]):
        where = f"{printable(path)}, line {line}"
        model, baseline = row["model"].strip(), row["baseline"].strip()
        for name in (model, baseline):
            if name not in table.models:
                raise UnknownNameError("model", name, table.models, where=where)
        if found.setdefault(model, baseline) != baseline:
            raise UsageError(f"{where}: model {model!r} has another baseline already")
    if not found:
        raise UsageError(f"{printable(path)} names no pair")
    return found


def listed_models(path: Path) -> list[str]:
    """The names of models in a file, one a line.

    Raises:
        UsageError: it cannot be read, is no text, too long, or names none.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(_LONGEST_LIST + 1)
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"cannot read {printable(path)}: {reason}") from error
    if len(data) > _LONGEST_LIST:
        raise UsageError(f"{printable(path)} is longer than {_LONGEST_LIST:,} bytes")
    names = [line.strip() for line in text.splitlines()]
    if not any(names):
        raise UsageError(f"{printable(path)} names no model")
    return [name for name in names if name]
