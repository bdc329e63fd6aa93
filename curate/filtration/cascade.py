"""The exact cascade: the verdicts of the plain loop, in a fraction of its forward passes.

Most candidates leave at the centre crop of the cheapest classifier. So the views are taken in the
order centre, then one corner, each by every classifier, cheapest first; a candidate
leaves at the first view that decides, and those left are regrouped into full batches. What
remains is computed canonically: fp32, the ten views of one candidate and classifier as one batch,
on one thread. Scores from batches decide only outside a margin around both limits; a candidate
within it goes to the canonical pass at once. Thus verdicts, confusions and the shortlist rest on
values that depend neither on batch size, nor on thread count, nor on what else is in the chunk.

Of several views that would remove a candidate the first one counts, in the order just told: the
shared views by classifier, then the other views of one classifier after the other. The reasons and
places in verdicts are therefore the same whether all views are computed or only those needed.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from curate.errors import ImageRefused
from curate.filtration.rules import KEEP, NO_NUMBER, REMOVED_BY, UNSURE, Misclassified
from curate.filtration.scores import ScoreRows, ViewScores, view_scores
from curate.images.views import ViewRecipe, ten_views, view
from curate.models.runtime import BATCH_SIZES

if TYPE_CHECKING:
    from curate.models.classifier import Classifier

#: The number of views of an image (five crops and those of its mirror image).
VIEWS = 10

#: The views that batches of many candidates share before the canonical pass: the centre, then one
#: corner. More of them cost survivors, which pass the canonical ten anyway, more than they save on
#: the others (benchmarks/RESULTS.md).
SHARED_VIEWS = (0, 2)


@dataclass(frozen=True)
class Photo:
    """An upright photo, resized once for each recipe of the ensemble.

    Attributes:
        resized: recipe to uint8 [H, W, 3].
    """

    resized: dict[ViewRecipe, np.ndarray]


@dataclass(frozen=True)
class Verdict:
    """What the rule says of one candidate.

    Attributes:
        outcome: "survivor", "removed" or "failed".
        reason: why it was removed ("correct", "threshold") or failed (a key of errors.REASONS).
        model: position in the ensemble of the classifier that decided; None for a survivor.
        view: number of the view that decided; None for a survivor.
        predicted: position in the label space of what the first classifier predicts on the
            centre crop; None where that was not computed.
        confidence: the softmax probability of that prediction.
        p_true: the largest probability that any computed view gives the true class.
        borderline: whether an exact view lies within `rules.MARGIN` of a limit.
    """

    outcome: str
    reason: str | None = None
    model: int | None = None
    view: int | None = None
    predicted: int | None = None
    confidence: float | None = None
    p_true: float | None = None
    borderline: bool = False


@dataclass(frozen=True)
class Plan:
    """How a run computes: everything that is the same for each of its chunks.

    Attributes:
        classifiers: the ensemble in its order.
        columns: for each classifier, the columns of its output that are the label space's classes.
        recipes: for each classifier, how its views are cut.
        order: positions of the classifiers, the cheapest first.
        rule: the rule.
        batch_size: views in one shared forward pass.
        complete: compute every view of every candidate canonically.
        keep_logits: keep the full logits beside the scores.
    """

    classifiers: Sequence[Classifier]
    columns: Sequence[np.ndarray]
    recipes: Sequence[ViewRecipe]
    order: Sequence[int]
    rule: Misclassified
    batch_size: int = BATCH_SIZES["cpu"]
    complete: bool = False
    keep_logits: bool = False


@dataclass
class ChunkResult:
    """The verdicts of a chunk, in its order, with their scores.

    Attributes:
        verdicts: one a candidate.
        scores: every computed view.
        forwards: how many views passed a classifier.
    """

    verdicts: list[Verdict]
    scores: ScoreRows
    forwards: int


def judge_chunk(
    photos: Sequence[Photo | ImageRefused], targets: Sequence[int], plan: Plan
) -> ChunkResult:
    """Judge the candidates of one chunk.

    The calling thread must be bound to one intra-op thread (`curate.models.runtime`).

    Args:
        photos: the photos, or why there is none; such a candidate has failed.
        targets: for each, the position of its weak label in the label space.
        plan: how to compute.
    """
    return _Chunk(photos, targets, plan).judge()


@dataclass
class _Chunk:
    photos: Sequence[Photo | ImageRefused]
    targets: Sequence[int]
    plan: Plan
    verdicts: list[Verdict | None] = field(init=False)
    #: prediction and confidence of the first classifier's centre crop
    centre: dict[int, tuple[int, float]] = field(default_factory=dict)
    p_true: dict[int, float] = field(default_factory=dict)
    forwards: int = 0

    def __post_init__(self) -> None:
        self.verdicts = [None] * len(self.photos)
        self.scores = ScoreRows(self.plan.keep_logits)

    def judge(self) -> ChunkResult:
        alive: list[int] = []
        for item, photo in enumerate(self.photos):
            if isinstance(photo, ImageRefused):
                self.verdicts[item] = Verdict("failed", photo.reason)
            else:
                alive.append(item)
        unsure: list[int] = []
        if not self.plan.complete:
            alive, unsure = self._shared_passes(alive)
        for item in sorted(alive + unsure):
            # One that is unsure may leave at any view, so that all of them are needed to know
            # which one comes first.
            self._canonical_pass(item, everything=self.plan.complete or item in unsure)
        assert all(verdict is not None for verdict in self.verdicts)
        return ChunkResult([v for v in self.verdicts if v], self.scores, self.forwards)

    def _shared_passes(self, alive: list[int]) -> tuple[list[int], list[int]]:
        """Remove what shared batches can decide; return who surely passes them, and who may."""
        unsure: list[int] = []
        for number in SHARED_VIEWS:
            for model in self.plan.order:
                kept: list[int] = []
                for start in range(0, len(alive), self.plan.batch_size):
                    items = alive[start : start + self.plan.batch_size]
                    scores = self._forward(model, items, [number] * len(items), exact=False)
                    said = self.plan.rule.judge_with_margin(scores)
                    for row, item in enumerate(items):
                        if not scores.finite[row]:
                            self.verdicts[item] = Verdict("failed", "nan-logits", model, number)
                        elif said[row] == KEEP:
                            kept.append(item)
                        elif said[row] == UNSURE:
                            unsure.append(item)
                        else:
                            self._remove(item, REMOVED_BY[int(said[row])], model, number)
                alive = kept
        return alive, unsure

    def _canonical_pass(self, item: int, *, everything: bool) -> None:
        """Judge one candidate on exact scores, by the first view in the cascade's order.

        Args:
            item: which one.
            everything: compute all views of all classifiers; otherwise stop after the classifier
                that decides, which is right where the shared views are known to pass.
        """
        targets = np.full(VIEWS, self.targets[item])
        self.p_true.pop(item, None)
        self.centre.pop(item, None)
        said: dict[int, np.ndarray] = {}
        borderline = False
        for model in self.plan.order:
            scores = self._forward(model, [item] * VIEWS, range(VIEWS), exact=True)
            borderline |= bool((self.plan.rule.borderline(scores) & scores.finite).any())
            judged = self.plan.rule.judge(scores, targets)
            said[model] = np.where(scores.finite, judged, NO_NUMBER)
            if said[model].any() and not everything:
                break
        for model, number in self._in_order(said):
            if verdict := int(said[model][number]):
                if verdict == NO_NUMBER:
                    self.verdicts[item] = Verdict("failed", "nan-logits", model, number)
                else:
                    reason = REMOVED_BY[verdict]
                    self._remove(item, reason, model, number, borderline=borderline)
                return
        predicted, confidence = self.centre[item]
        self.verdicts[item] = Verdict(
            "survivor", None, None, None, predicted, confidence, self.p_true[item], borderline
        )

    def _in_order(self, models: Container[int]) -> Iterator[tuple[int, int]]:
        """(classifier, view) in the order in which they decide, for the classifiers computed."""
        order = [model for model in self.plan.order if model in models]
        for number in SHARED_VIEWS:
            for model in order:
                yield model, number
        for model in order:
            for number in range(VIEWS):
                if number not in SHARED_VIEWS:
                    yield model, number

    def _remove(
        self, item: int, reason: str, model: int, number: int, *, borderline: bool = False
    ) -> None:
        predicted, confidence = self.centre.get(item, (None, None))
        self.verdicts[item] = Verdict(
            "removed", reason, model, number, predicted, confidence, self.p_true[item], borderline
        )

    def _forward(
        self, model: int, items: Sequence[int], views: Sequence[int], *, exact: bool
    ) -> ViewScores:
        recipe = self.plan.recipes[model]
        if exact:
            batch = ten_views(self._resized(items[0], recipe), recipe.crop)
        else:
            batch = np.stack(
                [
                    view(self._resized(item, recipe), number, recipe.crop)
                    for item, number in zip(items, views, strict=True)
                ]
            )
        logits = self.plan.classifiers[model].logits(batch).cpu().numpy()
        self.forwards += len(batch)
        targets = np.asarray([self.targets[item] for item in items])
        scores = view_scores(logits[:, self.plan.columns[model]], targets)
        self.scores.add(items, model, views, scores, exact=exact, logits=logits)
        for row, (item, number) in enumerate(zip(items, views, strict=True)):
            if not scores.finite[row]:
                continue
            self.p_true[item] = max(self.p_true.get(item, 0.0), float(scores.p_true[row]))
            if model == 0 and number == 0:
                self.centre[item] = (int(scores.predicted[row]), float(scores.confidence[row]))
        return scores

    def _resized(self, item: int, recipe: ViewRecipe) -> np.ndarray:
        photo = self.photos[item]
        assert isinstance(photo, Photo)
        return photo.resized[recipe]
