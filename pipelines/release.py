"""Release: from the candidates that people have accepted, or from the shortlist of a run, to an
immutable, versioned dataset."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import RowMapping

from curate.catalog import releases
from curate.catalog.tables import now
from curate.choices import Metadata
from curate.errors import UnknownNameError, UsageError
from curate.progress import progress, say, stop_on_interrupt
from curate.release.build import Built, build_folder
from curate.release.compare import changelog, compare
from curate.release.naming import NAMINGS
from curate.release.reading import TOMBSTONES
from curate.release.version import Version, parse_version
from pipelines.bias_kept import kept_bias
from pipelines.release_again import rebuild, remember_checksums
from pipelines.release_choice import Chosen, Wanted, choose
from pipelines.release_items import compared_rows, original_bytes, release_items
from pipelines.release_record import build_summary, release_record
from pipelines.release_versions import check_release_step, dealt_before, version_before
from pipelines.retractions import retracted_by_version, tombstones_csv
from pipelines.runs import as_judged, finished_run
from pipelines.workspace import OUTLIER, Workspace


def build_release(
    workspace: Workspace,
    version: str,
    *,
    unreviewed: bool,
    run_id: str | None = None,
    naming: str = "hash",
    control: bool = False,
    with_control: bool = False,
    per_class_min: int | None = None,
    per_class_max: int | None = None,
    seed: int = 0,
    splits: Sequence[str] = (),
    require_visible: bool = False,
    metadata: Metadata = "clean",
) -> dict[str, Any]:
    """Build `WORKSPACE/releases/VERSION/` from what people have accepted of a run.

    A version that was built here and whose folder is gone is built again, by the options that its
    record holds, and only where that gives the same bytes.

    Args:
        workspace: where from and where to.
        version: MAJOR.MINOR.PATCH.
        unreviewed: take the shortlist that nobody has looked at, and mark the release so.
        run_id: the run; the newest finished one by default.
        naming: "hash" (by content) or "paper" (as ImageNet-A names its files).
        control: take the run's control sample instead, which was drawn before the filter.
        with_control: add the accepted control sample as a split of its own.
        per_class_min: name the classes that have fewer images.
        per_class_max: take at most so many images of a class, by lot.
        seed: of that lot and of the splits.
        splits: each as "dev=0.1"; see `curate.release.splits`.
        require_visible: leave out what a reviewer says is outside the centre crop.
        metadata: what becomes of the files' metadata; see `curate.release.content`.

    Returns:
        The JSON summary of the contract; `problems` are remarks, one line each.

    Raises:
        UsageError: no version, one that exists, nothing accepted, an empty shortlist, or what is
            asked for cannot be had together, or is not what the version was built with.
        VerificationError: a version whose folder is gone would have other bytes now.
        UnknownNameError: no such run or way to name.
        BusyError: another build is at work here.
        StorageError: an image is missing or altered, or the disk is full.
        Interrupted: stopped by the user; nothing was built.
    """
    version_wanted = parse_version(version)
    if naming not in NAMINGS:
        raise UnknownNameError("naming", naming, NAMINGS)
    wanted = Wanted(
        unreviewed,
        control,
        with_control,
        per_class_min,
        per_class_max,
        seed,
        tuple(splits),
        require_visible,
    )
    target = workspace.root / "releases" / str(version_wanted)
    with workspace.held("release"):
        if (lost := _lost(workspace, version_wanted, target)) is not None:
            return rebuild(workspace, lost, wanted, naming, metadata, run_id)
        run = finished_run(workspace, run_id)
        workspace = as_judged(workspace, run)
        _check_naming(run["record"]["rule"] == OUTLIER, naming, control or with_control)
        before = version_before(workspace, version_wanted, control=control)
        choice = choose(workspace, run, wanted, dealt_before(workspace, before, wanted))
        compared = compared_rows(workspace, run, choice) if before is not None else []
        check_release_step(before, version_wanted, compared, reviewed=choice.found is not None)
        record = release_record(workspace, run, str(version_wanted), naming, wanted, choice)
        record |= kept_bias(workspace, record, version_wanted)
        further = {}
        if before is not None:
            changes = compare(before.rows, compared, before.retracted)
            record["changelog"] = changelog(str(version_wanted), str(before.version), changes)
            if before.retracted:
                further[TOMBSTONES] = tombstones_csv(workspace)
        with stop_on_interrupt() as stop, progress("release", len(choice.chosen)) as bar:
            built = build_folder(
                target,
                release_items(workspace, run, choice, naming),
                original_bytes(workspace),
                record,
                workspace.label_space,
                metadata=metadata,
                further=further,
                bar=bar,
                stop=stop,
            )
        if built.adopted:
            say(
                f"release {version_wanted} stood there already, unrecorded and the same byte for "
                "byte"
            )
        _remember(workspace, run, version_wanted, choice.chosen, built)
    return build_summary(built, run, choice, wanted)


def list_releases(workspace: Workspace) -> list[dict[str, Any]]:
    """The releases of a workspace, a row each, in the order of their versions.

    Returns:
        `version`, `images`, `classes`, `reviewed`, `sha256` (of the manifest), `run`, `built`
        (UTC, ISO 8601), and `retracted`, how many of its images were taken back since.
    """
    retracted = retracted_by_version(workspace)
    with workspace.catalogue.read() as connection:
        rows = releases.all_releases(connection)
    return [
        {
            "version": row["version"],
            "images": row["images"],
            "classes": row["classes"],
            "reviewed": row["reviewed"],
            "sha256": row["manifest_sha256"],
            "run": row["run_id"],
            "built": row["built"].isoformat(),
            "retracted": len(retracted.get(row["version"], ())),
        }
        for row in sorted(rows, key=lambda row: parse_version(row["version"]))
    ]


def _lost(workspace: Workspace, wanted: Version, target: Path) -> RowMapping | None:
    """What the catalogue knows of a version that was built and whose folder is gone; None for a
    new one."""
    with workspace.catalogue.read() as connection:
        known = {parse_version(row["version"]): row for row in releases.all_releases(connection)}
    if wanted in known and os.path.lexists(target):
        raise UsageError(
            f"release {wanted} exists and never changes; choose a version above {max(known)}"
        )
    return known.get(wanted)


def _check_naming(outlier: bool, naming: str, control: bool) -> None:
    if outlier and naming == "paper":
        raise UsageError(
            "--naming paper names files by p(true class), which the rule outlier has not: "
            "leave it out"
        )
    if control and (outlier or naming == "paper"):
        raise UsageError(
            "a control sample has class folders and names by content: it goes neither with the "
            "rule outlier nor with --naming paper"
        )


def _remember(
    workspace: Workspace,
    run: RowMapping,
    wanted: Version,
    chosen: Sequence[Chosen],
    built: Built,
) -> None:
    ids = {one.entry.candidate: one.entry.candidate_id for one in chosen}
    release = {
        "version": str(wanted),
        "run_id": run["id"],
        "manifest_sha256": built.manifest_sha256,
        "images": len(built.images),
        "classes": built.record["counts"]["classes"],
        "reviewed": built.record["reviewed"],
        "record": built.record,
        "built": now(),
    }
    items = [
        {"version": str(wanted), "candidate_id": ids[image.candidate], "path": image.path}
        for image in built.images
    ]
    with workspace.catalogue.write() as connection:
        releases.add_release(connection, release, items)
        remember_checksums(connection, str(wanted), built.checksums_sha256)
