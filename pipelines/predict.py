"""Predict: one classifier over the images of one dataset."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from curate.errors import ImageRefused
from curate.files import sha256_bytes
from curate.progress import Stop, progress
from curate.settings import ImageLimits
from curate.sources.folder import read_image
from curate.testbed.predictions import Gathered, Predictions, Scores, score_logits
from pipelines.datasets import Dataset
from pipelines.provenance import made_by
from pipelines.threads import run_here, usable_cores

if TYPE_CHECKING:
    from curate.images.views import ViewRecipe
    from curate.models.classifier import Classifier

Item = TypeVar("Item")

# Datasets are made by others: a side may be short. The ratio bounds what resizing makes.
_LIMITS = ImageLimits(min_side=1, max_aspect_ratio=100)

# Images in hand of one worker. The batches of a chunk depend on it, so it never depends on cores.
_CHUNK = 32


@dataclass
class _Chunk:
    """Scores of the images of a chunk that gave some, batch by batch; the others' refusals."""

    scores: list[tuple[Sequence[int], Scores]] = field(default_factory=list)
    refused: dict[int, ImageRefused] = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)


class Forward:
    """One classifier over one dataset, the centre crop of each image.

    A worker thread a core decodes and computes, each operation on one thread; on a GPU they take
    turns to compute. Batches are the same whatever the number of cores, so the numbers are too.

    Args:
        classifier: on its device.
        recipe: how the crop is cut.
        dataset: its images.

    Attributes:
        details: row to what was seen, for images that were refused.
        content_sha256: SHA-256 over a line "SHA-256, two blanks, path" for each image in order,
            as sha256sum prints it; of an unreadable image the line begins with the blanks.
    """

    def __init__(self, classifier: Classifier, recipe: ViewRecipe, dataset: Dataset) -> None:
        from curate.models.runtime import BATCH_SIZES

        self.classifier, self.recipe, self.dataset = classifier, recipe, dataset
        self.details: dict[int, str] = {}
        self.content_sha256 = ""
        self._batch_size = BATCH_SIZES[classifier.device.type]
        self._columns = classifier.columns(dataset.space)
        positions = {wnid: n for n, wnid in enumerate(dataset.space.wnids)}
        self._targets = [positions[wnid] for wnid in dataset.wnids]
        on_cpu = classifier.device.type == "cpu"
        self._turn: Any = nullcontext() if on_cpu else threading.Lock()

    def run(self, stop: Stop) -> Predictions | None:
        """The predictions, or None where a stop was requested before all were there."""
        dataset, classifier = self.dataset, self.classifier
        gathered = Gathered(
            dataset.paths, dataset.wnids, dataset.space, self._columns, classifier.output
        )
        total = len(dataset.paths)
        digests = [""] * total
        rows = range(total)
        chunks = _parts(rows, max(_CHUNK, self._batch_size))
        left = total
        with progress(f"{classifier.name} on {dataset.name}", total) as bar:
            for chunk, done in run_here(chunks, self._score, usable_cores(), stop):
                for batch, scores in done.scores:
                    gathered.add(batch, scores)
                for row, refusal in done.refused.items():
                    gathered.fail(row, refusal.reason)
                    self.details[row] = refusal.detail
                for row, digest in done.digests.items():
                    digests[row] = digest
                left -= len(chunk)
                bar.advance(len(chunk))
        if left:
            return None
        lines = (f"{digest}  {path}\n" for digest, path in zip(digests, dataset.paths, strict=True))
        self.content_sha256 = sha256_bytes("".join(lines).encode())
        return gathered.predictions()

    def _score(self, chunk: Sequence[int]) -> _Chunk:
        from curate.models.runtime import bound_threads

        done = _Chunk()
        rows: list[int] = []
        crops: list[np.ndarray] = []
        for row in chunk:
            try:
                crops.append(self._crop(row, done))
                rows.append(row)
            except ImageRefused as refusal:
                done.refused[row] = refusal
        size = self._batch_size
        with self._turn, bound_threads(1):
            for batch, views in zip(_parts(rows, size), _parts(crops, size), strict=True):
                logits = self.classifier.logits(np.stack(views)).cpu().numpy()
                targets = [self._targets[row] for row in batch]
                done.scores.append((batch, score_logits(logits, self._columns, targets)))
        return done

    def _crop(self, row: int, done: _Chunk) -> np.ndarray:
        from curate.images.decode import decode
        from curate.images.views import resize_short_side, view

        path = self.dataset.layout.items[row].path
        data = read_image(path, _LIMITS.max_bytes)
        done.digests[row] = sha256_bytes(data)
        image, _ = decode(data, _LIMITS, path.name)
        # A copy: the window would keep the whole photo in memory.
        return view(resize_short_side(image, self.recipe), 0, self.recipe.crop).copy()

    def made_by(self) -> dict[str, Any]:
        """What computed the numbers, beside the classifier."""
        return made_by(str(self.classifier.device)) | {
            "dtype": "float32",
            "batch_size": self._batch_size,
        }


def _parts(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
