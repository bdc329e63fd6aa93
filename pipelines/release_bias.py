"""The selection bias of a release: what models that selected its photos make of them, what their
family makes of them, and what the others do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from curate._version import __version__
from curate.errors import UnknownNameError, UsageError
from curate.files import printable, sha256_file
from curate.metrics.checks import Bools, Floats
from curate.release.bias_words import (
    bias_columns,
    bias_rows,
    bias_sentences,
    left_out_rows,
)
from curate.testbed.cells import read_cells
from curate.testbed.model_table import ModelTable, Unit, read_table
from curate.testbed.selection_bias import (
    FAMILY,
    FILTER,
    OTHER,
    RELEASE,
    STANDARD,
    Bias,
    bias_record,
    strongest,
    weigh,
)
from curate.testbed.shift_analysis import Shift, check_pivot, find_pivot
from curate.testbed.shift_beside import CONFIDENCE_LEVEL, intervals
from pipelines.bias_kept import keep_bias
from pipelines.bias_report import write_report
from pipelines.bias_rules import BiasOptions, check_names, family_of_name, left_out_of, relatives_of
from pipelines.bias_run import measure
from pipelines.bias_sides import Selected, open_both, open_selected
from pipelines.evaluate_cache import Cache
from pipelines.release_versions import release_folder
from pipelines.report_place import check_report_place
from pipelines.workspace import Workspace

__all__ = [
    "BiasOptions",
    "bias_columns",
    "bias_from_table",
    "bias_of_release",
    "bias_rows",
    "bias_sentences",
    "left_out_rows",
]


def bias_of_release(
    workspace: Workspace | None,
    release: str,
    standard: Path,
    models: Sequence[str],
    options: BiasOptions,
    *,
    labels: Path | None = None,
    device: str = "auto",
    cache: Path | None = None,
) -> dict[str, Any]:
    """Measure the selection bias of a release with models of the zoo.

    What is found of a release of the workspace is kept there, for the card of its next version.

    Args:
        workspace: where the release may have been built.
        release: its folder, or a version of the workspace.
        standard: ordinary images of its classes: class folders (others are passed over), or with
            `labels` any folder.
        models: names, beside those that selected, which are measured as far as the zoo has them.
        options: see `BiasOptions`.
        labels: a file that says of which class each standard image is.
        device: where to compute.
        cache: a folder where scores are kept; None keeps nothing.

    Returns:
        `models`, `fit`, `knee`, `bends_at_pivot`, `left`, `groups`, `units` (see
        `curate.testbed.selection_bias`), `release`, `standard`, `unmeasured` (models that selected
        and are not among these), `kept`, `notes`, and what made them.

    Raises:
        UsageError: no such release or model, or no image that can be used.
        StorageError: the report or the catalogue cannot be written.
        Interrupted: stopped by the user.
    """
    _check(options)
    selected = open_selected(release_folder(workspace, release))
    check_report_place(options.report, folders=(selected.root, standard))
    ours, theirs = open_both(selected, standard, labels)
    relatives = relatives_of(options.family, [one["architecture"] for one in selected.models])
    check_names(options, [*(one["name"] for one in selected.models), *models])
    done = measure(
        selected,
        ours,
        theirs,
        models,
        relatives,
        device=device,
        cache=None if cache is None else Cache(cache),
    )
    table = done.table(f"{ours.name} against {theirs.name}")
    names = {name: str(part["architecture"]) for name, part in done.parts.items()}
    left_out, rule = left_out_of(table, None, options.line)
    bias = _weigh(table, STANDARD, RELEASE, done.groups, left_out, options)
    found = bias_record(bias, done.ends(), done.parts)
    record = {
        **_common(found, rule, options),
        "release": {**selected.told(), **done.images[RELEASE], "content": done.contents[RELEASE]},
        "standard": {**done.images[STANDARD], "content": done.contents[STANDARD]},
        "table": None,
        "families": {name: family_of_name(one) for name, one in names.items()},
        "unmeasured": done.unmeasured,
        "notes": done.notes,
    }
    return _finish(workspace, record, bias, done.ends(), options)


def bias_from_table(
    workspace: Workspace | None,
    file: Path,
    options: BiasOptions,
    *,
    x: str,
    y: str,
    release: str | None = None,
    filters: Sequence[str] = (),
    sizes: Mapping[str, int] | None = None,
    unit: Unit | None = None,
    names: Sequence[str] = ("model",),
) -> dict[str, Any]:
    """The same from a table of models' accuracies, as `curate robustness testbed` reads it.

    Args:
        workspace: where the release may have been built.
        file: CSV or Parquet.
        options: see `BiasOptions`.
        x: the setting of standard accuracy.
        y: the setting of the release.
        release: which release that is, to keep what is found for the card of its next version.
        filters: the models that selected; with a release its own besides, where they stand there
            by name. A model as pivot is one of them.
        sizes: how many images settings have, for intervals.
        unit: "percent" or "fraction"; found out by default.
        names: the columns of names.

    Returns:
        As `bias_of_release`.

    Raises:
        UsageError: the table or an option is unusable, told with its place.
        StorageError: the report or the catalogue cannot be written.
    """
    _check(options)
    check_report_place(options.report, files=(file,), writes=("models.csv", "results.json"))
    selected = None if release is None else open_selected(release_folder(workspace, release))
    cells = read_cells(file)
    if tuple(names) != ("model",):
        cells = cells.joined(names, "model")
    elif "model" not in cells.columns:
        note = "name the column of the models' names with --name"
        raise UnknownNameError("column", "model", cells.columns, where=cells.file, note=note)
    if x == y:
        raise UsageError(f"--x and --y are both {x!r}: name two settings")
    table = read_table(cells, [x, y], unit=unit, naming="--name").with_sizes(sizes or {})
    found, unmeasured = _in_table(selected, table)
    own = [*filters, *found]
    if options.pivot in table.models:
        own.append(str(options.pivot))
    is_own = table.chosen(own)
    selecting = [] if selected is None else [one["architecture"] for one in selected.models]
    relatives = relatives_of(options.family, [*own, *selecting])
    groups = [
        FILTER if mine else FAMILY if relatives(name, name) else OTHER
        for name, mine in zip(table.models, is_own, strict=True)
    ]
    left_out, rule = left_out_of(table, cells, options.line)
    bias = _weigh(table, x, y, groups, left_out, options)
    ends = {one: intervals(table.column(one), table.sizes.get(one)) for one in (x, y)}
    record = {
        **_common(bias_record(bias, ends, {}), rule, options),
        "release": None if selected is None else selected.told(),
        "standard": None,
        "table": {
            "file": printable(file.name),
            "sha256": sha256_file(file),
            "unit": table.unit,
            "detected": table.detected,
            "sizes": dict(table.sizes),
        },
        "unmeasured": unmeasured,
        "notes": [],
    }
    return _finish(workspace, record, bias, ends, options)


def _check(options: BiasOptions) -> None:
    if options.resamples < 1:
        raise UsageError(f"resamples is {options.resamples}: at least 1 is needed")


def _common(found: dict[str, Any], rule: str, options: BiasOptions) -> dict[str, Any]:
    return {
        **found,
        "line": rule,
        "family": options.family,
        "confidence_level": CONFIDENCE_LEVEL,
        "resamples": options.resamples,
        "seed": options.seed,
        "made_by": {
            "curate": __version__,
            **{name: metadata.version(name) for name in ("numpy", "scipy")},
        },
    }


def _in_table(selected: Selected | None, table: ModelTable) -> tuple[list[str], list[str]]:
    """The models of the release that a table has, under their names with or without library, and
    the others."""
    found, others = [], []
    for model in () if selected is None else selected.models:
        name = model["name"]
        here = [one for one in (name, name.partition("/")[2]) if one in table.models][:1]
        found += here
        others += [] if here else [name]
    return found, others


def _weigh(
    table: ModelTable,
    x: str,
    y: str,
    groups: Sequence[str],
    left_out: Bools,
    options: BiasOptions,
) -> Bias:
    pivot = strongest(table, x, groups)
    if options.pivot is not None:
        pivot = find_pivot(table, x, options.pivot)
    shift = Shift("selection bias", x, y, pivot)
    bias = weigh(
        table,
        groups,
        shift,
        left_out=left_out,
        resamples=options.resamples,
        seed=options.seed,
    )
    if options.pivot is not None and bias.analysis.fit is not None:
        check_pivot(table, shift, bias.in_line, "model that the line is fitted to")
    return bias


def _finish(
    workspace: Workspace | None,
    record: dict[str, Any],
    bias: Bias,
    ends: Mapping[str, tuple[Floats, Floats]],
    options: BiasOptions,
) -> dict[str, Any]:
    kept = False
    if workspace is not None and record["release"] is not None:
        kept = keep_bias(workspace, record)
    summary = record | {
        "kept": kept,
        "report": None if options.report is None else printable(options.report),
    }
    if options.report is not None:
        write_report(options.report, summary, bias, ends)
    return summary
