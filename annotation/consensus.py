"""What the answers about one candidate add up to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from annotation.answers import Answer, Decision, Question, standing
from curate.choices import Voting
from curate.errors import UnknownNameError

Status = Literal["accepted", "rejected", "disputed", "waiting"]

#: Of reasons with the same weight the first one here is the main reason: what can be seen at once
#: and needs no knowledge of the classes goes before what does.
REASON_ORDER = (
    Decision.NOT_A_PHOTO,
    Decision.NEAR_DUPLICATE,
    Decision.WRONG_LABEL,
    Decision.CLASS_VISIBLE,
    Decision.SEVERAL_CLASSES,
    Decision.UNCLEAR,
)

#: Gold items that each annotator is taken to have judged before the first one, and how many of them
#: rightly: one of whom nothing is known yet counts as right four times in five.
PRIOR_ASKED, PRIOR_RIGHT = 5, 4


@dataclass(frozen=True)
class Consensus:
    """What the answers about one candidate add up to.

    Attributes:
        candidate: its key; empty where there was no answer at all.
        status: accepted, rejected, disputed, or waiting for further answers.
        reason: of a rejection the decision with most weight; of equal ones the first in
            `REASON_ORDER`.
        corrected: id of the class to take it for instead: where the reason is wrong-label and
            all answers of that kind which name a class name this one.
        also: ids of the other classes that somebody found clearly visible, sorted.
        votes: how many standing answers count as each decision.
        adjudicated: whether an adjudicator decided.
    """

    candidate: str
    status: Status
    reason: Decision | None = None
    corrected: str | None = None
    also: tuple[str, ...] = ()
    votes: Mapping[Decision, int] = field(default_factory=dict)
    adjudicated: bool = False


def weight(right: int, asked: int) -> float:
    """How much the answer of an annotator counts: the log-odds of their smoothed gold accuracy.

        w = max(0, ln(a / (1 - a))),  a = (right + 4) / (asked + 5)

    If annotators err independently, Σ ±w is the log-odds that a candidate is valid, beginning at
    even odds (Nitzan and Paroush, International Economic Review 1982). The smoothing keeps w finite
    where all gold items are right (20 of 20: ln 24 = 3.18) and gives one who has met none a say
    (ln 4 = 1.39). At a of 1/2 or less it is 0: nobody's mistakes are read as the opposite answer.

    Args:
        right: gold items whose acceptance or rejection they got right, 0 … asked.
        asked: gold items that they answered.

    Raises:
        ValueError: out of range.
    """
    if not 0 <= right <= asked:
        raise ValueError(f"{right} of {asked} gold items right: expected 0 … {asked}")
    good, bad = right + PRIOR_RIGHT, asked - right + PRIOR_ASKED - PRIOR_RIGHT
    return max(0.0, math.log(good / bad))


def consensus(
    answers: Iterable[Answer],
    needed: int,
    voting: Voting = "unanimous",
    *,
    question: Question = "misclassified",
    claimed: str | None = None,
    weights: Mapping[str, float] | None = None,
    certainty: float = 0.5,
    adjudications: Iterable[Answer] = (),
) -> Consensus:
    """The consensus of all answers about one candidate; their order never matters.

    The newest entry of each annotator counts, once; a skip takes back what they answered before,
    and does not count. With fewer such answers than needed the candidate waits; further ones than
    needed count like the others.

    - "unanimous": accepted or rejected if all say so, otherwise disputed. Reasons may differ.
    - "majority": accepted or rejected if more than half say so, otherwise disputed.
    - "weighted": with s the sum of the weights of those who accept less that of those who reject,
      accepted if 1 / (1 + exp(-s)) is above `certainty` (the probability that it is valid, if the
      weights come from `weight`), rejected if 1 / (1 + exp(s)) is, otherwise disputed.

    Args:
        answers: about one candidate, with all their earlier entries.
        needed: answers of different annotators, at least 1.
        voting: the rule.
        question: what was asked.
        claimed: id of the weak label, if there is one.
        weights: for "weighted": annotator to a weight of 0 or more. Who is not in it weighs as
            one who has not met a gold item yet.
        certainty: for "weighted", in [0.5, 1).
        adjudications: answers given in adjudication; the newest one decides alone, whatever the
            others say and however many there are, unless it is a skip. One person may both have
            answered and adjudicate.

    Raises:
        UnknownNameError: no such rule or question.
        ValueError: answers about several candidates, an answer to another question, or an
            argument out of range.
    """
    if voting not in get_args(Voting):
        raise UnknownNameError("consensus rule", voting, get_args(Voting))
    if needed < 1:
        raise ValueError(f"{needed} answers are needed: it must be at least 1")
    if not 0.5 <= certainty < 1.0:
        raise ValueError(f"certainty is {certainty}: expected 0.5 or more, and less than 1")
    given, decided = list(answers), list(adjudications)
    said = standing(given)
    candidates = {answer.candidate for answer in (*given, *decided)}
    if len(candidates) > 1:
        raise ValueError(f"answers about several candidates: {', '.join(sorted(candidates))}")
    candidate = next(iter(candidates), "")
    votes = [(answer, answer.counts_as(question, claimed)) for answer in said]
    counted = dict(sorted(Counter(decision for _, decision in votes).items()))

    if (last := _last(decided)) is not None:
        ruling = [(last, last.counts_as(question, claimed))]
        return _result(candidate, _sign(ruling, [1.0]), ruling, [1.0], claimed, counted, True)
    if len(votes) < needed:
        return Consensus(candidate, "waiting", votes=counted)
    weighs = [1.0] * len(votes)
    if voting == "weighted":
        weighs = [_weight_of(answer.annotator, weights or {}) for answer in said]
    balance = _sign(votes, weighs)
    if voting == "unanimous" and abs(balance) < len(votes):
        balance = 0.0
    if voting == "weighted" and abs(balance) <= math.log(certainty / (1.0 - certainty)):
        balance = 0.0
    return _result(candidate, balance, votes, weighs, claimed, counted, False)


_Votes = list[tuple[Answer, Decision]]


def _last(adjudications: list[Answer]) -> Answer | None:
    # As if one person had given them all: the newest one stands, or none if that is a skip.
    last = standing(replace(answer, annotator="adjudicator") for answer in adjudications)
    return last[0] if last else None


def _weight_of(annotator: str, weights: Mapping[str, float]) -> float:
    value = weights.get(annotator, weight(0, 0))
    if not 0.0 <= value < math.inf:
        raise ValueError(f"the weight of {annotator} is {value}: expected 0 or more")
    return value


def _sign(votes: _Votes, weighs: list[float]) -> float:
    # fsum is exact: equal weights on both sides cancel, whoever they belong to.
    return math.fsum(
        weigh if decision is Decision.VALID else -weigh
        for (_, decision), weigh in zip(votes, weighs, strict=True)
    )


def _result(
    candidate: str,
    balance: float,
    votes: _Votes,
    weighs: list[float],
    claimed: str | None,
    counted: Mapping[Decision, int],
    adjudicated: bool,
) -> Consensus:
    also = tuple(sorted({wnid for answer, _ in votes for wnid in answer.others(claimed)}))
    if balance == 0.0:
        return Consensus(candidate, "disputed", also=also, votes=counted)
    if balance > 0.0:
        return Consensus(candidate, "accepted", None, None, also, counted, adjudicated)
    total = {
        reason: math.fsum(w for (_, d), w in zip(votes, weighs, strict=True) if d is reason)
        for reason in REASON_ORDER
    }
    # max takes the first of equal ones.
    reason = max((r for r in REASON_ORDER if any(d is r for _, d in votes)), key=total.__getitem__)
    corrected = {a.corrected for a, d in votes if d is Decision.WRONG_LABEL and a.corrected}
    agreed = corrected.pop() if reason is Decision.WRONG_LABEL and len(corrected) == 1 else None
    return Consensus(candidate, "rejected", reason, agreed, also, counted, adjudicated)
