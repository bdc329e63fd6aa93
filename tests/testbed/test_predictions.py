from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import softmax

from curate.labels.classes import LabelClass
from curate.labels.space import LabelSpace, load_label_space
from curate.testbed.predictions import Gathered, score_logits, write_predictions

SPACE = LabelSpace("three", [LabelClass(name, name) for name in ("ape", "bee", "cow")])
OUTPUT = LabelSpace(
    "five", [LabelClass(name, name) for name in ("bee", "elk", "cow", "fox", "ape")]
)
COLUMNS = SPACE.columns_in(OUTPUT)


@given(
    arrays(np.float32, (6, 5), elements=st.floats(-50, 50, width=32)),
    st.lists(st.integers(0, 2), min_size=6, max_size=6),
)
def test_scores_are_a_softmax_over_the_label_spaces_columns_alone(
    logits: np.ndarray, targets: list[int]
) -> None:
    scores = score_logits(logits, COLUMNS, targets)
    probabilities = softmax(logits.astype(np.float64)[:, [4, 0, 2]], axis=1)
    assert scores.finite.all()
    np.testing.assert_array_equal(scores.predicted, logits[:, [4, 0, 2]].argmax(axis=1))
    np.testing.assert_allclose(scores.confidence, probabilities.max(axis=1), rtol=1e-12)
    np.testing.assert_allclose(scores.p_true, probabilities[range(6), targets], rtol=1e-10)
    np.testing.assert_array_equal(scores.column, logits.argmax(axis=1))


def test_a_gap_that_float32_would_call_certain_keeps_its_order() -> None:
    # In float32 both softmaxes are exactly 1.
    logits = np.array([[0, 0, 0, 0, 17], [0, 0, 0, 0, 18]], np.float32)
    first, second = score_logits(logits, COLUMNS, [0, 0]).confidence
    assert first < second < 1


def test_rows_that_are_no_numbers_fail_and_leave_the_others_alone() -> None:
    logits = np.array([[0, 1, 5, 0, 0], [0, np.nan, 0, 0, 0], [9, np.inf, 0, 0, 0]], np.float32)
    gathered = Gathered(["a", "b", "c"], ["cow", "bee", "ape"], SPACE, COLUMNS, OUTPUT)
    gathered.add([0, 1, 2], score_logits(logits, COLUMNS, [2, 1, 0]))
    found = gathered.predictions()
    assert found.failed == {1: "nan-logits", 2: "nan-logits"}
    assert found.predicted == ["cow", None, None]
    assert found.sound.tolist() == [True, False, False]
    assert found.correct.tolist() == [True, False, False]
    assert np.isnan(found.confidence[1:]).all()


def test_unrestricted_predictions_go_by_the_label_spaces_ids() -> None:
    own = LabelSpace("own", [LabelClass("my-dragonfly", "dragonfly", column=319)])
    thousand = load_label_space("imagenet-1k")
    columns = own.columns_in(thousand)
    logits = np.zeros((2, 1000), np.float32)
    logits[0, 319] = logits[1, 318] = 1
    gathered = Gathered(["a", "b"], ["my-dragonfly"] * 2, own, columns, thousand)
    gathered.add([0, 1], score_logits(logits, columns, [0, 0]))
    found = gathered.predictions()
    assert found.unrestricted == ["my-dragonfly", thousand.wnids[318]]
    assert found.correct_unrestricted is not None
    assert found.correct_unrestricted.tolist() == [True, False]
    assert found.correct.tolist() == [True, True]


@given(st.permutations(range(7)))
def test_the_order_in_which_scores_arrive_does_not_matter(order: list[int]) -> None:
    logits = np.random.default_rng(1).normal(size=(7, 5)).astype(np.float32)
    wnids = [SPACE.wnids[n % 3] for n in range(7)]
    gathered = Gathered([str(n) for n in range(7)], wnids, SPACE, COLUMNS, OUTPUT)
    for row in order:
        gathered.add([row], score_logits(logits[[row]], COLUMNS, [row % 3]))
    found = gathered.predictions()
    assert found.predicted == [SPACE.wnids[n] for n in logits[:, COLUMNS].argmax(axis=1)]
    assert found.unrestricted == [OUTPUT.wnids[n] for n in logits.argmax(axis=1)]


def test_written_predictions_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    logits = np.array([[0, 1, 5, 0, 0], [0, np.nan, 0, 0, 0]], np.float32)
    gathered = Gathered(["a", "b"], ["cow", "bee"], SPACE, COLUMNS, OUTPUT)
    gathered.add([0, 1], score_logits(logits, COLUMNS, [2, 1]))
    found = gathered.predictions()
    for name in ("one", "two"):
        write_predictions(tmp_path / name, found, {"model": {"name": "m"}})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    table = pq.read_table(tmp_path / "one")
    assert json.loads(table.schema.metadata[b"curate"]) == {"model": {"name": "m"}}
    sound, failed = table.to_pylist()
    assert sound["predicted_wnid"] == sound["unrestricted_wnid"] == "cow"
    assert sound["correct"] is True
    assert sound["p_true"] == sound["confidence"] == pytest.approx(0.98670329, abs=1e-8)
    assert failed == {
        "path": "b",
        "wnid": "bee",
        "predicted_wnid": None,
        "confidence": None,
        "correct": None,
        "p_true": None,
        "unrestricted_wnid": None,
        "correct_unrestricted": None,
        "failed": "nan-logits",
    }
