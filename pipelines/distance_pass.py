"""One pass of a model over a set of images for mean and covariance of what it sees in them."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from curate.errors import ImageRefused, UsageError
from curate.files import canonical_json, sha256_bytes
from curate.metrics.frechet import Moments
from curate.progress import Stop, progress, say
from curate.sources.folder import read_image
from pipelines.corruption_work import may_be_kept
from pipelines.datasets import Dataset
from pipelines.evaluate_cache import Cache
from pipelines.labelled import LIMITS
from pipelines.predict import Contents, centre_crop
from pipelines.provenance import made_by, processor
from pipelines.threads import run_here, usable_cores

if TYPE_CHECKING:
    from curate.models.features import FeatureReader

# Images in hand of one worker. Batches and sums depend on it, so it never depends on cores.
_CHUNK = 32

# Counts up when the code computes other numbers from the same input.
_RECIPE = 1


@dataclass
class Seen:
    """What a model saw in a set of images, or in a part of it.

    Attributes:
        halves: moments of the images whose hashes are the lower half, and of the rest: a lot that
            does not depend on names.
        failed: row to why an image could not be used.
    """

    halves: tuple[Moments, Moments] = field(default_factory=lambda: (Moments(), Moments()))
    failed: dict[int, str] = field(default_factory=dict)


class FeaturePass:
    """A model over the centre crops of a set of images, as the model was trained.

    A worker thread a core decodes and computes, each operation on one thread; on a GPU they take
    turns to compute. Chunks are added up in order, so that the sums are the same whatever the
    number of cores. Memory depends on the number of features, not on that of images.

    Args:
        reader: of the model, on its device.
        dataset: the images.
        cache: where sums are looked for and kept; None for nowhere.
    """

    def __init__(self, reader: FeatureReader, dataset: Dataset, cache: Cache | None) -> None:
        from curate.models.runtime import BATCH_SIZES

        self.reader, self.dataset, self._cache = reader, dataset, cache
        device = reader.classifier.device.type
        self._batch_size = BATCH_SIZES[device]
        self._turn: Any = nullcontext() if device == "cpu" else threading.Lock()
        self._contents = Contents(dataset)

    def digests(self, stop: Stop) -> list[str] | None:
        """SHA-256 of each image, "(reason)" for one that cannot be read; None after a stop."""
        return self._contents.read(stop)

    def run(self, stop: Stop) -> Seen | None:
        """What the model saw; None where a stop was requested before all was there.

        Raises:
            UsageError: features that are no finite numbers, or none a view.
        """
        name = f"{self.reader.classifier.name} on {self.dataset.name}"
        digests = self.digests(stop)
        if digests is None:
            return None
        key = self._key(digests)
        if self._cache is not None:
            held = _restored(self._cache.find(key))
            if held is not None:
                say(f"{name}: computed before")
                return held
        seen = self._compute(name, _lots(digests), digests, stop)
        known = ["" if digest.startswith("(") else digest for digest in digests]
        if seen is not None and self._cache is not None and may_be_kept(seen.failed, known):
            self._cache.keep(key, _arrays(seen))
        return seen

    def _compute(
        self, name: str, lots: np.ndarray, digests: Sequence[str], stop: Stop
    ) -> Seen | None:
        total = len(self.dataset.paths)
        size = max(_CHUNK, self._batch_size)
        chunks = [range(start, min(start + size, total)) for start in range(0, total, size)]
        seen, waiting, following = Seen(), dict[int, tuple[list[int], np.ndarray]](), 0
        with progress(name, total) as bar:
            for chunk, (rows, features, failed) in run_here(
                chunks, lambda chunk: self._look(chunk, digests), usable_cores(), stop
            ):
                waiting[chunk.start] = (rows, features)
                seen.failed.update(failed)
                while following in waiting:
                    held, found = waiting.pop(following)
                    self._add(seen, lots[held], found)
                    following += size
                bar.advance(len(chunk))
        return seen if following >= total else None

    def _add(self, seen: Seen, lots: np.ndarray, features: np.ndarray) -> None:
        if not len(lots):
            return
        try:
            for side, moments in enumerate(seen.halves):
                moments.add(features[lots == side])
        except ValueError as error:
            raise UsageError(
                f"{self.reader.classifier.name} gives no usable features: {error}"
            ) from error

    def _look(
        self, chunk: range, digests: Sequence[str]
    ) -> tuple[list[int], np.ndarray, dict[int, str]]:
        from curate.models.runtime import bound_threads

        recipe = self.reader.classifier.preprocessing.recipe
        rows: list[int] = []
        crops: list[np.ndarray] = []
        failed: dict[int, str] = {}
        for row in chunk:
            path = self.dataset.layout.items[row].path
            try:
                crops.append(centre_crop(_same_bytes(path, digests[row]), path.name, recipe))
                rows.append(row)
            except ImageRefused as refusal:
                failed[row] = refusal.reason
        size, found = self._batch_size, []
        with self._turn, bound_threads(1):
            for start in range(0, len(crops), size):
                views = np.stack(crops[start : start + size])
                found.append(self.reader.features(views).cpu().numpy())
        return rows, np.concatenate(found) if found else np.zeros((0, 1)), failed

    def _key(self, digests: Sequence[str]) -> str:
        """Depends on everything that makes the sums."""
        model = self.reader.classifier.record()
        del model["name"]
        return sha256_bytes(
            canonical_json(
                {
                    "recipe": ["features", _RECIPE, _CHUNK, LIMITS.model_dump()],
                    "images": sha256_bytes(canonical_json(list(digests))),
                    "model": model,
                    "view": asdict(self.reader.classifier.preprocessing.recipe),
                    "made_by": self.made_by(),
                    "processor": processor(),
                }
            )
        )

    def made_by(self) -> dict[str, Any]:
        """What computed the numbers, beside the model."""
        return made_by(str(self.reader.classifier.device)) | {
            "dtype": "float32",
            "batch_size": self._batch_size,
        }


def _same_bytes(path: Path, digest: str) -> bytes:
    """What a file held when it was read first, by which it is known and was drawn.

    Raises:
        ImageRefused: it could not be read then or now, or holds something else.
    """
    if digest.startswith("("):
        raise ImageRefused(digest[1:-1])
    data = read_image(path, LIMITS.max_bytes)
    if sha256_bytes(data) != digest:
        raise ImageRefused("altered", "the file has changed since the run began")
    return data


def _lots(digests: Sequence[str]) -> np.ndarray:
    """0 or 1 for each image, half of them each."""
    lots = np.zeros(len(digests), np.int64)
    order = sorted(range(len(digests)), key=digests.__getitem__)
    lots[order[(len(order) + 1) // 2 :]] = 1
    return lots


def _arrays(seen: Seen) -> dict[str, Any]:
    arrays: dict[str, Any] = {"failed": np.array(json.dumps(seen.failed))}
    for number, moments in enumerate(seen.halves):
        arrays |= {f"{name}{number}": value for name, value in moments.arrays().items()}
    return arrays


def _restored(held: dict[str, Any] | None) -> Seen | None:
    if held is None:
        return None
    try:
        first, second = (
            Moments.from_arrays(
                {name: held[f"{name}{number}"] for name in ("n", "mean", "scatter")}
            )
            for number in (0, 1)
        )
        told = json.loads(str(held["failed"]))
        return Seen((first, second), {int(row): str(reason) for row, reason in told.items()})
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
