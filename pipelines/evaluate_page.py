"""The page of an evaluation's report: index.html, which can be mailed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from curate._version import __version__
from curate.errors import MissingExtraError
from curate.files import atomic_write
from curate.progress import progress, say
from curate.report import evaluation_page as shown
from pipelines.evaluate_curves import classification_curves, ood_curves
from pipelines.evaluate_failures import Pictures
from pipelines.evaluate_parts import Part
from pipelines.evaluated import Evaluated


def write_page(folder: Path, summary: Mapping[str, Any], evaluated: Sequence[Evaluated]) -> None:
    """index.html: tables, plots, and what the models get wrong; puts `curves` into the results.

    The same images, models and settings give the same bytes. Photos are read one at a time.

    Args:
        folder: of the report.
        summary: of the evaluation.
        evaluated: what its results are made from.

    Raises:
        StorageError: the disk is full or refuses.
    """
    for one in evaluated:
        if one.inside is not None:
            one.result["curves"] = ood_curves(one.inside, one.predictions)
        else:
            one.result["curves"] = classification_curves(one.predictions)
    groups: dict[Hashable, list[Evaluated]] = {}
    for one in evaluated:
        groups.setdefault(one.images, []).append(one)
    compared = list(summary["comparisons"])
    parts = [Part(members, compared) for members in groups.values()]
    no_plots = ""
    try:
        for part in parts:
            part.draw()
    except MissingExtraError as error:
        no_plots = str(error)
        for part in parts:
            part.forget_plots()
    with (
        progress("page", sum(part.photos for part in parts), unit="photos") as bar,
        atomic_write(folder / "index.html") as stream,
    ):
        pictures = [Pictures(1 / len(parts), bar.advance) for _ in parts]
        page = shown.EvaluationPage(
            parts=(part.filled(own) for part, own in zip(parts, pictures, strict=True)),
            datasets=[part.name for part in parts],
            models=len({one.result["model"]["name"] for one in evaluated}),
            withheld=any(part.credits.withheld for part in parts),
            no_plots=no_plots,
            makers=_makers(evaluated),
            made_by=list(_made_by(summary, evaluated)),
            curate=__version__,
        )
        for piece in shown.pieces(page):
            stream.write(piece.encode("utf-8", "backslashreplace"))
    if unreadable := sum(own.unreadable for own in pictures):
        say(f"{unreadable} photos are shown without a picture: they cannot be read")


def _makers(evaluated: Sequence[Evaluated]) -> list[shown.Maker]:
    found: dict[tuple[str, str], shown.Maker] = {}
    for one in evaluated:
        model, view = one.result["model"], one.result["view"]
        said = "read from a file"
        if view is not None:
            said = (
                f"short side {view['resize']} ({view['interpolation']}), centre crop "
                f"{view['crop']}, {one.result['made_by']['device']}"
            )
        found.setdefault(
            (model["name"], model["fingerprint"]),
            shown.Maker(model["name"], model["fingerprint"], model["fingerprint_of"], said),
        )
    return list(found.values())


def _made_by(
    summary: Mapping[str, Any], evaluated: Sequence[Evaluated]
) -> Iterator[tuple[str, str]]:
    """Settings, what identifies the images and the label spaces, and versions."""
    yield "Intervals", f"{summary['resamples']:,} resamples, seed {summary['seed']}"
    told: dict[tuple[str, str], None] = {}
    for one in evaluated:
        dataset, space = one.result["dataset"], one.result["label_space"]
        if dataset["content_sha256"]:
            told[f"Images of {dataset['name']}", f"SHA-256 {dataset['content_sha256']}"] = None
        if release := dataset["release"]:
            told[f"Manifest of {dataset['name']}", f"SHA-256 {release['manifest_sha256']}"] = None
        told[f"Label space {space['name']}", f"fingerprint {space['fingerprint']}"] = None
    yield from told
    versions = {
        name: version
        for one in evaluated
        for name, version in one.result["made_by"].items()
        if name not in ("device", "batch_size", "dtype")
    }
    yield "Versions", ", ".join(f"{name} {version}" for name, version in versions.items())
