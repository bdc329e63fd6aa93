"""The plots of how well models detect images of something else, drawn from what results hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from curate.metrics.anomaly import SCORES
from curate.metrics.ood_intervals import PUBLISHED_BASE_RATE
from curate.report.interval_plots import Dot
from curate.report.plots import Bars, Series, histogram, line_curves
from pipelines.evaluate_plots import (
    MOST_LINES,
    Result,
    intervals,
    percent,
    published_value,
    references,
    some,
)

_SCORE = "msp"


def main_score(results: Sequence[Result]) -> str:
    """The score that models are compared by: the published one where it is known of all.

    Args:
        results: of kind "ood", one a model.
    """
    known = [list(result["curves"]) for result in results]
    common = [name for name in known[0] if all(name in names for names in known)]
    return _SCORE if _SCORE in common or not common else common[0]


def plots_of_all(results: Sequence[Result], names: Sequence[str]) -> list[str]:
    """The plots that compare models on one dataset.

    Args:
        results: of kind "ood", one a model, with their `curves`.
        names: of the models, as the page tells them.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    score = main_score(results)
    there = [
        (number, name, result["curves"][score], result["metrics"])
        for number, (name, result) in enumerate(zip(names, results, strict=True))
        if score in result["curves"]
    ]
    if not there:
        return []
    said, lines, base_rate = SCORES.get(score, score), there[:MOST_LINES], results[0]["base_rate"]
    precision = [
        _line(name, curve["recall"], curve["precision"], "AUPR", metrics[f"aupr_{score}"], number)
        for number, name, curve, metrics in lines
    ]
    roc = [
        _line(
            name,
            curve["false_positive_rate"],
            curve["recall"],
            "AUROC",
            metrics[f"auroc_{score}"],
            number,
        )
        for number, name, curve, metrics in lines
    ]
    areas = []
    for number, name, _, metrics in there:
        told = metrics[f"aupr_reweighted_{score}"]
        # What is published was measured at that base rate.
        beside = published_value(results[number], f"aupr_{score}")
        areas.append(Dot(name, told["value"], told["low"], told["high"], beside, number))
    return [
        intervals(
            areas,
            references(results, f"aupr_{score}"),
            title="AUPR at base rate 1/6 with 95 % intervals",
            x_label=f"AUPR by {said}",
            level=(PUBLISHED_BASE_RATE, "chance, 16.7 %"),
        ),
        line_curves(
            precision,
            title=some("Precision over recall", len(there), MOST_LINES),
            alt=f"Precision over recall by {said}: {_said(precision)}",
            x_label="recall",
            y_label="precision",
            x_range=(0.0, 1.0),
            level=(base_rate, f"chance, the base rate {percent(base_rate)}"),
            steps=True,
        ),
        line_curves(
            roc,
            title=some("ROC", len(there), MOST_LINES),
            alt=f"ROC curves by {said}: {_said(roc)}",
            x_label="false-positive rate",
            y_label="recall",
            x_range=(0.0, 1.0),
            diagonal="chance",
        ),
    ]


def plots_of_one(result: Result, name: str, score: str) -> list[str]:
    """The plots of one model on one dataset.

    Args:
        result: of kind "ood", with its `curves`.
        name: of the model.
        score: the one whose distribution is drawn.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    plots = []
    if counted := result["curves"].get(score):
        plots.append(_distribution(counted, name, score, result["base_rate"]))
    lines = [
        _line(
            SCORES.get(one, one),
            curve["recall"],
            curve["precision"],
            "AUPR",
            result["metrics"][f"aupr_{one}"],
            place,
        )
        for place, (one, curve) in enumerate(list(result["curves"].items())[:MOST_LINES])
    ]
    if lines:
        plots.append(
            line_curves(
                lines,
                title="Precision over recall by score",
                alt=f"Precision over recall of {name} by score: {_said(lines)}",
                x_label="recall",
                y_label="precision",
                x_range=(0.0, 1.0),
                level=(result["base_rate"], f"chance, {percent(result['base_rate'])}"),
                steps=True,
            )
        )
    return plots


def _line(
    name: str,
    x: Sequence[float],
    y: Sequence[float],
    area: str,
    told: Mapping[str, Any],
    number: int,
) -> Series:
    return Series(name, x, y, note=f"{area} {percent(told['value'])}", number=number)


def _said(lines: Sequence[Series]) -> str:
    return ", ".join(f"{line.name} with {line.note}" for line in lines)


def _distribution(counted: Mapping[str, Any], name: str, score: str, base_rate: float) -> str:
    edges, inside, outside = counted["edges"], counted["inside"], counted["outside"]
    label = SCORES.get(score, score)
    if score == _SCORE:
        # The score is less the confidence, which people know.
        edges, inside, outside = [-end for end in edges[::-1]], inside[::-1], outside[::-1]
        label = "confidence"
    alt = (
        f"Histogram of {label} under {name}: {sum(inside)} images of the label space's classes and "
        f"{sum(outside)} of something else, base rate {percent(base_rate)}"
    )
    return histogram(
        [Bars("of the label space's classes", inside, 0), Bars("of something else", outside, 1)],
        edges,
        title=f"{label[0].upper()}{label[1:]}, base rate {percent(base_rate)}",
        alt=alt,
        x_label=label,
        x_percent=score == _SCORE,
        share=True,
    )
