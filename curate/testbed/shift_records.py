"""What the analysis of a table of models amounts to: records for files, tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from curate.errors import few
from curate.metrics.checks import Bools, Floats
from curate.metrics.shift import BootstrapBand, LogitLine, PiecewiseLogitFit
from curate.testbed.model_table import ModelTable
from curate.testbed.shift_analysis import ShiftAnalysis
from curate.testbed.shift_beside import Correlation

#: How many models of each shift the text names.
_BEST = 3

_UNIT_WORDS = {"percent": "percent", "fraction": "fractions"}


def fit_record(analysis: ShiftAnalysis) -> dict[str, Any]:
    """A shift's line or lines, which models they rest on, and which were left out and why."""
    shift, fit = analysis.shift, analysis.fit
    record: dict[str, Any] = {
        "x": shift.x,
        "y": shift.y,
        "kind": None,
        "no_fit": analysis.no_fit or None,
        "excluded": [vars(one) for one in analysis.excluded],
        "missing": len(analysis.missing),
    }
    bands: list[BootstrapBand | None] = [one.band for one in analysis.bands]
    bands = bands or [None, None]
    if isinstance(fit, LogitLine):
        record |= {"kind": "line", **_line_record(fit, bands[0])}
    if shift.pivot is not None:
        record["pivot"] = {**vars(shift.pivot), "at_pivot": list(analysis.at_pivot)}
    if isinstance(fit, PiecewiseLogitFit):
        record |= {
            "kind": "piecewise",
            "low": _line_record(fit.low, bands[0]),
            "high": _line_record(fit.high, bands[1]),
        }
    return record


def _line_record(line: LogitLine, band: BootstrapBand | None) -> dict[str, Any]:
    return {
        **vars(line),
        "slope_interval": None if band is None else list(band.slope_interval),
        "intercept_interval": None if band is None else list(band.intercept_interval),
    }


def model_records(
    table: ModelTable,
    standard: Bools,
    analyses: Sequence[ShiftAnalysis],
    ends: Mapping[str, tuple[Floats, Floats]],
    baselines: Mapping[str, str],
    relative: Mapping[str, Floats],
) -> list[dict[str, Any]]:
    """One record a model, in the table's order; accuracies in percent, robustness in points.

    Args:
        table: the accuracies.
        standard: whether each model was to be fitted.
        analyses: of the shifts.
        ends: of each setting, the ends of the models' intervals; NaN where there is none.
        baselines: from a model to the one that it was made from.
        relative: τ of each model, by shift.
    """
    found = []
    for row, model in enumerate(table.models):
        record: dict[str, Any] = {
            "model": model,
            "type": table.types[row] if table.types else None,
            "standard": bool(standard[row]),
            "accuracy": {
                setting: {
                    "value": float(column[row]),
                    "low": _known(ends[setting][0][row]),
                    "high": _known(ends[setting][1][row]),
                }
                for setting, column in table.settings.items()
                if not np.isnan(column[row])
            },
            "effective_robustness": {
                one.shift.name: _known(one.effective[row]) for one in analyses
            },
        }
        if model in baselines:
            record["baseline"] = baselines[model]
            record["relative_robustness"] = {
                shift: _known(tau[row]) for shift, tau in relative.items()
            }
        found.append(record)
    return found


def _known(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)


def correlation_records(found: Sequence[Correlation]) -> list[dict[str, Any]]:
    """One record a pair of shifts."""
    return [vars(one) for one in found]


def fits_table(fits: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """The lines, for people: a row a line."""
    rows: list[list[Any]] = []
    for name, record in fits.items():
        if record["kind"] == "piecewise":
            pivot = f"{record['pivot']['percent']:.2f} %"
            for side, word in (("low", "below"), ("high", "above")):
                rows.append([f"{name}, {word} {pivot}", *_line_cells(record[side])])
        elif record["kind"] == "line":
            rows.append([name, *_line_cells(record)])
        else:
            rows.append([name, None, None, None, None])
    return ["shift", "standard models", "slope", "intercept", "r²"], rows


def _line_cells(line: Mapping[str, Any]) -> list[Any]:
    return [line["n"], line["slope"], line["intercept"], line["r2"]]


def best_table(
    fits: Mapping[str, Mapping[str, Any]], models: Sequence[Mapping[str, Any]]
) -> tuple[list[str], list[list[Any]]]:
    """The models with the most effective robustness, for people: a few rows a shift."""
    rows: list[list[Any]] = []
    for name, record in fits.items():
        placed = [one for one in models if one["effective_robustness"][name] is not None]
        placed.sort(key=lambda one: (-one["effective_robustness"][name], one["model"]))
        for place, one in enumerate(placed[:_BEST]):
            accuracy = [one["accuracy"][record[axis]]["value"] for axis in "xy"]
            rows.append(
                [
                    "" if place else name,
                    one["model"],
                    *(f"{value:.2f}".rjust(6) for value in accuracy),
                    f"{one['effective_robustness'][name]:+.2f}".rjust(7),
                ]
            )
    return ["shift", "most robust models", "standard %", "shifted %", "effective"], rows


def shift_notes(summary: Mapping[str, Any]) -> list[str]:
    """What must be said beside the numbers, a sentence each.

    Args:
        summary: of `curate robustness testbed`.
    """
    table, fits = summary["table"], summary["fit"]
    notes = []
    if table["detected"]:
        notes.append(f"{table['file']} is taken to be in {_UNIT_WORDS[table['unit']]}.")
    if summary["standard"]["chosen_by"] is None:
        notes.append(
            "nothing says which models are standard, so the lines are fitted to all of them; "
            "see --standard."
        )
    notes += [
        f"{name}: no line, since {record['no_fit']}."
        for name, record in fits.items()
        if record["no_fit"]
    ]
    for name, record in fits.items():
        if told := [f"{one['model']} ({one['reason']})" for one in record["excluded"]]:
            notes.append(
                f"{name}: an accuracy without a logit takes no part in a line: {few(told, 4)}."
            )
    if left_out := [f"{name} {one['missing']}" for name, one in fits.items() if one["missing"]]:
        notes.append(f"models without both accuracies are left out: {', '.join(left_out)}.")
    if without := [setting for setting, size in summary["sizes"].items() if size is None]:
        notes.append(
            f"no intervals without the number of images (--size SETTING=IMAGES): {few(without, 4)}."
        )
    return notes


def models_rows(
    fits: Mapping[str, Mapping[str, Any]], models: Sequence[Mapping[str, Any]]
) -> tuple[list[str], list[list[Any]]]:
    """The models as a table for a file: accuracies in percent, robustness in points."""
    settings = list(dict.fromkeys(name for one in models for name in one["accuracy"]))
    paired = any("baseline" in one for one in models)
    columns = ["model", "type", "standard", *settings]
    columns += [f"effective robustness: {name}" for name in fits]
    if paired:
        columns += ["baseline", *(f"relative robustness: {name}" for name in fits)]
    rows = []
    for one in models:
        row: list[Any] = [one["model"], one["type"], int(one["standard"])]
        row += [one["accuracy"].get(name, {}).get("value") for name in settings]
        row += [one["effective_robustness"][name] for name in fits]
        if paired:
            tau = one.get("relative_robustness", {})
            row += [one.get("baseline"), *(tau.get(name) for name in fits)]
        rows.append(row)
    return columns, rows
