"""What selecting photos by models did to a dataset's accuracies.

The models that selected are wrong by construction, and their relatives lean the same way. How hard
the photos are is for the others to say: the line through these, of accuracy on the dataset against
standard accuracy, is what a model would have that took no part. With too few of them, or too much
alike, there is no such line, and none is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from curate.metrics.checks import Bools, Floats
from curate.metrics.knee import Knee, find_knee
from curate.metrics.logits import logit
from curate.metrics.shift import SAME_ACCURACY, PiecewiseLogitFit
from curate.testbed.model_table import ModelTable
from curate.testbed.shift_analysis import (
    LEAST,
    RESAMPLES,
    SEED,
    Pivot,
    Shift,
    ShiftAnalysis,
    analyse_shift,
)
from curate.testbed.shift_records import fit_record

#: What a model has to do with the selection: it took part, it is of the family of one that did, or
#: neither.
FILTER, FAMILY, OTHER = "filter", "family", "other"

#: The same in the order in which they are told.
GROUPS = (FILTER, FAMILY, OTHER)

#: The least spread of standard accuracy, in logits, that a line is drawn over: from 70 to 79.4 %.
LEAST_SPREAD = 0.5

#: What the numbers of a record are.
UNITS = {
    "accuracies": "percent",
    "distances": "points",
    "slopes": "logit per logit",
    "left.share": "fraction",
}

#: What the two settings of a measured release are called.
STANDARD, RELEASE = "standard", "release"


@dataclass(frozen=True, eq=False)
class Bias:
    """What the models say of a selection.

    Attributes:
        table: the accuracies, in percent; a model's type is its group.
        analysis: the line, or the two lines, of the models that took no part, and where every
            model lies against it.
        knee: where the curve of these models bends by itself; None where there are too few.
        in_line: whether each model was to be fitted.
        one_line: why there is one line where a pivot was to part it; empty otherwise.
    """

    table: ModelTable
    analysis: ShiftAnalysis
    knee: Knee | None
    in_line: Bools
    one_line: str = ""

    @property
    def groups(self) -> tuple[str, ...]:
        """The group of each model."""
        return self.table.types


def weigh(
    table: ModelTable,
    groups: Sequence[str],
    shift: Shift,
    *,
    left_out: Bools | None = None,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Bias:
    """Fit the models that took no part, and place the others against them.

    Both sides of the pivot get a line of their own where each has `LEAST` models that spread
    `LEAST_SPREAD`; else there is one line, with as many and as wide a spread; else none.

    Args:
        table: the accuracies.
        groups: of each model, one of `GROUPS`.
        shift: its settings; `pivot` is the strongest model that selected, where it is known.
        left_out: models of the group `OTHER` that are no part of the line, such as those trained on
            more photos.
        resamples: refits of bands, at least 1.
        seed: of what they draw.

    Raises:
        UnknownNameError: the table has no such setting.
    """
    table = replace(table, types=tuple(groups))
    in_line = np.array([group == OTHER for group in groups], np.bool_)
    if left_out is not None:
        in_line &= ~left_out
    x, y = table.column(shift.x), table.column(shift.y)
    sound = in_line & (x > 0.0) & (x < 100.0) & (y > 0.0) & (y < 100.0)
    whole = replace(shift, pivot=None)
    lacking, aside = _lacking(x[sound]), ""
    if OTHER not in groups:
        lacking = f"no model was measured that took no part: a line needs {LEAST}"
    if shift.pivot is not None:
        below = sound & (x < shift.pivot.percent - SAME_ACCURACY)
        above = sound & (x > shift.pivot.percent + SAME_ACCURACY)
        faults = (("below", _lacking(x[below])), ("above", _lacking(x[above])))
        aside = "; ".join(f"{name} it {fault}" for name, fault in faults if fault)
    if lacking:
        # None is fitted, so that everything else is told as of any other table.
        nobody = np.zeros(len(table), np.bool_)
        analysis = replace(analyse_shift(table, whole, nobody, resamples=0), no_fit=lacking)
    elif shift.pivot is not None and not aside:
        analysis = analyse_shift(table, shift, in_line, resamples=resamples, seed=seed)
    else:
        analysis = analyse_shift(table, whole, in_line, resamples=resamples, seed=seed)
    knee = None
    if analysis.fit is not None:
        order = sorted(np.flatnonzero(sound).tolist(), key=table.models.__getitem__)
        knee = find_knee(x[order], y[order], resamples=resamples, seed=seed)
    one_line = aside if analysis.fit is not None else ""
    return Bias(table, replace(analysis, shift=shift), knee, in_line, one_line)


def _lacking(x: Floats) -> str:
    """Why models of some standard accuracies make no line; empty where they make one."""
    if x.size < LEAST:
        have = "model that took no part has" if x.size < 2 else "models that took no part have"
        return (
            f"{x.size or 'no'} {have} both accuracies strictly between 0 and 100 %: a line needs "
            f"{LEAST}"
        )
    logits = logit(x)
    if np.ptp(logits) < LEAST_SPREAD:
        return (
            f"the standard accuracies of the {x.size} models that took no part are too close "
            f"together ({x.min():.1f} … {x.max():.1f} %) for a line"
        )
    return ""


def strongest(table: ModelTable, x: str, groups: Sequence[str]) -> Pivot | None:
    """The most accurate model that selected: what it gets right is gone, so the curve bends there.

    Args:
        table: the accuracies.
        x: the setting of standard accuracy.
        groups: of each model.
    """
    column = table.column(x)
    own = [
        (-float(column[row]), model)
        for row, model in enumerate(table.models)
        if groups[row] == FILTER and 0.0 < column[row] < 100.0
    ]
    if not own:
        return None
    percent, model = min(own)
    return Pivot(-percent, model)


def bias_record(
    bias: Bias,
    ends: Mapping[str, tuple[Floats, Floats]],
    parts: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """All of it as plain JSON values, accuracies in percent and distances in points.

    Args:
        bias: what was found.
        ends: of both settings, the ends of the models' intervals; NaN where there is none.
        parts: what else is told of a model, by name.

    Returns:
        `models` (in the order of groups, then of names), `fit`, `knee`, `bends_at_pivot`, `left`
        (whose `share` is a fraction), `line_range` (of standard accuracy, of the models that are
        fitted), `one_line` (why both sides of the pivot share one), `groups`, `units`.
    """
    analysis, table = bias.analysis, bias.table
    shift = analysis.shift
    rows = sorted(
        range(len(table)), key=lambda row: (GROUPS.index(bias.groups[row]), table.models[row])
    )
    models = []
    for row in rows:
        told = {
            name: {
                "value": _known(table.column(setting)[row]),
                "low": _known(ends[setting][0][row]),
                "high": _known(ends[setting][1][row]),
            }
            for name, setting in ((STANDARD, shift.x), (RELEASE, shift.y))
        }
        models.append(
            {
                "model": table.models[row],
                "group": bias.groups[row],
                "in_line": bool(analysis.fitted[row]),
                **told,
                "beyond_line": _known(analysis.effective[row]),
                **parts.get(table.models[row], {}),
            }
        )
    return {
        "models": models,
        "fit": fit_record(analysis),
        "knee": None if bias.knee is None else _knee_record(bias.knee),
        "bends_at_pivot": _bends(analysis),
        "left": _left(bias),
        "line_range": _range(bias),
        "one_line": bias.one_line or None,
        "groups": {group: _group(bias, group) for group in GROUPS},
        "units": dict(UNITS),
    }


def _knee_record(knee: Knee) -> dict[str, Any]:
    return {**vars(knee), "interval": list(knee.interval)}


def _bends(analysis: ShiftAnalysis) -> bool | None:
    """Whether the slopes' intervals on both sides of the pivot lie apart; None without two."""
    if not isinstance(analysis.fit, PiecewiseLogitFit) or len(analysis.bands) != 2:
        return None
    low, high = (one.band.slope_interval for one in analysis.bands)
    return low[1] < high[0] or high[1] < low[0]


def _left(bias: Bias) -> dict[str, Any] | None:
    """At the strongest model's standard accuracy: what it loses on the dataset, and what a model
    loses there that took no part. None without a line or a pivot among its models."""
    analysis, table = bias.analysis, bias.table
    pivot, ends = analysis.shift.pivot, _range(bias)
    if pivot is None or analysis.fit is None or ends is None:
        return None
    if not ends[0] - SAME_ACCURACY <= pivot.percent <= ends[1] + SAME_ACCURACY:
        return None
    expected = float(analysis.fit.predict(pivot.percent))
    told: dict[str, Any] = {
        "standard": pivot.percent,
        "expected": expected,
        "drop": pivot.percent - expected,
        "model": pivot.model,
        "model_drop": None,
        "share": None,
    }
    if pivot.model is not None:
        own = float(table.column(analysis.shift.y)[table.row(pivot.model)])
        if not np.isnan(own) and pivot.percent > own:
            drop = pivot.percent - own
            told |= {"model_drop": drop, "share": told["drop"] / drop}
    return told


def _range(bias: Bias) -> list[float] | None:
    x = bias.table.column(bias.analysis.shift.x)[bias.analysis.fitted]
    return [float(x.min()), float(x.max())] if x.size else None


def _group(bias: Bias, group: str) -> dict[str, Any]:
    """How many models a group has, and their mean distance from the line."""
    rows = np.array([one == group for one in bias.groups], np.bool_)
    known = bias.analysis.effective[rows & ~np.isnan(bias.analysis.effective)]
    return {
        "models": int(rows.sum()),
        "beyond_line": float(np.mean(np.sort(known))) if known.size else None,
    }


def _known(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)
