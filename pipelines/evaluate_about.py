"""What a result of an evaluation says of what made it, and of the images that it lacks."""

from __future__ import annotations

from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from curate._version import __version__
from curate.files import printable, sha256_file
from curate.labels.space import LabelSpace
from curate.models.training_sets import trained_on_imagenet_21k
from curate.testbed.predictions import Predictions
from pipelines.evaluate_report import space_record
from pipelines.predict import Forward


def about_forward(forward: Forward) -> dict[str, Any]:
    """What made a classifier's numbers, beside the images.

    Args:
        forward: that has run.
    """
    classifier, dataset = forward.classifier, forward.dataset
    release = dataset.release
    return {
        "model": classifier.record(),
        "label_space": space_record(dataset.space, dataset.chosen_by),
        "view": {**asdict(forward.recipe), "place": "centre"},
        "took_part_in_selection": None
        if release is None
        else classifier.fingerprint in release.selection,
        "trained_on_imagenet_21k": trained_on_imagenet_21k(classifier.name),
        "made_by": forward.made_by(),
    }


def about_file(path: Path, space: LabelSpace, chosen_by: str) -> dict[str, Any]:
    """What is known of what made the numbers of a file.

    Args:
        path: the file.
        space: the label space that they are restricted to.
        chosen_by: why this one.
    """
    return {
        "model": {
            "name": printable(path.name),
            "fingerprint": sha256_file(path),
            "fingerprint_of": "predictions-file",
        },
        "label_space": space_record(space, chosen_by),
        "view": None,
        "took_part_in_selection": None,
        "trained_on_imagenet_21k": None,
        "made_by": {"numpy": metadata.version("numpy"), "curate": __version__},
    }


def failures(*sides: tuple[Predictions, dict[int, str]]) -> dict[str, Any]:
    """How many images have no prediction, and which.

    Args:
        sides: predictions, and row to what was seen of an image that was refused.
    """
    told = [
        {
            "path": predictions.paths[row],
            "reason": reason,
            "detail": details.get(row) or None,
        }
        for predictions, details in sides
        for row, reason in predictions.failed.items()
    ]
    return {"failed": len(told), "failures": told}
