"""Rules: what a candidate's scores say of it.

A rule judges exactly (on scores that everyone computes alike), or with a margin (on scores that
may differ in their last bits): within the margin of a limit it is unsure, and the candidate is
looked at again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from curate.errors import UnknownNameError
from curate.filtration.scores import ViewScores

#: Distance from a limit within which a score may not decide unless it is exact, and within which
#: a candidate is flagged as borderline. Eager PyTorch changes a probability by up to 3e-6 with
#: batch size and thread count.
MARGIN = 1e-3

#: What a view says.
KEEP, CORRECT, THRESHOLD, UNSURE, NO_NUMBER = 0, 1, 2, 3, 4

#: The names of what removes a candidate, as summaries count them.
REMOVED_BY = {CORRECT: "correct", THRESHOLD: "threshold"}


@dataclass(frozen=True)
class Misclassified:
    """The paper's rule for ImageNet-A.

    A view removes its image if it predicts the true class ("correct"), or else gives it more than
    `threshold` ("threshold"). Source: Hendrycks et al. 2021, section 3.1: images that either
    ResNet-50 classifies correctly or gives more than 15 % to the correct class, on any of ten
    crops, are removed.

    Attributes:
        threshold: the most probability that a view may give the true class, in [0, 1].
    """

    threshold: float = 0.15

    def judge(self, scores: ViewScores, targets: np.ndarray) -> np.ndarray:
        """KEEP, CORRECT or THRESHOLD for each view, taking every score as exact."""
        verdict = np.where(scores.p_true > self.threshold, THRESHOLD, KEEP)
        return np.where(scores.predicted == targets, CORRECT, verdict)

    def judge_with_margin(self, scores: ViewScores, margin: float = MARGIN) -> np.ndarray:
        """KEEP, CORRECT, THRESHOLD or UNSURE for each view; what it decides is exact."""
        verdict = np.where(scores.p_true > self.threshold + margin, THRESHOLD, KEEP)
        verdict = np.where(scores.gap > margin, CORRECT, verdict)
        # Near a tie the reason is not certain even where the removal is.
        return np.where(
            (np.abs(scores.gap) <= margin)
            | ((np.abs(scores.p_true - self.threshold) <= margin) & (scores.gap <= margin)),
            UNSURE,
            verdict,
        )

    def borderline(self, scores: ViewScores, margin: float = MARGIN) -> np.ndarray:
        """True for each view within `margin` of either limit."""
        near_threshold = np.abs(scores.p_true - self.threshold) <= margin
        return near_threshold | (np.abs(scores.gap) <= margin)


#: The rules by name.
RULES: dict[str, type[Misclassified]] = {"misclassified": Misclassified}


def make_rule(name: str, threshold: float) -> Misclassified:
    """The rule of a run.

    Raises:
        UnknownNameError: no such rule; the nearest name is suggested.
    """
    if name not in RULES:
        raise UnknownNameError("rule", name, RULES)
    return RULES[name](threshold)
