from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.stats import binomtest

from curate.labels.classes import LabelClass
from curate.labels.space import LabelSpace
from curate.testbed.breakdown import MOST_CONFUSIONS, breakdown
from curate.testbed.predictions import Predictions

SPACE = LabelSpace("many", [LabelClass(f"n{place:02}", f"animal {place}") for place in range(20)])


def made(pairs: list[tuple[int, int | None]]) -> Predictions:
    return Predictions(
        [str(row) for row in range(len(pairs))],
        [SPACE.wnids[truth] for truth, _ in pairs],
        [None if guess is None else SPACE.wnids[guess] for _, guess in pairs],
        np.array([np.nan if guess is None else 0.5 for _, guess in pairs]),
        failed={row: "truncated" for row, (_, guess) in enumerate(pairs) if guess is None},
    )


def test_classes_and_confusions_are_counted_without_failed_images() -> None:
    pairs: list[tuple[int, int | None]] = [(3, 3), (3, 5), (3, 5), (1, 3), (1, None), (7, 7)]
    found = breakdown(made(pairs), SPACE)
    assert [(row["wnid"], row["n"], row["right"]) for row in found["per_class"]] == [
        ("n01", 1, 0),
        ("n03", 3, 1),
        ("n07", 1, 1),
    ]
    exact = binomtest(1, 3).proportion_ci(0.95, method="exact")
    row = found["per_class"][1]
    assert row["name"] == "animal 3"
    told = row["accuracy"], row["low"], row["high"]
    assert told == pytest.approx((1 / 3, exact.low, exact.high), abs=1e-9)
    assert found["confusions"] == {
        "pairs": 2,
        "wrong": 3,
        "top": [
            {
                "wnid": "n03",
                "name": "animal 3",
                "predicted_wnid": "n05",
                "predicted_name": "animal 5",
                "n": 2,
            },
            {
                "wnid": "n01",
                "name": "animal 1",
                "predicted_wnid": "n03",
                "predicted_name": "animal 3",
                "n": 1,
            },
        ],
    }


def test_the_list_is_bounded_and_says_how_much_there_is() -> None:
    random = np.random.default_rng(3)
    pairs = [(int(a), int(b)) for a, b in random.integers(0, 20, (3000, 2))]
    found = breakdown(made(list(pairs)), SPACE)
    counts = Counter(pair for pair in pairs if pair[0] != pair[1])
    assert len(found["confusions"]["top"]) == MOST_CONFUSIONS
    assert found["confusions"]["pairs"] == len(counts)
    assert found["confusions"]["wrong"] == sum(counts.values())
    told = [row["n"] for row in found["confusions"]["top"]]
    assert told == sorted(counts.values(), reverse=True)[:MOST_CONFUSIONS]
    assert sum(row["n"] for row in found["per_class"]) == 3000
    assert sum(row["right"] for row in found["per_class"]) == sum(a == b for a, b in pairs)
