"""Both sides of a measurement of selection bias: a release, and ordinary images of its classes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from curate.errors import UsageError
from curate.files import printable
from curate.release.layout import CLASS_MAP, IMAGENET_O, RELEASE_RECORD, Layout
from curate.release.splits import CONTROL, REST
from pipelines.datasets import Dataset, open_dataset, read_release
from pipelines.ood_datasets import open_inside


@dataclass(frozen=True)
class Selected:
    """A release, as far as its selection bias is concerned.

    Attributes:
        root: its folder, or that of the split that is measured.
        split: its name; empty without splits.
        version: MAJOR.MINOR.PATCH.
        manifest_sha256: of its manifest.
        models: those that took part in selecting: `name`, `fingerprint`, `part`, `architecture`
            where it is recorded.
    """

    root: Path
    split: str
    version: str
    manifest_sha256: str
    models: Sequence[Mapping[str, str]]

    def told(self) -> dict[str, Any]:
        """What says which release it is."""
        return {
            "version": self.version,
            "split": self.split,
            "manifest_sha256": self.manifest_sha256,
        }


def open_selected(root: Path) -> Selected:
    """Open a release whose images models have selected.

    Args:
        root: its folder, or that of one of its splits; of a release with splits `test` is taken.

    Raises:
        UsageError: no release, one in ImageNet-O layout, or a control sample.
    """
    split, top = "", root
    if not (root / RELEASE_RECORD).is_file() and (root.parent / RELEASE_RECORD).is_file():
        split, top = root.resolve().name, root.parent
    if not (top / RELEASE_RECORD).is_file():
        raise UsageError(f"{printable(root)} is no release: it has no {RELEASE_RECORD}")
    release = read_release(root)
    record = json.loads((top / RELEASE_RECORD).read_bytes())
    if release.layout == IMAGENET_O:
        raise UsageError(
            f"{printable(root)} is in ImageNet-O layout: its photos have no true class, so there "
            "is no accuracy to hold against that on ordinary photos"
        )
    try:
        splits = record["counts"].get("by_split") or {}
        models = [
            {
                "name": str(model["name"]),
                "fingerprint": str(model["fingerprint"]),
                "architecture": str(model.get("architecture") or model["name"]),
                "part": part,
            }
            for part, found in (
                ("filter", record["models"]),
                ("order of review", (record.get("review") or {}).get("referees") or ()),
            )
            for model in found
        ]
    except (AttributeError, KeyError, TypeError) as error:
        raise UsageError(f"{printable(top)} has no usable {RELEASE_RECORD}; fetch it again") from (
            error
        )
    if splits and not split:
        if REST not in splits:
            raise UsageError(
                f"{printable(root)} has no split {REST!r}: name the folder of one of "
                f"{', '.join(map(str, splits))}"
            )
        root, split = root / REST, REST
    if CONTROL in (split, record.get("split")):
        raise UsageError(
            f"{printable(root)} is a control sample, drawn before any model filtered: it has no "
            "selection bias"
        )
    return Selected(root, split, release.version, release.manifest_sha256, models)


def open_both(selected: Selected, standard: Path, labels: Path | None) -> tuple[Dataset, Dataset]:
    """The release's images, and standard images of the classes that have some there.

    Args:
        selected: the release.
        standard: class folders, or with `labels` any folder of images.
        labels: a file that says of which class each standard image is.

    Raises:
        UsageError: no images, none of these classes, the same folder twice, or a release without
            its class map.
    """
    first, second = selected.root.resolve(), standard.resolve()
    if first == second or first in second.parents or second in first.parents:
        raise UsageError(
            f"{printable(standard)} holds the release's own images: standard accuracy needs others"
        )
    ours = open_dataset(selected.root)
    if ours.release is None:
        raise UsageError(
            f"{printable(selected.root)} has no {CLASS_MAP}, which says what its folders are; "
            "fetch it again"
        )
    inside = open_inside(standard, ours.space, labels, option="--labels")
    classes = set(ours.wnids)
    kept = [row for row, wnid in enumerate(inside.wnids) if wnid in classes]
    if not kept:
        raise UsageError(
            f"none of the {len(inside.layout)} images of {printable(standard)} is of one of the "
            f"{len(classes)} classes of release {selected.version}"
        )
    return ours, rows_of(inside, kept)


def rows_of(dataset: Dataset, rows: Sequence[int]) -> Dataset:
    """Some images of a dataset; the others are counted as those of other classes.

    Args:
        dataset: the images.
        rows: which of them.
    """
    layout = dataset.layout
    items = tuple(layout.items[row] for row in rows)
    return replace(
        dataset,
        layout=Layout(layout.root, items, layout.passed_over),
        paths=tuple(dataset.paths[row] for row in rows),
        wnids=tuple(dataset.wnids[row] for row in rows),
        other_classes=dataset.other_classes + len(dataset.paths) - len(rows),
    )
