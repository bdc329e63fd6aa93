"""The short plain text that travels with a release."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from curate.labels.space import LabelSpace
from curate.release.bias_words import (
    MOST_ROWS,
    bias_columns,
    bias_rows,
    bias_sentences,
    left_out_rows,
)
from curate.release.layout import IMAGENET_O
from curate.release.loading import evaluation, first_folder
from curate.release.rows import Released


def readme(record: Mapping[str, Any], rows: Sequence[Released], space: LabelSpace) -> bytes:
    """README.md of an unreviewed release: what it is, how to load it, what is in it.

    Text that comes from a label space or a list of concepts stands in indented blocks, where
    nothing is markup.

    Args:
        record: what `release.json` holds.
        rows: of the manifest.
        space: the label space.
    """
    version, counts = record["version"], record["counts"]
    folder = first_folder(record)
    told = _outlier(rows) if record.get("layout") == IMAGENET_O else _misclassified()
    paragraphs = [
        f"# UNREVIEWED: release {version}, its labels confirmed by nobody",
        _CONTROL if record.get("split") == "control" else told.what,
        *_licence(counts),
        "## Loading",
        told.folders,
        _block(
            "from torchvision.datasets import ImageFolder",
            f'dataset = ImageFolder("{folder}")',
        ),
        "ImageFolder numbers the folders that are there in sorted order. Models number classes "
        "otherwise: go by the folder's name, and find it in `classes.csv` (`position` in the label "
        "space, `column` of an ImageNet-1k output). Restrict the output to the label space before "
        f"taking the maximum{told.measure}",
        _block(evaluation(record)),
        *_metadata(counts),
        "## Files",
        "`manifest.parquet` and `manifest.csv` hold the same rows, one an image: labels, scores, "
        "origin, author, licence, checksums. `ATTRIBUTION.md` names title, author, place and "
        "licence of each photo. `release.json` holds the settings, models and versions that made "
        "the release. To check every file:",
        _block("sha256sum -c SHA256SUMS"),
        "## Models that took part in choosing",
        told.chosen,
        _block(*(f"{model['name']}  {model['fingerprint']}" for model in record["models"])),
        *_bias(record.get("selection_bias")),
        *(["## Changes", changes.strip()] if (changes := record.get("changelog", "")) else []),
        f"## Images by {told.by}",
        _block(
            *(
                f"{wnid}  {count:>6,}  {space.get(wnid).name}"
                for wnid, count in counts["by_class"].items()
            ),
            f"{'all':<9}  {counts['images']:>6,}",
        ),
        *told.more,
    ]
    return ("\n\n".join(paragraphs) + "\n").encode()


_CONTROL = (
    "A control sample: photos drawn by lot from the candidates before any model filtered them, "
    "with their weak labels. What is wrong here was wrong at the source; the difference to the "
    "filtered release is what filtering did. Publish no number that rests on it before people have "
    "looked."
)


@dataclass(frozen=True)
class _Told:
    """What differs between the two layouts."""

    what: str
    folders: str
    measure: str
    chosen: str
    by: str
    more: Sequence[str] = ()


def _misclassified() -> _Told:
    return _Told(
        what="Photos that the models named below get wrong, chosen by filtering weakly labelled "
        "candidates. Filtering concentrates wrong labels, so expect many of them among these "
        "photos. Use the release to try a loader or an evaluation; publish no number that rests "
        "on it.",
        folders="One folder a class, named by the class's id:",
        measure=", as this command does:",
        chosen="They are wrong on these photos by construction: their accuracy here says nothing. "
        "That of models related to them is pulled down too.",
        by="class",
    )


def _outlier(rows: Sequence[Released]) -> _Told:
    concepts = Counter((row.wnid, row.name) for row in rows)
    longest = max(len(wnid) for wnid, _ in concepts)
    return _Told(
        what="Out-of-distribution photos in the layout of ImageNet-O: each shows a concept that "
        "the models named below were not trained on, and they confidently take it for one of their "
        "classes. Nobody has looked whether it shows that very class after all, which filtering "
        "makes likely. Use the release to try a loader or an evaluation; publish no number that "
        "rests on it.",
        folders="One folder a class that the photos in it are taken for, which none of them is "
        "meant to show. What they show stands in the manifest (`wnid`, `name`):",
        measure=". The question is whether a model tells these photos from photos of the classes: "
        "score both with the negative maximum of the softmax, and compare the scores. This command "
        "does, with validation photos of these classes in class folders in `val`:",
        chosen="They are confident on these photos by construction: how badly they detect them "
        "says nothing. Models related to them are at a disadvantage too.",
        by="class that they are taken for",
        more=[
            "## Images by concept",
            _block(
                *(
                    f"{wnid:<{longest}}  {count:>6,}  {name}"
                    for (wnid, name), count in sorted(concepts.items())
                )
            ),
        ],
    )


def _bias(measured: Mapping[str, Any] | None) -> list[str]:
    if measured is None:
        return []
    rows = [bias_columns(measured), *bias_rows(measured, MOST_ROWS)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    if more := left_out_rows(measured, MOST_ROWS):
        lines.append(f"and {more:,} more: see release.json")
    return [
        "## Selection bias, measured",
        _block(*lines),
        # Names of files come from outside: nothing is markup in a block.
        _block(*(line for one in bias_sentences(measured) for line in _item(one))),
    ]


def _licence(counts: Mapping[str, Any]) -> list[str]:
    unknown = counts["licence_unknown"]
    if not unknown:
        return ["Each photo has its own licence and author: see the manifest, and name the author."]
    return [
        "Do not publish this folder. Photos without a licence that allows passing them on: "
        f"{unknown:,} of {counts['images']:,}. What is known of licences and authors stands in the "
        "manifest."
    ]


def _metadata(counts: Mapping[str, Any]) -> list[str]:
    said = []
    if turned := counts["notes"].get("exif-orientation-applied"):
        said.append(
            f"Photos with an EXIF orientation: {turned:,}. Apply it (`ImageOps.exif_transpose` of "
            "Pillow), or a model sees them turned, as the filter did not."
        )
    if located := counts["notes"].get("has-gps"):
        said.append(f"Photos whose metadata say where they were taken: {located:,}.")
    if counts["reencoded"]:
        said.append(
            f"Images in a format that loaders do not list (GIF, AVIF), here as PNG: "
            f"{counts['reencoded']:,}. The manifest says which."
        )
    return [" ".join(said)] if said else []


def _item(sentence: str) -> list[str]:
    return wrap(f"- {sentence}", 92, subsequent_indent="  ")


def _block(*lines: str) -> str:
    return "\n".join(f"    {line}" for line in lines)
