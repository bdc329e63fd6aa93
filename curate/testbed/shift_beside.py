"""What stands beside the lines of shifts: correlations, relative robustness, intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from curate.metrics.checks import Bools, Floats
from curate.metrics.intervals import clopper_pearson
from curate.metrics.shift import relative_robustness
from curate.testbed.model_table import ModelTable
from curate.testbed.shift_analysis import LEAST, ShiftAnalysis

#: Of the intervals of single accuracies.
CONFIDENCE_LEVEL = 0.995


@dataclass(frozen=True)
class Correlation:
    """How effective robustness on one shift goes with that on another.

    Attributes:
        first, second: names of the shifts.
        r: Pearson's; None with fewer than three models, or where all have the same.
        n: models that have both.
    """

    first: str
    second: str
    r: float | None
    n: int


def correlate(
    table: ModelTable, analyses: Sequence[ShiftAnalysis], among: Bools
) -> list[Correlation]:
    """Pearson correlations between the effective robustness on each two shifts.

    Args:
        table: what was analysed.
        analyses: of its shifts.
        among: the models to look at; in the paper those that are not standard, since the line was
            fitted to these.
    """
    order = np.array(sorted(range(len(table)), key=table.models.__getitem__), np.int64)
    found = []
    for place, first in enumerate(analyses):
        for second in analyses[place + 1 :]:
            rho = np.array([first.effective[order], second.effective[order]])
            rho = rho[:, among[order] & ~np.isnan(rho).any(axis=0)]
            n = rho.shape[1]
            r = None
            if n >= LEAST and np.all(np.ptp(rho, axis=1) > 0.0):
                r = float(np.corrcoef(rho)[0, 1])
            found.append(Correlation(first.shift.name, second.shift.name, r, n))
    return found


def relative(table: ModelTable, setting: str, baselines: Mapping[str, str]) -> Floats:
    """τ of each model that has a baseline; NaN for the others.

    Args:
        table: the accuracies.
        setting: the one under shift.
        baselines: from a model to the one that it was made from.

    Raises:
        UnknownNameError: the table has no such model or setting.
    """
    y = table.column(setting)
    places = {name: row for row, name in enumerate(table.models)}
    tau = np.full(len(table), np.nan)
    for model, baseline in baselines.items():
        # An unknown name is told by `row`, with the nearest ones.
        own = places[model] if model in places else table.row(model)
        base = places[baseline] if baseline in places else table.row(baseline)
        if not np.isnan(y[own]) and not np.isnan(y[base]):
            tau[own] = relative_robustness(y[own], y[base])
    return tau


def intervals(accuracies: Floats, images: int | None) -> tuple[Floats, Floats]:
    """Clopper-Pearson intervals of accuracies, at `CONFIDENCE_LEVEL`, in percent.

    Args:
        accuracies: percent; what is nearest to a whole number of right images is taken for it.
        images: how many images they are of; None where it is not known, or where an accuracy is no
            share of images, such as a mean over settings.

    Returns:
        Lower and upper ends; NaN where there are none.
    """
    low, high = np.full((2, *accuracies.shape), np.nan)
    if images is not None:
        known: dict[int, tuple[float, float]] = {}
        for row in np.flatnonzero(~np.isnan(accuracies)):
            right = round(float(accuracies[row]) / 100.0 * images)
            if right not in known:
                known[right] = clopper_pearson(right, images, CONFIDENCE_LEVEL)
            low[row], high[row] = known[right]
    return 100.0 * low, 100.0 * high
