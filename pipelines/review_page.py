"""The review page: how far people are, with the photos that they dispute."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from annotation.answers import Answer, Decision, standing
from annotation.interface import REASONS
from curate._version import __version__
from curate.catalog import intake
from curate.catalog import review_queues as queues
from curate.errors import ImageRefused
from curate.files import atomic_write, printable
from curate.report import review_page as shown
from curate.report.naming import display_names
from curate.report.page import Credit
from curate.report.thumbnails import make_thumbnail
from pipelines.report import credit_of
from pipelines.review_export import check_target
from pipelines.review_outcomes import Reviewed, reviewed
from pipelines.review_status import review_status
from pipelines.workspace import OUTLIER, Workspace

#: Most photos on the page, and most rows of a table.
MOST_SHOWN, _ROWS = 200, 1000

#: What the page is called in a folder.
FILE_NAME = "review.html"

# Longest note on the page; the export has all of it.
_NOTE = 400

_MEASURES = {"raw": "Raw agreement", "ac1": "Gwet's AC1", "alpha": "Krippendorff's alpha"}
_KAPPAS = {"cohen": "Cohen's kappa", "fleiss": "Fleiss' kappa"}


def write_review_page(
    workspace: Workspace, target: Path, run_id: str | None = None
) -> dict[str, Any]:
    """Write the page, and give what `review_status.review_status` gives with the page's `path`.

    Args:
        workspace: the workspace.
        target: a folder, or the file to write.
        run_id: as for `review_status`.

    Raises:
        UsageError: `target` names no possible file.
        UnknownNameError, UsageError: no such run, or it has not ended.
        StorageError: the disk is full.
    """
    path = target / FILE_NAME if target.is_dir() else target
    check_target(path)
    found = reviewed(workspace, run_id)
    summary = review_status(workspace, run_id, found)
    with atomic_write(path) as stream:
        for piece in shown.pieces(_Page(workspace, found).page(summary)):
            stream.write(piece.encode("utf-8", "backslashreplace"))
    return summary | {"path": printable(path)}


class _Page:
    """Gathers what the page shows; pictures are read as it is written."""

    def __init__(self, workspace: Workspace, found: Reviewed) -> None:
        self.workspace, self.found = workspace, found
        self.names = display_names(workspace.label_space)
        self.weak_names = display_names(workspace.weak_labels, set(found.claimed.values()))
        disputed = [key for key, what in found.outcomes.items() if what.status == "disputed"]
        self.disputes, self.keys = len(disputed), disputed[:MOST_SHOWN]
        with workspace.catalogue.read() as connection:
            self.candidates = queues.candidates_named(connection, self.keys)
            hashes = [row["sha256"] for row in self.candidates.values()]
            self.images = queues.images_named(connection, hashes)
            ids = intake.candidate_ids(connection, self.keys)
            origins = intake.origins_of(connection, list(ids.values()))
        self.credits = {key: credit_of(origins[number]) for key, number in ids.items()}
        self.votes: dict[str, list[Answer]] = defaultdict(list)
        for answer in standing(found.answers):
            self.votes[answer.candidate].append(answer)

    def page(self, summary: Mapping[str, Any]) -> shown.ReviewPage:
        """The page of what `review_status` says."""
        by_class = sorted(
            summary["by_class"].items(), key=lambda item: -item[1]["waiting"] - item[1]["disputed"]
        )
        control, blind = summary["control"], summary["blind"]
        judged = control["accepted"] + sum(control["rejected"].values()) + control["disputed"]
        said = [*self.found.answers, *self.found.gold_answers, *self.found.adjudications]
        return shown.ReviewPage(
            label_space=self.workspace.label_space.name,
            run=summary["run"],
            newest=max((answer.made for answer in said), default=None),
            accepted=summary["accepted"],
            rejected=[(_words(reason), n) for reason, n in summary["rejected"].items()],
            waiting=summary["waiting"],
            disputed=self._disputed(),
            disputed_shown=len(self.keys),
            disputed_total=summary["disputed"],
            disputed_controls=self.disputes - summary["disputed"],
            control=_of(control["accepted"], judged) if judged else None,
            measures=[
                shown.Measure(
                    _KAPPAS[one["kind"]] if name == "kappa" else _MEASURES[name],
                    one["value"],
                    one["low"],
                    one["high"],
                    one["n"],
                )
                for name, one in summary["agreement"].items()
                if one["n"]
            ],
            people=[_person(person) for person in summary["annotators"]],
            hours=summary["hours_left"],
            by_class=[
                shown.ClassCounts(
                    wnid=wnid,
                    name=self._weak_name(wnid),
                    waiting=row["waiting"],
                    done=row["done"],
                    accepted=row["accepted"],
                    rejected=row["rejected"],
                    disputed=row["disputed"],
                )
                for wnid, row in by_class[:_ROWS]
            ],
            by_class_total=len(by_class),
            unread=[
                shown.Unread(row["project"], row["task"], row["annotation"], row["why"])
                for row in summary["unread"][:_ROWS]
            ],
            unread_total=len(summary["unread"]),
            blind=_blind(blind) if blind else [],
            mistaken=[
                shown.Mistaken(row["name"], row["picked_name"], row["count"])
                for row in (blind["confusions"] if blind else [])
                if row["of"] == "accepted"
            ],
            withheld=sum(not credit.redistributable for credit in self.credits.values()),
            outlier=self.workspace.settings.filter.rule == OUTLIER,
            curate=__version__,
        )

    def _disputed(self) -> Iterator[shown.Disputed]:
        for key in self.keys:
            row = self.candidates[key]
            thumbnail, problem = None, None
            try:
                image = self.images[row["sha256"]]
                data = self.workspace.store.read(row["sha256"], image["extension"])
                thumbnail = make_thumbnail(data, limits=self.workspace.settings.images)
            except ImageRefused:
                problem = "no picture: the stored file is bad"
            yield shown.Disputed(
                candidate=key,
                sha256=row["sha256"],
                label=self._weak_name(row["wnid"]),
                votes=[self._vote(answer, row["wnid"]) for answer in self.votes[key]],
                credit=self.credits.get(key) or Credit("unknown", "", False),
                thumbnail=thumbnail,
                problem=problem,
            )

    def _vote(self, answer: Answer, claimed: str) -> shown.Vote:
        details = [REASONS[reason][1] for reason in answer.reasons if reason in REASONS]
        if answer.decision is Decision.WRONG_LABEL and answer.corrected:
            details.append(f"it is: {self._name(answer.corrected)}")
        if others := answer.others(claimed):
            details.append(f"also there: {', '.join(map(self._name, others))}")
        note = answer.note if len(answer.note) <= _NOTE else f"{answer.note[: _NOTE - 1]}…"
        return shown.Vote(answer.annotator, _words(answer.decision), details, note)

    def _name(self, wnid: str) -> str:
        return self.names.get(wnid, wnid)

    def _weak_name(self, wnid: str) -> str:
        return self.weak_names.get(wnid, wnid)


def _words(decision: str) -> str:
    return str(decision).replace("-", " ")


def _of(count: int, of: int) -> shown.Share:
    return shown.Share(count, of, None, None)


def _share(told: Mapping[str, Any], count: str = "count", of: str = "of") -> shown.Share:
    low, high = (None if told[end] is None else 100 * told[end] for end in ("low", "high"))
    return shown.Share(told[count], told[of], low, high)


def _person(told: Mapping[str, Any]) -> shown.Person:
    return shown.Person(
        name=told["annotator"],
        open=told["open"],
        done=told["done"],
        skipped=told["skipped"],
        median_seconds=told["median_seconds"],
        gold=_share(told["gold"]),
        accepts=_share(told["accept_rate"]),
        hours=told["hours_left"],
        warnings=told["warnings"],
    )


def _blind(told: Mapping[str, Any]) -> Sequence[shown.Blind]:
    return [
        shown.Blind(
            name,
            _share(told[of], "correct", "answered"),
            told[of]["cannot_tell"] + told[of]["skipped"],
            told[of]["unanswered"],
        )
        for name, of in (("Accepted", "accepted"), ("Controls", "controls"))
        if told[of]["answered"] or told[of]["unanswered"]
    ]
