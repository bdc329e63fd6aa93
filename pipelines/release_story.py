"""How a release came about, in numbers from the catalogue: what its card and its record tell."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import RowMapping, select

from annotation.annotators import annotators
from annotation.answers import Answer, Decision
from curate.catalog import intake, overview
from curate.catalog.engine import pieces
from curate.catalog.listing import Shortlisted
from curate.catalog.tables import searches
from curate.errors import StorageError
from curate.files import printable
from pipelines.review_blind_accuracy import blind_accuracy
from pipelines.review_outcomes import Reviewed, answers_needed, by_class, review_counts
from pipelines.review_queue import referees
from pipelines.runs import scores_path
from pipelines.workspace import Workspace

#: Of the interval of how often gold items are judged rightly, as elsewhere of what people say.
CONFIDENCE = 0.95


def story(
    workspace: Workspace,
    run: RowMapping,
    entries: Sequence[Shortlisted],
    found: Reviewed | None,
) -> dict[str, Any]:
    """What `release.json` tells of sources, the funnel and the people.

    Days stand there only where people have reviewed: two workspaces with the same photos build the
    same unreviewed release.

    Args:
        workspace: the workspace.
        run: whose candidates these are.
        entries: the candidates of the release.
        found: what people say; None where nobody was asked.

    Returns:
        `sources`, `queries`, `funnel_by_class`, and for a reviewed release `review`.
    """
    told: dict[str, Any] = {
        "sources": _sources(workspace, entries, dated=found is not None),
        "queries": _queries(workspace, {entry.wnid for entry in entries}),
        "funnel_by_class": _funnel(workspace, run["id"], reviewed=found is not None),
    }
    if found is not None:
        told["review"] = _review(workspace, run["id"], found)
    return told


def views(
    workspace: Workspace, run: RowMapping, entries: Sequence[Shortlisted]
) -> dict[str, list[dict[str, Any]]]:
    """What every view of every model says of candidates, by key; see `ManifestRow.views`.

    Raises:
        StorageError: the scores cannot be read, or lack a survivor.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = scores_path(workspace, run)
    wanted = [entry.candidate for entry in entries]
    columns = ["candidate", "model", "view", "p_true", "predicted_wnid", "confidence"]
    try:
        # Scores lie in the order of the keys: the limits say what need not be read at all.
        filters = [
            ("candidate", "in", wanted),
            ("candidate", ">=", min(wanted)),
            ("candidate", "<=", max(wanted)),
        ]
        table = pq.read_table(path, columns=columns, filters=filters)
        rows = zip(*(table[name].to_pylist() for name in columns), strict=True)
    except (OSError, pa.ArrowException) as error:
        raise StorageError(f"cannot read the scores {printable(path)}: {error}") from error
    scores: dict[str, dict[tuple[int, int], tuple[Any, ...]]] = defaultdict(dict)
    for key, model, view, *said in rows:
        scores[key][model, view] = tuple(said)
    if missing := {e.candidate for e in entries if e.confidence is not None} - scores.keys():
        raise StorageError(f"the scores {printable(path)} lack candidate {min(missing)}")
    names = [model["name"] for model in run["record"]["models"]]
    return {key: _by_model(scores[key], names) for key in wanted}


def _by_model(
    scores: Mapping[tuple[int, int], tuple[Any, ...]], names: Sequence[str]
) -> list[dict[str, Any]]:
    count = 1 + max((view for _, view in scores), default=-1)
    told = []
    for model, name in enumerate(names):
        said = [scores.get((model, view), (None, None, None)) for view in range(count)]
        columns = zip(*said, strict=True) if said else ((), (), ())
        p_true, predicted, confidence = (list(column) for column in columns)
        told.append(
            {"model": name, "p_true": p_true, "predicted": predicted, "confidence": confidence}
        )
    return told


def _sources(
    workspace: Workspace, entries: Sequence[Shortlisted], dated: bool
) -> list[dict[str, Any]]:
    images: Counter[tuple[str, str | None]] = Counter()
    days: dict[tuple[str, str | None], set[str]] = defaultdict(set)
    with workspace.catalogue.read() as connection:
        for some in pieces([entry.candidate_id for entry in entries]):
            for rows in intake.origins_of(connection, some).values():
                if rows:
                    place = (rows[0]["source"], rows[0]["collection"])
                    images[place] += 1
                    days[place].add(rows[0]["seen"].date().isoformat())
    ordered = sorted(images, key=lambda place: (place[0], place[1] or ""))
    return [
        {"source": place[0], "collection": place[1], "images": images[place]}
        | ({"first_seen": min(days[place]), "last_seen": max(days[place])} if dated else {})
        for place in ordered
    ]


def _queries(workspace: Workspace, wnids: set[str]) -> list[dict[str, str]]:
    with workspace.catalogue.read() as connection:
        query = select(searches.c.source, searches.c.wnid, searches.c.query).distinct()
        rows = [tuple(row) for row in connection.execute(query) if row.wnid in wnids]
    return [{"source": s, "wnid": wnid, "query": text} for s, wnid, text in sorted(rows)]


def _funnel(workspace: Workspace, run_id: str, reviewed: bool) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    with workspace.catalogue.read() as connection:
        for row in overview.run_counts(connection, run_id):
            mine = counts[row["wnid"]]
            mine["candidates"] += row["count"]
            if row["outcome"] == "survivor":
                mine["survivors"] += row["count"]
                mine["shortlisted"] += row["listed"]
    stages = ["candidates", "survivors", "shortlisted"]
    if reviewed:
        stages += ["reviewed", "accepted"]
        for wnid, more in by_class(workspace, run_id).items():
            counts[wnid].update(more)
    return {wnid: {stage: counts[wnid][stage] for stage in stages} for wnid in sorted(counts)}


def _review(workspace: Workspace, run_id: str, found: Reviewed) -> dict[str, Any]:
    from curate.metrics.intervals import clopper_pearson

    counts = review_counts(workspace, run_id, found)
    counts.pop("warnings")
    work = annotators(
        [*found.answers, *found.gold_answers],
        question=found.question,
        gold=found.gold,
        claimed=found.claimed,
    )
    right, asked = sum(one.gold_right for one in work), sum(one.gold_asked for one in work)
    low, high = clopper_pearson(right, asked, CONFIDENCE) if asked else (None, None)
    human = blind_accuracy(workspace, run_id, found)
    if human is not None:
        human.pop("confusions")
    with workspace.catalogue.read() as connection:
        selecting = referees(connection)
    days = sorted(answer.made.date().isoformat() for answer in _said(found))
    return {
        "question": found.question,
        "answers_needed": answers_needed(workspace),
        "consensus": workspace.settings.review.consensus,
        "annotators": [{"name": one.annotator, "answers": one.answers} for one in work],
        "first_day": days[0] if days else None,
        "last_day": days[-1] if days else None,
        **counts,
        "gold": {"right": right, "asked": asked, "low": low, "high": high},
        "human_accuracy": human,
        "referees": selecting,
    }


def _said(found: Reviewed) -> list[Answer]:
    return [
        answer
        for answer in (*found.answers, *found.adjudications)
        if answer.decision is not Decision.SKIPPED
    ]
