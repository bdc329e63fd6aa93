"""Files that say of which class each image of a folder is, for folders without class folders.

The flat layout of ImageNet's validation images needs one. Its numbers are a trap: ILSVRC numbers
the classes 1 … 1000 in an order of its own, most other files 0 … 999 in the order of the ids.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.errors import UsageError
from curate.files import printable, read_csv
from curate.labels.space import load_label_space
from curate.testbed.ilsvrc_classes import ilsvrc_classes

# The labels of ImageNet's 14 million images fit.
_LARGEST = 1_000_000_000

_IMAGE_COLUMNS = ("path", "image", "filename", "file", "ImageId")
_LABEL_COLUMNS = ("wnid", "label", "class", "PredictionString")

_NUMBER = re.compile(r"[0-9]{1,9}")
_NUMBERED = re.compile(r"_([0-9]{1,9})\.[A-Za-z]+$")

# Fewer classes may well be the first columns of imagenet-1k.
_FEW = 10


@dataclass(frozen=True, slots=True)
class ImageLabel:
    """What a file says of an image.

    Attributes:
        wnid: id of the class.
        where: the file and line that say so.
    """

    wnid: str
    where: str


def read_image_labels(path: Path, images: Sequence[str]) -> list[ImageLabel]:
    """The class of each image, from a file of one of these forms:

    - lines "FILE LABEL", with blanks between;
    - a CSV file with a column `path` (or `image`, `filename`, `file`, `ImageId`) and a column
      `wnid` (or `label`, `class`, or `PredictionString`, of which the first word counts);
    - a line an image in ILSVRC's order, each an id or ILSVRC's number of a class: line k is about
      the image whose name ends in the number k, as ILSVRC2012_val_00000001.JPEG.

    A label is an id, or a number 0 … 999: the column of imagenet-1k. ILSVRC's own numbers,
    1 … 1000 alone in their lines, need the development kit's `meta.mat` beside the file. Numbers
    that may be the places of class folders are refused, see `refuse_places`. Lines about other
    images are passed over. FILE is a path within the folder or a file name, with or without its
    ending.

    Args:
        path: the file.
        images: path of each image within its folder.

    Raises:
        UsageError: the file cannot be read or is of none of these forms, or an image has no label
            or two.
    """
    name = printable(path)
    try:
        if path.stat().st_size > _LARGEST:
            raise UsageError(f"{name} is too large for a file of labels")
        if path.suffix.casefold() == ".csv":
            told = _csv(path)
        else:
            lines = _lines(path)
            if lines and all(len(text.split()) == 1 for _, text in lines):
                if lines[-1][0] != len(lines):
                    empty = next(k for k, (line, _) in enumerate(lines, 1) if line != k)
                    raise UsageError(
                        f"{name}, line {empty}: it is empty, so that every line behind it would be "
                        "about another image"
                    )
                return _by_number(path, lines, images)
            told = _pairs(name, lines)
        labels = list(_named(name, told))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"cannot read the labels {name}: {reason}") from error
    if not labels:
        raise UsageError(f"{name} holds no labels")
    return _by_name(name, labels, images)


def _lines(path: Path) -> list[tuple[int, str]]:
    with path.open(encoding="utf-8-sig") as stream:
        numbered = enumerate((line.strip() for line in stream), 1)
        return [(number, text) for number, text in numbered if text]


def _pairs(name: str, lines: Sequence[tuple[int, str]]) -> Iterator[tuple[int, str, str]]:
    for number, text in lines:
        parts = text.rsplit(None, 1)
        if len(parts) != 2:
            raise UsageError(f"{name}, line {number}: expected a file and its label, not {text!r}")
        yield number, parts[0], parts[1]


def _csv(path: Path) -> Iterator[tuple[int, str, str]]:
    columns: tuple[str, str] | None = None
    for line, cells in read_csv(path, []):
        if columns is None:
            columns = (
                _column(path, cells, _IMAGE_COLUMNS, "images"),
                _column(path, cells, _LABEL_COLUMNS, "labels"),
            )
        image, label = (cells[column].strip() for column in columns)
        if not image or not label:
            raise UsageError(f"{printable(path)}, line {line}: image or label is missing")
        yield line, image, label.split()[0]


def _column(path: Path, cells: Mapping[str, Any], names: Sequence[str], what: str) -> str:
    for name in names:
        if name in cells:
            return name
    raise UsageError(
        f"{printable(path)}: a column of {what} is missing: call it {names[0]!r}; there are "
        f"{', '.join(map(repr, cells)) or 'none'}"
    )


def _named(name: str, told: Iterator[tuple[int, str, str]]) -> Iterator[tuple[str, ImageLabel]]:
    columns = load_label_space("imagenet-1k").wnids
    used: set[int] = set()
    for line, image, label in told:
        where = f"{name}, line {line}"
        if _NUMBER.fullmatch(label):
            if int(label) >= len(columns):
                raise UsageError(
                    f"{where}: label {label} is no column of imagenet-1k, which has 0 … "
                    f"{len(columns) - 1}; ILSVRC's own numbers, 1 … 1000, are in another order: "
                    "write ids"
                )
            used.add(int(label))
            label = columns[int(label)]
        yield image, ImageLabel(label, where)
    refuse_places(used, name)


def refuse_places(used: Collection[int], where: str) -> None:
    """Refuse numbers of classes that are exactly the first ones, of ten or more but not of all.

    Code that reads class folders numbers these by their place, and so does whatever it writes. As
    columns of imagenet-1k the numbers would stand for other classes, and nothing would tell.

    Args:
        used: every number that occurs, 0 … 999.
        where: the file, for the error.

    Raises:
        UsageError: they are.
    """
    classes = len(used)
    whole = len(load_label_space("imagenet-1k"))
    if _FEW <= classes < whole and max(used) == classes - 1:
        raise UsageError(
            f"{where}: the labels are exactly 0 … {classes - 1}: they may be the places of "
            f"{classes} class folders or columns of imagenet-1k; write them as ids"
        )


def _by_name(
    name: str, labels: Sequence[tuple[str, ImageLabel]], images: Sequence[str]
) -> list[ImageLabel]:
    """Each image's label by its path, else by its file name, else by that without its ending."""
    exact: dict[str, ImageLabel] = {}
    for image, label in labels:
        if (other := exact.setdefault(image.replace("\\", "/"), label)) is not label:
            raise UsageError(f"{label.where}: image {image!r} was named in {other.where} already")
    last: dict[str, ImageLabel | None] = {}
    there = set(images)
    for image, label in exact.items():
        if "/" in image and image in there:
            continue  # it is about that one alone
        short = image.rpartition("/")[2]
        last[short] = None if short in last else label
    found: list[ImageLabel] = []
    without: list[str] = []
    for image in images:
        short = image.rpartition("/")[2]
        stem = short.rpartition(".")[0]
        if told := exact.get(image) or last.get(short) or last.get(stem):
            found.append(told)
        else:
            without.append(image)
    if without:
        raise UsageError(
            f"{name} has no label for image {without[0]!r}, or several; so it is for "
            f"{len(without)} of {len(images)} images"
        )
    return found


def _by_number(
    path: Path, lines: Sequence[tuple[int, str]], images: Sequence[str]
) -> list[ImageLabel]:
    name = printable(path)
    texts = [text for _, text in lines]
    if all(_NUMBER.fullmatch(text) for text in texts):
        numbers = [int(text) for text in texts]
        if 0 in numbers:
            refuse_places(set(numbers), name)
            columns = load_label_space("imagenet-1k").wnids
            table = dict(enumerate(columns))
        else:
            table = ilsvrc_classes(path)
        for (line, text), number in zip(lines, numbers, strict=True):
            if number not in table:
                raise UsageError(f"{name}, line {line}: {text} is the number of no class")
        texts = [table[number] for number in numbers]
    found = []
    for image in images:
        match = _NUMBERED.search(image)
        if match is None:
            raise UsageError(
                f"{name} has a label a line, in ILSVRC's order, but image {image!r} bears no "
                "number as ILSVRC2012_val_00000001.JPEG does: write lines 'FILE LABEL'"
            )
        number = int(match[1])
        if not 1 <= number <= len(texts):
            raise UsageError(f"{name} has {len(texts)} labels, but image {image!r} is there")
        found.append(ImageLabel(texts[number - 1], f"{name}, line {lines[number - 1][0]}"))
    return found
