"""Margins: as wide as what the run's own photos show, and wider where that was too narrow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.special import logsumexp

from curate.filtration.margins import (
    EVERYTHING,
    LEAST,
    SAFETY,
    WIDER,
    is_exact,
    largest_error,
    with_margins,
)
from curate.filtration.rules import Misclassified
from curate.filtration.terms import Photo, Plan
from curate.images.views import resize_short_side, view
from curate.models.classifier import Classifier
from tests.filtration.small import TINY, Noisy, Pushes, plan_for, small_network


class Off:
    """A forward whose logits are off by what is told, a row a photo."""

    name, backend, precision = "off fp16", "torch", "fp16"

    def __init__(self, classifier: Classifier, by: np.ndarray, batch_size: int = 4) -> None:
        self.classifier, self.by, self.batch_size = classifier, by, batch_size
        self.done = 0

    def logits(self, views: np.ndarray | torch.Tensor) -> np.ndarray:
        logits = self.classifier.logits(views).numpy()
        self.done += len(views)
        return np.asarray(logits + self.by[self.done - len(views) : self.done], np.float32)

    def record(self) -> dict[str, Any]:
        return {}


@pytest.fixture(scope="module")
def photos(pictures: list[Image.Image]) -> list[Photo]:
    return [Photo({TINY: resize_short_side(picture, TINY)}) for picture in pictures]


def plan_with(forwards: Callable[[Classifier], Any], count: int = 1) -> Plan:
    plan = plan_for([small_network(n, 0.3) for n in range(count)], Misclassified())
    return replace(plan, forwards=[forwards(classifier) for classifier in plan.classifiers])


@given(
    rows=st.lists(
        st.lists(st.floats(-3, 3, width=32), min_size=8, max_size=8), min_size=1, max_size=5
    ),
    batch_size=st.integers(1, 5),
    again_size=st.integers(1, 5),
)
@settings(max_examples=40, deadline=None)
def test_the_largest_error_bounds_every_log_odds_and_some_pair_reaches_it(
    photos: list[Photo], rows: list[list[float]], batch_size: int, again_size: int
) -> None:
    by = np.asarray(rows, np.float32)
    plan = plan_with(lambda classifier: Off(classifier, by, batch_size))
    plan = replace(plan, again_size=again_size)
    some = photos[: len(by)]
    error = largest_error(plan, some, 0)
    centres = np.stack([view(photo.resized[TINY], 0, TINY.crop) for photo in some])
    exact = plan.classifiers[0].logits(centres).numpy()[:, :5].astype(np.float64)
    quick = exact + by[:, :5].astype(np.float64)

    def log_odds(z: np.ndarray, of: Sequence[int], against: Sequence[int]) -> np.ndarray:
        return np.asarray(logsumexp(z[:, of], axis=1) - logsumexp(z[:, against], axis=1))

    slack = 1e-4  # float32, in batches of several sizes
    largest = 0.0
    for size in range(1, 5):
        for of in combinations(range(5), size):
            others = [n for n in range(5) if n not in of]
            for against in (others, others[:1]):
                change = np.abs(log_odds(quick, of, against) - log_odds(exact, of, against)).max()
                assert change <= error + slack
                if size == 1 and len(against) == 1:
                    largest = max(largest, change)
    pairs = by[:, :5].max(axis=1) - by[:, :5].min(axis=1)
    assert error == pytest.approx(pairs.max(), abs=slack)


def test_classes_outside_the_label_space_have_no_part_in_it(photos: list[Photo]) -> None:
    plan = plan_with(lambda classifier: Pushes(classifier, 6, 5.0))
    assert largest_error(plan, photos, 0) < 1e-4
    assert largest_error(plan_with(lambda c: Pushes(c, 4, 5.0)), photos, 0) == pytest.approx(5.0)
    reads = [np.array([7, 2, 5])]
    for column, error in ((2, 5.0), (7, 5.0), (0, 0.0), (1, 0.0)):
        plan = replace(plan_with(lambda c, n=column: Pushes(c, n, 5.0)), columns=reads)  # type: ignore[misc]
        assert largest_error(plan, photos, 0) == pytest.approx(error, abs=1e-4)


def test_what_moves_all_logits_alike_is_no_error(photos: list[Photo]) -> None:
    by = np.full((20, 8), 7.0, np.float32)
    assert largest_error(plan_with(lambda c: Off(c, by)), photos, 0) < 1e-4


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_view_that_overflows_does_not_make_the_margin_infinite(
    photos: list[Photo], value: float
) -> None:
    by = np.zeros((20, 8), np.float32)
    by[3, 0], by[5, 1] = value, 0.25
    error = largest_error(plan_with(lambda c: Off(c, by)), photos, 0)
    assert error == pytest.approx(0.25, abs=1e-4)
    by[:, 0] = value
    assert largest_error(plan_with(lambda c: Off(c, by)), photos, 0) == np.inf
    assert with_margins(plan_with(lambda c: Off(c, by)), photos).margins == [EVERYTHING]


def test_every_photo_of_the_sample_counts(photos: list[Photo]) -> None:
    for n in (0, 7, 19):
        by = np.zeros((20, 8), np.float32)
        by[n, 2] = 0.5
        plan = plan_with(lambda c, by=by: Off(c, by, 3))  # type: ignore[misc]
        assert largest_error(plan, photos, 0) == pytest.approx(0.5, abs=1e-4)


def test_a_margin_is_wider_than_any_error_of_the_sample(photos: list[Photo]) -> None:
    plan = plan_with(lambda c: Noisy(c, 0.2), count=2)
    margins = with_margins(plan, photos).margins
    for model, margin in enumerate(margins):
        error = largest_error(plan, photos, model)
        assert 0.2 < error <= 0.4 + 1e-4
        assert margin == pytest.approx(SAFETY * error)


def test_each_widening_widens_by_the_same_factor(photos: list[Photo]) -> None:
    plan = plan_with(lambda c: Noisy(c, 0.2), count=2)
    once = with_margins(plan, photos, 1).margins
    thrice = with_margins(with_margins(plan, photos, 1), photos, 3).margins
    base = with_margins(plan, photos).margins
    np.testing.assert_allclose(once, np.asarray(base) * WIDER)
    np.testing.assert_allclose(thrice, np.asarray(base) * WIDER**3)


def test_a_sample_without_error_has_the_least_margin_and_one_without_photos_the_widest(
    photos: list[Photo],
) -> None:
    plan = plan_with(lambda c: Noisy(c, 0.0))
    assert with_margins(plan, photos).margins == [LEAST]
    assert with_margins(plan, []).margins == [EVERYTHING]
    assert with_margins(plan, photos, 2).margins == [LEAST * WIDER**2]


def test_a_classifier_itself_needs_no_margin_and_is_not_measured(photos: list[Photo]) -> None:
    exact = plan_for([small_network(n, 0.3) for n in range(3)], Misclassified())
    assert with_margins(exact, photos, 5).margins == [0, 0, 0]
    mixed = replace(
        exact, forwards=[exact.forwards[0], Noisy(exact.classifiers[1], 0.1), exact.forwards[2]]
    )
    assert [is_exact(mixed, n) for n in range(3)] == [True, False, True]
    calls: list[int] = []

    def spread(measurements: Sequence[Callable[[], float]]) -> list[float]:
        calls.append(len(measurements))
        return [measure() for measure in measurements]

    margins = with_margins(mixed, photos, 0, spread).margins
    assert calls == [1]
    assert (margins[0], margins[2]) == (0, 0)
    assert margins[1] > 0.1


def test_measurements_may_run_side_by_side_and_come_back_in_order(photos: list[Photo]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    plan = plan_for([small_network(n, 0.3) for n in range(3)], Misclassified())
    sizes = (0.1, 0.4, 0.2)
    forwards = [Noisy(c, size) for c, size in zip(plan.classifiers, sizes, strict=True)]
    plan = replace(plan, forwards=forwards)

    def side_by_side(calls: Sequence[Callable[[], float]]) -> list[float]:
        with ThreadPoolExecutor(3) as pool:
            return list(pool.map(lambda call: call(), calls))

    margins = with_margins(plan, photos, 0, side_by_side).margins
    assert margins == pytest.approx(with_margins(plan, photos).margins, abs=1e-4)
    assert [margin / SAFETY > size for margin, size in zip(margins, sizes, strict=True)] == [
        True
    ] * 3
