"""What a table of models says of distribution shifts, after Taori et al. (NeurIPS 2020).

For each shift, a pair of settings: the line of the standard models in logit space, how uncertain it
is, and how far each model lies from it. All accuracies are percent and all robustness is in points.

Models are taken in the order of their names wherever numbers are summed or drawn by lot, so that
their order in the table changes no bit of a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from curate.errors import UsageError
from curate.metrics.checks import Bools, Floats
from curate.metrics.logits import logit, percent
from curate.metrics.shift import (
    SAME_ACCURACY,
    BootstrapBand,
    LogitLine,
    PiecewiseLogitFit,
    bootstrap_band,
    effective_robustness,
    fit_logit_line,
)
from curate.testbed.model_table import ModelTable

#: Fewer standard models than this give no line.
LEAST = 3

#: Points of a band.
GRID = 81

#: Refits of a band, and the seed of what they draw.
RESAMPLES, SEED = 1000, 720257663


@dataclass(frozen=True)
class Pivot:
    """Where an adversarially filtered set bends the curve.

    Attributes:
        percent: standard accuracy there.
        model: whose accuracy it is, usually the filter's own; None where only the number is known.
    """

    percent: float
    model: str | None = None


@dataclass(frozen=True)
class Shift:
    """A distribution shift.

    Attributes:
        name: how it is called.
        x: the setting that stands for standard accuracy.
        y: the setting under shift.
        pivot: fit both sides of it apart; None for one line.
    """

    name: str
    x: str
    y: str
    pivot: Pivot | None = None


@dataclass(frozen=True, eq=False)
class Band:
    """A pointwise 95 % band around a line.

    Attributes:
        x: where, in percent.
        band: what bootstrapping found there.
    """

    x: Floats
    band: BootstrapBand


@dataclass(frozen=True)
class Excluded:
    """A model with an accuracy that has no logit.

    Attributes:
        model: its name.
        reason: which accuracy: "0 % on imagenet-a".
        standard: whether it would have been fitted.
    """

    model: str
    reason: str
    standard: bool


@dataclass(frozen=True, eq=False)
class ShiftAnalysis:
    """A shift and what the models make of it.

    Attributes:
        shift: which one.
        fit: one line or two; None without enough standard models.
        no_fit: why there is none; empty where there is one.
        bands: around each line, in order.
        fitted: whether each model of the table was fitted.
        excluded: models at 0 or 100 percent: they are fitted nowhere. Under shift at 0 or 100
            they have an effective robustness all the same; in standard accuracy there is none.
        at_pivot: standard models at the pivot itself, which belong to neither side.
        missing: models without one of both accuracies, which are left out.
        expected: β of each model; NaN where it has none.
        effective: ρ of each model; NaN where it has none.
    """

    shift: Shift
    fit: LogitLine | PiecewiseLogitFit | None
    no_fit: str
    bands: tuple[Band, ...]
    fitted: Bools
    excluded: tuple[Excluded, ...]
    at_pivot: tuple[str, ...]
    missing: tuple[str, ...]
    expected: Floats
    effective: Floats


def analyse_shift(
    table: ModelTable,
    shift: Shift,
    standard: Bools,
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> ShiftAnalysis:
    """Fit the standard models and place every model against them.

    Args:
        table: the accuracies.
        shift: of two of its settings.
        standard: whether each model takes part in the fit.
        resamples: refits of the band; 0 for no band.
        seed: of what is drawn.

    Raises:
        UnknownNameError: the table has no such setting.
    """
    x, y = table.column(shift.x), table.column(shift.y)
    both = ~(np.isnan(x) | np.isnan(y))
    sound = both & _has_logit(x)
    usable = sound & _has_logit(y) & standard
    excluded = tuple(
        Excluded(table.models[row], reason, bool(standard[row]))
        for row in np.flatnonzero(both)
        if (reason := _reason(shift, float(x[row]), float(y[row])))
    )
    order = np.array(sorted(range(len(table)), key=table.models.__getitem__), np.int64)
    order = order[usable[order]]
    sides = _sides(shift, x[order])
    fit, no_fit = _fit(shift, x[order], y[order], sides)
    fitted = np.zeros(len(table), np.bool_)
    expected, effective = np.full((2, len(table)), np.nan)
    bands: list[Band] = []
    if fit is not None:
        for side in sides:
            fitted[order[side]] = True
        expected[sound] = fit.predict(x[sound])
        effective[sound] = effective_robustness(x[sound], y[sound], fit)
        if resamples:
            for side, grid in zip(sides, _grids(shift, x[sound]), strict=True):
                chosen = order[side]
                band = bootstrap_band(x[chosen], y[chosen], grid, resamples, seed)
                bands.append(Band(grid, band))
    at_pivot: list[str] = []
    if shift.pivot is not None:
        near = sound & standard & (np.abs(x - shift.pivot.percent) <= SAME_ACCURACY)
        at_pivot = [table.models[row] for row in np.flatnonzero(near)]
    missing = tuple(table.models[row] for row in np.flatnonzero(~both))
    return ShiftAnalysis(
        shift,
        fit,
        no_fit,
        tuple(bands),
        fitted,
        excluded,
        tuple(at_pivot),
        missing,
        expected,
        effective,
    )


def find_pivot(table: ModelTable, x: str, named: str) -> Pivot:
    """A pivot from what a user wrote: a model of the table, or percent of standard accuracy.

    Raises:
        UnknownNameError: neither a number nor a model.
        UsageError: the model has no accuracy there, or the number is not between 0 and 100.
    """
    if named not in table.models:
        try:
            percent = float(named)
        except ValueError:
            percent = float(table.column(x)[table.row(named)])
        model = None
    else:
        percent, model = float(table.column(x)[table.row(named)]), named
        if np.isnan(percent):
            raise UsageError(f"{table.file}: the pivot {named!r} has no accuracy in {x!r}")
    if not 0.0 < percent < 100.0:
        raise UsageError(f"the pivot is {percent:g} %: it must lie between 0 and 100 %")
    return Pivot(percent, model)


def check_pivot(
    table: ModelTable, shift: Shift, standard: Bools, whose: str = "standard model"
) -> None:
    """Refuse a pivot that has no standard model on one of its sides.

    Args:
        table: the accuracies.
        shift: its settings and the pivot.
        standard: which models the line is fitted to.
        whose: what one of them is called.

    Raises:
        UsageError: it has none.
    """
    x = table.column(shift.x)[standard]
    x = x[_has_logit(x)]
    for side, name in zip(_sides(shift, x), ("below", "above"), strict=False):
        if shift.pivot is not None and x.size and not side.any():
            raise UsageError(
                f"the pivot {shift.pivot.percent:g} % is outside the data: no {whose} is "
                f"{name} it in {shift.x!r} ({x.min():g} … {x.max():g} %)"
            )


def _has_logit(percent: Floats) -> Bools:
    found: Bools = (percent > 0.0) & (percent < 100.0)
    return found


def _reason(shift: Shift, x: float, y: float) -> str:
    ends = [(shift.x, x), (shift.y, y)]
    return " and ".join(f"{value:g} % on {name}" for name, value in ends if value in (0.0, 100.0))


def _sides(shift: Shift, x: Floats) -> list[Bools]:
    """Which models each line is fitted to."""
    if shift.pivot is None:
        return [np.ones(x.shape, np.bool_)]
    percent = shift.pivot.percent
    return [x < percent - SAME_ACCURACY, x > percent + SAME_ACCURACY]


def _fit(
    shift: Shift, x: Floats, y: Floats, sides: Sequence[Bools]
) -> tuple[LogitLine | PiecewiseLogitFit | None, str]:
    """One line or two, or why there is none."""
    lines = []
    names = [""] if len(sides) == 1 else [" below the pivot", " above the pivot"]
    for side, name in zip(sides, names, strict=True):
        count = int(side.sum())
        if count < LEAST:
            models = "standard model has" if count == 1 else "standard models have"
            return None, (
                f"{count} {models} both accuracies strictly between 0 and 100 %{name}: a line "
                f"needs {LEAST}"
            )
        if np.ptp(x[side]) == 0.0:
            return None, f"all standard models have the same accuracy in {shift.x}{name}"
        lines.append(fit_logit_line(x[side], y[side]))
    if shift.pivot is None:
        return lines[0], ""
    return PiecewiseLogitFit(lines[0], lines[1], shift.pivot.percent), ""


def _grids(shift: Shift, x: Floats) -> list[Floats]:
    """Where to give the band of each line: evenly in logit over all models."""
    ends = [float(x.min()), float(x.max())]
    if shift.pivot is not None:
        ends.insert(1, shift.pivot.percent)
    logits = logit(np.array(ends))
    grids = []
    for low, high in pairwise(logits):
        grid = percent(np.linspace(low, high, GRID))
        grids.append(np.clip(grid, min(ends), max(ends)))
    return grids
