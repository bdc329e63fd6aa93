"""NPZ files with logits, read block by block: memory does not grow with their size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from curate.errors import UsageError
from curate.labels.classes import LabelClass
from curate.labels.space import LabelSpace, load_label_space
from curate.testbed.image_ids import ImageIds
from curate.testbed.image_labels import refuse_places
from curate.testbed.npz_arrays import Archive, Array, open_archive
from curate.testbed.predictions import Gathered, Predictions, score_logits
from curate.testbed.probabilities import Probabilities

#: Most columns of logits: ImageNet-21k has 21,841 classes.
MAX_OUTPUTS = 1_000_000


def read_logits(
    path: Path,
    items: Sequence[tuple[str, str]] | None,
    choose: Callable[[Sequence[str]], LabelSpace],
    max_rows: int,
    *,
    truth: bool = True,
    keep_logits: bool = False,
) -> tuple[Predictions, LabelSpace]:
    """Read an NPZ file with logits and restrict them to the label space.

    Its arrays:
        logits: numbers [n, K].
        paths: text [n], the image of each row; needed where `items` is given.
        labels: [n], the true classes, as ids or as ImageNet-1k's column numbers; needed where
            `items` is None.
        classes: text [K], the ids of the columns. Without it K is 1000 for the columns of
            ImageNet-1k, or the size of the label space for its classes in order.

    A row that holds NaN, an infinity, or a number beyond those of float32 counts as failed.

    Args:
        path: the file. Pickled objects in it are never loaded.
        items: see `prediction_files.read_predictions`.
        choose: gives the label space for the true classes.
        max_rows: most rows to read.
        truth: whether the labels are true classes in the label space; where not, they may be
            anything or absent, and only scores are of use.
        keep_logits: keep those of the label space in memory.

    Raises:
        UsageError: the file cannot be read, is cut off, or a row is wrong.
    """
    with open_archive(path) as file:
        with file.open("logits") as logits:
            rows, outputs = _shape(logits, max_rows)
        paths = file.texts("paths", rows)
        labels = _true_classes(file, rows)
        if items is None:
            if labels is None and truth:
                raise UsageError(
                    f"{file.name}: without a DATASET an array 'labels' must give the true classes"
                )
            items = _own_items(file.name, rows, paths, labels)
            places = list(range(rows))
        else:
            places = _places(file.name, items, paths, labels if truth else None)
        space = choose([wnid for _, wnid in items])
        targets = _targets(file.name, items, places, space) if truth else None
        columns, output = _columns(file, outputs, space)
        gathered = Gathered(
            [image for image, _ in items],
            [wnid for _, wnid in items],
            space,
            columns,
            output,
            truth=truth,
            keep_logits=keep_logits,
        )
        with file.open("logits") as logits:
            start, probabilities = 0, Probabilities()
            for block in logits.blocks():
                probabilities.look(block)
                stop = start + len(block)
                part = None if targets is None else targets[start:stop]
                scores = score_logits(block, columns, part, keep_logits=keep_logits)
                gathered.add(places[start:stop], scores)
                start = stop
            probabilities.refuse(logits.where)
    return gathered.predictions(), space


def _shape(logits: Array, max_rows: int) -> tuple[int, int]:
    if len(logits.shape) != 2 or not all(logits.shape):
        raise UsageError(f"{logits.where} must be images by classes, not {logits.shape}")
    if logits.dtype.kind not in "fiu":
        raise UsageError(f"{logits.where} must hold numbers, not {logits.dtype}")
    rows, outputs = logits.shape
    if rows > max_rows:
        raise UsageError(f"{logits.where}: more than {max_rows:,} rows")
    if outputs > MAX_OUTPUTS:
        raise UsageError(f"{logits.where}: more than {MAX_OUTPUTS:,} columns")
    return rows, outputs


def _own_items(
    name: str, rows: int, paths: Sequence[str] | None, labels: Sequence[str] | None
) -> list[tuple[str, str]]:
    items: list[tuple[str, str]] = []
    seen: dict[tuple[str, str], int] = {}
    for row in range(rows):
        image = paths[row] if paths else f"row {row + 1}"
        item = (image, labels[row] if labels else "")
        if (other := seen.setdefault(item, row)) != row:
            raise UsageError(
                f"{name}, row {row + 1}: image {image!r} was named in row {other + 1} already"
            )
        items.append(item)
    return items


def _true_classes(file: Archive, rows: int) -> list[str] | None:
    values = file.values("labels", rows)
    if values is None or values.dtype.kind not in "iu":
        return file.texts("labels", rows)
    wnids = load_label_space("imagenet-1k").wnids
    wrong = (values < 0) | (values >= len(wnids))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise UsageError(
            f"{file.name}, row {row + 1}: label {values[row]} is no column of imagenet-1k, "
            f"which has 0 … {len(wnids) - 1}"
        )
    refuse_places(set(values.tolist()), file.name)
    return [wnids[value] for value in values.tolist()]


def _places(
    name: str,
    items: Sequence[tuple[str, str]],
    paths: Sequence[str] | None,
    labels: Sequence[str] | None,
) -> list[int]:
    """For each row of the file, its place in the dataset."""
    if paths is None:
        raise UsageError(
            f"{name}: an array 'paths' must say which image of the dataset each row is about"
        )
    ids = ImageIds(items, name)
    rows = ids.places((f"row {row + 1}", path) for row, path in enumerate(paths))
    places = [0] * len(rows)
    for place, row in enumerate(rows):
        places[row] = place
    for row, label in enumerate(labels or ()):
        if label != items[places[row]][1]:
            raise UsageError(
                f"{name}, row {row + 1}: the true class is {label!r} here and "
                f"{items[places[row]][1]!r} in the dataset"
            )
    return places


def _targets(
    name: str, items: Sequence[tuple[str, str]], places: Sequence[int], space: LabelSpace
) -> list[int]:
    targets = []
    for row, place in enumerate(places):
        wnid = items[place][1]
        if wnid not in space:
            raise UsageError(
                f"{name}, row {row + 1}: true class {wnid!r} is no class of {space.name}"
            )
        targets.append(space.position(wnid))
    return targets


def _columns(
    file: Archive, outputs: int, space: LabelSpace
) -> tuple[Sequence[int], LabelSpace | None]:
    """The columns of the label space's classes, and the classes of all columns where known."""
    if (ids := file.texts("classes", outputs)) is not None:
        output = LabelSpace(f"{file.name}'s classes", [LabelClass(wnid, wnid) for wnid in ids])
        return space.columns_in(output), output
    thousand = load_label_space("imagenet-1k")
    if outputs == len(thousand) == len(space) and space.wnids != thousand.wnids:
        raise UsageError(
            f"{file.name}: {outputs} columns may be those of {space.name} or of imagenet-1k; "
            "add an array 'classes' with the ids of the columns"
        )
    if outputs == len(space):
        whole = space if space.wnids == thousand.wnids else None
        return range(outputs), whole
    if outputs == len(thousand):
        return space.columns_in(thousand), thousand
    raise UsageError(
        f"{file.name}: logits have {outputs} columns, neither the {len(space)} of {space.name} "
        f"nor the {len(thousand)} of imagenet-1k; add an array 'classes' with their ids"
    )
