"""What the predictions of a model under corruptions amount to, as plain values for results.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from curate.metrics import calibration_error, clopper_pearson
from curate.testbed.corruption_errors import Row, Table, error_table
from curate.testbed.corruption_means import Means
from curate.testbed.measures import CONFIDENCE_LEVEL
from curate.testbed.predictions import Predictions

_BIN = 100


def measure_setting(predictions: Predictions) -> dict[str, Any]:
    """Accuracy and calibration of one corruption at one severity, or of the clean images.

    Images without a prediction are left out of this setting alone.

    Returns:
        `n` and `failed`; `accuracy`, a mapping of value, low, high, n, interval (its values None
        where no image is left); `error`; `rms_calibration_error` (all bins of 100, ties share
        their mean); `mean_confidence`; `overconfidence` (mean confidence minus accuracy).
    """
    sound = predictions.sound
    correct, confidence = predictions.correct[sound], predictions.confidence[sound]
    right, n = int(np.count_nonzero(correct)), len(correct)
    told: dict[str, Any] = {"n": n, "failed": len(predictions.failed)}
    if not n:
        nothing = dict.fromkeys(("value", "low", "high", "interval"))
        names = ("error", "rms_calibration_error", "mean_confidence", "overconfidence")
        return {**told, "accuracy": {**nothing, "n": 0}, **dict.fromkeys(names)}
    low, high = clopper_pearson(right, n, CONFIDENCE_LEVEL)
    mean = float(np.mean(confidence))
    return {
        **told,
        "accuracy": {
            "value": right / n,
            "low": low,
            "high": high,
            "n": n,
            "interval": f"Clopper-Pearson, {CONFIDENCE_LEVEL:.0%}",
        },
        "error": 1 - right / n,
        "rms_calibration_error": calibration_error(confidence, correct, bin_size=_BIN),
        "mean_confidence": mean,
        "overconfidence": mean - right / n,
    }


def table_of(
    clean: Mapping[str, Any] | None,
    settings: Mapping[str, Mapping[int, Mapping[str, Any]]],
    classes: int,
) -> Table:
    """The error table of measured settings; those without an image are left out.

    Args:
        clean: of the clean images, as `measure_setting` gives it; None where there are none.
        settings: corruption → severity → the same.
        classes: how many there are to choose from.
    """
    measured = {
        name: {s: one for s, one in by_severity.items() if one["n"]}
        for name, by_severity in settings.items()
    }
    measured = {name: by_severity for name, by_severity in measured.items() if by_severity}
    return error_table(
        None if clean is None else clean["accuracy"]["value"],
        {
            name: {s: one["accuracy"]["value"] for s, one in by_severity.items()}
            for name, by_severity in measured.items()
        },
        classes,
        {name: {s: one["n"] for s, one in rows.items()} for name, rows in measured.items()},
        None if clean is None else clean["n"],
    )


def table_record(
    table: Table,
    means: Means,
    clean: Mapping[str, Any] | None,
    settings: Mapping[str, Mapping[int, Mapping[str, Any]]],
) -> dict[str, Any]:
    """The table, its means and the settings behind it, as plain values.

    Returns:
        `clean`; `rows`; `mean_error`, `mean_relative_error` (fractions); `mce`, `relative_mce`
        (percent; None unless they may be called so) with `note`; `means` (see `Means`).
    """
    return {
        "clean": clean,
        "classes": table.classes,
        "rows": [_row(row, means, settings[row.corruption]) for row in table.rows],
        "mean_error": table.mean_error,
        "mean_relative_error": table.mean_relative,
        "mce": means.mean if means.is_mce else None,
        "relative_mce": means.relative if means.is_mce else None,
        "note": means.note,
        "means": {**asdict(means), "unit": "percent"},
    }


def _row(row: Row, means: Means, settings: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    measured = [settings[severity] for severity in row.accuracies]

    def mean(name: str) -> float:
        return float(np.mean([one[name] for one in measured]))

    return {
        "corruption": row.corruption,
        "accuracies": list(row.accuracies.values()),
        "mean_error": row.mean_error,
        "relative_error": row.relative,
        "ce": means.ce.get(row.corruption),
        "relative_ce": means.relative_ce.get(row.corruption),
        "mean_rms_calibration_error": mean("rms_calibration_error"),
        "mean_overconfidence": mean("overconfidence"),
        "near_chance": list(row.near_chance),
        "shape": row.shape,
        "cliff_after": row.cliff_after,
        "floor_from": row.floor_from,
        "told": row.told,
        "severities": [
            {"severity": severity, "near_chance": severity in row.near_chance, **settings[severity]}
            for severity in row.accuracies
        ],
    }


def table_from_record(record: Mapping[str, Any]) -> Table:
    """The table that an entry of results.json holds.

    Raises:
        ValueError, KeyError, TypeError: it holds none.
    """
    clean = record["clean"]
    return table_of(
        clean,
        {
            str(row["corruption"]): {one["severity"]: one for one in row["severities"]}
            for row in record["rows"]
        },
        record["classes"],
    )
