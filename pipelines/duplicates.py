"""What a look for duplicates compares and finds: candidates as arrays, and what shows the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from curate.catalog import twins
from curate.catalog.tables import now
from curate.images.near import Hashes
from pipelines.workspace import Workspace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipelines.picture_sets import PictureSet


@dataclass(frozen=True)
class Compared:
    """What a set gave.

    Attributes:
        set: its name.
        images: pictures in it.
        refused: files of it that could not be used, by reason.
        matched: candidates that are in it and in none of the sets before at a lesser distance.
    """

    set: str
    images: int
    refused: dict[str, int]
    matched: int


@dataclass
class Deduplicated:
    """What a look for duplicates found.

    Attributes:
        checked: candidates compared.
        exact: of these the ones with the bytes or the pixels of another picture.
        near: those that show nearly the same as another one.
        against: those of both kinds that were found in one of the sets.
        across_labels: those of both kinds that are another candidate's picture under another label.
        dropped: those that stay out of the filter.
        kept: those that do not.
        sets: what was compared with.
        page: pairs for a human look, relative to the workspace; None if there are none.
        list: all of them as a table; likewise.
    """

    checked: int = 0
    exact: int = 0
    near: int = 0
    against: int = 0
    across_labels: int = 0
    dropped: int = 0
    kept: int = 0
    sets: list[Compared] = field(default_factory=list)
    page: str | None = None
    list: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON summary of the contract."""
        return {**vars(self), "sets": [vars(one) for one in self.sets]}


class Candidates:
    """The candidates as arrays, the best picture first."""

    def __init__(self, workspace: Workspace) -> None:
        ids, labels = [], []
        sha256, pixels, hashes = bytearray(), bytearray(), bytearray()
        codes: dict[str, int] = {}
        with workspace.catalogue.read() as connection:
            for row in twins.ranked(connection):
                ids.append(row["id"])
                labels.append(codes.setdefault(row["wnid"], len(codes)))
                sha256 += bytes.fromhex(row["sha256"])
                pixels += bytes.fromhex(row["pixel_sha256"])
                hashes += bytes.fromhex(row["perceptual_hash"])
        self.ids = np.array(ids, np.int64)
        self.labels = np.array(labels, np.int64)
        self.sha256 = np.frombuffer(sha256, np.uint8).reshape(-1, 32)
        self.pixels = np.frombuffer(pixels, np.uint8).reshape(-1, 32)
        both = np.frombuffer(hashes, ">u8").reshape(-1, 2).astype(np.uint64)
        self.hashes = Hashes(both[:, 0].copy(), both[:, 1].copy())

    def __len__(self) -> int:
        return len(self.ids)

    def same(self, i: Any, j: Any) -> NDArray[np.bool_]:
        """Whether candidates at places have the same bytes or pixels."""
        same_bytes = (self.sha256[i] == self.sha256[j]).all(axis=-1)
        same_pixels = (self.pixels[i] == self.pixels[j]).all(axis=-1)
        return np.asarray(same_bytes | same_pixels)


class Found:
    """What was found of each candidate; places are those of `candidates`."""

    def __init__(self, candidates: Candidates) -> None:
        count = len(candidates)
        self.candidates = candidates
        self.exact = np.zeros(count, np.bool_)
        self.near = np.zeros(count, np.bool_)
        self.distance = np.zeros(count, np.uint8)
        self.dropped = np.zeros(count, np.bool_)
        #: The number of the set that it was found in, or -1.
        self.set = np.full(count, -1)
        #: The place of the candidate that is kept, or of the picture in the set.
        self.twin = np.full(count, -1)

    def in_set(self, number: int, twin: Any, distance: Any, exact: Any) -> None:
        """Note what a set has of all candidates, where that is nearer than what others have.

        Args:
            number: of the set.
            twin: places in the set [n], -1 where it has nothing.
            distance: how far it is [n], in bits.
            exact: whether bytes or pixels are the same [n].
        """
        # The sets' order decides between equals.
        before = np.where(self.set < 0, 1000, np.where(self.exact, -1, self.distance.astype(int)))
        better = (twin >= 0) & (np.where(exact, -1, distance.astype(int)) < before)
        self.set[better], self.dropped[better] = number, True
        self._note(np.flatnonzero(better), twin[better], distance[better], exact[better])

    def among(self, places: Any, kept: Any, distance: Any, dropped: bool) -> None:
        """Note for candidates at places which other one stands for each; itself says nothing."""
        others = kept != places
        places, kept = places[others], kept[others]
        self.dropped[places] = dropped
        self._note(places, kept, distance[others], self.candidates.same(places, kept))

    def _note(self, places: Any, twin: Any, distance: Any, exact: Any) -> None:
        self.twin[places], self.distance[places] = twin, distance
        self.exact[places], self.near[places] = exact, ~exact

    def left(self) -> NDArray[np.int64]:
        """The places of candidates that nothing was found of, in order."""
        return np.flatnonzero(~(self.exact | self.near))

    def rows(self, sets: Sequence[PictureSet]) -> Iterator[dict[str, Any]]:
        """The rows of the catalogue, in the order of the candidates' arrival."""
        moment, ids = now(), self.candidates.ids
        places = np.flatnonzero(self.exact | self.near)
        for place in places[np.argsort(ids[places])]:
            number, twin = int(self.set[place]), int(self.twin[place])
            hashes = sets[number].hashes if number >= 0 else None
            yield {
                "candidate_id": int(ids[place]),
                "kind": "exact" if self.exact[place] else "near",
                "distance": int(self.distance[place]),
                "kept_id": int(ids[twin]) if hashes is None else None,
                "against": hashes.name if hashes else None,
                "item": hashes.picture(twin) if hashes else None,
                "dropped": bool(self.dropped[place]),
                "found": moment,
            }

    def summary(self, sets: Sequence[PictureSet]) -> Deduplicated:
        """The counts."""
        alone = (self.exact | self.near) & (self.set < 0)
        labels = self.candidates.labels
        across = int((labels[alone] != labels[self.twin[alone]]).sum())
        dropped = int(self.dropped.sum())
        return Deduplicated(
            checked=len(labels),
            exact=int(self.exact.sum()),
            near=int(self.near.sum()),
            against=int((self.set >= 0).sum()),
            across_labels=across,
            dropped=dropped,
            kept=len(labels) - dropped,
            sets=[
                Compared(
                    read.hashes.name,
                    len(read.hashes),
                    dict(sorted(read.refused.items())),
                    int((self.set == number).sum()),
                )
                for number, read in enumerate(sets)
            ],
        )
