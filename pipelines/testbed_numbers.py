"""The numbers of a testbed run, and the table that `curate robustness testbed` reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.errors import UsageError
from curate.files import csv_text, printable, write_bytes
from curate.metrics import clopper_pearson, ood_detection, pm_k
from curate.testbed.predictions import Predictions
from curate.testbed.setting import Part
from curate.testbed.shift_beside import CONFIDENCE_LEVEL

#: The columns of the table, one row a model and setting.
COLUMNS = ("model", "type", "setting", "accuracy", "images")

#: A reason that counts as a wrong answer, since it is the model's own.
_OWN_FAULT = "nan-logits"


def number(
    setting: str,
    value: float,
    *,
    measure: str = "accuracy",
    images: int | None = None,
    failed: int = 0,
) -> dict[str, Any]:
    """One cell of the table.

    Args:
        setting: the column.
        value: 0 … 1.
        measure: "accuracy", "aupr" or "mean".
        images: that it is a share of; None where it is none.
        failed: images that were left out.
    """
    low = high = None
    if images is not None:
        ends = clopper_pearson(round(value * images), images, CONFIDENCE_LEVEL)
        low, high = (100.0 * end for end in ends)
    return {
        "setting": setting,
        "value": 100.0 * value,
        "low": low,
        "high": high,
        "measure": measure,
        "images": images,
        "failed": failed,
    }


def numbers(
    parts: Sequence[Part], said: Mapping[int, Predictions], inside: Mapping[int, Predictions]
) -> list[dict[str, Any]]:
    """The cells of one model, in the order of the settings.

    Args:
        parts: of all settings.
        said: place of a part to what the model said of it.
        inside: place of a part to what it said of the images that stand against it.

    Raises:
        UsageError: not one image of a part could be passed.
    """
    found: list[dict[str, Any]] = []
    means: dict[str, list[dict[str, Any]]] = {}
    for place, part in enumerate(parts):
        _refuse_nothing(part, said[place], _left_out(said[place]))
        if part.inside is not None:
            _refuse_nothing(part, said[place], ~said[place].sound)
            _refuse_nothing(part.inside, inside[place], ~inside[place].sound)
            found.append(_detection(part, said[place], inside[place]))
        elif part.neighbours is not None:
            found += _frames(part, said[place])
        elif not part.mean:
            found.append(_accuracy(part, said[place]))
        else:
            severities = means.setdefault(part.mean, [])
            severities.append(_accuracy(part, said[place]))
            if len(severities) == sum(one.mean == part.mean for one in parts):
                found.append(_mean(part.mean, severities))
    return found


def is_right(part: Part, said: Predictions) -> NDArray[np.bool_]:
    """Whether each image of a part was given an id that counts as right."""
    return np.array(
        [told in right for told, right in zip(said.predicted, part.right, strict=True)], np.bool_
    )


def _left_out(said: Predictions) -> NDArray[np.bool_]:
    """The images that no model can answer, since there are no pixels."""
    mask = np.zeros(len(said), np.bool_)
    mask[[row for row, reason in said.failed.items() if reason != _OWN_FAULT]] = True
    return mask


def _refuse_nothing(part: Part, said: Predictions, lacking: NDArray[np.bool_]) -> None:
    if lacking.all():
        reason = next(iter(said.failed.values()))
        raise UsageError(
            f"{part.name}: none of {len(said)} images of {printable(part.layout.root.name)} gave a "
            f"prediction; the first: {reason}"
        )


def _accuracy(part: Part, said: Predictions) -> dict[str, Any]:
    counted = ~_left_out(said)
    images = int(counted.sum())
    right = int(is_right(part, said)[counted].sum())
    return number(part.name, right / images, images=images, failed=len(said) - images)


def _mean(name: str, severities: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    values = [one["value"] / 100.0 for one in severities]
    failed = max(one["failed"] for one in severities)
    return {
        **number(name, float(np.mean(values)), measure="mean", failed=failed),
        "severities": [one["value"] for one in severities],
    }


def _frames(part: Part, said: Predictions) -> list[dict[str, Any]]:
    """pm-0 and pm-10 over the anchors that can be read, with the frames around them that can be."""
    assert part.neighbours is not None
    right, left_out = is_right(part, said), _left_out(said)
    anchors = [one for one in part.neighbours if not left_out[one]]
    if not anchors:
        raise UsageError(f"{part.name}: none of {len(part.neighbours)} anchors can be read")
    near = [[row for row in part.neighbours[one] if not left_out[row]] for one in anchors]
    told = pm_k(right[anchors], [right[rows] for rows in near])
    return [
        number(f"{part.name}_{name}", value, images=len(anchors), failed=int(left_out.sum()))
        for name, value in (("pm0", told.pm0), ("pm10", told.pmk))
    ]


def _detection(part: Part, outside: Predictions, inside: Predictions) -> dict[str, Any]:
    told = ood_detection(-inside.confidence[inside.sound], -outside.confidence[outside.sound])
    failed = len(inside.failed) + len(outside.failed)
    return {
        **number(part.name, told.aupr, measure="aupr", failed=failed),
        "base_rate": told.base_rate,
    }


def write_table(
    path: Path, results: Sequence[Mapping[str, Any]], types: Mapping[str, str] | None
) -> None:
    """Write the table that `curate robustness testbed` reads, in percent, whole or not at all.

    Args:
        path: a CSV file.
        results: cells, each with its model.
        types: of each model; None leaves the column out.

    Raises:
        StorageError: it cannot be written.
    """
    columns = [name for name in COLUMNS if name != "type" or types is not None]
    sizes: dict[str, set[int | None]] = {}
    for one in results:
        sizes.setdefault(one["setting"], set()).add(one["images"])
    rows = [
        {
            "model": one["model"],
            "type": "" if types is None else types[one["model"]],
            "setting": one["setting"],
            "accuracy": f"{one['value']:.6f}",
            # A size that differs between models is none of the setting's.
            "images": (one["images"] or "") if len(sizes[one["setting"]]) == 1 else "",
        }
        for one in results
    ]
    write_bytes(path, csv_text(columns, [[row[name] for name in columns] for row in rows]).encode())


def grid(
    models: Sequence[str], results: Sequence[Mapping[str, Any]]
) -> tuple[list[str], list[list[Any]]]:
    """Settings × models for the terminal, in percent.

    Args:
        models: their names.
        results: cells, each with its model.
    """
    cells = {(one["setting"], one["model"]): one for one in results}
    settings = list(dict.fromkeys(one["setting"] for one in results))
    rows: list[list[Any]] = []
    for setting in settings:
        first = cells[setting, models[0]]
        values = [f"{cells[setting, model]['value']:.2f}" for model in models]
        rows.append([setting, first["measure"], first["images"], *values])
    return ["setting (%)", "measure", "images", *models], rows


def confidence_level() -> float:
    """Of the intervals."""
    return CONFIDENCE_LEVEL
