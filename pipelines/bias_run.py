"""Running models on a release and on standard images of its classes, for its selection bias."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from curate.errors import Interrupted, UsageError
from curate.metrics.checks import Floats
from curate.metrics.intervals import clopper_pearson
from curate.progress import Stop, stop_on_interrupt
from curate.testbed.model_table import ModelTable
from curate.testbed.selection_bias import FAMILY, FILTER, OTHER, RELEASE, STANDARD
from curate.testbed.shift_beside import CONFIDENCE_LEVEL
from pipelines.bias_sides import Selected, rows_of
from pipelines.datasets import Dataset
from pipelines.evaluate_cache import Cache
from pipelines.predict import Contents, Forward

if TYPE_CHECKING:
    from curate.models.classifier import Classifier


@dataclass
class Measured:
    """What models make of both sets of images.

    Attributes:
        names: of the models, none twice.
        groups: of each.
        right: of both settings, right images and images, a pair a model.
        parts: what else is told of a model, by name.
        notes: what the user must know.
        unmeasured: models that took part in selecting and are not among these.
        contents: of both settings, what says which images they are.
        images: of both settings, how many images and classes there are.
    """

    names: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    right: dict[str, list[tuple[int, int]]] = field(
        default_factory=lambda: {STANDARD: [], RELEASE: []}
    )
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unmeasured: list[str] = field(default_factory=list)
    contents: dict[str, str] = field(default_factory=dict)
    images: dict[str, dict[str, Any]] = field(default_factory=dict)

    def table(self, name: str) -> ModelTable:
        """The accuracies in percent."""
        return ModelTable(
            name,
            tuple(self.names),
            tuple(self.groups),
            {
                setting: np.array([100.0 * k / n for k, n in counts])
                for setting, counts in self.right.items()
            },
            {},
            "percent",
            False,
        )

    def ends(self) -> dict[str, tuple[Floats, Floats]]:
        """The ends of the accuracies' intervals, in percent."""
        found = {}
        for setting, counts in self.right.items():
            ends = [clopper_pearson(k, n, CONFIDENCE_LEVEL) for k, n in counts]
            low, high = (100.0 * np.array(side) for side in zip(*ends, strict=True))
            found[setting] = (low, high)
        return found


def measure(
    selected: Selected,
    release: Dataset,
    standard: Dataset,
    models: Sequence[str],
    is_family: Callable[[str, str], bool],
    *,
    device: str,
    cache: Cache | None,
) -> Measured:
    """Run the models that selected, and others, one after the other.

    Args:
        selected: the release.
        release: its images.
        standard: those that standard accuracy is taken on.
        models: names of others, as the zoo has them.
        is_family: whether a name and an architecture are of the family of a model that selected.
        device: where to compute.
        cache: where scores are kept; None for nowhere.

    Raises:
        UsageError: an unknown model, weights that do not fit, no image that can be used, or no
            model at all.
        Interrupted: stopped by the user.
    """
    from curate.models.classifier import public_name
    from curate.models.runtime import tune_allocator
    from curate.models.zoo import load_classifier

    tune_allocator()
    part_of = {model["fingerprint"]: model["part"] for model in reversed(selected.models)}
    done = Measured()
    seen: set[str] = set()
    for name in models:  # what cannot work fails before the first image
        load_classifier(name, release.space, device=device)
    own = dict.fromkeys(model["name"] for model in selected.models)
    reasons: dict[str, str] = {}
    with stop_on_interrupt() as stop:
        sides = _apart(done, release, standard, stop)
        for name in [*own, *(name for name in models if name not in own)]:
            if name not in models and name.startswith("checkpoint/"):
                # The record comes from outside: no path of it is opened.
                reasons[name] = "its file is not part of the release"
                continue
            try:
                classifier = load_classifier(name, release.space, device=device)
            except UsageError as error:
                if name in models:
                    raise
                reasons[name] = str(error)
                continue
            part = part_of.get(classifier.fingerprint)
            if part is None and name not in models:
                reasons[name] = "its name stands for other weights now"
                continue
            if classifier.fingerprint not in seen:
                seen.add(classifier.fingerprint)
                family = is_family(classifier.name, classifier.architecture)
                group = FILTER if part else FAMILY if family else OTHER
                _add(done, classifier, group, part, sides, cache, stop)
    if not done.names:
        raise UsageError("no model to measure with: name some with --model")
    for model in selected.models:
        if model["fingerprint"] not in seen:
            done.unmeasured.append(public_name(model["name"]))
            why = reasons.get(model["name"], "no model named here has its weights")
            done.notes.append(
                f"{done.unmeasured[-1]} took part in selecting and was not measured ({why}): name "
                "it with --model"
            )
    return done


def _apart(
    done: Measured, release: Dataset, standard: Dataset, stop: Stop
) -> dict[str, tuple[Dataset, Contents]]:
    """Both sides, the standard one without the release's own photos, which were selected."""
    ours = Contents(release)
    own, others = ours.read(stop), Contents(standard).read(stop)
    if own is None or others is None:
        raise Interrupted("stopped while images were read; nothing is kept")
    selected = {digest for digest in own if not digest.startswith("(")}
    kept = [row for row, digest in enumerate(others) if digest not in selected]
    if not kept:
        raise UsageError(
            f"all {len(others)} images of {standard.name} are the release's own: standard accuracy "
            "needs others"
        )
    shared = len(others) - len(kept)
    if shared:
        done.notes.append(
            f"{shared} images of {standard.name} are the release's own, byte for byte, and were "
            "left out there"
        )
    theirs = rows_of(standard, kept)
    done.images = {
        RELEASE: {"images": len(release.paths), "classes": len(set(release.wnids))},
        STANDARD: {
            "name": standard.name,
            "images": len(kept),
            "classes": len(set(theirs.wnids)),
            "other_classes": standard.other_classes,
            "of_the_release": shared,
            "labels": None if standard.labels is None else standard.labels.name,
        },
    }
    return {
        STANDARD: (theirs, Contents(theirs, [others[row] for row in kept])),
        RELEASE: (release, ours),
    }


def _add(
    done: Measured,
    classifier: Classifier,
    group: str,
    part: str | None,
    sides: Mapping[str, tuple[Dataset, Contents]],
    cache: Cache | None,
    stop: Stop,
) -> None:
    record = classifier.record()
    name = str(record["name"])
    if name in done.names:
        raise UsageError(f"two models are called {name}: give their files other names")
    told: dict[str, Any] = {
        "part": part,
        "architecture": classifier.architecture,
        "fingerprint": classifier.fingerprint,
        "view": record["preprocessing"],
    }
    for setting, (dataset, contents) in sides.items():
        forward = Forward(
            classifier, classifier.preprocessing.recipe, dataset, contents, cache=cache
        )
        predictions = forward.run(stop)
        if predictions is None:
            kept = "finished sides are kept" if cache is not None else "nothing is kept"
            raise Interrupted(f"stopped at {name} on {dataset.name}; {kept}")
        sound = predictions.sound
        if not sound.any():
            raise UsageError(f"none of the {len(sound)} images of {dataset.name} can be used")
        right = int(predictions.correct[sound].sum())
        done.right[setting].append((right, int(sound.sum())))
        told[f"{setting}_images"] = {
            "right": right,
            "n": int(sound.sum()),
            "failed": len(predictions.failed),
        }
        done.contents[setting] = forward.content_sha256
        told["made_by"] = forward.made_by()
    done.names.append(name)
    done.groups.append(group)
    done.parts[name] = told
