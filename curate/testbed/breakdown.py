"""Where a model errs: accuracy by class, and the classes that are taken for each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from curate.labels.space import LabelSpace
from curate.metrics import class_accuracy, confusions
from curate.testbed.metric_records import CONFIDENCE_LEVEL
from curate.testbed.predictions import Predictions

#: Most confusions that a result lists; it says how many there are.
MOST_CONFUSIONS = 100


def breakdown(predictions: Predictions, space: LabelSpace) -> dict[str, Any]:
    """Accuracy by class and the most frequent confusions, within the label space.

    Args:
        predictions: at least one of them sound; images without a prediction are left out.
        space: the label space that they are restricted to.

    Returns:
        `per_class`: for each class that has images, in the label space's order, `wnid`, `name`,
        `n`, `right`, `accuracy`, `low` and `high` (Clopper-Pearson, of each class by itself).
        `confusions`: `pairs` and `wrong` (how many there are of each), and `top`, the most frequent
        pairs, with `wnid`, `name`, `predicted_wnid`, `predicted_name` and `n`.
    """
    sound = predictions.sound
    truth = np.array([space.position(wnid) for wnid in predictions.wnids])[sound]
    guess = np.array([-1 if w is None else space.position(w) for w in predictions.predicted])
    guess = guess[sound]
    by_class = class_accuracy(truth, truth == guess, confidence=CONFIDENCE_LEVEL)
    pairs = confusions(truth, guess, top=MOST_CONFUSIONS)

    def named(place: int, prefix: str = "") -> Mapping[str, str]:
        item = space.classes[place]
        return {f"{prefix}wnid": item.wnid, f"{prefix}name": item.name}

    columns = (by_class.label, by_class.n, by_class.right, by_class.accuracy)
    rows = zip(*(c.tolist() for c in (*columns, by_class.low, by_class.high)), strict=True)
    told = zip(*(c.tolist() for c in (pairs.label, pairs.predicted, pairs.count)), strict=True)
    return {
        "per_class": [
            {
                **named(label),
                "n": n,
                "right": right,
                "accuracy": accuracy,
                "low": low,
                "high": high,
            }
            for label, n, right, accuracy, low, high in rows
        ],
        "confusions": {
            "pairs": pairs.pairs,
            "wrong": pairs.total,
            "top": [
                {**named(label), **named(other, "predicted_"), "n": n} for label, other, n in told
            ],
        },
    }
