"""Report: a finished run as one HTML page that can be mailed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, RowMapping

from curate._version import __version__
from curate.catalog import intake, listing, outliers, overview
from curate.errors import ImageRefused, StorageError, UsageError
from curate.files import atomic_write, printable
from curate.filtration.rules import MARGIN
from curate.images.views import VIEW_NAMES
from curate.licences import UNKNOWN, parse
from curate.progress import Bar, progress, say
from curate.report import page as shown
from curate.report.naming import display_names, short_names
from curate.report.thumbnails import make_thumbnail
from pipelines.barred import retracted_among
from pipelines.confident import most_confident
from pipelines.quality import candidate_flags
from pipelines.report_record import made_by, makers, models_of
from pipelines.review_outcomes import outcomes_of
from pipelines.runs import as_judged, finished_run, scores_path, standing_shortlist
from pipelines.workspace import OUTLIER, Workspace

#: With fewer survivors than this the nearest misses are shown, and so many of them.
_FEW = 12

#: Longest tables; a page of a large run stays one that a browser opens at once.
_ROWS = 1000

#: What removes a candidate, in the order of the funnel: as a column head, and as a sentence.
_REMOVED = {
    "correct": ("True class predicted", "a crop predicts the true class"),
    "threshold": ("Above the threshold", "a crop gives it more than the threshold"),
    "unconfident": ("Not confident", "a classifier is not confident enough"),
}

#: What a rule may remove candidates for.
_REASONS = {OUTLIER: ("unconfident",), "misclassified": ("correct", "threshold")}

#: Why a stored image or its scores are of no use; errors.REASONS speaks of files to take in.
_FAILED = {
    "missing": "missing from the store",
    "altered": "altered in the store",
    "unreadable": "unreadable in the store",
    "nan-logits": "a classifier's output is not a number",
}

#: One score: candidate, position of the model, number of the view.
_View = tuple[str, int, int]


def write_report(
    workspace: Workspace, run_id: str | None = None, out: Path | None = None, photos: int = 500
) -> dict[str, Any]:
    """Write the report page of a finished run.

    The page depends on the run and the limits of the quality flags alone: the same run gives the
    same bytes. Photos are read one at a
    time, so memory does not grow with their number.

    Args:
        workspace: the workspace.
        run_id: the run; the newest finished one by default.
        out: the file to write; `runs/ID/report.html` in the workspace by default.
        photos: most photos on the page, nearest misses included.

    Returns:
        `path`, `run`, `photos` and `misses` (how many are
        shown), `more` (shortlisted photos that are not), `unreadable` (shown without a picture),
        `withheld` (shown, but with no licence known to allow passing them on).

    Raises:
        UsageError: no run has ended, `photos` is negative, or `out` names no possible file.
        UnknownNameError: no run has this id.
        StorageError: the disk is full, or the run's scores are missing or damaged.
    """
    if photos < 0:
        raise UsageError(f"--photos must be 0 or more, not {photos}")
    run = finished_run(workspace, run_id)
    workspace = as_judged(workspace, run)
    target = workspace.run_folder(run["id"]) / "report.html" if out is None else out
    if target.is_dir():
        raise UsageError(f"{printable(target)} is a folder: name the file to write")
    if not target.parent.is_dir():
        raise UsageError(f"{printable(target.parent)} is no folder: make it first")
    report = _Report(workspace, run, photos)
    total = len(report.listed) + len(report.misses)
    with (
        workspace.held("report"),
        progress("report", total, unit="photos") as bar,
        atomic_write(target) as stream,
    ):
        for piece in shown.pieces(report.page(bar)):
            stream.write(piece.encode("utf-8", "backslashreplace"))
    if report.unreadable:
        say(f"{report.unreadable} photos are shown without a picture: their stored files are bad")
    return {
        "path": printable(target),
        "run": run["id"],
        "photos": len(report.listed),
        "more": report.shortlisted - len(report.listed),
        "misses": len(report.misses),
        "unreadable": report.unreadable,
        "withheld": sum(not credit.redistributable for credit in report.credits.values()),
    }


class _Report:
    """Gathers what the page shows; all but the pictures when it is made."""

    def __init__(self, workspace: Workspace, run: RowMapping, photos: int) -> None:
        self.workspace, self.run, self.record = workspace, run, run["record"]
        self.outlier = self.record["rule"] == OUTLIER
        self.names = display_names(workspace.label_space)
        self.models = [model["name"] for model in self.record["models"]]
        self.shorts = short_names(self.models)
        self.unreadable = 0
        self.histogram = shown.Histogram(self._limit())
        shortlist, _ = standing_shortlist(workspace, run)
        with workspace.catalogue.read() as connection:
            self.shortlisted = len(shortlist)
            self.borderline = sum(row.borderline for row in shortlist)
            self.listed = [_Row.of(vars(row)) for row in shortlist[:photos]]
            self.counts = overview.run_counts(connection, run["id"])
            self.confusions = overview.confusions(connection, run["id"])
            survivors = sum(row["survivors"] for row in self.confusions)
            wanted = min(_FEW, photos - len(self.listed)) if survivors < _FEW else 0
            nearest = self._nearest(connection, max(wanted, 0))
            gone = retracted_among(workspace, (row["sha256"] for row in nearest))
            self.misses = [
                _Row.of({"candidate": row["key"], **row})
                for row in nearest
                if row["sha256"] not in gone
            ]
            rows = [*self.listed, *self.misses]
            ids = [row.candidate_id for row in rows]
            origins = intake.origins_of(connection, ids)
            self.flags = candidate_flags(workspace, connection, ids)
            self.credits = {number: credit_of(found) for number, found in origins.items()}
            told = outliers.confidences if self.outlier else overview.largest_p_true
            for value, survived in told(connection, run["id"]):
                self.histogram.add(value, survived)
        # Candidates may be labelled otherwise than the label space is made up.
        self.weak_names = self.names
        if self.outlier:
            seen = {row["wnid"] for row in self.counts}
            self.weak_names = display_names(workspace.weak_labels, seen)
        self.scores = self._scores({row.candidate for row in rows})
        # What people say of each candidate of the shortlist, as far as they have looked.
        listed = {row.candidate for row in shortlist}
        said = outcomes_of(workspace, run["id"])
        self.reviews = {key: said[key] for key in listed & said.keys()}

    def page(self, bar: Bar) -> shown.Page:
        """The page; its photos are read as it is rendered."""
        by_class = self._by_class()
        record = self.record
        told = makers(record)
        return shown.Page(
            run=self.run["id"],
            label_space=record["label_space"]["name"],
            classes=record["label_space"]["classes"],
            finished=self.run["finished"],
            models=models_of(record, self.shorts),
            rule=record["rule"],
            threshold=record.get("threshold"),
            min_confidence=record.get("min_confidence"),
            of_mean=record.get("confidence") == "mean",
            margin=MARGIN,
            complete=record["complete"],
            funnel=self._funnel(),
            reasons=[_REMOVED.get(reason, (reason,))[0] for reason in self._reasons()],
            photos=(self._photo(row, bar) for row in self.listed),
            photos_shown=len(self.listed),
            borderline=self.borderline,
            misses=(self._photo(row, bar) for row in self.misses),
            misses_shown=len(self.misses),
            confusions=[
                shown.Confusion(
                    self._weak_name(row["wnid"]),
                    self._name(row["predicted_wnid"]),
                    row["survivors"],
                    row["shortlisted"],
                )
                for row in self.confusions[:_ROWS]
            ],
            confusions_total=len(self.confusions),
            by_class=by_class[:_ROWS],
            by_class_total=len(by_class),
            histogram=self.histogram,
            reviews=self._reviews(),
            licences=self._licences(),
            made_by=made_by(self.run, self.shorts, told),
            versions=[(name, ", ".join(values)) for name, values in sorted(told.items())],
            curate=__version__,
        )

    def _scores(self, keys: set[str]) -> dict[_View, tuple[float | None, str, float]]:
        """p(true), prediction and confidence of the views that the page speaks of."""
        wanted = {(row.candidate, row.model, row.view) for row in self.misses}
        found: dict[_View, tuple[float | None, str, float]] = {}
        columns = ("p_true", "predicted_wnid", "confidence")
        for key, model, view, *score in self._read_scores(columns, keys):
            if view == 0 or (key, model, view) in wanted:
                found[key, model, view] = (score[0], score[1], score[2])
        return found

    def _nearest(self, connection: Connection, wanted: int) -> Sequence[RowMapping]:
        """Removed candidates that came nearest to surviving, at most so many."""
        if not self.outlier:
            nearest = listing.nearest_misses(connection, self.run["id"], wanted)
            # What is surely recognised is no near miss, but some are shown in any case.
            return [row for n, row in enumerate(nearest) if n < _FEW // 2 or row["p_true"] <= 0.5]
        if not wanted:
            return []
        keys = most_confident(
            self._read_scores(("confidence",)),
            wanted,
            outliers.survivor_keys(connection, self.run["id"]),
            of_mean=self.record["confidence"] == "mean",
        )
        return outliers.removed(connection, self.run["id"], keys)

    def _limit(self) -> float | None:
        """What the histogram's values must not exceed, or under the rule outlier reach."""
        if not self.outlier:
            return float(self.record["threshold"])
        return (
            float(self.record["min_confidence"]) if self.record["confidence"] == "centre" else None
        )

    def _read_scores(
        self, values: Sequence[str], keys: set[str] | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """Candidate, model, view and some values, for some candidates or all, a batch at a time."""
        if keys is not None and not keys:
            return
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        path = scores_path(self.workspace, self.run)
        name = path.relative_to(self.workspace.root)
        columns = ["candidate", "model", "view", *values]
        chosen = None if keys is None else pa.array(sorted(keys), pa.string())
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(columns=columns):
                    kept = batch
                    if chosen is not None:
                        kept = batch.filter(pc.is_in(batch["candidate"], value_set=chosen))
                    yield from zip(*(kept[column].to_pylist() for column in columns), strict=True)
        except FileNotFoundError:
            raise StorageError(f"{name} is missing: restore it from a copy") from None
        except (OSError, pa.ArrowException) as error:
            raise StorageError(f"{name} is damaged: restore it from a copy") from error

    def _photo(self, row: _Row, bar: Bar) -> shown.Photo:
        thumbnail, problem = None, None
        try:
            data = self.workspace.store.read(row.sha256, row.extension)
            thumbnail = make_thumbnail(data, limits=self.workspace.settings.images)
        except ImageRefused as refusal:
            self.unreadable += 1
            problem = f"no picture: {_FAILED.get(refusal.reason, 'the stored file is damaged')}"
        bar.advance()
        others = (
            self._said(number, row.candidate)
            for number in range(1, len(self.models))
            if row.place is not None
        )
        said = self._said(0, row.candidate)
        wrong = row.predicted_wnid is not None and row.predicted_wnid != row.wnid
        return shown.Photo(
            candidate=row.candidate,
            sha256=row.sha256,
            true_name=self._weak_name(row.wnid),
            said=said,
            wrong=wrong,
            p_true=row.p_true,
            borderline=row.borderline,
            flags=self.flags.get(row.candidate_id, ()),
            credit=self.credits[row.candidate_id],
            place=row.place,
            others=[other for other in others if other],
            removed=self._removed(row) if row.place is None else None,
            thumbnail=thumbnail,
            problem=problem,
            review=self._review(row.candidate),
        )

    def _review(self, candidate: str) -> str | None:
        what = self.reviews.get(candidate)
        if what is None:
            return None
        return what.status if what.reason is None else f"{what.status}: {what.reason}"

    def _reviews(self) -> shown.Reviews:
        counted = Counter(what.status for what in self.reviews.values())
        return shown.Reviews(counted["accepted"], counted["rejected"], counted["disputed"])

    def _said(self, model: int, candidate: str) -> shown.Said | None:
        score = self.scores.get((candidate, model, 0))
        return score and shown.Said(self.shorts[model], self._name(score[1]), score[2])

    def _removed(self, row: _Row) -> str:
        """Which crop of which classifier removed a candidate, and what it said there."""
        assert row.model is not None
        assert row.view is not None
        p_true, predicted, confidence = self.scores[row.candidate, row.model, row.view]
        who, where = self.shorts[row.model], f"on the {VIEW_NAMES[row.view]} crop"
        if p_true is None:
            least, said = self.record["min_confidence"], self._name(predicted)
            if self.record["confidence"] == "mean":
                told = f"{said}, {shown.fraction(confidence)}"
                return f"{who} cannot reach {least} in the mean after what it says {where} ({told})"
            sure = shown.fraction(confidence, apart_from=least, reached=True)
            return f"{who} takes it for {said} ({sure}) {where}"
        if row.reason == "correct":
            return f"{who} predicts its class ({shown.fraction(p_true)}) {where}"
        given = shown.fraction(p_true, apart_from=self.record["threshold"])
        return f"{who} gives its class {given} {where}"

    def _name(self, wnid: str) -> str:
        return self.names.get(wnid, wnid)

    def _weak_name(self, wnid: str) -> str:
        return self.weak_names.get(wnid, wnid)

    def _reasons(self) -> list[str]:
        seen = {row["reason"] for row in self.counts if row["outcome"] == "removed"}
        known = _REASONS.get(self.record["rule"], ())
        return [*known, *sorted(seen - set(known))]

    def _funnel(self) -> shown.Funnel:
        by_reason: Counter[tuple[str, str | None]] = Counter()
        for row in self.counts:
            by_reason[row["outcome"], row["reason"]] += row["count"]
        failed = sorted(reason or "" for outcome, reason in by_reason if outcome == "failed")
        return shown.Funnel(
            candidates=sum(by_reason.values()),
            failed=[
                shown.Reason(f"failed: {_FAILED.get(reason, reason)}", by_reason["failed", reason])
                for reason in failed
            ],
            removed=[
                shown.Reason(_REMOVED.get(reason, (reason,))[-1], by_reason["removed", reason])
                for reason in self._reasons()
            ],
            survivors=by_reason["survivor", None],
            shortlisted=self.shortlisted,
        )

    def _by_class(self) -> list[shown.ClassFunnel]:
        """Classes with candidates: most survivors first, then in the label space's order."""
        counts: dict[str, Counter[str]] = {}
        for row in self.counts:
            of_class = counts.setdefault(row["wnid"], Counter())
            of_class["candidates"] += row["count"]
            of_class[row["outcome"]] += row["count"]
            of_class["listed"] += row["listed"]
            if row["outcome"] == "removed":
                of_class[f"removed:{row['reason']}"] += row["count"]
        order = {wnid: place for place, wnid in enumerate(self.weak_names)}
        wnids = sorted(counts, key=lambda w: (-counts[w]["survivor"], order.get(w, len(order)), w))
        return [
            shown.ClassFunnel(
                wnid=wnid,
                name=self._weak_name(wnid),
                candidates=counts[wnid]["candidates"],
                failed=counts[wnid]["failed"],
                removed=[counts[wnid][f"removed:{reason}"] for reason in self._reasons()],
                survivors=counts[wnid]["survivor"],
                shortlisted=counts[wnid]["listed"],
            )
            for wnid in wnids
        ]

    def _licences(self) -> list[shown.LicenceCount]:
        counted = Counter(
            (credit.licence, credit.licence_url, credit.redistributable)
            for credit in self.credits.values()
        )
        return [
            shown.LicenceCount(*licence, count)
            for licence, count in sorted(counted.items(), key=lambda item: (-item[1], item[0]))
        ]


@dataclass(frozen=True)
class _Row:
    """A photo of the page before its picture is read; the fields are the catalogue's columns."""

    candidate_id: int
    candidate: str
    sha256: str
    extension: str
    wnid: str
    predicted_wnid: str | None
    confidence: float | None
    p_true: float | None
    borderline: bool
    place: int | None
    reason: str | None = None
    model: int | None = None
    view: int | None = None

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> _Row:
        """From columns of the catalogue, whatever else is among them."""
        return cls(**{c.name: columns[c.name] for c in fields(cls) if c.name in columns})


def credit_of(origins: Sequence[RowMapping]) -> shown.Credit:
    """The credit of a candidate: that of its first origin, which later ones never change."""
    if not origins:
        return shown.Credit(UNKNOWN.name, "", False)
    first = origins[0]
    licence = parse(first["licence"])
    return shown.Credit(
        licence=licence.name,
        licence_url=first["licence_url"] or licence.url,
        redistributable=licence.redistributable,
        author=first["author"],
        title=first["title"],
        page=first["page"],
        collection=first["collection"],
        source=first["source"],
        locator=first["locator"],
    )
