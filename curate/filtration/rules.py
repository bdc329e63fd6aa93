"""Rules: what a candidate's scores say of it.

A rule judges exactly (on scores that everyone computes alike), or with a margin (on scores that
may differ: in their last bits, or by what low precision costs). Within the margin of a limit it is
unsure, and the view or the candidate is looked at again. The margin of low precision is one in
log-odds: what rounding does to a logit changes a probability near 1/2 much and one near 0 or 1
hardly at all.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Protocol, get_args

import numpy as np

from curate.choices import ConfidenceOf
from curate.errors import UnknownNameError
from curate.filtration.scores import ViewScores

#: Distance from a limit within which a score may not decide unless it is exact, and within which
#: a candidate is flagged as borderline. Eager PyTorch changes a probability by up to 3e-6 with
#: batch size and thread count.
MARGIN = 1e-3

#: What a view says.
KEEP, CORRECT, THRESHOLD, UNSURE, NO_NUMBER, UNCONFIDENT = 0, 1, 2, 3, 4, 5

#: The names of what removes a candidate, as summaries count them.
REMOVED_BY = {CORRECT: "correct", THRESHOLD: "threshold", UNCONFIDENT: "unconfident"}

_ALL_VIEWS = tuple(range(10))

#: How far log-odds may be off: one number for all views, or one each.
Odds = float | np.ndarray


class Rule(Protocol):
    """What every rule is; one that judges the mean of ten views needs the scores' `ceiling`."""

    @property
    def name(self) -> str:
        """As `curate filter --rule` takes it."""

    @property
    def views(self) -> tuple[int, ...]:
        """The views that may decide."""

    @property
    def of_mean(self) -> bool:
        """Whether the mean of the ten views is judged."""

    def judge(self, scores: ViewScores, targets: np.ndarray) -> np.ndarray:
        """What each view says, taking every score as exact; never UNSURE."""

    def judge_with_margin(self, scores: ViewScores, odds: Odds = 0.0) -> np.ndarray:
        """What each view says, or UNSURE; what it decides is what exact scores would decide.

        Args:
            scores: of B views.
            odds: the most that a log-odds may be off, besides `MARGIN` in a probability; one for
                all views, or [B].
        """

    def borderline(self, scores: ViewScores, odds: float = 0.0) -> np.ndarray:
        """True for each view that is, or where log-odds may be off by `odds` could be, within
        `MARGIN` of a limit."""

    def record(self) -> dict[str, Any]:
        """What decides, as plain JSON values."""


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
    name = "misclassified"
    views = _ALL_VIEWS
    of_mean = False

    def judge(self, scores: ViewScores, targets: np.ndarray) -> np.ndarray:
        """KEEP, CORRECT or THRESHOLD for each view, taking every score as exact."""
        verdict = np.where(scores.p_true > self.threshold, THRESHOLD, KEEP)
        return np.where(scores.predicted == targets, CORRECT, verdict)

    def judge_with_margin(self, scores: ViewScores, odds: Odds = 0.0) -> np.ndarray:
        """KEEP, CORRECT, THRESHOLD or UNSURE for each view; what it decides is exact."""
        tie = (np.abs(scores.gap) <= MARGIN) | (np.abs(scores.odds_gap) <= odds)
        limit = _near(scores.p_true, scores.odds_true, self.threshold, odds)
        right = scores.gap > 0
        verdict = np.where(right, CORRECT, np.where(scores.p_true > self.threshold, THRESHOLD, 0))
        # Near a tie the reason is not certain even where the removal is.
        return np.where(tie | (limit & ~right), UNSURE, verdict)

    def borderline(self, scores: ViewScores, odds: float = 0.0) -> np.ndarray:
        """See `Rule.borderline`."""
        # A log-odds that is off by d moves its probability by d/4 at most, and a gap of two
        # probabilities by twice that.
        near_threshold = np.abs(scores.p_true - self.threshold) <= MARGIN + odds / 4
        return near_threshold | (np.abs(scores.gap) <= MARGIN + odds / 2)

    def record(self) -> dict[str, Any]:
        """What decides, as plain JSON values."""
        return {"rule": self.name, **asdict(self)}


@dataclass(frozen=True)
class Outlier:
    """The paper's rule for ImageNet-O: kept where every model is confident within the label space.

    The candidate shows no class that any model was trained on, so a confident prediction is a
    mistake. It is removed ("unconfident") where a model's maximum softmax probability is below
    `min_confidence`. Source: Hendrycks et al. 2021, section 3.1 ("high-confidence predictions";
    the paper gives no number, 0.9 is ours).

    Attributes:
        confidence: "centre": of the centre crop; "mean": of the mean softmax of the ten crops.
        min_confidence: in [0, 1].
    """

    confidence: ConfidenceOf = "centre"
    min_confidence: float = 0.9
    name = "outlier"

    @property
    def views(self) -> tuple[int, ...]:
        """The views that may decide."""
        return _ALL_VIEWS if self.of_mean else (0,)

    @property
    def of_mean(self) -> bool:
        """Whether the mean of the ten views is judged."""
        return self.confidence == "mean"

    def judge(self, scores: ViewScores, targets: np.ndarray) -> np.ndarray:
        """KEEP or UNCONFIDENT for each view, taking every score as exact."""
        return np.where(self._confidence(scores) < self.min_confidence, UNCONFIDENT, KEEP)

    def judge_with_margin(self, scores: ViewScores, odds: Odds = 0.0) -> np.ndarray:
        """KEEP, UNCONFIDENT or UNSURE for each view; what it decides is exact."""
        confidence = self._confidence(scores)
        if self.of_mean:
            # A log-odds that is off by d moves its probability by d/4 at most, and each view that
            # the ceiling knows moves it by a tenth of that.
            share = 1.0 if scores.seen is None else scores.seen / len(_ALL_VIEWS)
            off = np.maximum(MARGIN, np.asarray(odds) / 4) * share
            near = np.abs(confidence - self.min_confidence) <= off
        else:
            near = _near(confidence, scores.odds_confidence, self.min_confidence, odds)
        return np.where(near, UNSURE, np.where(confidence < self.min_confidence, UNCONFIDENT, KEEP))

    def borderline(self, scores: ViewScores, odds: float = 0.0) -> np.ndarray:
        """See `Rule.borderline`."""
        off = np.abs(self._confidence(scores) - self.min_confidence)
        return np.asarray(off <= MARGIN + odds / 4)

    def record(self) -> dict[str, Any]:
        """What decides, as plain JSON values."""
        return {"rule": self.name, **asdict(self)}

    def _confidence(self, scores: ViewScores) -> np.ndarray:
        if not self.of_mean:
            return scores.confidence
        assert scores.ceiling is not None
        return scores.ceiling


def _near(p: np.ndarray, log_odds: np.ndarray, limit: float, odds: Odds) -> np.ndarray:
    """Where a probability is so close to a limit that it may lie on the other side."""
    near = np.abs(p - limit) <= MARGIN
    if 0 < limit < 1:
        near |= np.abs(log_odds - math.log(limit / (1 - limit))) <= odds
    return np.asarray(near)


#: The rules by name.
RULES: tuple[str, ...] = (Misclassified.name, Outlier.name)


def make_rule(
    name: str,
    threshold: float = 0.15,
    confidence: ConfidenceOf = "centre",
    min_confidence: float = 0.9,
) -> Rule:
    """The rule of a run.

    Args:
        name: one of `RULES`.
        threshold: of the rule misclassified.
        confidence: of the rule outlier.
        min_confidence: of the rule outlier.

    Raises:
        UnknownNameError: no such rule, or way to take the confidence; the nearest is suggested.
    """
    if name == Misclassified.name:
        return Misclassified(threshold)
    if name != Outlier.name:
        raise UnknownNameError("rule", name, RULES)
    if confidence not in get_args(ConfidenceOf):
        raise UnknownNameError("confidence", confidence, get_args(ConfidenceOf))
    return Outlier(confidence, min_confidence)
