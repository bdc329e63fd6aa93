"""Which images of a setting are measured where not all are: drawn by lot, alike for every model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from curate.files import sha256_bytes
from curate.release.layout import Layout
from curate.testbed.setting import Part


class Lot:
    """Draws images by their paths, so that what else is in a set changes nothing.

    Args:
        limit: images of a part, of videos anchors with their frames; None for all.
        attack_limit: the same for attacks; the smaller of both counts.
        seed: of the lot, and of attacks.
    """

    def __init__(self, limit: int | None, attack_limit: int | None, seed: int) -> None:
        self._limit, self._seed = limit, seed
        self._attack_limit = min(filter(None, (limit, attack_limit)), default=None)
        # Settings share the images that they begin with: those are drawn once.
        self._drawn: dict[tuple[int, int], tuple[Layout, Layout, list[int]]] = {}

    def drawn(self, part: Part) -> Part:
        """A part with some of its images."""
        if part.attack is not None:
            part = replace(part, attack=replace(part.attack, seed=self._seed))
        limit = self._limit if part.attack is None else self._attack_limit
        if limit is None:
            return part
        inside = None if part.inside is None else self.drawn(part.inside)
        if part.neighbours is not None:
            return replace(self._with_frames(part, limit), inside=inside)
        layout, rows = self._of(part.layout, limit)
        right = tuple(part.right[row] for row in rows)
        return replace(part, layout=layout, right=right, inside=inside)

    def _of(self, layout: Layout, limit: int) -> tuple[Layout, list[int]]:
        key = id(layout), limit
        if key not in self._drawn:
            rows = self._rows(layout, range(len(layout)), limit)
            self._drawn[key] = layout, _some(layout, rows), rows
        return self._drawn[key][1:]

    def _with_frames(self, part: Part, limit: int) -> Part:
        assert part.neighbours is not None
        anchors = self._rows(part.layout, part.neighbours, limit)
        kept = sorted({*anchors, *(row for one in anchors for row in part.neighbours[one])})
        drawn = set(anchors)
        new = {row: place for place, row in enumerate(kept)}
        return replace(
            part,
            layout=_some(part.layout, kept),
            right=tuple(part.right[row] for row in kept),
            neighbours={
                new[one]: tuple(new[frame] for frame in frames)
                for one, frames in part.neighbours.items()
                if one in drawn
            },
        )

    def _rows(self, layout: Layout, rows: Iterable[int], limit: int) -> list[int]:
        def lot(row: int) -> str:
            return sha256_bytes(f"{self._seed}:{layout.lot_of(layout.items[row])}".encode())

        return sorted(sorted(rows, key=lot)[:limit])


def _some(layout: Layout, rows: list[int]) -> Layout:
    return replace(layout, items=tuple(layout.items[row] for row in rows))
