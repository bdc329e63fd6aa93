"""Release: from the shortlist of a run to an immutable, versioned dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from importlib import metadata
from typing import Any

from sqlalchemy import RowMapping

from curate._version import __version__
from curate.catalog import intake, listing, releases
from curate.catalog.listing import Shortlisted
from curate.catalog.tables import now
from curate.errors import ImageRefused, StorageError, UnknownNameError, UsageError
from curate.files import canonical_json, printable
from curate.licences import UNKNOWN, parse
from curate.progress import progress, say, stop_on_interrupt
from curate.release.build import Built, Item, build_folder
from curate.release.layout import IMAGENET_A, IMAGENET_O
from curate.release.manifest import ManifestRow
from curate.release.naming import NAMINGS, paper_stem
from curate.release.version import Version, parse_version
from curate.sources.protocol import LOCAL_SOURCES
from pipelines.runs import as_judged, finished_run, scores_path
from pipelines.workspace import OUTLIER, Workspace

#: The format of `release.json`.
_FORMAT = 1

_ORIGIN_COLUMNS = (
    "licence",
    "licence_url",
    "licence_text",
    "author",
    "title",
    "page",
    "source",
    "locator",
    "collection",
)


def build_release(
    workspace: Workspace,
    version: str,
    *,
    unreviewed: bool,
    run_id: str | None = None,
    naming: str = "hash",
    control: bool = False,
) -> dict[str, Any]:
    """Build `WORKSPACE/releases/VERSION/` from the shortlist of a run, marked as unreviewed.

    Args:
        workspace: where from and where to.
        version: MAJOR.MINOR.PATCH.
        unreviewed: must be True: there are no reviews to build from.
        run_id: the run; the newest finished one by default.
        naming: "hash" (by content) or "paper" (as ImageNet-A names its files).
        control: take the run's control sample instead, which was drawn before the filter.

    Returns:
        The JSON summary of the contract; `problems` are remarks, one line each.

    Raises:
        UsageError: no version, one that exists, nothing reviewed, an empty shortlist.
        UnknownNameError: no such run or way to name.
        BusyError: another build is at work here.
        StorageError: an image is missing or altered, or the disk is full.
        Interrupted: stopped by the user; nothing was built.
    """
    wanted = parse_version(version)
    if naming not in NAMINGS:
        raise UnknownNameError("naming", naming, NAMINGS)
    if not unreviewed:
        raise UsageError(
            f"release {wanted}: nobody has reviewed a candidate yet; add --unreviewed to build it "
            "from the shortlist, marked as unreviewed"
        )
    with workspace.held("release"):
        _refuse_known(workspace, wanted)
        run = finished_run(workspace, run_id)
        workspace = as_judged(workspace, run)
        outlier = run["record"]["rule"] == OUTLIER
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
        everything = _control(workspace, run) if control else _shortlist(workspace, run)
        listed = _releasable(workspace, everything)
        withheld = len(everything) - len(listed)
        repeated = 0
        if outlier:
            listed, repeated = _each_image_once(listed)
        items = _items(workspace, run, listed, naming)
        target = workspace.root / "releases" / str(wanted)
        with stop_on_interrupt() as stop, progress("release", len(items)) as bar:
            built = build_folder(
                target,
                items,
                _reader(workspace),
                _record(workspace, run, wanted, naming, control),
                workspace.label_space,
                bar=bar,
                stop=stop,
            )
        if built.adopted:
            say(f"release {wanted} stood there already, unrecorded and the same byte for byte")
        _remember(workspace, run, wanted, listed, built)
    counts = built.record["counts"]
    return {
        "version": str(wanted),
        "images": counts["images"],
        "classes": counts["classes"],
        "sha256": built.manifest_sha256,
        "problems": _problems(built, withheld, repeated),
        "path": printable(target),
        "run": run["id"],
        "reviewed": False,
        "licence_unknown": counts["licence_unknown"],
        "withheld": withheld,
        "reencoded": counts["reencoded"],
    }


def list_releases(workspace: Workspace) -> list[dict[str, Any]]:
    """The releases of a workspace, a row each, in the order of their versions.

    Returns:
        `version`, `images`, `classes`, `reviewed`, `sha256` (of the manifest), `run` and `built`
        (UTC, ISO 8601).
    """
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
        }
        for row in sorted(rows, key=lambda row: parse_version(row["version"]))
    ]


def _refuse_known(workspace: Workspace, wanted: Version) -> None:
    known = [row["version"] for row in list_releases(workspace)]
    if str(wanted) in known:
        raise UsageError(
            f"release {wanted} exists and never changes; choose a version above {known[-1]}"
        )


def _shortlist(workspace: Workspace, run: RowMapping) -> list[Shortlisted]:
    with workspace.catalogue.read() as connection:
        listed = listing.shortlist(connection, run["id"])
    if not listed:
        raise UsageError(
            f"run {run['id']} has no survivors, so there is nothing to release; "
            "collect more candidates and filter again"
        )
    return listed


def _control(workspace: Workspace, run: RowMapping) -> list[Shortlisted]:
    """The control sample, each candidate as if it stood on a shortlist."""
    names = [field.name for field in fields(Shortlisted)]
    with workspace.catalogue.read() as connection:
        rows = listing.control_sample(connection, run["id"])
    if not rows:
        raise UsageError(
            f"run {run['id']} has no control sample; draw one with: curate filter --control N"
        )
    return [Shortlisted(**{name: row[name] for name in names}) for row in rows]


def _releasable(workspace: Workspace, listed: Sequence[Shortlisted]) -> list[Shortlisted]:
    """What may be passed on at all: a photo from the network needs a licence that allows it.

    Photos of the user's own folders and archives are the user's to judge.
    """
    with workspace.catalogue.read() as connection:
        origins = intake.origins_of(connection, [entry.candidate_id for entry in listed])
    kept = [
        entry
        for entry in listed
        if any(
            row["source"] in LOCAL_SOURCES or parse(row["licence"]).redistributable
            for row in origins[entry.candidate_id]
        )
    ]
    if not kept:
        raise UsageError(
            "nothing to release: no photo on the shortlist has a licence that allows passing it on"
        )
    return kept


def _each_image_once(listed: Sequence[Shortlisted]) -> tuple[list[Shortlisted], int]:
    """The first candidate of each image, and how many there were besides.

    An image of two concepts is taken for one class, in whose folder it can stand but once.
    """
    first = {entry.sha256: entry for entry in reversed(listed)}
    kept = [entry for entry in listed if first[entry.sha256] is entry]
    return kept, len(listed) - len(kept)


def _items(
    workspace: Workspace, run: RowMapping, listed: Sequence[Shortlisted], naming: str
) -> list[Item]:
    with workspace.catalogue.read() as connection:
        origins = intake.origins_of(connection, [entry.candidate_id for entry in listed])
        images = intake.images_of(connection, sorted({entry.sha256 for entry in listed}))
    second = _second_predictions(workspace, run, listed) if naming == "paper" else {}
    space, weak = workspace.label_space, workspace.weak_labels
    outlier = run["record"]["rule"] == OUTLIER
    items = []
    for entry in listed:
        image = images[entry.sha256]
        predicted = space.get(entry.predicted_wnid).name if entry.predicted_wnid else None
        row = ManifestRow(
            path="",
            candidate=entry.candidate,
            place=entry.place,
            wnid=entry.wnid,
            name=weak.name_of(entry.wnid),
            predicted_wnid=entry.predicted_wnid,
            predicted_name=predicted,
            confidence=entry.confidence,
            p_true=entry.p_true,
            borderline=entry.borderline,
            reviewed=False,
            width=image["width"],
            height=image["height"],
            sha256="",
            original_sha256=entry.sha256,
            reencoded=False,
            **_origin(origins[entry.candidate_id]),
        )
        stem = None
        if naming == "paper" and entry.p_true is not None and predicted is not None:
            other = space.get(second.get(entry.candidate, entry.predicted_wnid)).name
            stem = paper_stem(entry.p_true, predicted, other, entry.confidence)
        folder = entry.predicted_wnid if outlier else entry.wnid
        items.append(Item(row, folder, entry.extension, stem, image["notes"]))
    return items


def _origin(origins: Sequence[RowMapping]) -> dict[str, Any]:
    """The first origin whose licence allows passing the photo on, or else the first, as columns;
    the others as JSON. When each was seen is left out: a release holds no clock.
    """
    ordered = sorted(origins, key=lambda row: not parse(row["licence"]).redistributable)
    rows = [{column: row[column] for column in _ORIGIN_COLUMNS} for row in ordered]
    first = rows[0] if rows else dict.fromkeys(_ORIGIN_COLUMNS) | {"licence": UNKNOWN.id}
    others = [{k: v for k, v in row.items() if v is not None} for row in rows[1:]]
    return first | {"other_origins": canonical_json(others).decode()}


def _second_predictions(
    workspace: Workspace, run: RowMapping, listed: Sequence[Shortlisted]
) -> dict[str, str]:
    """What the second model's centre crop predicts, by candidate; empty for an ensemble of one."""
    if len(run["record"]["models"]) < 2:
        return {}
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = scores_path(workspace, run)
    wanted = [entry.candidate for entry in listed]
    try:
        table = pq.read_table(
            path,
            columns=["candidate", "predicted_wnid"],
            filters=[("model", "=", 1), ("view", "=", 0), ("candidate", "in", wanted)],
        )
        found = dict(zip(*(column.to_pylist() for column in table.columns), strict=True))
    except (OSError, pa.ArrowException) as error:
        raise StorageError(f"cannot read the scores {printable(path)}: {error}") from error
    if missing := set(wanted) - set(found):
        raise StorageError(f"the scores {printable(path)} lack candidate {min(missing)}")
    return found


def _reader(workspace: Workspace) -> Callable[[str, str], bytes]:
    store = workspace.store

    def read(sha256: str, extension: str) -> bytes:
        try:
            return store.read(sha256, extension)
        except ImageRefused as refusal:
            name = store.name(sha256, extension)
            raise StorageError(
                f"no release was built: the stored image {name} is {refusal.reason}; "
                "put the original file back there"
            ) from refusal

    return read


def _record(
    workspace: Workspace, run: RowMapping, wanted: Version, naming: str, control: bool
) -> dict[str, Any]:
    """What `release.json` holds; nothing in it tells when or how fast it was made."""
    record = dict(run["record"])
    apart = ("models", "label_space", "rule", "made_by")
    summary = run["summary"]
    funnel = ("candidates", "removed", "survivors", "shortlisted", "capped", "failed")
    return {
        "format": _FORMAT,
        "version": str(wanted),
        "reviewed": False,
        "layout": IMAGENET_O if record["rule"] == OUTLIER else IMAGENET_A,
        "naming": naming,
        "split": "control" if control else "filtered",
        "run": run["id"],
        "rule": record["rule"],
        "label_space": record["label_space"],
        "models": record["models"],
        "filter": {key: value for key, value in record.items() if key not in apart},
        "settings": run["settings"],
        "scores_made_by": record["made_by"],
        "built_by": {
            "curate": __version__,
            **{name: metadata.version(name) for name in ("pillow", "pyarrow")},
        },
        "counts": {"funnel": {key: summary[key] for key in funnel}},
    }


def _remember(
    workspace: Workspace,
    run: RowMapping,
    wanted: Version,
    listed: Sequence[Shortlisted],
    built: Built,
) -> None:
    ids = {entry.candidate: entry.candidate_id for entry in listed}
    release = {
        "version": str(wanted),
        "run_id": run["id"],
        "manifest_sha256": built.manifest_sha256,
        "images": len(built.rows),
        "classes": built.record["counts"]["classes"],
        "reviewed": False,
        "record": built.record,
        "built": now(),
    }
    items = [
        {"version": str(wanted), "candidate_id": ids[row.candidate], "path": row.path}
        for row in built.rows
    ]
    with workspace.catalogue.write() as connection:
        releases.add_release(connection, release, items)


def _problems(built: Built, withheld: int, repeated: int) -> list[str]:
    counts = built.record["counts"]
    problems = ["unreviewed: nobody has confirmed these labels"]
    if withheld:
        problems.append(f"images left out because no licence allows passing them on: {withheld}")
    if repeated:
        problems.append(
            f"images under several concepts: {repeated} candidates left out, so that each image "
            "stands there once"
        )
    if unknown := counts["licence_unknown"]:
        problems.append(
            "images without a licence that allows passing them on: "
            f"{unknown} of {counts['images']}; do not publish this release"
        )
    if located := counts["notes"].get("has-gps"):
        problems.append(f"images whose metadata say where they were taken: {located}")
    labels: dict[str, list[str]] = {}
    for row in built.rows:
        labels.setdefault(row.original_sha256, []).append(row.path)
    twice = [paths for paths in labels.values() if len(paths) > 1]
    if twice:
        first = " and ".join(twice[0])
        problems.append(f"images under several labels: {len(twice)}, the first as {first}")
    return problems
