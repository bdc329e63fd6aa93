"""The plain loop: ten views of every classifier, with nothing of the project's own arithmetic.

It decodes with Pillow, cuts with torchvision's Resize and TenCrop, normalises with ToTensor's
division and Normalize, and takes the softmax with scipy. It is the oracle of the cascade.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from scipy.special import softmax
from torchvision import transforms

#: From TenCrop's order (corners, then the centre) to ours (the centre first).
CENTRE_FIRST = [4, 0, 1, 2, 3, 9, 5, 6, 7, 8]

#: The views that every classifier sees before the others.
FIRST = (0, 2)

#: Outcome, reason, classifier and view.
Place = tuple[str, str | None, int | None, int | None]

SURVIVOR: Place = ("survivor", None, None, None)


@dataclass(frozen=True)
class Member:
    """A network and what the loop must know of it."""

    module: Callable[[torch.Tensor], torch.Tensor]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    columns: np.ndarray


@dataclass(frozen=True)
class Said:
    """What the loop says of one photo: all scores and the verdict."""

    p: np.ndarray  # [models, 10, classes]
    survives: bool
    reason: str | None
    predicted: int
    confidence: float
    p_true: float | None


def plain_scores(
    photos: Sequence[Image.Image], members: Sequence[Member], resize: int = 256, crop: int = 224
) -> list[np.ndarray]:
    """For each photo the softmax [models, 10, classes]; NaN for a view that gives no number."""
    cut = transforms.Compose([transforms.Resize(resize), transforms.TenCrop(crop)])
    found = []
    with torch.inference_mode():
        for photo in photos:
            crops = cut(photo)
            views = [transforms.functional.to_tensor(crops[n]) for n in CENTRE_FIRST]
            of_each = []
            for member in members:
                batch = [transforms.functional.normalize(v, member.mean, member.std) for v in views]
                logits = member.module(torch.stack(batch)).numpy()[:, member.columns]
                of_each.append(softmax(logits.astype(np.float64), axis=1))
            found.append(np.stack(of_each))
    return found


def plain_loop(
    photos: Sequence[Image.Image],
    targets: Sequence[int],
    members: Sequence[Member],
    threshold: float,
    resize: int = 256,
    crop: int = 224,
) -> list[Said]:
    """The rule misclassified."""
    said = []
    for p, target in zip(plain_scores(photos, members, resize, crop), targets, strict=True):
        right = (p.argmax(axis=2) == target).any()
        over = (p[:, :, target] > threshold).any()
        said.append(
            Said(
                p,
                not (right or over),
                "correct" if right else "threshold" if over else None,
                int(p[0, 0].argmax()),
                float(p[0, 0].max()),
                float(p[:, :, target].max()),
            )
        )
    return said


def plain_outlier(
    photos: Sequence[Image.Image],
    members: Sequence[Member],
    confidence: str,
    least: float,
    resize: int = 256,
    crop: int = 224,
) -> list[Said]:
    """The rule outlier: every classifier is confident, on the centre or in the mean of the ten."""
    said = []
    for p in plain_scores(photos, members, resize, crop):
        sure = p[:, 0].max(axis=1) if confidence == "centre" else p.mean(axis=1).max(axis=1)
        survives = bool((sure >= least).all()) and not np.isnan(p).any()
        reason = None if survives else "unconfident"
        said.append(Said(p, survives, reason, int(p[0, 0].argmax()), float(p[0, 0].max()), None))
    return said


def in_order(models: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(classifier, view) in the order in which the cascade lets them decide."""
    for view in FIRST:
        for model in models:
            yield model, view
    for model in models:
        for view in range(10):
            if view not in FIRST:
                yield model, view


def first_decision(p: np.ndarray, target: int, threshold: float, models: Sequence[int]) -> Place:
    """Where the scores of one photo first remove it by the rule misclassified, or fail it."""
    for model, view in in_order(models):
        here = p[model, view]
        if np.isnan(here).any():
            return "failed", "nan-logits", model, view
        if here.argmax() == target:
            return "removed", "correct", model, view
        if here[target] > threshold:
            return "removed", "threshold", model, view
    return SURVIVOR


def first_unconfident(p: np.ndarray, confidence: str, least: float, models: Sequence[int]) -> Place:
    """Where the scores of one photo first remove it by the rule outlier, or fail it.

    A mean removes at the view after which no class can reach the least, whatever follows.
    """
    for model, view in in_order(models):
        if np.isnan(p[model, view]).any():
            return "failed", "nan-logits", model, view
        if confidence == "centre":
            removed = view == 0 and p[model, 0].max() < least
        else:
            removed = best_mean(p[model], view) < least
        if removed:
            return "removed", "unconfident", model, view
    return SURVIVOR


def best_mean(p: np.ndarray, view: int) -> float:
    """The largest mean that a class can reach with all views after this one at 1.

    Args:
        p: [10, classes] of one classifier.
        view: in the order of the views, centre, top-right corner, then the others.
    """
    order = [*FIRST, *(n for n in range(10) if n not in FIRST)]
    seen = order[: order.index(view) + 1]
    possible = p.copy()
    possible[[n for n in range(10) if n not in seen]] = 1.0
    return float(possible.mean(axis=0).max())


def near_a_limit(said: Said, target: int, threshold: float, margin: float = 1e-3) -> bool:
    """Whether any view lies so close to a limit that the last bits may decide."""
    others = said.p.copy()
    others[:, :, target] = -1
    gap = said.p[:, :, target] - others.max(axis=2)
    near = np.abs(said.p[:, :, target] - threshold) <= margin
    return bool((near | (np.abs(gap) <= margin)).any())


def near_the_least(p: np.ndarray, confidence: str, least: float, margin: float = 1e-6) -> bool:
    """Whether any view is so close to the least confidence that the last bits may decide."""
    if confidence == "centre":
        return bool((np.abs(p[:, 0].max(axis=1) - least) <= margin).any())
    reached = [best_mean(of_one, view) for of_one in p for view in range(10)]
    return bool((np.abs(np.asarray(reached) - least) <= margin).any())
