"""Scores of views, against scipy and exact arithmetic, and the table that keeps them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import logsumexp, softmax

from curate.filtration.scores import (
    ScoreRows,
    merge_parts,
    scores_with_softmax,
    split_scores,
    table_bytes,
    view_scores,
    write_table,
)

logits = arrays(
    np.float32,
    st.tuples(st.integers(1, 6), st.integers(2, 8)),
    elements=st.floats(-40, 40, width=32),
)


def drawn_targets(z: np.ndarray, data: st.DataObject, least: int = 0) -> np.ndarray:
    one = st.integers(least, z.shape[1] - 1)
    return np.array(data.draw(st.lists(one, min_size=len(z), max_size=len(z))))


@given(logits, st.data())
def test_scores_are_the_softmax_over_exactly_these_columns(
    z: np.ndarray, data: st.DataObject
) -> None:
    targets = drawn_targets(z, data)
    got, all_of_it = scores_with_softmax(z, targets)
    p = softmax(z.astype(np.float64), axis=1)
    rows = np.arange(len(z))
    np.testing.assert_allclose(all_of_it, p, rtol=1e-12)
    np.testing.assert_allclose(got.p_true, p[rows, targets], rtol=1e-12)
    np.testing.assert_allclose(got.confidence, p.max(axis=1), rtol=1e-12)
    assert (got.predicted == z.argmax(axis=1)).all()
    others = p.copy()
    others[rows, targets] = -1
    np.testing.assert_allclose(got.gap, p[rows, targets] - others.max(axis=1), atol=1e-12)


@given(logits, st.data())
def test_log_odds_are_the_logit_against_the_log_sum_of_the_others(
    z: np.ndarray, data: st.DataObject
) -> None:
    """With all their digits, also where a probability is 1 but for its last bits."""
    targets = drawn_targets(z, data)
    got = view_scores(z, targets)
    for row, target in enumerate(targets):
        wide = z[row].astype(np.float64)
        top = int(wide.argmax())
        for column, odds in ((target, got.odds_true[row]), (top, got.odds_confidence[row])):
            others = np.delete(wide, column)
            assert odds == pytest.approx(wide[column] - logsumexp(others), rel=1e-12, abs=1e-12)
        for column, lead in ((target, got.odds_gap[row]), (top, got.odds_lead[row])):
            assert lead == pytest.approx(wide[column] - np.delete(wide, column).max(), abs=1e-12)


@given(logits, st.data())
def test_log_odds_and_probability_tell_the_same(z: np.ndarray, data: st.DataObject) -> None:
    got = view_scores(z, drawn_targets(z, data))
    np.testing.assert_allclose(1 / (1 + np.exp(-got.odds_true)), got.p_true, rtol=1e-9)
    np.testing.assert_allclose(1 / (1 + np.exp(-got.odds_confidence)), got.confidence, rtol=1e-9)
    assert (got.odds_lead >= 0).all()
    assert (
        np.sign(got.odds_gap)[np.abs(got.gap) > 1e-12] == np.sign(got.gap[np.abs(got.gap) > 1e-12])
    ).all()


def test_a_logit_gap_that_saturates_float32_still_ranks() -> None:
    got = view_scores(np.array([[20.0, 0.0, 1.0]], np.float32), np.array([0]))
    assert got.confidence[0] < 1.0


def test_log_odds_beyond_what_a_probability_can_tell_are_there() -> None:
    got = view_scores(
        np.array([[60.0, 0.0, 0.0], [2000.0, 0.0, 0.0]], np.float32), np.zeros(2, int)
    )
    assert got.confidence.tolist() == [1.0, 1.0]
    assert got.odds_confidence[0] == pytest.approx(60 - math.log(2), rel=1e-12)
    assert got.odds_confidence[1] == math.inf


def test_logits_that_are_no_numbers_are_marked_and_harm_no_neighbour() -> None:
    z = np.array([[1, 2], [np.nan, 0], [np.inf, 0], [-np.inf, 0], [3, 1]], np.float32)
    got, p = scores_with_softmax(z, np.zeros(5, int))
    assert got.finite.tolist() == [True, False, False, False, True]
    assert np.isfinite(got.p_true).all()
    assert (p[1:4] == 0).all()
    alone = view_scores(z[[0, 4]], np.zeros(2, int))
    for name in ("p_true", "confidence", "gap", "odds_true", "odds_lead"):
        assert (getattr(got, name)[[0, 4]] == getattr(alone, name)).all()


@given(logits, st.data())
def test_without_a_true_class_all_but_what_speaks_of_it_is_there(
    z: np.ndarray, data: st.DataObject
) -> None:
    targets = drawn_targets(z, data, least=-1)
    got, with_none = scores_with_softmax(z, targets)
    known, p = scores_with_softmax(z, np.where(targets < 0, 0, targets))
    none = targets < 0
    for name in ("p_true", "gap", "odds_true", "odds_gap"):
        assert np.isnan(getattr(got, name)[none]).all()
        assert (getattr(got, name)[~none] == getattr(known, name)[~none]).all()
    for name in ("predicted", "confidence", "odds_confidence", "odds_lead", "finite"):
        assert (getattr(got, name) == getattr(known, name)).all()
    assert (with_none == p).all()


def test_a_label_space_of_one_class_is_always_right() -> None:
    got = view_scores(np.array([[3.0]], np.float32), np.array([0]))
    assert (got.p_true[0], got.gap[0], got.odds_true[0], got.odds_lead[0]) == (
        1.0,
        1.0,
        math.inf,
        math.inf,
    )


def some_rows(of_mean: bool = False, keep_logits: bool = False) -> ScoreRows:
    rows = ScoreRows(keep_logits, of_mean)
    z = np.array([[1, 2], [np.nan, 0], [3, 1]], np.float32)
    rows.add(
        [1, 1, 0],
        0,
        [0, 2, 0],
        view_scores(z, np.array([0, 0, -1])),
        exact=False,
        odds=0.5,
        logits=z,
    )
    return rows


def test_rows_are_sorted_and_tell_how_far_they_may_be_off() -> None:
    rows = some_rows()
    table = rows.table(["b", "a"], ["n1", "n2"])
    assert len(table) == len(rows) == 2
    assert table["candidate"].to_pylist() == ["a", "b"]
    assert table["predicted_wnid"].to_pylist() == ["n2", "n1"]
    assert table["p_true"].to_pylist() == [pytest.approx(1 / (1 + math.e)), None]
    assert table["odds_margin"].to_pylist() == [0.5, 0.5]
    assert table["exact"].to_pylist() == [False, False]
    assert "logits" not in table.column_names
    assert "ceiling" not in table.column_names


def test_a_later_pass_replaces_what_was_there() -> None:
    rows = some_rows(keep_logits=True)
    z = np.array([[5, 1]], np.float32)
    rows.add([1], 0, [0], view_scores(z, np.array([0])), exact=True, logits=z)
    (a, _) = rows.table(["b", "a"], ["n1", "n2"]).to_pylist()
    assert (a["exact"], a["odds_margin"], a["predicted_wnid"], a["logits"]) == (
        True,
        0.0,
        "n1",
        [5.0, 1.0],
    )


def test_parts_merge_and_part_again_in_the_same_bytes(tmp_path: Path) -> None:
    keys = (["b", "a"], ["d", "c"])
    tables = [some_rows().table(list(pair), ["n1", "n2"]) for pair in keys]
    tables.insert(1, tables[0].slice(0, 0))
    paths = [tmp_path / f"{n}.parquet" for n in range(3)]
    for path, table in zip(paths, tables, strict=True):
        write_table(path, table)
        assert path.read_bytes() == table_bytes(table)
    before = [path.read_bytes() for path in paths]
    rows = merge_parts(paths, tmp_path / "all.parquet", {"curate": "{}"})
    assert rows == 4
    import pyarrow.parquet as pq

    assert pq.read_table(tmp_path / "all.parquet").equals(pa.concat_tables(tables))
    for path in paths:
        path.unlink()
    split_scores(tmp_path / "all.parquet", list(zip(paths, [2, 0, 2], strict=True)))
    assert [path.read_bytes() for path in paths] == before
