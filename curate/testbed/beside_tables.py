"""Comparisons of models, and numbers from the literature, as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from curate.testbed.measures import CONFIDENCE_LEVEL, MEASURES

#: What tables call the measures that are published.
_PUBLISHED_MEASURES = {"accuracy": "accuracy", "aupr_msp": "AUPR, max. softmax"}


def comparison_table(
    comparisons: Sequence[Mapping[str, Any]],
) -> tuple[list[str], list[list[Any]]]:
    """A row a pair of models and measure: how much more the second one has, in points.

    Args:
        comparisons: as an evaluation's summary holds them.

    Returns:
        The header, and the rows; the pair and McNemar's test stand in its first row alone.
    """
    header = ["second model", "first model", "dataset", "measure", "points"]
    header += [f"{CONFIDENCE_LEVEL:.0%} interval", "images", "right alone", "p (McNemar)"]
    rows: list[list[Any]] = []
    for one in comparisons:
        who = [one["second"], one["first"], one["dataset"] or ""]
        test = one["mcnemar"]
        # McNemar's test is about accuracy, which comes first.
        ends = [f"{test['second_only']} / {test['first_only']}", p_value(test["p_value"])]
        for name, told in one["metrics"].items():
            interval = ""
            if told["low"] is not None:
                interval = f"{points(told['low'])} … {points(told['high'])}"
            rows.append([*who, MEASURES[name], points(told["value"]), interval, told["n"], *ends])
            who, ends = ["", "", ""], ["", ""]
    return header, rows


def published_table(results: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """A row a published number beside a result, and what was measured here.

    Args:
        results: the entries of an evaluation's `results`.
    """
    header = ["model", "dataset", "measure", "here", "published", "of", "how", "source", "note"]
    rows: list[list[Any]] = []
    for result in results:
        for row in (result.get("published") or {"rows": ()})["rows"]:
            here = result["metrics"].get(row["measure"])
            rows.append(
                [
                    result["model"]["name"],
                    result["published"]["dataset"],
                    _PUBLISHED_MEASURES.get(row["measure"], row["measure"]),
                    "–" if here is None or here["value"] is None else f"{100 * here['value']:.2f}",
                    f"{100 * row['value']:.2f}",
                    row["model"],
                    row["relation"],
                    row["source"],
                    "; ".join(filter(None, (row["settings"], row["note"]))),
                ]
            )
    return header, rows


def published_notes(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """How far the images are known to be those of the literature, a sentence a dataset."""
    notes: dict[str, None] = {}
    for result in results:
        if told := result.get("published"):
            name = result["dataset"]["name"] or "the file"
            notes[
                f"{name} is taken for {told['dataset']}, since {told['agreement']} "
                f"({', '.join(told['evidence'])}); published numbers are marked as such."
            ] = None
    return list(notes)


def points(value: float) -> str:
    """A difference of fractions in percentage points, with its sign."""
    text = f"{100 * value:+.2f}"
    return "0.00" if text in ("+0.00", "-0.00") else text


def p_value(value: float) -> str:
    """A p value in as many digits as say something."""
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}"
