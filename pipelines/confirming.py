"""Whether pictures whose hashes are alike are alike to a classifier.

Only pictures that are near another one by hash are looked at. Their features lie in a temporary
file, so that memory does not grow with their number.

The limits come from 1,353 photos, 226 of them with nine altered copies each, under
`lite/efficientnet_lite0`. Up to 4 bits apart all pairs were copies, their cosines down to 0.64 for
small ones encoded anew at half the size (0.42 without colour). From 5 to 10 bits apart, crops of 90
to 95 % of the sides had 0.89 or more, most of them 0.92; of the 29 pairs of different photos (like
objects in one pose) one had more.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from curate.catalog import twins
from curate.catalog.store import ImageStore
from curate.errors import ImageRefused, Interrupted
from curate.files import sha256_bytes, storage_errors
from curate.images.clusters import Confirm, having_neighbours
from curate.images.decode import decode_trusted
from curate.images.hashing import NEAR_DISTANCE
from curate.images.near import Hashes, distances
from curate.models import load_classifier
from curate.models.features import FeatureReader
from curate.models.runtime import bound_threads
from curate.progress import Stop, progress
from curate.settings import ImageLimits
from pipelines.picture_sets import PictureSet, any_shape, read_picture
from pipelines.threads import run_here, usable_cores
from pipelines.workspace import Workspace

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

    from pipelines.duplicates import Candidates

    #: Places, each with how to come by its picture.
    Pictures = Iterable[tuple[int, Callable[[], Image]]]

#: Pictures within `NEAR_DISTANCE` are different where the cosine of their features is less.
LEAST_COSINE = 0.5

#: Pictures further apart are the same where it is at least this.
SAME_COSINE = 0.92

_ROWS = 8192


class Confirmer:
    """Compares pictures by a classifier's features.

    Args:
        workspace: whose candidates; its setting `filter.device` says what computes.
        model: the classifier's name.
        stop: asks to stop.

    Raises:
        UnknownNameError, WeightsError: no such classifier, or it cannot be used.
    """

    def __init__(self, workspace: Workspace, model: str, stop: Stop) -> None:
        self.workspace, self.stop = workspace, stop
        classifier = load_classifier(model, device=workspace.settings.filter.device)
        self.name, self.reader = classifier.name, FeatureReader(classifier)

    def of_candidates(
        self, candidates: Candidates, places: NDArray[np.int64], within: int
    ) -> Confirm:
        """A confirmation of pairs of candidates.

        Args:
            candidates: all of them.
            places: those that may be asked about.
            within: the largest distance of two hashes that will be asked about.
        """
        near = places[having_neighbours(candidates.hashes[places], None, within)[0]]
        looks = self._looks(near, self._stored(candidates, near))
        hashes = candidates.hashes
        return _confirm((hashes, looks), (hashes, looks), candidates.same)

    def of_set(self, candidates: Candidates, read: PictureSet, within: int) -> Confirm:
        """A confirmation of pairs of a candidate and a picture of a set."""
        theirs = read.hashes
        mine, others = map(
            np.flatnonzero, having_neighbours(candidates.hashes, theirs.hashes, within)
        )
        looks = self._looks(mine, self._stored(candidates, mine))
        their_looks = self._looks(others, self._of_set(read, others))

        def same(place: int, items: NDArray[np.int64]) -> NDArray[np.bool_]:
            return np.asarray((theirs.sha256[items] == candidates.sha256[place]).all(axis=1))

        return _confirm((candidates.hashes, looks), (theirs.hashes, their_looks), same)

    def _stored(self, candidates: Candidates, places: NDArray[np.int64]) -> Pictures:
        limits, store = self.workspace.settings.images, self.workspace.store
        for start in range(0, len(places), 500):
            some = places[start : start + 500]
            with self.workspace.catalogue.read() as connection:
                files = twins.stored_files(connection, candidates.ids[some].tolist())
            for place in some:
                sha256, extension = files[int(candidates.ids[place])]
                yield int(place), partial(_decode_stored, store, sha256, extension, limits)

    def _of_set(self, read: PictureSet, items: NDArray[np.int64]) -> Pictures:
        limits = any_shape(self.workspace.settings.images)
        wanted: dict[str, dict[str, int]] = {}
        for item in map(int, items):
            digest = read.hashes.sha256[item].tobytes().hex()
            wanted.setdefault(read.hashes.picture(item), {})[digest] = item
        for name, hit in read.pictures():
            if name not in wanted:
                continue
            try:
                data = read_picture(hit, limits.max_bytes)
            except ImageRefused:
                continue
            if (place := wanted[name].get(sha256_bytes(data))) is not None:
                yield place, partial(decode_trusted, data, limits)

    def _looks(self, places: NDArray[np.int64], pictures: Pictures) -> _Looks:
        looks = _Looks(places, self.workspace.root / ".curate")
        # One thread a picture: with more of them the same picture could give other bits.
        with bound_threads(1), progress(f"look with {self.name}", len(places)) as bar:
            for (place, _), row in run_here(pictures, self._row, usable_cores(), self.stop):
                if row.size:
                    looks.set(place, row)
                bar.advance()
        if self.stop.requested:
            raise Interrupted("stopped; nothing was changed, run again")
        return looks

    def _row(self, picture: tuple[int, Callable[[], Image]]) -> NDArray[np.float32]:
        try:
            return self.reader.of_picture(picture[1]())
        except ImageRefused:
            # What cannot be read any more is left to the hashes.
            return np.empty(0, np.float32)


def _decode_stored(store: ImageStore, sha256: str, extension: str, limits: ImageLimits) -> Image:
    return decode_trusted(store.read(sha256, extension), limits)


class _Looks:
    """Features by place, in half precision in a temporary file of a folder; NaN where unknown."""

    def __init__(self, places: NDArray[np.int64], folder: Path) -> None:
        self._places, self._folder = places, folder
        self._rows: NDArray[np.float16] = np.empty((0, 0), np.float16)

    def set(self, place: int, row: NDArray[np.float32]) -> None:
        """Keep the features of one of the places."""
        if not self._rows.size:
            self._rows = self._unknown(len(row))
        self._rows[np.searchsorted(self._places, place)] = row

    def _unknown(self, length: int) -> NDArray[np.float16]:
        what = storage_errors("the features of pictures")
        with what, tempfile.TemporaryFile(dir=self._folder) as stream:
            # Written, not mapped: a full disk under a mapped file would end the process.
            row = np.full(length, np.nan, np.float16).tobytes()
            stream.writelines(row for _ in self._places)
            stream.flush()
            return np.memmap(stream, np.float16, "r+", shape=(len(self._places), length))

    def at(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """The features at some of the places [n, D]."""
        if not self._rows.size:
            return np.full((len(places), 1), np.nan, np.float32)
        return self._rows[np.searchsorted(self._places, places)].astype(np.float32)


def _confirm(
    first: tuple[Hashes, _Looks],
    second: tuple[Hashes, _Looks],
    same: Callable[[int, NDArray[np.int64]], NDArray[np.bool_]],
) -> Confirm:
    """A confirmation by hashes and looks; `same` tells of equal bytes or pixels."""

    def confirm(place: int, found: NDArray[np.int64]) -> NDArray[np.bool_]:
        away = distances(first[0][place : place + 1], second[0][found])
        mine = first[1].at(np.array([place]))
        pieces = [found[start : start + _ROWS] for start in range(0, len(found), _ROWS)]
        # Summed row by row: a product of matrices could differ with their number.
        cosine = np.concatenate([(second[1].at(some) * mine).sum(axis=1) for some in pieces])
        alike = cosine >= np.where(away <= NEAR_DISTANCE, LEAST_COSINE, SAME_COSINE)
        known = np.isfinite(cosine)
        return same(place, found) | np.where(known, alike, away <= NEAR_DISTANCE)

    return confirm
