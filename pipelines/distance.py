"""The Fréchet distance between two folders of images, on what a model of the zoo sees in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from curate.errors import Interrupted, UsageError, VerificationError
from curate.files import printable
from curate.metrics.frechet import Moments, extrapolated_distance, frechet_distance
from curate.progress import stop_on_interrupt
from curate.release.layout import read_layout, release_label_space
from pipelines.datasets import Dataset, dataset_of, read_images, read_release, refuse_workspace
from pipelines.distance_pass import FeaturePass, Seen
from pipelines.evaluate_cache import Cache

if TYPE_CHECKING:
    from curate.models.classifier import Classifier


@dataclass(frozen=True)
class _Side:
    """What is known of one set.

    Attributes:
        told: as the summary has it.
        whole: moments of all images.
        halves: of two halves of them, by lot.
        contents: SHA-256 of each image that was read.
    """

    told: dict[str, Any]
    whole: Moments
    halves: tuple[Moments, Moments]
    contents: frozenset[str]


def distance_between(
    a: Path,
    b: Path,
    model: str,
    *,
    device: str = "auto",
    cache: Path | None = None,
    strict: bool = False,
) -> dict[str, Any]:
    """Measure how far two sets of images lie apart for a model.

    Args:
        a: a folder of images, whatever the folders in it are called.
        b: another one.
        model: as the zoo has it; its last layer must be fully connected.
        device: where to compute.
        cache: a folder where means and covariances are kept; None keeps nothing.
        strict: take images that cannot be used for a fault.

    Returns:
        `distance` and `extrapolated`, both squares, in squared units of the features (`unit`); the
        latter None where half of a set has no more images than there are features. `dimensions` of
        the features. `a` and `b`, with `name`, `images`, `failed`, `failures`,
        `took_part_in_selection` (None of what is no release) and `halves`: `images` of both, and
        their `distance` from each other, None where one has fewer than two. `shared`: how many
        different images are in both, byte for byte. `model`, `made_by`, `notes`.

    Raises:
        UsageError: no such folder or model; a model without features; fewer than two images that
            can be used; features that are no numbers.
        VerificationError: with `strict`, an image could not be used.
        Interrupted: stopped by the user.
    """
    from curate.models.features import FeatureReader
    from curate.models.runtime import tune_allocator
    from curate.models.zoo import load_classifier

    for folder in (a, b):
        refuse_workspace(folder)
    tune_allocator()
    classifier = load_classifier(model, None, device=device)
    reader = FeatureReader(classifier)
    kept = None if cache is None else Cache(cache)
    sides, made_by = [], {}
    passes = [FeaturePass(reader, _open(folder, classifier), kept) for folder in (a, b)]
    with stop_on_interrupt() as stop:
        for done, folder in zip(passes, (a, b), strict=True):
            digests, seen = done.digests(stop), done.run(stop)
            if digests is None or seen is None:
                keeps = "nothing is kept" if kept is None else "finished folders are kept"
                raise Interrupted(f"stopped at {printable(folder)}; {keeps}")
            sides.append(_side(done.dataset, seen, digests, printable(folder), classifier))
            made_by = done.made_by()
    first, second = sides
    failed = first.told["failed"] + second.told["failed"]
    if strict and failed:
        raise VerificationError(
            f"{failed} images could not be used; without --strict they are told"
        )
    distance = frechet_distance(first.whole.gaussian(), second.whole.gaussian())
    summary = {
        "distance": distance,
        "extrapolated": _extrapolated(distance, first, second),
        "unit": "squared units of the features",
        "dimensions": first.whole.dimensions,
        "a": first.told,
        "b": second.told,
        "shared": len(first.contents & second.contents),
        "model": classifier.record(),
        "made_by": made_by,
    }
    return summary | {"notes": _notes(summary)}


def _open(folder: Path, classifier: Classifier) -> Dataset:
    own = release_label_space(folder)
    layout = read_images(folder) if own is None else read_layout(folder, own)
    release = None if own is None else read_release(folder)
    return dataset_of(folder, layout, classifier.output, "", release, truth=False)


def _side(
    dataset: Dataset, seen: Seen, digests: list[str], name: str, classifier: Classifier
) -> _Side:
    whole = Moments()
    for half in seen.halves:
        whole.merge(half)
    failures = [
        {"path": dataset.paths[row], "reason": seen.failed[row]} for row in sorted(seen.failed)
    ]
    if whole.n < 2:
        first = ""
        if failures:
            first = f"; the first is {failures[0]['path']!r} ({failures[0]['reason']})"
        raise UsageError(
            f"{whole.n} of {len(dataset.paths)} images of {name} can be used: a distance needs at "
            f"least two{first}"
        )
    apart = None
    if min(half.n for half in seen.halves) > 1:
        one, other = (half.gaussian() for half in seen.halves)
        apart = frechet_distance(one, other)
    release = dataset.release
    told = {
        "name": name,
        "images": whole.n,
        "failed": len(failures),
        "failures": failures,
        "took_part_in_selection": release and classifier.fingerprint in release.selection,
        "halves": {"images": [half.n for half in seen.halves], "distance": apart},
    }
    contents = frozenset(digest for digest in digests if not digest.startswith("("))
    return _Side(told, whole, seen.halves, contents)


def _extrapolated(distance: float, first: _Side, second: _Side) -> float | None:
    if min(half.n for half in (*first.halves, *second.halves)) <= first.whole.dimensions:
        return None
    ones, others = ([half.gaussian() for half in side.halves] for side in (first, second))
    apart = [frechet_distance(one, other) for one in ones for other in others]
    return extrapolated_distance(distance, float(np.mean(apart)))


def _notes(summary: Mapping[str, Any]) -> list[str]:
    """What a reader of the number must know."""
    notes = []
    sides = (summary["a"], summary["b"])
    few = [one for one in sides if one["images"] <= summary["dimensions"]]
    for one in few:
        notes.append(
            f"{one['name']} has {one['images']:,} images for {summary['dimensions']:,} features: "
            "its covariance is singular, and most of the distance may be noise"
        )
    notes.append(
        "numbers compare only with those of the same model and of as many images: fewer images "
        "give a larger distance"
    )
    for one in sides:
        if one["took_part_in_selection"]:
            notes.append(
                f"{summary['model']['name']} took part in selecting {one['name']}: what it sees "
                "there is what it was fooled by"
            )
        if one["failed"]:
            notes.append(
                f"{one['failed']:,} images of {one['name']} could not be used; the first is "
                f"{one['failures'][0]['path']} ({one['failures'][0]['reason']})"
            )
    if summary["shared"]:
        notes.append(f"{summary['shared']:,} images are in both sets, byte for byte")
    if "inception_v3" in summary["model"]["architecture"]:
        notes.append(
            "this is not FID as papers print it, which has other weights of Inception-v3 and "
            "another resizing"
        )
    return notes
