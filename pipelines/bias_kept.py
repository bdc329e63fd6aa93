"""What was measured of a release's selection bias, kept for the card of the next one.

It stands in the catalogue as a fact of its version, with what made it. A release is built from the
catalogue alone, so that the same catalogue gives the same card.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from curate.catalog import facts, releases
from curate.files import canonical_json
from curate.release.splits import CONTROL
from curate.release.version import Version, parse_version
from pipelines.workspace import Workspace

_NAME = "selection bias of {}"


def keep_bias(workspace: Workspace, record: Mapping[str, Any]) -> bool:
    """Keep what was measured of a release, in the place of what was known of it.

    Args:
        workspace: where it may have been built.
        record: as `pipelines.release_bias` gives it.

    Returns:
        Whether it was built here, by its version and its manifest's hash; else nothing is kept.
    """
    release = record["release"]
    with workspace.catalogue.write() as connection:
        for row in releases.all_releases(connection):
            if (row["version"], row["manifest_sha256"]) == (
                release["version"],
                release["manifest_sha256"],
            ):
                name = _NAME.format(row["version"])
                facts.forget(connection, name)
                facts.remember(connection, name, canonical_json(record).decode())
                return True
    return False


def kept_bias(workspace: Workspace, record: Mapping[str, Any], wanted: Version) -> dict[str, Any]:
    """What a new release tells of its selection bias.

    That is what was measured of the newest version before it that was chosen likewise. Of another
    filter it would say nothing, and a control sample has none.

    Args:
        workspace: where the releases are.
        record: of the new one.
        wanted: its version.

    Returns:
        `selection_bias`, or nothing.
    """
    if record["split"] == CONTROL:
        return {}
    with workspace.catalogue.read() as connection:
        rows = releases.all_releases(connection)
        known = sorted(rows, key=lambda row: parse_version(row["version"]), reverse=True)
        for row in known:
            if parse_version(row["version"]) >= wanted or _chosen(row["record"]) != _chosen(record):
                continue
            text = facts.recall(connection, _NAME.format(row["version"]))
            if text is not None:
                return {"selection_bias": json.loads(text)}
    return {}


def _chosen(record: Mapping[str, Any]) -> list[Any]:
    """What chose the photos of a release: weights, how they judged, and whether people did, in
    what models' order."""
    judged = record.get("filter", {})
    referees = (record.get("review") or {}).get("referees") or ()
    return [
        *({model["fingerprint"] for model in chosen} for chosen in (record["models"], referees)),
        record.get("rule"),
        record.get("label_space"),
        *(judged.get(name) for name in ("threshold", "views")),
        record.get("split"),
        record.get("reviewed"),
    ]
