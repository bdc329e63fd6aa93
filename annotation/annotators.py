"""How each annotator works: how much, how fast, how well, and who should be talked to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from annotation.answers import Answer, Decision, Question, standing
from curate.metrics.intervals import clopper_pearson

#: Who accepts more than this share, by the lower end of the interval, is warned of: of 44 survivors
#: among real photos that were looked at with care, 18 were genuine.
NEARLY_ALL = 0.95

#: Who takes less than this share of the others' median time is warned of,
FAR_FASTER = 1 / 3
#: where both have timed at least so many answers.
FEWEST_TIMED = 20


@dataclass(frozen=True)
class Annotator:
    """One annotator's work; shares are fractions, and None where there is nothing to count.

    Attributes:
        annotator: by the name of their role or account.
        answers: that stand, gold items included.
        skipped: candidates that they skipped last.
        accepted, judged: answers to other than gold items: those that accept, and all.
        accept_rate, accept_interval: accepted / judged, and its Clopper-Pearson interval.
        gold_right, gold_asked: gold items answered: those accepted or rejected as they should be,
            for whatever reason, and all; what `annotation.consensus.weight` takes.
        gold_accuracy, gold_interval: gold_right / gold_asked, and its Clopper-Pearson interval.
        median_seconds: of the answers that were timed.
        warnings: a sentence each.
    """

    annotator: str
    answers: int
    skipped: int
    accepted: int
    judged: int
    accept_rate: float | None
    accept_interval: tuple[float, float] | None
    gold_right: int
    gold_asked: int
    gold_accuracy: float | None
    gold_interval: tuple[float, float] | None
    median_seconds: float | None
    warnings: tuple[str, ...]


@dataclass
class _Work:
    answers: int = 0
    accepted: int = 0
    judged: int = 0
    right: int = 0
    asked: int = 0


def annotators(
    answers: Iterable[Answer],
    *,
    question: Question = "misclassified",
    gold: Mapping[str, Decision] | None = None,
    claimed: Mapping[str, str] | None = None,
    confidence: float = 0.95,
) -> list[Annotator]:
    """Each annotator's work, with a warning where they accept nearly all or hardly look.

    - Accepts nearly all: the lower end of the interval of their accept rate is above 0.95 and,
      where others judged something, above the upper end of the others' taken together. With every
      candidate accepted this takes 72 of them at the level 0.95.
    - Far faster: their median time is below a third of the median of the others' answers taken
      together, each side with at least 20 timed answers.

    Intervals take answers as independent.

    Args:
        answers: about all candidates, with earlier entries; the newest of an annotator counts.
        question: what was asked.
        gold: key of a gold item to its right decision. Other than valid means: to be rejected.
        claimed: candidate to the id of its weak label, as `Answer.counts_as` takes it.
        confidence: of all intervals.

    Returns:
        By name.

    Raises:
        ValueError: an answer to another question, or `confidence` out of range.
    """
    known, labels = gold or {}, claimed or {}
    everything = list(answers)
    touched = {(answer.annotator, answer.candidate) for answer in everything}
    work = {name: _Work() for name in sorted({name for name, _ in touched})}
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for answer in standing(everything):
        mine = work[answer.annotator]
        mine.answers += 1
        if answer.seconds is not None:
            seconds[answer.annotator].append(answer.seconds)
        valid = answer.counts_as(question, labels.get(answer.candidate)) is Decision.VALID
        if (right := known.get(answer.candidate)) is None:
            mine.judged += 1
            mine.accepted += valid
        else:
            mine.asked += 1
            mine.right += valid == (right is Decision.VALID)

    found = []
    for name, mine in work.items():
        others = [theirs for other, theirs in work.items() if other != name]
        accept_rate, accept_interval = _share(mine.accepted, mine.judged, confidence)
        gold_accuracy, gold_interval = _share(mine.right, mine.asked, confidence)
        rest = [taken for other, each in seconds.items() if other != name for taken in each]
        warnings = (*_accepts_all(mine, others, confidence), *_hurries(seconds[name], rest))
        found.append(
            Annotator(
                annotator=name,
                answers=mine.answers,
                skipped=sum(other == name for other, _ in touched) - mine.answers,
                accepted=mine.accepted,
                judged=mine.judged,
                accept_rate=accept_rate,
                accept_interval=accept_interval,
                gold_right=mine.right,
                gold_asked=mine.asked,
                gold_accuracy=gold_accuracy,
                gold_interval=gold_interval,
                median_seconds=median(seconds[name]) if seconds[name] else None,
                warnings=warnings,
            )
        )
    return found


def _share(
    k: int, n: int, confidence: float
) -> tuple[float, tuple[float, float]] | tuple[None, None]:
    return (k / n, clopper_pearson(k, n, confidence)) if n else (None, None)


def _accepts_all(mine: _Work, others: list[_Work], confidence: float) -> tuple[str, ...]:
    if not mine.judged:
        return ()
    low, _ = clopper_pearson(mine.accepted, mine.judged, confidence)
    accepted, judged = sum(w.accepted for w in others), sum(w.judged for w in others)
    high = clopper_pearson(accepted, judged, confidence)[1] if judged else 0.0
    if low <= max(NEARLY_ALL, high):
        return ()
    against = f"; the others accepted {accepted} of {judged}" if judged else ""
    return (f"accepts nearly all: {mine.accepted} of {mine.judged}{against}",)


def _hurries(mine: list[float], others: list[float]) -> tuple[str, ...]:
    if min(len(mine), len(others)) < FEWEST_TIMED:
        return ()
    fast, usual = median(mine), median(others)
    if fast >= FAR_FASTER * usual:
        return ()
    return (f"is far faster than the others: a median of {fast:.1f} s against {usual:.1f} s",)
