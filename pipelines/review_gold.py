"""Gold items: candidates whose right answer is known, by which annotators are measured.

They look like all others and are asked about in the same way, but decide nothing: no gold item is
ever accepted into a dataset.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from sqlalchemy import RowMapping

from annotation.answers import DECISIONS, Decision, Question
from annotation.interface_taxonomy import groups
from curate.catalog import gold_items
from curate.catalog import review_queues as queues
from curate.errors import UnknownNameError, UsageError
from curate.files import candidate_key, csv_plain, printable, read_csv
from curate.labels.classes import fold
from curate.labels.space import LabelSpace
from curate.labels.wordnet import wordnet
from pipelines.review_known import recognised_photos, seeded
from pipelines.review_offers import said_of
from pipelines.review_queue import Queued
from pipelines.workspace import OUTLIER, Workspace

#: Share of a queue where a table of gold items is given and no share is set.
RATE = 0.1

# Two things that share nothing narrower than this, as an animal and an artefact do, are not taken
# for each other, and neither is part of the other.
_UNRELATED = 10_000


def gold_from_table(workspace: Workspace, path: Path) -> int:
    """Keep the gold items of a table.

    Args:
        workspace: of the run that is reviewed.
        path: a CSV file with `decision` (a word of the page, for example valid or wrong-label) and
            either `candidate` or `sha256` and `wnid` (an id or a name). The image must be in the
            catalogue; under this label it need not be a candidate.

    Returns:
        How many items it holds.

    Raises:
        UsageError: the table cannot be used; the text names the line.
    """
    lines = list(read_csv(path, ("decision",)))
    with workspace.catalogue.read() as connection:
        known = queues.candidates_named(connection, [row.get("candidate", "") for _, row in lines])
        images = queues.images_named(connection, [row.get("sha256", "") for _, row in lines])
    items: dict[str, dict[str, Any]] = {}
    for number, row in lines:
        where = f"{printable(path)}, line {number}"
        item = _item(workspace, row, known, images, where)
        before = items.setdefault(item["candidate"], item)
        if before["decision"] != item["decision"]:
            raise UsageError(f"{where}: {item['candidate']} has another decision further up")
    if not items:
        raise UsageError(f"{printable(path)} holds no gold items")
    with workspace.catalogue.write() as connection:
        given = sorted(gold_items.given_as_candidates(connection, list(items)))
        if given:
            raise UsageError(
                f"{printable(path)}: {given[0]} was given out for review already, and a gold item "
                "counts in no dataset; name others"
            )
        gold_items.add_gold(connection, list(items.values()))
    return len(items)


def _item(
    workspace: Workspace,
    row: Mapping[str, str],
    known: Mapping[str, RowMapping],
    images: Collection[str],
    where: str,
) -> dict[str, Any]:
    question = cast(Question, workspace.settings.filter.rule)
    decisions = [each for each in DECISIONS[question] if each is not Decision.SKIPPED]
    decision = row["decision"].strip()
    if decision not in decisions:
        raise UnknownNameError("decision", decision, decisions, where=where)
    sha256, label = row.get("sha256", "").strip(), csv_plain(row.get("wnid", "")).strip()
    key = row.get("candidate", "").strip()
    if key and (found := known.get(key)) is not None:
        sha256, wnid = found["sha256"], found["wnid"]
    elif not sha256 or not label:
        what = f"no candidate {key!r} is known" if key else "neither candidate nor sha256 and wnid"
        raise UsageError(f"{where}: {what}; write its sha256 and wnid")
    elif sha256 not in images:
        raise UsageError(f"{where}: no image {sha256[:80]!r} is in the catalogue; collect it first")
    else:
        wnid = workspace.weak_labels.match(label, where=where).wnid
        if key and key != candidate_key(sha256, wnid):
            raise UsageError(f"{where}: {key!r} is not the candidate of this sha256 and wnid")
    return {
        "candidate": candidate_key(sha256, wnid),
        "sha256": sha256,
        "wnid": wnid,
        "decision": decision,
        "origin": "table",
    }


def draw_gold(
    workspace: Workspace, run: RowMapping, queue: Sequence[Queued], wanted: int
) -> list[RowMapping]:
    """All gold items, with so many drawn from what the run removed as are missing.

    A photo that every classifier which looked at its centre recognised as its label says is known
    to be right under it, and known to be wrong under the label of something else altogether: half
    of the items are of either kind, no photo is both, and none stands in the queue.

    Args:
        workspace: of the run.
        run: a finished run of the rule misclassified.
        queue: of `review_queue`, by whatever names.
        wanted: how many items there shall be.

    Returns:
        The rows of `gold`; fewer than wanted where the run has recognised too few photos.

    Raises:
        UsageError: under the rule outlier, where nothing recognised says what a photo shows.
    """
    with workspace.catalogue.read() as connection:
        there = gold_items.all_gold(connection)
    missing = wanted - len(there)
    if missing <= 0:
        return there
    if workspace.settings.filter.rule == OUTLIER:
        if there:
            return there
        raise UsageError(
            "under the rule outlier no photo is known to be free of all classes: name gold items "
            "in a table with --gold FILE, or set --gold-rate 0"
        )
    taken = {one.sha256 for one in queue} | {row["sha256"] for row in there}
    seed = workspace.settings.review.seed
    rows = recognised_photos(workspace, run, seed, "gold", taken, missing)
    said = said_of(workspace, run, {row["key"] for row in rows})
    rejects = sum(row["decision"] != Decision.VALID for row in there)
    drawn: list[dict[str, Any]] = []
    for row in rows:
        wrong = rejects <= (len(there) + len(drawn)) / 2
        others = said.get(row["key"], ())
        label = _other(workspace.label_space, row["wnid"], others, row["key"]) if wrong else None
        if wrong and label is None:
            continue
        rejects += wrong
        wnid = label or row["wnid"]
        drawn.append(
            {
                "candidate": candidate_key(row["sha256"], wnid),
                "sha256": row["sha256"],
                "wnid": wnid,
                "decision": str(Decision.WRONG_LABEL if wrong else Decision.VALID),
                "origin": "drawn",
            }
        )
    with workspace.catalogue.write() as connection:
        # A photo may be a candidate under the other label, and an item is no candidate.
        used = queues.candidates_named(connection, [d["candidate"] for d in drawn])
        given = gold_items.given_as_candidates(connection, [d["candidate"] for d in drawn])
        gold_items.add_gold(
            connection,
            [
                d
                for d in drawn
                if d["candidate"] not in given
                and (d["decision"] == Decision.VALID or d["candidate"] not in used)
            ],
        )
        return gold_items.all_gold(connection)


def _other(space: LabelSpace, wnid: str, said: Collection[str], key: str) -> str | None:
    """The label of something else altogether, or None where there is none."""
    group_of = {item.wnid: group.key for group in groups(space) for item in group.classes}
    names = {fold(name) for name in space.get(wnid).names}
    for other in sorted(space.wnids, key=lambda one: seeded(0, key, one)):
        item = space.get(other)
        if (
            other not in said
            and group_of[other] != group_of[wnid]
            and names.isdisjoint(map(fold, item.names))
            and _apart(space.get(wnid).synsets, item.synsets)
        ):
            return other
    return None


def _apart(some: Sequence[str], others: Sequence[str]) -> bool:
    net = wordnet()
    for one in some:
        for other in others:
            if one not in net or other not in net:
                continue
            shared = (net.ancestors(one) | {one}) & (net.ancestors(other) | {other})
            if any(_kinds(kind) < _UNRELATED for kind in shared):
                return False
    return True


@lru_cache(maxsize=4096)
def _kinds(wnid: str) -> int:
    return len(wordnet().descendants(wnid))
