"""Check a model: what it is, what it wants, and how often it is right on labelled photos."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from curate.errors import REASONS, Interrupted, UsageError, WeightsError
from curate.files import printable
from curate.labels.space import LabelSpace, load_label_space
from curate.models.finetune import accuracy
from curate.progress import stop_on_interrupt
from curate.release.layout import LabelledImage, Layout
from pipelines.datasets import Dataset
from pipelines.labelled import LabelledFolder, list_labelled
from pipelines.predict import Forward

if TYPE_CHECKING:
    from curate.images.views import ViewRecipe
    from curate.models.classifier import Classifier


def check_model(
    name: str,
    *,
    label_space: str | None = None,
    folder: Path | None = None,
    device: str = "auto",
) -> dict[str, Any]:
    """What a model is, how it fits a label space, and its accuracy on a folder.

    Args:
        name: as `load_classifier` takes it.
        label_space: what softmax and argmax run over: a preset or a CSV file; all classes of the
            model's output by default.
        folder: class folders, see `labelled.list_labelled`.
        device: where the accuracy is computed.

    Returns:
        `model` (see `Classifier.record`), `label_space`, `columns` (of the output, one a class);
        with a folder also `accuracy`: for the views "native" and "paper" `value`, `low`, `high`,
        `n`, `interval`, or a `note` why there is none; `photos`, `failed`, `failures` and
        `passed_over` (class folders outside the label space).

    Raises:
        UsageError: no such model, label space or folder, or none of its photos can be used.
        Interrupted: stopped by the user.
    """
    from curate.models.runtime import tune_allocator
    from curate.models.zoo import load_classifier

    space = None if label_space is None else load_label_space(label_space)
    classifier = load_classifier(name, space, device="cpu" if folder is None else device)
    space = space or classifier.output
    summary: dict[str, Any] = {
        "model": classifier.record(),
        "label_space": space.name,
        "columns": classifier.columns(space),
    }
    if folder is None:
        return summary
    tune_allocator()
    return summary | _measured(classifier, space, list_labelled(folder, space))


def _measured(classifier: Classifier, space: LabelSpace, listed: LabelledFolder) -> dict[str, Any]:
    from curate.images.views import PAPER

    recipes = {"native": classifier.preprocessing.recipe, "paper": PAPER}
    found: dict[str, Any] = {}
    failures: dict[int, dict[str, Any]] = {}
    for view, recipe in recipes.items():
        try:
            classifier.check(recipe.crop)
        except WeightsError as error:
            found[view] = {"value": None, "n": 0, "note": str(error)}
            continue
        same = [other for other in found if recipes[other] == recipe]
        found[view] = (
            found[same[0]] if same else _accuracy(classifier, recipe, space, listed, failures)
        )
    refused = [
        {"path": one.name, "reason": one.reason, "detail": one.detail} for one in listed.refused
    ]
    return {
        "accuracy": found,
        "photos": len(listed.photos),
        "failed": len(refused) + len(failures),
        "failures": refused + [failures[row] for row in sorted(failures)],
        "passed_over": dict(listed.passed_over),
    }


def _accuracy(
    classifier: Classifier,
    recipe: ViewRecipe,
    space: LabelSpace,
    listed: LabelledFolder,
    failures: dict[int, dict[str, Any]],
) -> dict[str, Any]:
    """The accuracy on centre views; photos without a prediction are added to `failures`."""
    photos = listed.photos
    dataset = Dataset(
        name=printable(listed.root.resolve().name),
        layout=Layout(listed.root, tuple(LabelledImage(one.path, one.wnid) for one in photos)),
        paths=tuple(one.name for one in photos),
        wnids=tuple(one.wnid for one in photos),
        space=space,
        chosen_by="",
        release=None,
    )
    forward = Forward(classifier, recipe, dataset)
    with stop_on_interrupt() as stop:
        predictions = forward.run(stop)
    if predictions is None:
        raise Interrupted(f"stopped at {classifier.name} on {dataset.name}; start it again")
    for row, reason in predictions.failed.items():
        detail = forward.details.get(row) or REASONS[reason]
        failures[row] = {"path": photos[row].name, "reason": reason, "detail": detail}
    right = predictions.correct[predictions.sound]
    if not len(right):
        first = failures[min(failures)]
        raise UsageError(
            f"none of the {len(photos)} photos of {dataset.name} can be used; the first is "
            f"{first['path']!r} ({first['reason']})"
        )
    return accuracy(int(np.count_nonzero(right)), len(right))
