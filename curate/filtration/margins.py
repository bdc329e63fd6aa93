"""How far low precision and other runtimes are off, found on the run's own photos.

A score of a forward decides only where its log-odds are further from a limit than they may be off.
How far that is nobody can prove for a network, so it is measured on a sample of the run's
candidates, widened by a factor, and checked while the run works: a hundredth of the decisions, and
all survivors, are looked at by the classifier in fp32 as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from curate.filtration.crops import make_crops
from curate.models.memory import in_halves

if TYPE_CHECKING:
    from curate.filtration.terms import Photo, Plan

#: The margin is this times the largest error of the sample.
SAFETY = 2.0

#: And no less than this: a sample may happen to meet no error.
LEAST = 1e-3

#: A margin that no log-odds of a network is outside of.
EVERYTHING = 1e4

#: The margin grows by this factor each time that it has proved too narrow.
WIDER = 2.0


def with_margins(
    plan: Plan,
    photos: Sequence[Photo],
    widened: int = 0,
    spread: Callable[[Sequence[Callable[[], float]]], Sequence[float]] | None = None,
) -> Plan:
    """The plan with the margins of its forwards, as a sample of photos shows them.

    Args:
        plan: with or without margins; forwards that are the classifiers themselves need none.
        photos: the sample; their centre views are looked at twice.
        widened: how often the margins have proved too narrow.
        spread: runs the measurements, each a call, side by side; one after the other by default.
    """

    def measure(model: int) -> Callable[[], float]:
        return lambda: largest_error(plan, photos, model)

    models = [n for n, forward in enumerate(plan.forwards) if not is_exact(plan, n)]
    run = spread or (lambda calls: [call() for call in calls])
    margins = [0.0] * len(plan.forwards)
    for model, error in zip(models, run([measure(model) for model in models]), strict=True):
        # A sample that shows nothing lets low precision decide nothing.
        margin = max(LEAST, SAFETY * error) if math.isfinite(error) else EVERYTHING
        margins[model] = margin * WIDER**widened
    return replace(plan, margins=margins)


def is_exact(plan: Plan, model: int) -> bool:
    """Whether a forward is eager PyTorch in fp32, whose last bits `rules.MARGIN` covers."""
    forward = plan.forwards[model]
    return (forward.backend, forward.precision) == ("torch", "fp32")


def largest_error(plan: Plan, photos: Sequence[Photo], model: int) -> float:
    """The most that a forward changes any log-odds between two classes or sets of classes.

    With d the difference of the logits of one view by forward and by classifier, within the label
    space: no log-odds changes by more than max d - min d.

    Returns:
        Over the centre views of the photos; infinite where none has a number by both.
    """
    recipe, columns = plan.recipes[model], plan.columns[model]
    forward, classifier = plan.forwards[model], plan.classifiers[model]
    crops = make_crops([p.resized[recipe] for p in photos], recipe.crop, classifier.device)
    largest, is_known = 0.0, False
    for start in range(0, len(photos), forward.batch_size):
        items = range(len(photos))[start : start + forward.batch_size]
        runs: Any = forward
        views = crops.batch(items, [0] * len(items))
        ran = in_halves(runs.logits, views, plan.room(model, "shared"))
        quick = _array(ran)[:, columns].astype(np.float64)
        exact = np.concatenate(
            [
                _array(classifier.logits(crops.batch(some, [0] * len(some))))[:, columns]
                for some in (
                    items[n : n + plan.again_size] for n in range(0, len(items), plan.again_size)
                )
            ]
        )
        with np.errstate(invalid="ignore"):
            off = quick - exact
        # Views that overflow in low precision are looked at again anyway.
        off = off[np.isfinite(off).all(axis=1)]
        if len(off):
            is_known = True
            largest = max(largest, float((off.max(axis=1) - off.min(axis=1)).max()))
    return largest if is_known else math.inf


def _array(logits: object) -> np.ndarray:
    if isinstance(logits, np.ndarray):
        return logits
    return np.asarray(logits.float().cpu())  # type: ignore[attr-defined]
