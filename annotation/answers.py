"""What one person says of one candidate.

A person is asked one of two questions. For the rule misclassified (ImageNet-A): does the photo show
its weak label's class, clearly, and no other class of the label space? For the rule outlier
(ImageNet-O): does it show none of the classes that the models know?
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal, get_args

from curate.errors import UnknownNameError

#: The rule that a candidate survived, which decides what is asked of it.
Question = Literal["misclassified", "outlier"]


class Decision(StrEnum):
    """What may be answered; `DECISIONS` says to which question.

    Valid accepts the candidate, skipped says nothing of it, and every other one rejects it.
    """

    VALID = "valid"
    WRONG_LABEL = "wrong-label"
    SEVERAL_CLASSES = "several-classes"
    CLASS_VISIBLE = "class-visible"
    UNCLEAR = "unclear"
    NOT_A_PHOTO = "not-a-photo"
    NEAR_DUPLICATE = "near-duplicate"
    SKIPPED = "skipped"


#: What may be answered to each question, in the order in which it is offered.
DECISIONS: dict[Question, tuple[Decision, ...]] = {
    "misclassified": tuple(d for d in Decision if d is not Decision.CLASS_VISIBLE),
    "outlier": tuple(
        d for d in Decision if d not in (Decision.WRONG_LABEL, Decision.SEVERAL_CLASSES)
    ),
}

#: What a valid answer means whose follow-up names classes that are visible as well.
_ALSO_VISIBLE: dict[Question, Decision] = {
    "misclassified": Decision.SEVERAL_CLASSES,
    "outlier": Decision.CLASS_VISIBLE,
}


@dataclass(frozen=True)
class Answer:
    """One entry of one person about one candidate; an edited answer is a new one of these.

    Attributes:
        candidate: its key.
        annotator: who answered, by the name of their role or account.
        decision: what was chosen. What it counts as is `counts_as`.
        made: when, in UTC without zone; a time with a zone is turned into that.
        entry: unique id of the entry; an edited answer carries that of the entry it replaces.
        reasons: further words for a rejection, from the form's own list; of a valid one, that its
            centre crop does not show it.
        corrected: id of the class that it shows instead; read only where the decision is
            wrong-label, because a form keeps what was chosen before the decision was changed.
        also: ids of the classes that are clearly visible as well, or, for class-visible, at all.
        note: free text, untrusted.
        seconds: how long it took; None where nobody measured.

    Raises:
        ValueError: no candidate, annotator or entry, no such decision, one word in place of a list,
            or seconds that are negative, NaN or infinite.
    """

    candidate: str
    annotator: str
    decision: Decision
    made: datetime
    entry: str
    reasons: tuple[str, ...] = ()
    corrected: str | None = None
    also: tuple[str, ...] = ()
    note: str = ""
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("candidate", "annotator", "entry"):
            if not getattr(self, name):
                raise ValueError(f"an answer needs {name}, which is empty")
        object.__setattr__(self, "decision", decision_named(self.decision))
        if self.made.tzinfo is not None:
            object.__setattr__(self, "made", self.made.astimezone(UTC).replace(tzinfo=None))
        if self.seconds is not None and not 0.0 <= self.seconds < math.inf:
            raise ValueError(f"an answer took {self.seconds} seconds: expected 0 or more")
        for name in ("reasons", "also"):
            if isinstance(getattr(self, name), str):
                raise ValueError(f"{name} is {getattr(self, name)!r}: expected a list of words")
            object.__setattr__(self, name, tuple(getattr(self, name)))

    def counts_as(self, question: Question, claimed: str | None = None) -> Decision:
        """The decision, but for a valid one that names other classes that are clearly visible.

        Args:
            question: what was asked.
            claimed: id of the weak label; naming it as visible says nothing new.

        Returns:
            A decision of `DECISIONS[question]`.

        Raises:
            UnknownNameError: no such question.
            ValueError: the decision is no answer to this question.
        """
        if question not in DECISIONS:
            raise UnknownNameError("question", question, get_args(Question))
        if self.decision not in DECISIONS[question]:
            raise ValueError(
                f"{self.annotator} answered {self.decision} of {self.candidate}, "
                f"which is no answer to the question of the rule {question}"
            )
        if self.decision is Decision.VALID and self.others(claimed):
            return _ALSO_VISIBLE[question]
        return self.decision

    def others(self, claimed: str | None = None) -> tuple[str, ...]:
        """Ids of the classes that are visible besides the claimed one, sorted, each once."""
        return tuple(sorted(set(self.also) - {claimed}))


def decision_named(name: str) -> Decision:
    """The decision of that name.

    Raises:
        UnknownNameError: there is none.
    """
    try:
        return Decision(name)
    except ValueError:
        raise UnknownNameError("decision", str(name), tuple(Decision)) from None


def standing(answers: Iterable[Answer]) -> list[Answer]:
    """The answers that stand: of each annotator and candidate the newest one, unless it is a skip.

    A skip takes back what its annotator answered before. Of several with the same time the one
    with the greater entry id is the newer one.

    Returns:
        Sorted by candidate and annotator, whatever order the answers come in.
    """
    newest: dict[tuple[str, str], Answer] = {}
    for answer in answers:
        key = (answer.candidate, answer.annotator)
        if key not in newest or _age(answer) > _age(newest[key]):
            newest[key] = answer
    return [newest[key] for key in sorted(newest) if newest[key].decision is not Decision.SKIPPED]


def table(
    answers: Iterable[Answer],
    question: Question = "misclassified",
    claimed: Mapping[str, str] | None = None,
) -> list[list[Decision | None]]:
    """The answers that stand, as `curate.metrics.krippendorff_alpha` and its like read them.

    Args:
        answers: about any candidates, with earlier entries.
        question: what was asked.
        claimed: candidate to the id of its weak label, as `Answer.counts_as` takes it.

    Returns:
        A row a candidate by key, a column an annotator by name, each cell what the answer counts
        as, or None. Without an answer that stands: no row.

    Raises:
        ValueError: as `Answer.counts_as`.
    """
    stand, labels = standing(answers), claimed or {}
    columns = {name: i for i, name in enumerate(sorted({answer.annotator for answer in stand}))}
    rows: dict[str, list[Decision | None]] = {}
    for answer in stand:
        row = rows.setdefault(answer.candidate, [None] * len(columns))
        decision = answer.counts_as(question, labels.get(answer.candidate))
        row[columns[answer.annotator]] = decision
    return list(rows.values())


def _age(answer: Answer) -> tuple[object, ...]:
    # What follows the entry tells two records of one entry and time apart, so that not the order
    # in which they come decides between them.
    return (
        answer.made,
        answer.entry,
        answer.decision,
        answer.corrected or "",
        answer.also,
        answer.reasons,
        answer.note,
        -1.0 if answer.seconds is None else answer.seconds,
    )
