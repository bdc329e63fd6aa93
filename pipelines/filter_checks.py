"""What of a run must be scored again: failures that were cured, and verdicts that are not there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sqlalchemy import Connection, RowMapping

from curate.catalog import judging
from pipelines.candidate_set import CandidateSet
from pipelines.threads import run_here
from pipelines.workspace import Workspace

#: Failures that end when the image is put back into the store.
_CURABLE = ("missing", "altered", "unreadable")

#: Failures that are read at a time, and threads that look at their images: a store may be far away.
_PAGE, _READERS = 1000, 8


def cured_candidates(workspace: Workspace, run_id: str) -> list[int]:
    """The ids of a run's failed candidates whose images are sound by now, in order.

    Raises:
        StorageError: the store is away.
    """
    store = workspace.store

    def is_sound(image: RowMapping) -> bool:
        return store.check(image["sha256"], image["extension"])

    looked_at = run_here(_failed(workspace, run_id), is_sound, _READERS)
    return sorted(image["candidate_id"] for image, sound in looked_at if sound)


def _failed(workspace: Workspace, run_id: str) -> Iterator[RowMapping]:
    last = 0
    while True:
        with workspace.catalogue.read() as connection:
            page = judging.failed_images(connection, run_id, _CURABLE, last, _PAGE)
        if not page:
            return
        yield from page
        last = page[-1]["candidate_id"]


def judged_by_chunk(connection: Connection, run_id: str, candidates: CandidateSet) -> np.ndarray:
    """How many candidates of each chunk have a verdict.

    Args:
        connection: a reading transaction.
        run_id: the run.
        candidates: of the run.

    Returns:
        [chunks], by their numbers.
    """
    ids = np.array(candidates.ids)
    order = np.argsort(ids)
    counts = np.zeros(candidates.chunk_count, int)
    for some in judging.judged_ids(connection, run_id):
        found = np.array(some)
        places = order[np.searchsorted(ids, found, sorter=order).clip(max=len(ids) - 1)]
        chunks = places[ids[places] == found] // candidates.chunk_size
        counts += np.bincount(chunks, minlength=len(counts))
    return counts
