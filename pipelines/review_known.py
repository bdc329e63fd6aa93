"""Photos of known class: what a run removed since every classifier recognised it.

They tell how well somebody judges, as gold items and as the controls of a blind test.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from sqlalchemy import RowMapping

from curate.catalog import review_queues as queues
from pipelines.review_offers import said_of
from pipelines.workspace import Workspace

#: A photo is known where a classifier is at least so sure of its label.
_SURE = 0.9

# Photos that are looked at for each one that is wanted.
_POOL = 4


def recognised_photos(
    workspace: Workspace,
    run: RowMapping,
    seed: int,
    what: str,
    taken: Collection[str],
    wanted: int,
) -> list[RowMapping]:
    """Photos that every classifier which looked at the centre took for their label.

    Args:
        workspace: of the run.
        run: a finished run of the rule misclassified.
        seed: of their order.
        what: for what they are; part of the seed.
        taken: the SHA-256 of images that are left out.
        wanted: at most so many.

    Returns:
        Rows of `review_queues.recognised`, each photo once, in a seeded order; first those that all
        classifiers of the ensemble looked at.
    """
    with workspace.catalogue.read() as connection:
        sure = [
            row
            for row in queues.recognised(connection, run["id"])
            if (row["p_true"] or 0.0) >= _SURE and row["sha256"] not in taken
        ]
    once = {row["sha256"]: row for row in sorted(sure, key=lambda row: row["key"], reverse=True)}
    pool = sorted(once.values(), key=lambda row: seeded(seed, what, row["key"]))
    pool = pool[: _POOL * wanted]
    # The label alone was said, by so many classifiers.
    centre = said_of(workspace, run, {row["key"] for row in pool}, view=0, by_model=True)
    sound = [row for row in pool if set(centre.get(row["key"], ())) == {row["wnid"]}]
    models = len(run["record"]["models"])
    sound.sort(key=lambda row: len(centre[row["key"]]) < models)
    return sound[:wanted]


def seeded(seed: int, *names: str) -> str:
    """A hash that stands for a place in an order which the seed decides."""
    return hashlib.sha256("\0".join((str(seed), *names)).encode()).hexdigest()
