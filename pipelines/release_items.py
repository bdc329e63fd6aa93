"""What the catalogue knows of the images that a release is made of, some hundreds at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlalchemy import RowMapping

from curate.catalog import intake
from curate.catalog.engine import pieces
from curate.errors import ImageRefused, StorageError
from curate.files import canonical_json
from curate.licences import UNKNOWN, parse
from curate.release.attribution import attribution
from curate.release.build import Item
from curate.release.manifest import ManifestRow
from curate.release.naming import paper_stem
from pipelines.release_choice import Choice, Chosen, votes_of
from pipelines.release_story import views
from pipelines.workspace import OUTLIER, Workspace

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


def release_items(
    workspace: Workspace, run: RowMapping, choice: Choice, naming: str
) -> Iterator[Item]:
    """The images with all that the catalogue knows of them, some hundreds in memory at a time.

    Args:
        workspace: the workspace.
        run: whose candidates these are.
        choice: which of them.
        naming: "hash" (by content) or "paper" (as ImageNet-A names its files).

    Raises:
        StorageError: the scores cannot be read, or lack a survivor.
    """
    found, votes = choice.found, {}
    if found is not None:
        votes = votes_of(found, {chosen.entry.candidate for chosen in choice.chosen})
    space, weak = workspace.label_space, workspace.weak_labels
    outlier = run["record"]["rule"] == OUTLIER
    for some in _pieces(choice):
        listed = [chosen.entry for chosen in some]
        with workspace.catalogue.read() as connection:
            origins = intake.origins_of(connection, [entry.candidate_id for entry in listed])
            images = intake.images_of(connection, sorted({entry.sha256 for entry in listed}))
        scores = views(workspace, run, listed)
        for chosen in some:
            entry = chosen.entry
            image, origin = images[entry.sha256], _origin(origins[entry.candidate_id])
            predicted = space.get(entry.predicted_wnid).name if entry.predicted_wnid else None
            outcome = found.outcomes[entry.candidate] if found is not None else None
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
                reviewed=outcome is not None,
                width=image["width"],
                height=image["height"],
                sha256="",
                original_sha256=entry.sha256,
                reencoded=False,
                **origin,
                attribution=attribution(
                    *(
                        origin[name]
                        for name in ("title", "author", "page", "licence", "licence_url")
                    )
                ),
                split=chosen.split,
                rank=chosen.rank,
                consensus=None if outcome is None else outcome.status,
                adjudicated=outcome is not None and outcome.adjudicated,
                votes=canonical_json(votes.get(entry.candidate, [])).decode(),
                views=canonical_json(scores[entry.candidate]).decode(),
            )
            stem = None
            if naming == "paper" and entry.p_true is not None and predicted is not None:
                second = [model["predicted"][0] for model in scores[entry.candidate][1:2]]
                other = space.get(second[0] if second else entry.predicted_wnid).name
                stem = paper_stem(entry.p_true, predicted, other, entry.confidence)
            folder = entry.predicted_wnid if outlier else entry.wnid
            yield Item(row, folder, entry.extension, stem, image["notes"])


def _pieces(choice: Choice) -> Iterator[Sequence[Chosen]]:
    # In the order of their keys, in which the scores lie as well: each piece reads a stretch.
    return pieces(sorted(choice.chosen, key=lambda chosen: chosen.entry.candidate))


def compared_rows(workspace: Workspace, run: RowMapping, choice: Choice) -> list[dict[str, Any]]:
    """What a version is compared by with the one before, before anything is written."""
    space, weak = workspace.label_space, workspace.weak_labels
    outlier = run["record"]["rule"] == OUTLIER
    rows = []
    for some in _pieces(choice):
        with workspace.catalogue.read() as connection:
            origins = intake.origins_of(connection, [one.entry.candidate_id for one in some])
        for chosen in some:
            entry, taken_for = chosen.entry, chosen.entry.predicted_wnid
            rows.append(
                {
                    "path": "",
                    "folder": taken_for if outlier else entry.wnid,
                    "candidate": entry.candidate,
                    "wnid": entry.wnid,
                    "name": weak.name_of(entry.wnid),
                    "predicted_wnid": taken_for,
                    "predicted_name": space.get(taken_for).name if taken_for else None,
                    "original_sha256": entry.sha256,
                    "reviewed": choice.found is not None,
                    "licence": _origin(origins[entry.candidate_id])["licence"],
                    "split": chosen.split,
                }
            )
    return rows


def _origin(origins: Sequence[RowMapping]) -> dict[str, Any]:
    """The first origin whose licence allows passing the photo on, or else the first, as columns;
    the others as JSON. When each was seen is left out: a release holds no clock.
    """
    ordered = sorted(origins, key=lambda row: not parse(row["licence"]).redistributable)
    rows = [{column: row[column] for column in _ORIGIN_COLUMNS} for row in ordered]
    first = rows[0] if rows else dict.fromkeys(_ORIGIN_COLUMNS) | {"licence": UNKNOWN.id}
    others = [{k: v for k, v in row.items() if v is not None} for row in rows[1:]]
    return first | {"other_origins": canonical_json(others).decode()}


def original_bytes(workspace: Workspace) -> Callable[[str, str], bytes]:
    """What gives a build the collected bytes for (SHA-256, extension), or a `StorageError`."""
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
