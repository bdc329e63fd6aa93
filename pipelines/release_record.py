"""What the record of a release holds, and what its builder is told of it."""

from __future__ import annotations

from importlib import metadata as packages
from typing import Any

from sqlalchemy import RowMapping

from curate._version import __version__
from curate.files import printable
from curate.release.build import Built
from curate.release.layout import IMAGENET_A, IMAGENET_O
from pipelines.release_choice import Choice, Wanted
from pipelines.release_story import story
from pipelines.workspace import OUTLIER, Workspace

#: The format of `release.json`.
_FORMAT = 1


def release_record(
    workspace: Workspace,
    run: RowMapping,
    version: str,
    naming: str,
    wanted: Wanted,
    choice: Choice,
) -> dict[str, Any]:
    """What `release.json` holds; nothing in it tells when or how fast it was made."""
    record = dict(run["record"])
    shares = wanted.check(record["rule"] == OUTLIER)
    listed = [chosen.entry for chosen in choice.chosen]
    apart = ("models", "label_space", "rule", "made_by")
    summary = run["summary"]
    funnel = ("candidates", "removed", "survivors", "shortlisted", "capped", "failed")
    return {
        "format": _FORMAT,
        "version": version,
        "published_as": workspace.settings.release.model_dump(mode="json"),
        "reviewed": choice.found is not None,
        "layout": IMAGENET_O if record["rule"] == OUTLIER else IMAGENET_A,
        "naming": naming,
        "split": "control" if wanted.control else "filtered",
        "selection": {
            "seed": wanted.seed,
            "per_class_min": wanted.per_class_min,
            "per_class_max": wanted.per_class_max,
            "require_visible": wanted.require_visible,
            "short": choice.short,
            "left_out": {
                "licence": choice.withheld,
                "taken back": choice.taken_back,
                "several concepts": choice.repeated,
                "several labels": choice.contradicted,
                "outside the centre crop": choice.outside,
                "beyond the maximum of a class": choice.unselected,
            },
            "splits": {name: str(share) for name, share in shares.items()},
            "with_control": wanted.with_control,
        },
        "run": run["id"],
        "rule": record["rule"],
        "label_space": record["label_space"],
        "models": record["models"],
        "filter": {key: value for key, value in record.items() if key not in apart},
        "settings": run["settings"],
        "scores_made_by": record["made_by"],
        "built_by": {
            "curate": __version__,
            **{name: packages.version(name) for name in ("pillow", "pyarrow")},
        },
        "counts": {"funnel": {key: summary[key] for key in funnel}},
        **story(workspace, run, listed, choice.found),
    }


def build_summary(
    built: Built, run: RowMapping, choice: Choice, wanted: Wanted, *, rebuilt: bool = False
) -> dict[str, Any]:
    """The JSON summary of a build."""
    counts = built.record["counts"]
    return {
        "version": built.record["version"],
        "images": counts["images"],
        "classes": counts["classes"],
        "sha256": built.manifest_sha256,
        "problems": problems(built, choice, wanted),
        "path": printable(built.path),
        "run": run["id"],
        "reviewed": choice.found is not None,
        "licence_unknown": counts["licence_unknown"],
        "withheld": choice.withheld,
        "reencoded": counts["reencoded"],
        "cleaned": counts["cleaned"],
        "splits": counts.get("by_split", {}),
        "short": choice.short,
        "unselected": choice.unselected,
        "rebuilt": rebuilt,
    }


def problems(built: Built, choice: Choice, wanted: Wanted) -> list[str]:
    """What must be known of a release before it is used or published, one line each."""
    counts = built.record["counts"]
    told = []
    if choice.found is None:
        told.append("unreviewed: nobody has confirmed these labels")
    if choice.withheld:
        told.append(f"images left out because no licence allows passing them on: {choice.withheld}")
    if choice.taken_back:
        told.append(f"images left out because they were taken back: {choice.taken_back}")
    if choice.repeated:
        told.append(
            f"images under several concepts: {choice.repeated} candidates left out, so that each "
            "image stands there once"
        )
    if choice.contradicted:
        told.append(
            f"images accepted under several labels, of which one must be wrong: "
            f"{choice.contradicted} candidates left out"
        )
    if choice.outside:
        told.append(
            f"images left out because a reviewer says that the object is outside the centre crop: "
            f"{choice.outside}"
        )
    if choice.short:
        few = ", ".join(f"{name} ({count})" for name, count in list(choice.short.items())[:5])
        more = ", …" if len(choice.short) > 5 else ""
        told.append(
            f"classes with fewer than {wanted.per_class_min} images: {len(choice.short)}: "
            f"{few}{more}"
        )
    if unknown := counts["licence_unknown"]:
        told.append(
            "images without a licence that allows passing them on: "
            f"{unknown} of {counts['images']}; do not publish this release"
        )
    if located := counts["notes"].get("has-gps"):
        told.append(f"images whose metadata say where they were taken: {located}")
    labels: dict[str, list[str]] = {}
    for image in built.images:
        labels.setdefault(image.original_sha256, []).append(image.path)
    twice = [paths for paths in labels.values() if len(paths) > 1]
    if twice:
        first = " and ".join(twice[0])
        told.append(f"images under several labels: {len(twice)}, the first as {first}")
    return told
