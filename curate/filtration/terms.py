"""What filtration speaks of: photos, the plan of a run, verdicts, and what a chunk gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import numpy as np

from curate.filtration.rules import Rule
from curate.filtration.scores import ScoreRows
from curate.images.views import ViewRecipe
from curate.models.memory import Room

if TYPE_CHECKING:
    from curate.models.classifier import Classifier
    from curate.models.forwards import Forward

#: Where the margin in log-odds of a forward in fp32 is no wider, rounding is all that it is off by,
#: and a survivor needs no second look at every view.
NEARLY_EXACT = 0.01


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
        reason: why it was removed ("correct", "threshold", "unconfident") or failed (a key of
            errors.REASONS).
        model: position in the ensemble of the classifier that decided; None for a survivor.
        view: number of the view that decided; None for a survivor.
        predicted: position in the label space of what the first classifier predicts on the
            centre crop; None where that was not computed.
        confidence: the softmax probability of that prediction.
        p_true: the largest probability that any computed view gives the true class; None where
            there is no true class.
        borderline: whether an exact view lies within `rules.MARGIN` of a limit.

    A survivor's values are canonical; those of what is removed may be of shared batches, and vary
    in their last digits with backend and batch.
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
        classifiers: the ensemble in its order: what is exact.
        columns: for each classifier, the columns of its output that are the label space's classes.
        recipes: for each classifier, how its views are cut.
        order: positions of the classifiers, the cheapest first.
        rule: the rule.
        forwards: for each classifier, what shared batches run on; the first of them says how many
            views a batch has.
        margins: for each classifier, the most that the log-odds of its forward may be off; 0 where
            that is the classifier itself.
        again_size: views in a batch that looks again in fp32.
        exact_size: views in a batch of the canonical pass.
        share_all: try all views in shared batches before the canonical pass, which pays where
            those are cheaper than eager fp32.
        complete: compute every view of every candidate canonically.
        keep_logits: keep the full logits beside the scores.
        seed: of the decisions that are repeated.
        rooms: how many views fit the device together (see `room`).
    """

    classifiers: Sequence[Classifier]
    columns: Sequence[np.ndarray]
    recipes: Sequence[ViewRecipe]
    order: Sequence[int]
    rule: Rule
    forwards: Sequence[Forward]
    margins: Sequence[float]
    again_size: int
    exact_size: int = 1
    share_all: bool = False
    complete: bool = False
    keep_logits: bool = False
    seed: int = 0
    rooms: dict[tuple[int, str], Room] = field(default_factory=dict, compare=False)

    def room(self, model: int, kind: str) -> Room:
        """How many views of one kind of pass of one classifier fit its device together.

        Args:
            model: position of the classifier.
            kind: "shared", "again", or "exact", whose batches stay together.
        """
        ran = self.forwards[model].name if kind == "shared" else "fp32"
        least = self.exact_size if kind == "exact" else 1
        made = Room(f"{self.classifiers[model].name}, {ran}", least)
        return self.rooms.setdefault((model, kind), made)

    @property
    def confirms(self) -> bool:
        """Whether canonical scores are needed only of the views that are told of a survivor.

        So where all views that may decide have passed forwards in fp32 whose margin, which is
        twice what was measured, is `NEARLY_EXACT` at most.
        """
        fp32 = all(forward.precision == "fp32" for forward in self.forwards)
        nearly = fp32 and 0 < max(self.margins) <= NEARLY_EXACT
        every = len(self.rule.views) == 10 and not self.rule.of_mean
        return nearly and every and self.share_all and self.exact_size == 1


@dataclass
class Counts:
    """What low precision did in a chunk or a run, in views.

    Attributes:
        quick: decided by it.
        again: within its margin, and looked at again in fp32.
        repeated: decided by it and repeated in fp32 all the same.
        flips: of those repeated, decided otherwise by fp32.
    """

    quick: int = 0
    again: int = 0
    repeated: int = 0
    flips: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass
class ChunkResult:
    """The verdicts of a chunk, in its order, with their scores.

    Attributes:
        verdicts: one a candidate.
        scores: every computed view.
        forwards: how many views passed a classifier.
        counts: what low precision did.
    """

    verdicts: list[Verdict]
    scores: ScoreRows
    forwards: int
    counts: Counts
