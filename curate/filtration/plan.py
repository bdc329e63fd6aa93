"""From an ensemble and a label space to the plan of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import numpy as np

from curate.choices import Views
from curate.errors import UnknownNameError
from curate.filtration.cascade import Photo, Plan
from curate.filtration.rules import Misclassified
from curate.images.decode import decode_trusted
from curate.images.views import PAPER, ViewRecipe, resize_short_side
from curate.labels.space import LabelSpace
from curate.models.runtime import BATCH_SIZES
from curate.settings import ImageLimits

if TYPE_CHECKING:
    from PIL.Image import Image

    from curate.models.classifier import Classifier
    from curate.models.ensemble import Ensemble


def make_plan(
    ensemble: Ensemble,
    space: LabelSpace,
    rule: Misclassified,
    *,
    views: str = "paper",
    device: str | None = None,
    complete: bool = False,
    keep_logits: bool = False,
) -> Plan:
    """The plan of a run; refuses what cannot work before the first image.

    Args:
        ensemble: the classifiers; the first one names the confusion.
        space: the label space that every softmax and argmax runs over.
        rule: what removes a candidate.
        views: "paper" or "native".
        device: where to compute; None leaves the classifiers where they are.
        complete: score every view of every candidate.
        keep_logits: keep the full logits.

    Raises:
        LabelSpaceError: a classifier's output lacks a class of the label space.
        WeightsError: a classifier does not take such views, or gives no finite numbers.
        UnknownNameError: no such way to cut views.
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
    return Plan(
        classifiers=classifiers,
        columns=[np.asarray(of_one) for of_one in columns],
        recipes=recipes,
        order=sorted(range(len(classifiers)), key=lambda number: (costs[number], number)),
        rule=rule,
        batch_size=BATCH_SIZES[classifiers[0].device.type],
        complete=complete,
        keep_logits=keep_logits,
    )


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
