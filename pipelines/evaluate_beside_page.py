"""What stands beside the numbers of an evaluation's page: each other, and the literature."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from curate.report import evaluation_page as shown
from curate.testbed.beside_tables import p_value, points
from curate.testbed.measures import MEASURES


def comparisons(
    told: Sequence[Mapping[str, Any]], names: Mapping[str, str]
) -> list[shown.Comparison]:
    """Pairs of models, in words.

    Args:
        told: entries of a summary's `comparisons`.
        names: what to call each model.
    """
    return [
        shown.Comparison(names[pair["first"]], names[pair["second"]], list(_differences(pair)))
        for pair in told
    ]


def _differences(pair: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, metric in pair["metrics"].items():
        interval = ""
        if metric["low"] is not None:
            interval = f" ({_signed(metric['low'])} to {_signed(metric['high'])})"
        yield MEASURES[name], f"{_signed(metric['value'])}{interval}"
    test = pair["mcnemar"]
    yield "right: first alone, second alone", f"{test['first_only']:,}, {test['second_only']:,}"
    yield "McNemar's test, p", p_value(test["p_value"])


def _signed(value: float) -> str:
    return points(value).replace("-", "−")


def published(results: Sequence[Mapping[str, Any]], models: Sequence[str]) -> list[shown.Published]:
    """Numbers from the literature to hold results against.

    Args:
        results: of one dataset.
        models: what to call the model of each.
    """
    found: dict[tuple[str, ...], tuple[Mapping[str, Any], list[str]]] = {}
    for name, result in zip(models, results, strict=True):
        for row in (result["published"] or {}).get("rows", ()):
            key = (row["model"], row["measure"], row["source"], row["relation"])
            of = "the dataset itself" if row["relation"] == "reference" else name
            _, names = found.setdefault(key, (row, []))
            if of not in names:
                names.append(of)
    metrics = results[0]["metrics"]
    rows = []
    for row, names in found.values():
        label = (metrics.get(row["measure"]) or {}).get("label") or MEASURES.get(row["measure"])
        said = ", ".join(names)
        if row["relation"] != "reference":
            said += f": {row['relation']}"
        source = "; ".join(part for part in (row["source"], row["settings"], row["note"]) if part)
        rows.append(
            shown.Published(row["model"], label or row["measure"], row["value"], said, source)
        )
    return rows
