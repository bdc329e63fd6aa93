"""Fine-tune: a network of the zoo learns the classes of a label space from labelled photos."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from curate.errors import UsageError
from curate.files import canonical_json, printable, sha256_bytes
from curate.labels.space import load_label_space
from curate.progress import Stop, stop_on_interrupt
from pipelines.finetune_place import Place
from pipelines.labelled import list_labelled
from pipelines.learning_photos import Folders, LearningPhotos, picture
from pipelines.provenance import made_by
from pipelines.threads import usable_cores

if TYPE_CHECKING:
    import torch

    from curate.models.finetune_recipe import Recipe
    from curate.models.finetune_start import Init, Start

_SMALLEST_SIDE, _LARGEST_SIDE = 16, 4096


def finetune(
    folder: Path,
    output: Path,
    *,
    label_space: str,
    model: str = "torchvision/resnet50",
    init: Init = "pretrained",
    image_size: int | None = None,
    val: Path | None = None,
    val_share: float = 0.1,
    allow_missing: bool = False,
    device: str = "auto",
    precision: str = "auto",
    workers: int | None = None,
    force: bool = False,
    **recipe: Any,
) -> dict[str, Any]:
    """Fine-tune a network on a folder of class folders, and save it with all that it needs.

    Stopped or killed at any instant, the same call goes on from the last state on the disk and ends
    in the same bytes; finished, it returns the summary again.

    Args:
        folder: class folders, see `labelled.list_labelled`.
        output: the safetensors file to make.
        label_space: the classes of its outputs: a preset or a CSV file.
        model: what to begin with, see `finetune_start.prepare`.
        init: "none" begins with random weights.
        image_size: side of the views in pixels; by default the network's own.
        val: another folder, to measure accuracy on.
        val_share: without one, the share of each class's photos that is measured on and not learned
            from, see `learning_photos.split`.
        allow_missing: whether classes without a photo are left without one.
        device: "auto", "cpu", "cuda", "cuda:1", "mps".
        precision: see `finetune_recipe.resolve_precision`.
        workers: threads that decode; by default one a core for a GPU, else one. No result depends
            on it.
        force: whether another output, or another unfinished run, may be overwritten.
        recipe: see `finetune_recipe.Recipe`.

    Returns:
        What the record beside the output holds, but for `refused`: counts by reason. Besides
        `model` and `model_in_full` (names to use it by), `output`, `record` and `seconds`.

    Raises:
        UsageError: a setting, a folder or the output is unusable, or classes have no photo.
        CurateError: the loss is no number any more, or a photo changed meanwhile.
        Interrupted: stopped by the user; the state is saved.
    """
    from curate.models.finetune_recipe import Recipe, resolve_precision
    from curate.models.finetune_start import prepare
    from curate.models.runtime import resolve_device, tune_allocator
    from curate.models.told import Told

    began = time.monotonic()
    _check(image_size, val_share, workers)
    space = load_label_space(label_space)
    # Before PyTorch is imported, which takes seconds.
    place = Place(output, force)
    target = resolve_device(device)
    steps = Recipe(precision=resolve_precision(precision, target), **recipe)
    listed = list_labelled(folder, space)
    other = None if val is None else list_labelled(val, space)
    folders = Folders(space, listed, other, val_share, steps.seed)
    if not allow_missing:
        folders.refuse_missing()
    tune_allocator()
    start = prepare(model, space, init=init, image_size=image_size, seed=steps.seed)
    its = start.classifier.preprocessing
    Told(start.classifier.architecture, space, its, "").check()
    settings = {
        **start.record,
        "architecture": start.classifier.architecture,
        "preprocessing": its.to_dict(),
        "label_space": space.name,
        "label_space_fingerprint": space.fingerprint,
        **asdict(steps),
        "val": "a share" if other is None else "a folder",
        "val_share": val_share if other is None else None,
        "device": target.type,
    }
    with stop_on_interrupt() as stop, place.held():
        record = _finished(place, settings, folders, stop)
        if record is None:
            place.begin(settings)
            photos = folders.look(stop, place.verdicts())
            if not allow_missing:
                folders.refuse_missing(photos)
            if len({one.target for one in photos.learning}) < 2:
                raise UsageError(
                    f"{printable(folder)} has usable photos of fewer than two classes of "
                    f"{space.name}"
                )
            identity = {"settings": settings, "photos": asdict(photos.fingerprints)}
            run_id = sha256_bytes(canonical_json(identity))[:12]
            run = {"run": run_id, **identity}
            makers = place.enter(run, _made_by(target), photos.verdicts)
            start.classifier.to(target)
            made = _train(start, steps, photos, place, run_id, workers, stop)
            record = {**run, **made, **folders.record(photos), "made_by": makers}
            place.publish(record)
    return _summary(record, place, label_space, time.monotonic() - began)


def _check(image_size: int | None, val_share: float, workers: int | None) -> None:
    if image_size is not None and not _SMALLEST_SIDE <= image_size <= _LARGEST_SIDE:
        raise UsageError(f"--image-size is {image_size}: write {_SMALLEST_SIDE} … {_LARGEST_SIDE}")
    if not 0 <= val_share < 1:
        raise UsageError(f"--val-share is {val_share}: write 0 … below 1")
    if workers is not None and not 1 <= workers <= 256:
        raise UsageError(f"--workers is {workers}: write 1 … 256")


def _finished(
    place: Place, settings: Mapping[str, Any], folders: Folders, stop: Stop
) -> dict[str, Any] | None:
    """The record, where this very run is finished."""
    record = place.finished(settings)
    if record is None:
        return None
    if record["photos"] != asdict(folders.fingerprints(stop)):
        place.refuse("was made from other photos")
        return None
    # A kill may have left what led to it.
    place.clear()
    return record


def _train(
    start: Start,
    recipe: Recipe,
    photos: LearningPhotos,
    place: Place,
    run_id: str,
    workers: int | None,
    stop: Stop,
) -> dict[str, Any]:
    """Learn to the end and write the weights into the run's folder; returns what came of it."""
    from curate.models import checkpoint
    from curate.models.finetune import Training, accuracy
    from curate.models.finetune_photos import Photos
    from curate.models.finetune_state import write_tensors
    from curate.models.told import Told

    classifier = start.classifier
    its = classifier.preprocessing
    training = Training(
        start,
        recipe,
        Photos(
            photos.learning,
            picture,
            its.recipe,
            smallest_crop=recipe.smallest_crop,
            seed=recipe.seed,
        ),
        Photos(photos.validation, picture, its.recipe),
        workers or (1 if classifier.device.type == "cpu" else usable_cores()),
    )
    training.run(place.state, run_id, stop)
    told = Told(classifier.architecture, classifier.output, its, run_id)
    write_tensors(place.weights, classifier.module.state_dict(), told.metadata())
    # What was written is what will be used: it is tried before it takes its place.
    tried = checkpoint.load(printable(place.weights))
    tried.check()
    last = training.history[-1]
    return {
        "fingerprint": tried.fingerprint,
        "classifier": tried.record() | {"name": f"checkpoint/{printable(place.output.name)}"},
        "history": training.history,
        "accuracy": accuracy(last["correct"], last["photos"]) if last["photos"] else None,
    }


def _made_by(device: torch.device) -> dict[str, Any]:
    import torch

    return made_by(str(device)) | {
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def _summary(
    record: Mapping[str, Any], place: Place, label_space: str, seconds: float
) -> dict[str, Any]:
    short = f"checkpoint/{printable(place.output)}"
    labels = quote(label_space, safe="/")
    return {
        **record,
        "refused": dict(Counter(one["reason"] for one in record["refused"])),
        "model": short,
        "model_in_full": f"{short}?arch={record['settings']['architecture']}&labels={labels}",
        "output": printable(place.output),
        "record": printable(place.record_path),
        "seconds": round(seconds, 3),
    }
