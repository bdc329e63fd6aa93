"""How often people name the class of accepted photos whose label they are not told.

Computed anew from all blind answers each time, like everything that answers add up to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import RowMapping

from curate.catalog import answers as kept
from curate.catalog import blind
from pipelines.review_outcomes import GONE, TAKEN_BACK, Reviewed, accepted, reviewed
from pipelines.workspace import OUTLIER, Workspace

#: Of the intervals, as elsewhere of what people say.
CONFIDENCE = 0.95

#: Confusions that are told, the most frequent ones.
_MOST = 50


@dataclass
class _Group:
    """The answers about accepted photos, or about controls."""

    unanswered: int = 0
    correct: int = 0
    wrong: int = 0
    cannot_tell: int = 0
    skipped: int = 0
    confusions: Counter[tuple[str, str | None]] = field(default_factory=Counter)

    def add(self, wnid: str, right: str | None, answer: RowMapping) -> None:
        """Count an answer about a photo with this label."""
        if answer["event"] in TAKEN_BACK:
            self.skipped += 1
        elif answer["picked"] == right:
            self.correct += 1
        else:
            self.confusions[wnid, answer["picked"]] += 1
            if answer["picked"] is None:
                self.cannot_tell += 1
            else:
                self.wrong += 1

    def told(self) -> dict[str, Any]:
        """What the summary says of them."""
        from curate.metrics.intervals import clopper_pearson

        answered = self.correct + self.wrong + self.cannot_tell + self.skipped
        low, high = None, None
        if answered:
            low, high = clopper_pearson(self.correct, answered, CONFIDENCE)
        return {
            "answered": answered,
            "unanswered": self.unanswered,
            "correct": self.correct,
            "wrong": self.wrong,
            "cannot_tell": self.cannot_tell,
            "skipped": self.skipped,
            "value": self.correct / answered if answered else None,
            "low": low,
            "high": high,
        }


def blind_accuracy(
    workspace: Workspace, run_id: str | None = None, found: Reviewed | None = None
) -> dict[str, Any] | None:
    """How often people are right about photos whose label they are not told.

    A photo that its viewer cannot name, or skips, counts as wrong: nobody who leaves out what is
    difficult is better for it. Somebody's newest answer about a photo counts. What was answered by
    somebody who had been told the label before is left out.

    Args:
        workspace: the workspace.
        run_id: count the accepted photos of this run alone; else all that are accepted.
        found: what `reviewed` gives for the same run, where it is at hand.

    Returns:
        None where no blind test was made; else `accepted` and `controls`, each with `answered`,
        `correct`, `wrong`, `cannot_tell`, `skipped`, `value` (correct / answered), `low` and `high`
        (its Clopper-Pearson interval at the level `confidence`), and `unanswered`, which are apart;
        `confusions` (`of`, `wnid`, `name`, `picked`, `picked_name` and `count`, the most frequent
        first); `annotators`, by role; `not_blind`, the answers that are left out; and `withdrawn`,
        those about photos that are accepted no longer.
    """
    with workspace.catalogue.read() as connection:
        rows = blind.blind_tasks(connection)
        if not rows:
            return None
        said = kept.said(connection, "blind")
        told_before = blind.first_labelled(connection)
    found = found or reviewed(workspace, run_id)
    if run_id is None:
        good = {key for key, what in found.outcomes.items() if what.status == "accepted"}
    else:
        good = {one.key for one in accepted(workspace, run_id, found)}
    tasks = {row["candidate"]: row for row in rows}
    groups = {False: _Group(), True: _Group()}
    not_blind = withdrawn = 0
    answered: set[tuple[str, str]] = set()
    people: set[str] = set()
    for answer in _standing(said):
        key, name = answer["candidate"], answer["annotator"]
        if (task := tasks.get(key)) is None:
            continue
        answered.add((key, name))
        before = told_before.get((name, task["sha256"]))
        if before is not None and before <= answer["made"]:
            not_blind += 1
        elif not task["gold"] and key not in good:
            withdrawn += 1
        else:
            people.add(name)
            # Of an accepted outlier "none of these" is right.
            right = None if found.question == OUTLIER and not task["gold"] else task["wnid"]
            groups[task["gold"]].add(task["wnid"], right, answer)
    for task in rows:
        waits = task["state"] in ("open", "lapsed") and task["project_state"] == "open"
        counts = task["gold"] or task["candidate"] in good
        if waits and counts and (task["candidate"], task["name"]) not in answered:
            groups[task["gold"]].unanswered += 1
    return {
        "accepted": groups[False].told(),
        "controls": groups[True].told(),
        "confidence": CONFIDENCE,
        "confusions": _confusions(workspace, groups),
        "annotators": sorted(people, key=lambda name: (len(name), name)),
        "not_blind": not_blind,
        "withdrawn": withdrawn,
    }


def answered_by(said: Iterable[RowMapping], name: str) -> set[str]:
    """What somebody has answered of what was said in blind tests: the keys of candidates."""
    return {row["candidate"] for row in _standing(said) if row["annotator"] == name}


def _standing(said: Iterable[RowMapping]) -> list[RowMapping]:
    """Everybody's newest answer or skip about each photo, in a fixed order."""
    rows = list(said)
    last = {row["entry"]: row["event"] for row in rows}
    newest: dict[tuple[str, str], RowMapping] = {}
    for row in rows:
        pair = (row["candidate"], row["annotator"])
        age = (row["made"], row["entry"])
        # Of one entry and time the later row is the one that was pulled later.
        if last[row["entry"]] not in GONE and (
            pair not in newest or age >= (newest[pair]["made"], newest[pair]["entry"])
        ):
            newest[pair] = row
    return [newest[pair] for pair in sorted(newest)]


def _confusions(workspace: Workspace, groups: Mapping[bool, _Group]) -> list[dict[str, Any]]:
    def name(wnid: str) -> str:
        space = workspace.label_space
        return (space if wnid in space else workspace.weak_labels).name_of(wnid)

    rows: list[dict[str, Any]] = [
        {
            "of": "controls" if known else "accepted",
            "wnid": wnid,
            "name": name(wnid),
            "picked": picked,
            "picked_name": "none, or cannot tell" if picked is None else name(picked),
            "count": count,
        }
        for known, group in groups.items()
        for (wnid, picked), count in group.confusions.items()
    ]
    rows.sort(key=lambda r: (r["of"], -r["count"], r["wnid"], r["picked"] or ""))
    return rows[:_MOST]
