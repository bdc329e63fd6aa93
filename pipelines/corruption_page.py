"""What the page of a corruption run shows, from the run's results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from curate._version import __version__
from curate.errors import MissingExtraError
from curate.report.corruption_page import (
    Beside,
    Cell,
    Change,
    CorruptionPage,
    ErrorTable,
    Line,
)
from curate.testbed.corruption_beside import table_name
from curate.testbed.corruption_errors import SEVERITIES
from curate.testbed.corruption_tables import means_line, notes, provenance, where

if TYPE_CHECKING:
    from curate.report.plots import Series
    from pipelines.corruption_samples import Shown

# Which corruptions are drawn together: few enough lines to be told apart.
_KINDS = {
    "Noise": ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
    "Blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur"),
    "Weather": ("snow", "frost", "fog", "brightness", "spatter"),
    "Digital": (
        "contrast",
        "elastic_transform",
        "pixelate",
        "jpeg_compression",
        "saturate",
        "greyscale",
    ),
}

_LINES = 5


def page_of(summary: Mapping[str, Any], shown: Shown | None) -> CorruptionPage:
    """The page of a summary.

    Args:
        summary: as `pipelines.corruptions.corruptions` returns it.
        shown: the photo under each corruption; None where no photo can be shown.
    """
    results = summary["results"]
    no_plots = ""
    try:
        plots = [_plots(result) for result in results]
    except MissingExtraError as error:
        no_plots, plots = str(error), [[] for _ in results]
    return CorruptionPage(
        dataset=results[0]["dataset"]["name"],
        where=where(summary),
        tables=[_table(result, drawn) for result, drawn in zip(results, plots, strict=True)],
        besides=[_beside(one) for one in summary["comparisons"]],
        photo="" if shown is None else shown.path,
        credit="" if shown is None else shown.credit,
        clean_photo=None if shown is None else shown.clean,
        samples=() if shown is None else shown.samples,
        notes=notes(summary),
        made_by=[provenance(result) for result in results],
        no_plots=no_plots,
        curate=__version__,
    )


def _table(result: Mapping[str, Any], plots: Sequence[str]) -> ErrorTable:
    clean, chance = result["clean"], 1 / result["classes"]
    return ErrorTable(
        name=table_name(result),
        is_baseline=result["added"],
        clean=None if clean is None else _cell(clean, None, chance),
        clean_calibration=None if clean is None else clean["rms_calibration_error"],
        lines=[_line(row, clean, chance) for row in result["rows"]],
        relative=result["mean_relative_error"],
        means=means_line(result),
        chance=chance,
        plots=plots,
    )


def _line(row: Mapping[str, Any], clean: Mapping[str, Any] | None, chance: float) -> Line:
    by_severity = {one["severity"]: _cell(one, clean, chance) for one in row["severities"]}
    return Line(
        corruption=row["corruption"],
        cells=[by_severity.get(severity) for severity in SEVERITIES],
        error=row["mean_error"],
        relative=row["relative_error"],
        ce=row["ce"],
        calibration=row["mean_rms_calibration_error"],
        overconfidence=row["mean_overconfidence"],
        shape=row["told"],
    )


def _cell(one: Mapping[str, Any], clean: Mapping[str, Any] | None, chance: float) -> Cell:
    accuracy = one["accuracy"]
    room = 0.0 if clean is None else clean["accuracy"]["value"] - chance
    lost = (clean["accuracy"]["value"] - accuracy["value"]) / room if clean and room > 0 else 0.0
    return Cell(
        accuracy=accuracy["value"],
        low=accuracy["low"],
        high=accuracy["high"],
        lost=min(1.0, max(0.0, lost)),
        is_chance=bool(one.get("near_chance")),
        overconfidence=one["overconfidence"],
        failed=one["failed"],
    )


def _beside(comparison: Mapping[str, Any]) -> Beside:
    caveats = []
    if comparison["differs"]:
        caveats.append(f"Not measured alike: {', '.join(comparison['differs'])}.")
    if comparison["only_one"]:
        caveats.append(f"In one of them alone: {', '.join(comparison['only_one'])}.")
    return Beside(
        before=comparison["first"],
        after=comparison["second"],
        changes=[
            Change(
                corruption=row["corruption"],
                before=row["mean_error"]["first"],
                after=row["mean_error"]["second"],
                relative_before=row["relative_error"]["first"],
                relative_after=row["relative_error"]["second"],
                shape_before=row["shape"]["first"],
                shape_after=row["shape"]["second"],
            )
            for row in comparison["rows"]
        ],
        summary=(
            f"After the change {comparison['better']} rows are better, {comparison['worse']} worse "
            f"and {comparison['equal']} equal."
        ),
        caveats=caveats,
    )


def _plots(result: Mapping[str, Any]) -> list[str]:
    """Accuracy, and how confidence leaves it behind, over severity, by kind of corruption.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    from curate.report.plots import line_curves

    name, clean, classes = table_name(result), result["clean"], result["classes"]
    plots = []
    for what, y_label, y_range, level in (
        ("accuracy", "accuracy", (0.0, 1.0), (1 / classes, "chance")),
        ("confidence less accuracy", "difference", _range(result), (0.0, "calibrated in the mean")),
    ):
        for kind, rows in _by_kind(result["rows"]):
            told = ", ".join(row["corruption"] for row in rows)
            plots.append(
                line_curves(
                    [_series(row, clean, what) for row in rows],
                    title=f"{kind}: {what}",
                    alt=f"{what.capitalize()} of {name} over severity under {told}",
                    x_label="severity (0: clean)",
                    y_label=y_label,
                    x_range=(0.0, 5.0),
                    y_range=y_range,
                    x_percent=False,
                    x_ticks=range(6),
                    level=level,
                    markers=True,
                )
            )
    return plots


def _by_kind(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    found = []
    for kind, names in _KINDS.items():
        found.append((kind, [row for row in rows if row["corruption"] in names]))
    known = {name for names in _KINDS.values() for name in names}
    others = [row for row in rows if row["corruption"] not in known]
    found += [("Own", others[n : n + _LINES]) for n in range(0, len(others), _LINES)]
    return [(kind, members) for kind, members in found if members]


def _series(row: Mapping[str, Any], clean: Mapping[str, Any] | None, what: str) -> Series:
    from curate.report.plots import Series

    settings = [] if clean is None else [(0, clean)]
    settings += [(one["severity"], one) for one in row["severities"]]
    x = [severity for severity, _ in settings]
    if what != "accuracy":
        return Series(row["corruption"], x, [one["overconfidence"] for _, one in settings])
    return Series(
        row["corruption"], x, [one["accuracy"]["value"] for _, one in settings], note=row["told"]
    )


def _range(result: Mapping[str, Any]) -> tuple[float, float]:
    """One range for all plots of a model, in tenths, so that they compare."""
    values = [one["overconfidence"] for row in result["rows"] for one in row["severities"]]
    if result["clean"] is not None:
        values.append(result["clean"]["overconfidence"])
    low, high = math.floor(10 * min(values)) / 10, math.ceil(10 * max(values)) / 10
    return min(low, 0.0), max(high, 0.1)
