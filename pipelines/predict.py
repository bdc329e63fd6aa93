"""Predict: one classifier over the images of one dataset, or what is kept of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from curate.errors import ImageRefused
from curate.files import canonical_json, sha256_bytes
from curate.progress import Stop, progress, say
from curate.sources.folder import read_image
from curate.testbed.predictions import Gathered, Predictions, Scores, score_logits
from pipelines.datasets import Dataset
from pipelines.evaluate_cache import Cache
from pipelines.labelled import LIMITS
from pipelines.provenance import made_by, processor
from pipelines.threads import run_here, usable_cores

if TYPE_CHECKING:
    from curate.images.views import ViewRecipe
    from curate.models.classifier import Classifier

Item = TypeVar("Item")

# Images in hand of one worker. The batches of a chunk depend on it, so it never depends on cores.
_CHUNK = 32

# Counts up when the code computes other numbers from the same input.
_RECIPE = 2


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
        contents: of the dataset's images, where they were read before.
        cache: where scores are looked for and kept; None for nowhere.
        keep_logits: keep those of the label space in memory.

    Attributes:
        details: row to what was seen, for images that were refused.
        digests: SHA-256 of each image, "" of an unreadable one.
        content_sha256: SHA-256 over a line "SHA-256, two blanks, path" for each image in order,
            as sha256sum prints it; of an unreadable image the line begins with the blanks.
    """

    def __init__(
        self,
        classifier: Classifier,
        recipe: ViewRecipe,
        dataset: Dataset,
        contents: Contents | None = None,
        *,
        cache: Cache | None = None,
        keep_logits: bool = False,
    ) -> None:
        from curate.models.runtime import BATCH_SIZES

        self.classifier, self.recipe, self.dataset = classifier, recipe, dataset
        self.details: dict[int, str] = {}
        self.digests: list[str] = []
        self.content_sha256 = ""
        self._contents, self._cache, self._keep_logits = contents, cache, keep_logits
        self._batch_size = BATCH_SIZES[classifier.device.type]
        self._columns = classifier.columns(dataset.space)
        positions = {wnid: n for n, wnid in enumerate(dataset.space.wnids)}
        self._targets = [positions[wnid] for wnid in dataset.wnids] if dataset.truth else None
        on_cpu = classifier.device.type == "cpu"
        self._turn: Any = nullcontext() if on_cpu else threading.Lock()

    def run(self, stop: Stop) -> Predictions | None:
        """The predictions, or None where a stop was requested before all were there."""
        dataset, classifier = self.dataset, self.classifier
        gathered = Gathered(
            dataset.paths,
            dataset.wnids,
            dataset.space,
            self._columns,
            classifier.output,
            truth=dataset.truth,
            keep_logits=self._keep_logits,
        )
        if self._cache is not None and self._contents is not None:
            digests = self._contents.read(stop)
            if digests is None:
                return None
            held = self._cache.find(self._key(digests))
            if held is not None and self._restore(gathered, held):
                say(f"{classifier.name} on {dataset.name}: computed before")
                self._told(digests)
                return gathered.predictions()
        found = self._compute(gathered, stop)
        if found is None:
            return None
        self._told(found)
        if self._cache is not None:
            told = {"failed": gathered.failed, "details": self.details}
            about = np.array(json.dumps(told))
            self._cache.keep(self._key(found), {**gathered.arrays(), "about": about})
        return gathered.predictions()

    def _compute(self, gathered: Gathered, stop: Stop) -> list[str] | None:
        """What was read of each image, as `Contents` tells it; None where a stop came first."""
        dataset = self.dataset
        left = total = len(dataset.paths)
        digests = [""] * total
        chunks = _parts(range(total), max(_CHUNK, self._batch_size))
        with progress(f"{self.classifier.name} on {dataset.name}", total) as bar:
            for chunk, done in run_here(chunks, self._score, usable_cores(), stop):
                for batch, scores in done.scores:
                    gathered.add(batch, scores)
                for row, refusal in done.refused.items():
                    gathered.fail(row, refusal.reason)
                    self.details[row] = refusal.detail
                    digests[row] = _unread(refusal)
                for row, digest in done.digests.items():
                    digests[row] = digest
                left -= len(chunk)
                bar.advance(len(chunk))
        return None if left else digests

    def _told(self, digests: Sequence[str]) -> None:
        self.digests = ["" if digest.startswith("(") else digest for digest in digests]
        named = zip(self.digests, self.dataset.paths, strict=True)
        lines = (f"{digest}  {path}\n" for digest, path in named)
        self.content_sha256 = sha256_bytes("".join(lines).encode())

    def _key(self, digests: Sequence[str]) -> str:
        """Depends on everything that makes the scores."""
        model = self.classifier.record()
        del model["name"]
        made_by = {
            "recipe": [_RECIPE, _CHUNK, LIMITS.model_dump()],
            "images": sha256_bytes(canonical_json(list(digests))),
            "targets": None
            if self._targets is None
            else sha256_bytes(canonical_json(self._targets)),
            "columns": self._columns,
            "model": model,
            "view": asdict(self.recipe),
            "made_by": self.made_by(),
            "processor": processor(),
            "logits": self._keep_logits,
        }
        return sha256_bytes(canonical_json(made_by))

    def _restore(self, gathered: Gathered, held: dict[str, Any]) -> bool:
        try:
            told = json.loads(str(held.pop("about")))
            failed = {int(row): str(reason) for row, reason in told["failed"].items()}
            details = {int(row): str(detail) for row, detail in told["details"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            return False
        if not gathered.restore(held, failed):
            return False
        self.details = details
        return True

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
                targets = self._targets and [self._targets[row] for row in batch]
                scores = score_logits(logits, self._columns, targets, keep_logits=self._keep_logits)
                done.scores.append((batch, scores))
        return done

    def _crop(self, row: int, done: _Chunk) -> np.ndarray:
        path = self.dataset.layout.items[row].path
        data = read_image(path, LIMITS.max_bytes)
        done.digests[row] = sha256_bytes(data)
        return centre_crop(data, path.name, self.recipe)

    def made_by(self) -> dict[str, Any]:
        """What computed the numbers, beside the classifier."""
        return made_by(str(self.classifier.device)) | {
            "dtype": "float32",
            "batch_size": self._batch_size,
        }


def centre_crop(data: bytes, name: str, recipe: ViewRecipe) -> np.ndarray:
    """The centre crop of an image, uint8 of shape (S, S, 3).

    Args:
        data: the file's bytes.
        name: of the file, whose ending may say what it is.
        recipe: how it is cut.

    Raises:
        ImageRefused: it cannot be used.
    """
    from curate.images.decode import decode
    from curate.images.views import resize_short_side, view

    # A set that is measured is measured whole, whatever its images look like.
    image, _ = decode(data, LIMITS, name, must_show=False)
    # A copy: the window would keep the whole photo in memory.
    return view(resize_short_side(image, recipe), 0, recipe.crop).copy()


class Contents:
    """The SHA-256 of every image of a dataset, read when it is first asked for.

    Args:
        dataset: its images.
        digests: where they are known already.
    """

    def __init__(self, dataset: Dataset, digests: list[str] | None = None) -> None:
        self._dataset = dataset
        self._digests = digests

    def read(self, stop: Stop) -> list[str] | None:
        """One an image, in order; "(reason)" for one that cannot be read.

        Args:
            stop: asks to stop.

        Returns:
            None where a stop was requested before all were read.
        """
        if self._digests is not None:
            return self._digests
        items = self._dataset.layout.items
        digests = [""] * len(items)

        def hashed(rows: Sequence[int]) -> list[str]:
            return [_digest(items[row].path) for row in rows]

        left = len(items)
        with progress(f"reading {self._dataset.name}", left) as bar:
            chunks = _parts(range(left), _CHUNK)
            for rows, found in run_here(chunks, hashed, usable_cores(), stop):
                for row, digest in zip(rows, found, strict=True):
                    digests[row] = digest
                left -= len(rows)
                bar.advance(len(rows))
        if left:
            return None
        self._digests = digests
        return digests


def _digest(path: Path) -> str:
    try:
        return sha256_bytes(read_image(path, LIMITS.max_bytes))
    except ImageRefused as refusal:
        return _unread(refusal)


def _unread(refusal: ImageRefused) -> str:
    return f"({refusal.reason})"


def _parts(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
