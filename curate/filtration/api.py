"""Filtration without a workspace, for notebooks and scripts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from curate.errors import ImageRefused
from curate.files import candidate_key, sha256_bytes
from curate.filtration.caps import Survivor, shortlist
from curate.filtration.cascade import judge_chunk
from curate.filtration.plan import make_plan, resized
from curate.filtration.rules import Misclassified
from curate.filtration.terms import Photo, Verdict
from curate.images.decode import decode
from curate.images.quality import flags, measure
from curate.labels.space import LabelSpace, load_label_space
from curate.progress import progress
from curate.settings import QualitySettings

if TYPE_CHECKING:
    from curate.models.ensemble import Ensemble

_CHUNK = 64


@dataclass(frozen=True)
class FilterResult:
    """What `filter_images` says.

    Attributes:
        verdicts: one a photo, in the order of the input; the positions that it speaks of are
            those of `label_space`.
        shortlist: positions in the input of the survivors under the cap, in review order.
        forwards: how many views passed a classifier.
        label_space: what softmax and argmax ran over.
    """

    verdicts: list[Verdict]
    shortlist: list[int]
    forwards: int
    label_space: LabelSpace


def filter_images(
    paths: Sequence[str | os.PathLike[str]],
    labels: Sequence[str],
    ensemble: Ensemble | Sequence[str],
    threshold: float = 0.15,
    cap: int = 15,
    *,
    label_space: LabelSpace | str | None = None,
    cap_order: str = "hash",
    seed: int = 0,
    views: str = "paper",
) -> FilterResult:
    """Filter photos with an ensemble: verdicts and the shortlist, as `curate filter` gives them.

    It computes where the ensemble is, one photo after the other; `curate filter` uses all cores.

    Args:
        paths: N photos. One that cannot be used gets a verdict with the outcome "failed".
        labels: N weak labels, wnids or class names.
        ensemble: the classifiers, or names of some; the first one names the confusion.
        threshold: most probability that a view may give the true class, in [0, 1].
        cap: most survivors a confusion on the shortlist, at least 1.
        label_space: what softmax and argmax run over; by default the ensemble's, which is
            imagenet-1k unless it was made with another one.
        cap_order: "hash", "confidence", "arrival" or "quality" (with the default limits).
        seed: for the orders "hash" and "quality".
        views: "paper" or "native".

    Raises:
        ValueError: the lists are empty or differ in length, a number is out of range, or a class
            is unknown or ambiguous.
        UsageError: a label space that does not fit the ensemble.

    Source: Hendrycks et al., "Natural Adversarial Examples", CVPR 2021, section 3.1.
    """
    from curate.models.ensemble import Ensemble
    from curate.models.runtime import bound_threads

    if len(paths) != len(labels):
        raise ValueError(f"{len(paths)} paths, but {len(labels)} labels")
    if not paths:
        raise ValueError("there are no paths")
    if not 0 <= threshold <= 1:
        raise ValueError(f"threshold must be in [0, 1], not {threshold}")
    if cap < 1:
        raise ValueError(f"cap must be at least 1, not {cap}")
    if not isinstance(ensemble, Ensemble):
        ensemble = Ensemble(ensemble, label_space or "imagenet-1k")
    if isinstance(label_space, str):
        label_space = load_label_space(label_space)
    space = label_space or ensemble.label_space
    classes = [space.match(label) for label in labels]
    plan = make_plan(ensemble, space, Misclassified(threshold), views=views)
    verdicts: list[Verdict] = []
    keys: list[str] = []
    flagged: set[int] = set()
    forwards = 0
    with bound_threads(1), progress("filter_images", len(paths)) as bar:
        for start in range(0, len(paths), _CHUNK):
            photos: list[Photo | ImageRefused] = []
            for path, label in zip(
                paths[start : start + _CHUNK], classes[start : start + _CHUNK], strict=True
            ):
                try:
                    data = _read(Path(path))
                    image, _ = decode(data, name=Path(path).name)
                    if cap_order == "quality" and flags(measure(image), QualitySettings()):
                        flagged.add(len(keys))
                    photos.append(resized(image, plan))
                    keys.append(candidate_key(sha256_bytes(data), label.wnid))
                except ImageRefused as refusal:
                    photos.append(refusal)
                    keys.append("")
            targets = [space.position(label.wnid) for label in classes[start : start + _CHUNK]]
            result = judge_chunk(photos, targets, plan, keys[start : start + _CHUNK])
            verdicts += result.verdicts
            forwards += result.forwards
            bar.advance(len(photos))
    survivors = [
        Survivor(
            keys[n],
            classes[n].wnid,
            space.wnids[v.predicted],
            float(v.confidence or 0),
            arrival=n,
            flagged=n in flagged,
        )
        for n, v in enumerate(verdicts)
        if v.outcome == "survivor" and v.predicted is not None
    ]
    listed = shortlist(survivors, cap, cap_order, seed)
    return FilterResult(verdicts, [s.arrival for s in listed], forwards, space)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ImageRefused("missing", str(path)) from None
    except OSError as error:
        raise ImageRefused("unreadable", f"{path}: {error.strerror}") from error
