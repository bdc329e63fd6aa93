"""The plots of an evaluation's page, drawn from what its results hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from curate.report.interval_plots import Dot, dots
from curate.report.plots import (
    Bars,
    Series,
    histogram,
    line_curves,
    reliability_diagram,
)

#: Most lines of a plot: with more of them none can be followed.
MOST_LINES = 10

#: Most rows of a plot of values.
MOST_ROWS = 40

#: An entry of an evaluation's `results`, with its `curves`.
Result = Mapping[str, Any]


def plots_of_all(results: Sequence[Result], names: Sequence[str]) -> list[str]:
    """The plots that compare models on one dataset.

    Args:
        results: one a model, with their `curves`.
        names: of the models, as the page tells them.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    return [_accuracies(results, names), _response_rates(results, names)]


def plots_of_one(result: Result, name: str, number: int) -> list[str]:
    """The plots of one model on one dataset.

    Args:
        result: with its `curves`.
        name: of the model.
        number: of its colour.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    bins = result["curves"]["reliability"]
    error = result["metrics"]["rms_calibration_error"]["value"]
    counted = result["curves"]["confidence"]
    right, wrong = sum(counted["right"]), sum(counted["wrong"])
    return [
        reliability_diagram(
            bins["confidence"],
            bins["accuracy"],
            bins["count"],
            low=bins["low"],
            high=bins["high"],
            title="Reliability",
            alt=f"Reliability of {name}: accuracy against confidence in {len(bins['count'])} bins; "
            f"RMS calibration error {percent(error)}",
            number=number,
            name="accuracy of each bin with its 95 % interval",
        ),
        histogram(
            [Bars("right", counted["right"], 2), Bars("wrong", counted["wrong"], 1)],
            counted["edges"],
            title="Confidence, right and wrong",
            alt=f"Histogram of the confidence of {name}: {right} images right, {wrong} wrong",
            x_label="confidence",
        ),
    ]


def published_value(result: Result, measure: str) -> float | None:
    """What is published of the same model, or else of its architecture; None for neither.

    Args:
        result: of one model.
        measure: a key of its `metrics`.
    """
    rows = [row for row in (result["published"] or {}).get("rows", ()) if row["measure"] == measure]
    for relation in ("same name", "same architecture"):
        for row in rows:
            if row["relation"] == relation:
                return float(row["value"])
    return None


def references(results: Sequence[Result], measure: str) -> list[Dot]:
    """Published numbers that stand for the dataset itself.

    Args:
        results: of one dataset.
        measure: a key of their `metrics`.
    """
    found = {}
    for result in results:
        for row in (result["published"] or {}).get("rows", ()):
            if row["relation"] == "reference" and row["measure"] == measure:
                found[row["model"]] = Dot(row["model"], None, published=row["value"])
    return list(found.values())


def _accuracies(results: Sequence[Result], names: Sequence[str]) -> str:
    rows = []
    for number, (name, result) in enumerate(zip(names, results, strict=True)):
        told = result["metrics"]["accuracy"]
        beside = published_value(result, "accuracy")
        rows.append(Dot(name, told["value"], told["low"], told["high"], beside, number))
    return intervals(
        rows,
        references(results, "accuracy"),
        title="Accuracy with 95 % intervals",
        x_label="accuracy",
    )


def intervals(
    rows: Sequence[Dot],
    references: Sequence[Dot],
    *,
    title: str,
    x_label: str,
    level: tuple[float, str] | None = None,
) -> str:
    """A plot of one measure of all models, and of what is published.

    Args:
        rows: one a model.
        references: shown below them.
        title: of the plot.
        x_label: what the measure is.
        level: a value to compare with and its name.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    there = len(rows)
    rows = [*rows[:MOST_ROWS], *references]
    said = [
        f"{row.name} {percent(row.value)}"
        if row.value is not None
        else f"{row.name} {percent(row.published)} published"
        for row in rows
    ]
    told = [(row.value, row.low, row.high, row.published, level and level[0]) for row in rows]
    return dots(
        rows,
        title=some(title, there, MOST_ROWS),
        alt=f"{title}: {', '.join(said)}",
        x_label=x_label,
        x_range=fitting([value for row in told for value in row if value is not None]),
        level=level,
    )


def _response_rates(results: Sequence[Result], names: Sequence[str]) -> str:
    lines = []
    for number, (name, result) in enumerate(zip(names, results, strict=True)):
        curve, area = result["curves"]["response_rate"], result["metrics"]["aurra"]["value"]
        note = f"AURRA {percent(area)}"
        lines.append(Series(name, curve["rate"], curve["accuracy"], note=note, number=number))
    said = ", ".join(f"{line.name} with {line.note}" for line in lines[:MOST_LINES])
    return line_curves(
        lines[:MOST_LINES],
        title=some("Accuracy on the most confident share", len(lines), MOST_LINES),
        alt=f"Response rate accuracy curves: {said}",
        x_label="response rate",
        y_label="accuracy",
        x_range=(0.0, 1.0),
        y_range=fitting([value for line in lines[:MOST_LINES] for value in np.asarray(line.y)]),
    )


def fitting(values: Sequence[float]) -> tuple[float, float]:
    """A range of fractions around values that ends at round numbers.

    Args:
        values: what it must hold; none give all of 0 … 1.
    """
    low, high = min(values, default=0.0), max(values, default=1.0)
    step = 10.0 ** math.floor(math.log10(max(high - low, 0.02)))
    return max(0.0, math.floor(low / step) * step), min(1.0, math.ceil(high / step) * step)


def some(title: str, there: int, shown: int) -> str:
    """A title that says where not all models are shown.

    Args:
        title: of the plot.
        there: how many models there are.
        shown: most models of such a plot.
    """
    return title if there <= shown else f"{title} (the first {shown} of {there} models)"


def percent(value: float | None) -> str:
    """A fraction in percent with one digit; a dash where there is none.

    Args:
        value: the fraction.
    """
    return "–" if value is None else f"{100 * value:.1f} %"
