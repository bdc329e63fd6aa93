"""Small real networks, plans of them and forwards that are off, for the tests of the cascade."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from PIL import Image

from curate.filtration.cascade import ChunkResult, judge_chunk
from curate.filtration.rules import Rule
from curate.filtration.terms import Photo, Plan, Verdict
from curate.images.views import ViewRecipe, resize_short_side, window
from curate.labels.classes import LabelClass
from curate.labels.space import LabelSpace
from curate.models.classifier import Classifier, Preprocessing
from curate.models.runtime import bound_threads
from tests.filtration.plain import Member

SPACE = LabelSpace("five", tuple(LabelClass(f"c{n}", f"class {n}", column=n) for n in range(5)))
OUTPUT = LabelSpace("eight", tuple(LabelClass(f"c{n}", f"class {n}", column=n) for n in range(8)))

#: Views so small that a network sees twenty of them in a millisecond.
TINY = ViewRecipe(40, 32, "bilinear")

#: The colour that makes a `Fragile` network of that number give no number.
MARKERS = ((255, 0, 255), (0, 255, 255))


def small_network(seed: int, sharpness: float, recipe: ViewRecipe = TINY) -> Classifier:
    """A real network whose answers differ from view to view."""
    generator = torch.Generator().manual_seed(seed)
    patch = recipe.crop // 8
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, patch, stride=patch),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.AdaptiveMaxPool2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(128, 8),
    )
    with torch.no_grad():
        for parameter in module.parameters():
            # Activations do not depend on how many pixels a patch has.
            scale = 8 / patch if parameter.ndim == 4 else 0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
        module[5].weight.mul_(sharpness)
    return classifier_of(module, recipe)


def classifier_of(module: torch.nn.Module, recipe: ViewRecipe = TINY) -> Classifier:
    return Classifier(
        name="small",
        architecture="small",
        module=module,
        output=OUTPUT,
        preprocessing=Preprocessing(recipe, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25), "test"),
    )


class Fragile(torch.nn.Module):
    """A network that gives NaN for a view whose first row has its marker in its column."""

    def __init__(self, sound: torch.nn.Module, number: int) -> None:
        super().__init__()
        self.sound, self.column = sound, number
        marker = (torch.tensor(MARKERS[number]) / 255 - 0.5) / 0.25
        self.register_buffer("marker", marker)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.sound(x)
        out[(x[:, :, 0, self.column] == self.marker).all(dim=1)] = float("nan")
        return out


def marked(photo: Image.Image, views: Sequence[int], number: int) -> Image.Image:
    """A resized square of the photo that makes a fragile network fail at these views alone."""
    side, crop = TINY.resize, TINY.crop
    pixels = resize_short_side(photo, TINY)[:side, :side].copy()
    for view in views:
        top, left, mirrored = window(side, side, view, crop)
        pixels[top, left + (crop - 1 - number if mirrored else number)] = MARKERS[number]
    return Image.fromarray(pixels)


def plan_for(
    classifiers: Sequence[Classifier],
    rule: Rule,
    *,
    recipe: ViewRecipe = TINY,
    batch_size: int = 4,
    **changes: Any,
) -> Plan:
    """An exact plan whose shared batches have a size of their own."""
    return replace(
        Plan(
            classifiers=classifiers,
            columns=[np.asarray(c.columns(SPACE)) for c in classifiers],
            recipes=[recipe] * len(classifiers),
            order=range(len(classifiers)),
            rule=rule,
            forwards=[Sized(c, batch_size) for c in classifiers],
            margins=[0.0] * len(classifiers),
            again_size=batch_size,
        ),
        **changes,
    )


class Sized:
    """The classifier itself, in batches of a size of the test's."""

    name, backend, precision = "torch fp32", "torch", "fp32"

    def __init__(self, classifier: Classifier, batch_size: int) -> None:
        self.classifier, self.batch_size = classifier, batch_size

    def logits(self, views: np.ndarray | torch.Tensor) -> torch.Tensor:
        return self.classifier.logits(views)

    def record(self) -> dict[str, Any]:
        return {"backend": self.backend, "precision": self.precision}


class Noisy:
    """A forward whose logits are off by up to `size` each: at its worst for any log-odds.

    The noise is seeded by the view, so that it depends on nothing else.
    """

    name, backend = "noisy", "torch"

    def __init__(
        self, classifier: Classifier, size: float, batch_size: int = 4, precision: str = "bf16"
    ) -> None:
        self.classifier, self.size, self.batch_size = classifier, size, batch_size
        self.precision = precision
        self.seen = 0

    def logits(self, views: np.ndarray | torch.Tensor) -> np.ndarray:
        self.seen += len(views)
        logits = self.classifier.logits(views).numpy()
        pixels = np.asarray(views)
        signs = np.stack(
            [
                np.random.default_rng(int(pixels[row].astype(int).sum())).choice(
                    (-1.0, 1.0), logits.shape[1]
                )
                for row in range(len(views))
            ]
        )
        return np.asarray(logits + self.size * signs, np.float32)

    def record(self) -> dict[str, Any]:
        return {"backend": self.backend, "precision": self.precision}


class Pushes(Noisy):
    """One whose logits of one class are too high, or low, by the same for every view."""

    def __init__(self, classifier: Classifier, column: int, by: float) -> None:
        super().__init__(classifier, 0.0)
        self.column, self.by = column, by

    def logits(self, views: np.ndarray | torch.Tensor) -> np.ndarray:
        logits = super().logits(views)
        logits[:, self.column] += self.by
        return logits


class Broken(Noisy):
    """One that gives no number for the views whose pixels' sum leaves no rest."""

    def __init__(self, classifier: Classifier, every: int, value: float, batch_size: int = 4):
        super().__init__(classifier, 0.0, batch_size)
        self.every, self.value, self.broken = every, value, 0

    def logits(self, views: np.ndarray | torch.Tensor) -> np.ndarray:
        logits = super().logits(views)
        sums = np.asarray(views).astype(int).reshape(len(views), -1).sum(axis=1)
        hit = sums % self.every == 0
        logits[hit, 0] = self.value
        self.broken += int(hit.sum())
        return logits


def members_of(plan: Plan) -> list[Member]:
    return [
        Member(c.module, c.preprocessing.mean, c.preprocessing.std, columns)
        for c, columns in zip(plan.classifiers, plan.columns, strict=True)
    ]


def judged(photos: Sequence[Image.Image], targets: Sequence[int], plan: Plan) -> ChunkResult:
    chunk = [
        Photo({recipe: resize_short_side(photo, recipe) for recipe in dict.fromkeys(plan.recipes)})
        for photo in photos
    ]
    with bound_threads(1):
        return judge_chunk(chunk, targets, plan)


def place(verdict: Verdict) -> tuple[str, str | None, int | None, int | None]:
    return verdict.outcome, verdict.reason, verdict.model, verdict.view


def places(result: ChunkResult) -> list[tuple[str, str | None, int | None, int | None]]:
    return [place(verdict) for verdict in result.verdicts]


def assert_one_verdict(one: ChunkResult, other: ChunkResult) -> None:
    """Two ways to compute say the same: of survivors to the bit, of others where they left."""
    for mine, theirs in zip(one.verdicts, other.verdicts, strict=True):
        assert place(mine) == place(theirs)
        if mine.outcome == "survivor":
            assert mine == theirs
        if mine.predicted is not None and theirs.predicted is not None:
            assert mine.predicted == theirs.predicted
