"""From an ensemble and a label space to the plan of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import numpy as np

from curate.choices import Views
from curate.errors import UnknownNameError
from curate.filtration.cascade import VIEWS
from curate.filtration.margins import is_exact
from curate.filtration.rules import Rule
from curate.filtration.terms import Photo, Plan
from curate.images.decode import decode_trusted
from curate.images.views import PAPER, ViewRecipe, resize_short_side
from curate.labels.space import LabelSpace
from curate.models.forwards import make_forwards
from curate.models.runtime import BATCH_SIZES

if TYPE_CHECKING:
    from PIL.Image import Image

    from curate.models.classifier import Classifier
    from curate.models.ensemble import Ensemble
    from curate.setting_groups import ImageLimits


def make_plan(
    ensemble: Ensemble,
    space: LabelSpace,
    rule: Rule,
    *,
    views: str = "paper",
    device: str | None = None,
    backend: str = "torch",
    precision: str = "fp32",
    complete: bool = False,
    keep_logits: bool = False,
    seed: int = 0,
) -> Plan:
    """The plan of a run; refuses what cannot work before the first image.

    Where its forwards are not the classifiers themselves it lacks their margins: see
    `margins.with_margins`.

    Args:
        ensemble: the classifiers; the first one names the confusion.
        space: the label space that every softmax and argmax runs over.
        rule: what removes a candidate.
        views: "paper" or "native".
        device: where to compute; None leaves the classifiers where they are.
        backend: what runs shared batches (`curate.choices.Backend`).
        precision: in which numbers (`curate.choices.Precision`).
        complete: score every view of every candidate.
        keep_logits: keep the full logits.
        seed: of what is repeated in fp32.

    Raises:
        LabelSpaceError: a classifier's output lacks a class of the label space.
        WeightsError: a classifier does not take such views, or gives no finite numbers.
        UnknownNameError: no such way to cut views, backend or precision.
        UsageError: a backend or precision that does not run here.
        MissingExtraError: the backend's package is not installed.
    """
    if views not in get_args(Views):
        raise UnknownNameError("way to cut views", views, get_args(Views))
    paper = views == "paper"
    columns = ensemble.check(space, PAPER.crop if paper else None)
    if device is not None:
        ensemble.to(device)
    classifiers = list(ensemble)
    recipes = [PAPER if paper else classifier.preprocessing.recipe for classifier in classifiers]
    costs = [forward_cost(c, recipe) for c, recipe in zip(classifiers, recipes, strict=True)]
    here = classifiers[0].device
    how = ("torch", "fp32") if complete else (backend, precision)
    plan = Plan(
        classifiers=classifiers,
        columns=[np.asarray(of_one) for of_one in columns],
        recipes=recipes,
        order=sorted(range(len(classifiers)), key=lambda number: (costs[number], number)),
        rule=rule,
        forwards=make_forwards(classifiers, *how, [recipe.crop for recipe in recipes]),
        margins=[0.0] * len(classifiers),
        again_size=BATCH_SIZES[here.type],
        # Alone a view costs a CPU what it costs in company; a GPU takes the ten in little more time
        # than one.
        exact_size=1 if here.type == "cpu" else VIEWS,
        complete=complete,
        keep_logits=keep_logits,
        seed=seed,
    )
    exact = all(is_exact(plan, model) for model in range(len(classifiers)))
    return replace(plan, share_all=here.type != "cpu" or not exact)


def forward_cost(classifier: Classifier, recipe: ViewRecipe) -> int:
    """Floating-point operations of one view, counted and not timed: the same on every machine."""
    from torch.utils.flop_counter import FlopCounterMode

    blank = np.zeros((1, recipe.crop, recipe.crop, 3), np.uint8)
    with FlopCounterMode(display=False) as counter:
        classifier.logits(blank)
    return int(counter.get_total_flops())


def prepare(data: bytes, plan: Plan, limits: ImageLimits | None = None) -> Photo:
    """Decode a stored image and resize it once for each recipe of the plan.

    Args:
        data: bytes that were accepted when the image was taken in.
        plan: what recipes there are.
        limits: those that held then.

    Raises:
        ImageRefused: the bytes do not decode.
    """
    image = decode_trusted(data, limits)
    return resized(image, plan)


def resized(image: Image, plan: Plan) -> Photo:
    """An upright photo of mode RGB, resized once for each recipe of the plan."""
    return Photo(
        {recipe: resize_short_side(image, recipe) for recipe in dict.fromkeys(plan.recipes)}
    )
