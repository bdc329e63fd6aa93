"""Logits in a wrong order are told from those of a bad model, whatever the model and the order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.labels.space import load_label_space
from curate.testbed.output_order import LEAST_CLASSES, ranks_by_chance
from curate.testbed.predictions import Predictions
from pipelines.evaluate import evaluate, results_notes

A = load_label_space("imagenet-a")
THOUSAND = load_label_space("imagenet-1k")


def answered(rank: np.ndarray, classes: list[int]) -> Predictions:
    n = len(rank)
    return Predictions(
        [str(row) for row in range(n)],
        [A.wnids[one] for one in classes],
        [A.wnids[0]] * n,
        np.full(n, 0.5),
        rank=rank.astype(np.int32),
    )


def logits(classes: np.ndarray, signal: float, seed: int) -> np.ndarray:
    """Of a model that is wrong everywhere, yet prefers the true class to most others."""
    found = np.random.default_rng(seed).normal(size=(len(classes), len(A)))
    rows = np.arange(len(classes))
    found[rows, classes] += signal
    found[rows, (classes + 1) % len(A)] = found.max(axis=1) + 1
    return found


def ranks(found: np.ndarray, classes: np.ndarray) -> np.ndarray:
    own = found[np.arange(len(classes)), classes]
    return (found > own[:, None]).sum(axis=1)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(LEAST_CLASSES, 200), st.integers(1, 9))
def test_a_model_that_gets_nothing_right_is_not_doubted_and_a_wrong_order_mostly_is(
    seed: int, held: int, each: int
) -> None:
    random = np.random.default_rng(seed)
    classes = np.repeat(random.permutation(len(A))[:held], each)
    right = logits(classes, 2.0, seed)
    assert ranks(right, classes).min() > 0
    assert ranks_by_chance(answered(ranks(right, classes), classes.tolist()), A) is False
    doubted = [
        ranks_by_chance(
            answered(ranks(right[:, random.permutation(len(A))], classes), classes.tolist()), A
        )
        for _ in range(20)
    ]
    assert sum(map(bool, doubted)) >= 16, "two standard errors: 98 of 100 are"


def test_many_images_of_one_class_weigh_no_more_than_one() -> None:
    few = np.arange(LEAST_CLASSES)
    rank = np.full(LEAST_CLASSES, 99)
    classes = np.append(few, np.zeros(1000, int))
    known = np.append(rank, np.zeros(1000, int))
    assert ranks_by_chance(answered(known, classes.tolist()), A) is True


def test_nothing_is_said_of_few_classes_or_without_ranks() -> None:
    classes = list(range(LEAST_CLASSES))
    rank = np.full(LEAST_CLASSES, 150)
    assert ranks_by_chance(answered(rank, classes), A) is True
    assert ranks_by_chance(answered(rank[1:], classes[1:]), A) is None
    plain = answered(rank, classes)
    assert ranks_by_chance(Predictions(plain.paths, plain.wnids, plain.predicted, plain.confidence),
                           A) is None  # fmt: skip


def test_images_that_failed_say_nothing() -> None:
    classes = list(range(LEAST_CLASSES + 1))
    told = answered(np.append(np.full(LEAST_CLASSES, 150), -1), classes)
    failed = Predictions(
        told.paths, told.wnids, told.predicted, told.confidence,
        failed={LEAST_CLASSES: "nan-logits"}, rank=told.rank,
    )  # fmt: skip
    assert ranks_by_chance(failed, A) is True


@pytest.mark.parametrize("is_right", [True, False])
def test_a_file_in_another_order_is_asked_about_wherever_its_numbers_stand(
    tmp_path: Path, is_right: bool
) -> None:
    random = np.random.default_rng(5)
    labels = random.permutation(200)[:60]
    found = random.normal(size=(60, 1000)).astype(np.float32)
    columns = [THOUSAND.wnids.index(A.wnids[one]) for one in labels]
    found[np.arange(60), columns] += 2.0
    order = np.arange(1000) if is_right else random.permutation(1000)
    file: dict[str, Any] = {"logits": np.ascontiguousarray(found[:, order])}
    file["labels"] = np.array([A.wnids[one] for one in labels])
    np.savez(tmp_path / "mine.npz", **file)
    summary = evaluate(
        [],
        [],
        predictions=[tmp_path / "mine.npz"],
        label_space="imagenet-a",
        report=tmp_path / "report",
        resamples=5,
    )
    (result,) = summary["results"]
    assert result["ranks_by_chance"] is not is_right
    asked = "mine.npz on the file: the true class stands no higher among the 200 classes"
    assert any(asked in note for note in results_notes(summary["results"])) is not is_right
    for name in ("index.html", "results.md"):
        text = (tmp_path / "report" / name).read_text()
        assert ("are its outputs in another order" in text) is not is_right
