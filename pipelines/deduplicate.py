"""Deduplicate: which candidates show a picture that is there already, or one of another set.

Three looks, each exact: at sets that no candidate may come from, such as training images (a
candidate found there is dropped); within each label (the best picture of a group is kept); and
across labels (recorded, since only a person can tell which label is right). What is found does not
depend on the order in which candidates came, and replaces what was found before, in one
transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from curate.catalog import twins
from curate.choices import AcrossLabels
from curate.errors import Interrupted, UsageError
from curate.images.clusters import clusters, nearest
from curate.images.hash_sets import same_digests
from curate.images.hashing import NEAR_DISTANCE
from curate.images.near import FARTHEST
from curate.progress import Stop, progress, say, stop_on_interrupt
from pipelines.confirming import Confirmer
from pipelines.duplicates import Candidates, Deduplicated, Found
from pipelines.pairs import write_pairs
from pipelines.picture_sets import PictureSet, read_set
from pipelines.quality import measure_missing
from pipelines.workspace import Workspace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from curate.images.clusters import Confirm

#: How far apart the hashes may be of pictures that a classifier's features decide about.
WIDE_DISTANCE = 10


def deduplicate(
    workspace: Workspace,
    against: Sequence[Path] = (),
    *,
    distance: int | None = None,
    embedding: str | None = None,
    across_labels: AcrossLabels = "keep",
) -> Deduplicated:
    """Find duplicates among the candidates and in other sets, and record them.

    Args:
        workspace: whose candidates.
        against: sets that no candidate may come from: folders, tar files or hash files.
        distance: the largest distance of two near duplicates in bits, 0 to 12; by default 4, or 10
            with `embedding`.
        embedding: a classifier whose features decide whether two pictures are nearly the same,
            where their hashes leave it open; None lets the hashes decide.
        across_labels: "keep" leaves one picture under two labels in the filter, "drop" leaves the
            best of its candidates there.

    Raises:
        UsageError: a set cannot be read, or the distance is out of range.
        BusyError: a collect is at work.
        StorageError: the disk is full; what was found before stands.
        Interrupted: stopped by the user; the same holds.
    """
    within = distance if distance is not None else WIDE_DISTANCE if embedding else NEAR_DISTANCE
    if not 0 <= within <= FARTHEST:
        raise UsageError(f"--distance must be 0 to {FARTHEST} bits, not {within}")
    with workspace.held("collect"):
        unseen = measure_missing(workspace, unhashed=True)
        if unseen:
            say(f"{unseen:,} images are not compared: their stored files are bad")
        candidates = Candidates(workspace)
        found = Found(candidates)
        with stop_on_interrupt() as stop:
            confirmer = Confirmer(workspace, embedding, stop) if embedding else None
            search = _Search(workspace, candidates, found, within, confirmer, stop)
            for path in against:
                search.look_into(path)
            search.compare(across_labels)
        with workspace.catalogue.write() as connection:
            twins.replace(connection, found.rows(search.sets))
        summary = found.summary(search.sets)
        write_pairs(workspace, summary, search.sets)
    return summary


class _Search:
    """The three looks."""

    def __init__(
        self,
        workspace: Workspace,
        candidates: Candidates,
        found: Found,
        within: int,
        confirmer: Confirmer | None,
        stop: Stop,
    ) -> None:
        self.workspace, self.candidates, self.found = workspace, candidates, found
        self.within, self.confirmer, self.stop = within, confirmer, stop
        self.sets: list[PictureSet] = []

    def look_into(self, path: Path) -> None:
        """Look for the candidates in another set."""
        read = read_set(path, self.workspace.settings.images, self.stop)
        within, confirm = self.within, None
        if self.confirmer is not None and read.is_hash_file:
            # Its pictures are not at hand: the hashes decide as they do without a classifier.
            within = min(within, NEAR_DISTANCE)
        elif self.confirmer is not None:
            confirm = self.confirmer.of_set(self.candidates, read, within)
        with self._told(f"compare with {read.hashes.name}", len(self.candidates)) as told:
            twin, distance = nearest(
                self.candidates.hashes, read.hashes.hashes, within, confirm=confirm, told=told
            )
        exact = np.zeros(len(twin), np.bool_)
        same = same_digests(self.candidates.sha256, read.hashes.sha256)
        if read.hashes.pixels is not None:
            pixels = same_digests(self.candidates.pixels, read.hashes.pixels)
            same = np.where(same >= 0, same, pixels)
        exact = same >= 0
        twin[exact], distance[exact] = same[exact], 0
        self.found.in_set(len(self.sets), twin, distance, exact)
        self.sets.append(read)

    def compare(self, across_labels: AcrossLabels) -> None:
        """Look for candidates that show the same among those that no set has."""
        left = self.found.left()
        confirm = None
        if self.confirmer is not None:
            confirm = self.confirmer.of_candidates(self.candidates, left, self.within)
        if across_labels == "drop":
            self._group([left], "compare", confirm, dropped=True)
            return
        self._group(_by_label(self.candidates.labels, left), "compare", confirm, dropped=True)
        # What is kept under one label is compared with what is kept under the others.
        self._group([self.found.left()], "compare labels", confirm, dropped=False)

    def _group(
        self, groups: Sequence[Any], what: str, confirm: Confirm | None, *, dropped: bool
    ) -> None:
        with self._told(what, sum(map(len, groups))) as told:
            for places in groups:
                kept, distance = clusters(
                    self.candidates.hashes[places],
                    self.within,
                    confirm=confirm and _at(places, confirm),
                    told=told,
                )
                self.found.among(places, places[kept], distance, dropped)

    @contextmanager
    def _told(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        with progress(what, total) as bar:

            def told(count: int) -> None:
                bar.advance(count)
                if self.stop.requested:
                    raise Interrupted("stopped; nothing was changed, run again")

            yield told


def _by_label(labels: NDArray[np.int64], places: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The places of each label, in order."""
    order = places[np.argsort(labels[places], kind="stable")]
    return [
        part for part in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1) if len(part)
    ]


def _at(places: NDArray[np.int64], confirm: Confirm) -> Confirm:
    """A confirmation for some of the candidates."""
    return lambda i, found: confirm(int(places[i]), places[found])
