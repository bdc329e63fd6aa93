"""A version that was built here and whose folder is gone: built again, with the same bytes or not
at all.

The catalogue keeps which images a version holds, its record and the checksums of its files. What
has been collected, answered or taken back since may have changed what a build would tell of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, RowMapping

from curate.catalog import facts, releases, retractions
from curate.choices import Metadata
from curate.errors import UsageError, VerificationError
from curate.progress import progress, say, stop_on_interrupt
from curate.release.build import CHECKSUMS, build_folder
from curate.release.reading import MANIFEST, TOMBSTONES
from curate.release.splits import parse_splits
from curate.release.version import parse_version
from pipelines.release_choice import Choice, Wanted, choose
from pipelines.release_items import original_bytes, release_items
from pipelines.release_record import build_summary
from pipelines.release_versions import dealt_before, version_before
from pipelines.retractions import retracted_by_version, tombstones_csv
from pipelines.runs import as_judged, finished_run
from pipelines.workspace import Workspace

_NAME = "checksums of {}"


def remember_checksums(connection: Connection, version: str, sha256: str) -> None:
    """Keep the SHA-256 of the `SHA256SUMS` of a version that was built just now."""
    facts.forget(connection, _NAME.format(version))
    facts.remember(connection, _NAME.format(version), sha256)


def rebuild(
    workspace: Workspace,
    lost: RowMapping,
    asked: Wanted,
    naming: str,
    metadata: Metadata,
    run_id: str | None,
) -> dict[str, Any]:
    """Build a version again, by what its record says; the caller holds the workspace's releases.

    Args:
        workspace: where it was built.
        lost: its row of the catalogue; no folder bears its name.
        asked: what the user asks for, as are the rest: either nothing, or what the record says.
        naming: "hash" or "paper".
        metadata: what becomes of the files' metadata.
        run_id: the run.

    Returns:
        The summary of a build.

    Raises:
        UsageError: something else is asked for, or there is nothing to release any more.
        VerificationError: its files would have other bytes now; nothing was built.
        StorageError: an image is missing or altered, or the disk is full.
        Interrupted: stopped by the user; nothing was built.
    """
    version, record = lost["version"], lost["record"]
    wanted = _recorded(record)
    _check_asked(
        version,
        _options(asked, naming, metadata, run_id),
        _options(wanted, record["naming"], record["metadata"], lost["run_id"]),
    )
    say(f"release {version} was built here and its folder is gone: building the same bytes again")
    run = finished_run(workspace, lost["run_id"])
    workspace = as_judged(workspace, run)
    before = version_before(workspace, parse_version(version), control=wanted.control, again=True)
    choice = choose(workspace, run, wanted, dealt_before(workspace, before, wanted))
    _check_images(workspace, version, choice)
    with workspace.catalogue.read() as connection:
        sums = facts.recall(connection, _NAME.format(version))
        tombstones = retractions.all_tombstones(connection)
    further = {}
    if before is not None and any(row["retracted"] < lost["built"] for row in tombstones):
        further[TOMBSTONES] = tombstones_csv(workspace, lost["built"])
    expected = {MANIFEST: lost["manifest_sha256"], **({CHECKSUMS: sums} if sums else {})}
    target = workspace.root / "releases" / version
    with stop_on_interrupt() as stop, progress("release", len(choice.chosen)) as bar:
        built = build_folder(
            target,
            release_items(workspace, run, choice, record["naming"]),
            original_bytes(workspace),
            record,
            workspace.label_space,
            metadata=record["metadata"],
            further=further,
            expected=expected,
            bar=bar,
            stop=stop,
        )
    return build_summary(built, run, choice, wanted, rebuilt=True)


def _recorded(record: Mapping[str, Any]) -> Wanted:
    """What was asked for when a release was built."""
    selection = record["selection"]
    return Wanted(
        unreviewed=not record["reviewed"],
        control=record["split"] == "control",
        with_control=selection["with_control"],
        per_class_min=selection["per_class_min"],
        per_class_max=selection["per_class_max"],
        seed=selection["seed"],
        splits=tuple(f"{name}={share}" for name, share in selection["splits"].items()),
        require_visible=selection["require_visible"],
    )


def _options(
    wanted: Wanted, naming: str, metadata: str, run_id: str | None = None
) -> dict[str, Any]:
    """What may be asked for, by the options that do."""
    told = {name.replace("_", "-"): value for name, value in vars(wanted).items()}
    told["split"] = parse_splits(told.pop("splits"))
    return {**told, "naming": naming, "strip-metadata or --keep-metadata": metadata, "run": run_id}


def _check_asked(version: str, asked: Mapping[str, Any], recorded: Mapping[str, Any]) -> None:
    """Refuse what is neither the recorded option nor its default."""
    defaults = _options(Wanted(), "hash", "clean")
    for name, value in asked.items():
        if value not in (defaults[name], recorded[name]):
            raise UsageError(
                f"release {version} was built here with another --{name}; to build it again leave "
                "out all options, which its record holds"
            )


def _check_images(workspace: Workspace, version: str, choice: Choice) -> None:
    """Refuse early where other images would be released than were."""
    with workspace.catalogue.read() as connection:
        held = releases.candidates_of(connection, version)
    now = {chosen.entry.candidate_id for chosen in choice.chosen}
    if now != held:
        gone = len(retracted_by_version(workspace).get(version, ()))
        taken_back = f", {gone} of them taken back since" if gone else ""
        raise VerificationError(
            f"release {version} cannot be built again: {len(held - now):,} of its {len(held):,} "
            f"images would be left out{taken_back}, and {len(now - held):,} others come in; "
            "restore its folder from a copy, or build the next version"
        )
