"""What an annotation of Label Studio says, or why it says nothing that can be used.

Label Studio checks nothing that is sent to it, and a page may have been edited by hand. Nothing is
guessed: what is not understood is set aside with its number.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from annotation.answers import DECISIONS, Decision, Question
from annotation.interface import ALSO_AFTER, NONE, OUTSIDE, REASONS, Purpose
from annotation.interface_taxonomy import groups
from curate.labels.space import LabelSpace

#: Longest note; what is longer is cut.
LONGEST_NOTE = 10_000

# A page makes at most seven items. More seconds than these (four months) nobody spends on a photo;
# more classes or reasons than these no page offers with keys.
_MOST_ITEMS, _MOST_CHOSEN = 50, 50
_MOST_SECONDS = 1e7
_LARGEST_NUMBER = 2**63 - 1

# Signs that keep a note from being stored, or change how what follows it is shown.
_DROPPED = ("Cc", "Cs", "Cn")
_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

# The controls of each page and the type that each one's results have.
_REVIEW = {
    "decision": "choices",
    "reasons": "choices",
    "also": "choices",
    "centre": "choices",
    "corrected": "taxonomy",
    "other": "taxonomy",
    "note": "textarea",
}
_ONLY: dict[str, Question] = {"corrected": "misclassified", "other": "outlier"}
_BLIND = {"picked": "taxonomy", "unknown": "choices", "note": "textarea"}


@dataclass(frozen=True)
class Parsed:
    """What an annotation says.

    Attributes:
        number: the annotation's id in Label Studio.
        account_id: who made it, by the id of their account there.
        decision: skipped where the task was skipped; None for a blind answer.
        reasons: keys of `annotation.interface.REASONS`; of a valid one `OUTSIDE` at most.
        corrected: id of the class that it shows instead, after wrong-label alone; None where
            nobody says, or names a whole group.
        also: ids of the classes that are clearly visible, sorted, where the page asks for them.
        note: free text, untrusted, at most `LONGEST_NOTE`.
        seconds: how long it took; None where Label Studio does not say.
        made: when it was made or last changed, in UTC without zone.
        picked: id of the class that a blind answer names; None for "none of these".
        unique_id: what Label Studio knows it by besides; None where it has none.
    """

    number: int
    account_id: int
    decision: Decision | None
    reasons: tuple[str, ...]
    corrected: str | None
    also: tuple[str, ...]
    note: str
    seconds: float | None
    made: datetime
    picked: str | None = None
    unique_id: str | None = None


@dataclass(frozen=True)
class Unusable:
    """An annotation to set aside.

    Attributes:
        number: its id in Label Studio; None where even that is missing.
        why: a few words, without anything that the annotation holds.
        made: when it was made or last changed, in UTC without zone; None where it does not say.
    """

    number: int | None
    why: str
    made: datetime | None = None


class _Fault(Exception):
    """Why an annotation is unusable."""


def read_annotation(
    annotation: Mapping[str, Any], *, question: Question, space: LabelSpace, purpose: Purpose
) -> Parsed | Unusable:
    """What one annotation says.

    What the page hides under the decision that was taken (classes that were named before the
    decision was changed) counts for nothing.

    Args:
        annotation: as Label Studio gives it, in whatever form it comes.
        question: what was asked.
        space: the classes that may be named.
        purpose: which page was answered.

    Returns:
        The answer, or why there is none. An answer that was not given as the page asks for it is
        unusable as a whole: a valid one without its follow-up (but on an adjudicator's page, which
        asks for none), "none of these" beside some of these, a group of classes as visible.
    """
    number = None
    try:
        if not isinstance(annotation, Mapping):
            raise _Fault("it is no object")
        number = _whole(annotation.get("id"), "its id")
        return _parsed(annotation, number, question, space, purpose)
    except _Fault as fault:
        made = None
        if isinstance(annotation, Mapping):
            with suppress(_Fault):
                made = _made(annotation)
        return Unusable(number, str(fault), made)


def _parsed(
    annotation: Mapping[str, Any],
    number: int,
    question: Question,
    space: LabelSpace,
    purpose: Purpose,
) -> Parsed:
    who = annotation.get("completed_by")
    account = _whole(who.get("id") if isinstance(who, Mapping) else who, "who made it")
    unique = annotation.get("unique_id")
    if unique is not None and not (isinstance(unique, str) and 0 < len(unique) <= 64):
        raise _Fault("its unique_id is no short text")
    seconds, made = _seconds(annotation.get("lead_time")), _made(annotation)
    cancelled = annotation.get("was_cancelled")
    if not isinstance(cancelled, bool | None):
        raise _Fault("its was_cancelled is neither true nor false")
    if cancelled:
        return Parsed(
            number, account, Decision.SKIPPED, (), None, (), "", seconds, made, None, unique
        )
    said = _results(annotation.get("result"), question, purpose)
    note = said.get("note", "")
    if purpose == "blind":
        picked = _picked(said, space)
        return Parsed(number, account, None, (), None, (), note, seconds, made, picked, unique)
    decision, reasons, corrected, also = _decided(said, question, space, purpose)
    return Parsed(
        number, account, decision, reasons, corrected, also, note, seconds, made, None, unique
    )


def _results(results: Any, question: Question, purpose: Purpose) -> dict[str, Any]:
    """What each control says, by its name: lists of texts, and the note's text."""
    if not isinstance(results, list) or len(results) > _MOST_ITEMS:
        raise _Fault("its result is no short list")
    controls = _BLIND if purpose == "blind" else _REVIEW
    found: dict[str, Any] = {}
    for item in results:
        if not isinstance(item, Mapping):
            raise _Fault("an item of its result is no object")
        name, value = item.get("from_name"), item.get("value")
        if not isinstance(name, str) or _ONLY.get(name, question) != question:
            name = ""
        if (kind := controls.get(name)) is None:
            raise _Fault("it answers what the page does not ask")
        if item.get("type") != kind or not isinstance(value, Mapping):
            raise _Fault(f"its {name} has another form")
        if name in found:
            raise _Fault(f"it has two items for {name}")
        read = _note if kind == "textarea" else _chosen if kind == "choices" else _leaves
        found[name] = read(value.get("text" if kind == "textarea" else kind), name)
    return found


def _decided(
    said: Mapping[str, Any], question: Question, space: LabelSpace, purpose: Purpose
) -> tuple[Decision, tuple[str, ...], str | None, tuple[str, ...]]:
    decisions = said.get("decision", [])
    if len(decisions) != 1:
        raise _Fault("it has two decisions" if decisions else "it has no decision")
    offered = [d for d in DECISIONS[question] if d is not Decision.SKIPPED]
    if decisions[0] not in offered:
        raise _Fault("its decision is none of the page's")
    decision = Decision(decisions[0])
    if any(reason not in REASONS for reason in said.get("reasons", [])):
        raise _Fault("a reason is none of the page's")
    if said.get("centre", []) not in ([], [OUTSIDE]):
        raise _Fault("it says of the centre crop what the page does not offer")
    # The keyboard reaches groups as well; that it is something of a group says enough to reject.
    keys = {group.key for group in groups(space)}
    corrected = _classes([one for one in said.get("corrected", []) if one not in keys], space)
    if len(corrected) > 1:
        raise _Fault("it has two corrected classes")
    listed = said.get("also", [])
    also = _classes([one for one in listed if one != NONE], space)
    if NONE in listed and also:
        raise _Fault("it names classes, and none of them")
    if purpose == "review" and decision in ALSO_AFTER[question] and not listed:
        raise _Fault("its follow-up is not answered")
    also += _classes(said.get("other", []), space)
    asked = purpose == "adjudication" or decision in ALSO_AFTER[question]
    reasons = said.get("reasons", [])
    if decision is Decision.VALID:
        # The reasons are hidden then, but not from an adjudicator.
        visible = reasons if purpose == "adjudication" else said.get("centre", [])
        reasons = [OUTSIDE] if OUTSIDE in visible else []
    return (
        decision,
        tuple(reasons),
        corrected[0] if corrected and decision is Decision.WRONG_LABEL else None,
        tuple(sorted(set(also))) if asked else (),
    )


def _picked(said: Mapping[str, Any], space: LabelSpace) -> str | None:
    unknown, picked = said.get("unknown", []), _classes(said.get("picked", []), space)
    if unknown not in ([], [NONE]):
        raise _Fault("it picks what the page does not offer")
    # The page hides the list once nothing of it is there.
    if unknown:
        return None
    if len(picked) != 1:
        raise _Fault("it picks two classes" if picked else "it picks no class")
    return picked[0]


def _classes(wnids: list[str], space: LabelSpace) -> list[str]:
    for wnid in wnids:
        if wnid not in space:
            group = any(wnid == group.key for group in groups(space))
            raise _Fault("it names a group, no class" if group else "it names an unknown class")
    return wnids


def _chosen(values: Any, name: str) -> list[str]:
    if not isinstance(values, list) or len(values) > _MOST_CHOSEN:
        raise _Fault(f"its {name} is no short list")
    if not all(isinstance(value, str) for value in values):
        raise _Fault(f"its {name} holds something that is no text")
    return list(dict.fromkeys(values))


def _leaves(paths: Any, name: str) -> list[str]:
    """The last step of each path."""
    if not isinstance(paths, list) or not all(isinstance(path, list) and path for path in paths):
        raise _Fault(f"its {name} is no list of paths")
    return _chosen([path[-1] for path in paths], name)


def _note(texts: Any, name: str) -> str:
    if isinstance(texts, str):
        texts = [texts]
    lines = _chosen(texts, name)
    # Cut first: what is dropped below is little, but what is sent may be large.
    text = "\n".join(line[: 2 * LONGEST_NOTE] for line in lines)[: 2 * LONGEST_NOTE]
    kept = (sign for sign in text.replace("\r\n", "\n") if sign == "\n" or _plain(sign))
    return "".join(kept).strip()[:LONGEST_NOTE]


def _plain(sign: str) -> bool:
    return sign not in _BIDI and unicodedata.category(sign) not in _DROPPED


def _whole(value: Any, what: str) -> int:
    if type(value) is not int or not 0 < value <= _LARGEST_NUMBER:
        raise _Fault(f"{what} is no number")
    return value


def _seconds(value: Any) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value <= _MOST_SECONDS:
        raise _Fault("its lead_time is no time that somebody takes")
    return float(value)


def _made(annotation: Mapping[str, Any]) -> datetime:
    told = annotation.get("updated_at") or annotation.get("created_at")
    try:
        made = datetime.fromisoformat(told) if isinstance(told, str) and len(told) < 64 else None
        if made is not None and made.tzinfo is not None:
            return made.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        pass
    raise _Fault("it does not say when it was made")
