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
from curate.testbed.prediction_writing import write_predictions
from curate.testbed.predictions import Gathered, Predictions, score_logits

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


@pytest.mark.parametrize("keep", [False, True])
def test_what_float32_does_not_hold_fails_whether_logits_are_kept_or_not(keep: bool) -> None:
    logits = np.zeros((3, 5))
    logits[1, 2], logits[2, 0] = -1e39, 3e38
    found = score_logits(logits, [0, 1], [0, 0, 1], keep_logits=keep)
    assert found.finite.tolist() == [True, False, True]
    whole = score_logits(np.array([[2**40, 0]]), [0, 1], [0], keep_logits=keep)
    assert whole.finite.all()
    assert whole.confidence.tolist() == [1.0]


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
    told = {"path": "b", "wnid": "bee", "failed": "nan-logits"}
    assert failed == dict.fromkeys(failed) | told
    assert (sound["rank"], sound["rank_unrestricted"]) == (0, 0)
    assert sound["anomaly_msp"] == -sound["confidence"]
    assert sound["anomaly_unrestricted_max_logit"] == -5


@given(
    arrays(np.float32, (6, 5), elements=st.sampled_from([-1, 0, 0.5, 2])),
    st.lists(st.integers(0, 2), min_size=6, max_size=6),
)
def test_a_rank_counts_what_stands_before_the_true_class(
    logits: np.ndarray, targets: list[int]
) -> None:
    scores = score_logits(logits, COLUMNS, targets)
    for row, target in enumerate(targets):
        for part, true, rank in (
            (logits[row, COLUMNS], target, scores.rank[row]),
            (logits[row], COLUMNS[target], scores.rank_unrestricted[row]),
        ):
            assert np.argsort(-part, kind="stable").tolist().index(true) == rank
    np.testing.assert_array_equal(scores.rank == 0, scores.predicted == targets)


def test_logits_are_kept_where_they_are_asked_for() -> None:
    logits = np.array([[0, 1, 5, 0, 7], [0, np.nan, 0, 0, 0]], np.float32)
    for keep in (False, True):
        gathered = Gathered(["a", "b"], ["cow", "bee"], SPACE, COLUMNS, OUTPUT, keep_logits=keep)
        gathered.add([1, 0], score_logits(logits[::-1], COLUMNS, [1, 2], keep_logits=keep))
        found = gathered.predictions().logits
        if found is None:
            assert not keep
        else:
            assert found.dtype == np.float32
            np.testing.assert_array_equal(found, [[7, 0, 5], [np.nan] * 3])


def test_images_of_something_else_have_scores_and_no_rank() -> None:
    logits = np.array([[0, 1, 5, 0, 0]], np.float32)
    gathered = Gathered(["a"], ["cow"], SPACE, COLUMNS, OUTPUT, truth=False)
    gathered.add([0], score_logits(logits, COLUMNS, None))
    found = gathered.predictions()
    assert found.p_true is found.rank is found.rank_unrestricted is None
    assert found.anomaly["msp"][0] == -found.confidence[0]
    assert found.anomaly_unrestricted["msp"][0] > found.anomaly["msp"][0]


def test_some_images_alone_are_those_of_the_whole() -> None:
    logits = np.random.RandomState(1).randn(5, 5).astype(np.float32)
    logits[3] = np.nan
    wnids = [SPACE.wnids[row % 3] for row in range(5)]

    def found(rows: list[int]) -> Predictions:
        gathered = Gathered(
            [str(row) for row in rows],
            [wnids[row] for row in rows],
            SPACE,
            COLUMNS,
            OUTPUT,
            keep_logits=True,
        )
        scores = score_logits(logits[rows], COLUMNS, [row % 3 for row in rows], keep_logits=True)
        gathered.add(range(len(rows)), scores)
        return gathered.predictions()

    part, alone = found([0, 1, 2, 3, 4]).take([4, 3, 1]), found([4, 3, 1])
    for name in ("paths", "wnids", "predicted", "unrestricted", "failed", "outputs"):
        assert getattr(part, name) == getattr(alone, name)
    for name in ("confidence", "p_true", "rank", "rank_unrestricted", "logits"):
        np.testing.assert_array_equal(getattr(part, name), getattr(alone, name))
    for name in part.anomaly:
        np.testing.assert_array_equal(part.anomaly[name], alone.anomaly[name])
