"""What the tests of public sources share: collecting from a world, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import select

from curate.catalog.tables import candidates, hits, origins
from pipelines.collect import Collected
from pipelines.public import collect_public
from pipelines.workspace import Workspace, create_workspace, open_workspace
from tests.pipelines.public_apis import DRAGONFLY, GOLDFINCH, World


def workspace_for(world: World, root: Path, **more: Any) -> Workspace:
    """A workspace that asks a world; `more` are settings with "__" for the dot."""
    if not root.exists():
        create_workspace(root, "imagenet-a").close()
    changed = {name.replace("__", "."): value for name, value in more.items()}
    return open_workspace(root, world.settings() | changed)


def collect(world: World, workspace: Workspace, *wnids: str, **more: Any) -> Collected:
    """Collect from a world: dragonflies and goldfinches unless classes are named."""
    allowed = {"allow_unknown_licence": world.source == "duckduckgo"}
    wanted = wnids or (DRAGONFLY, GOLDFINCH)
    collected = collect_public(workspace, world.source, wanted, **(allowed | more))
    if collected.troubles:
        raise collected.troubles[0]
    return collected


def taken(workspace: Workspace) -> list[dict[str, Any]]:
    """Candidates with their origins, in the order of arrival, without the time."""
    query = (
        select(candidates.c.wnid, candidates.c.sha256, candidates.c.near_key, origins)
        .join(origins, origins.c.candidate_id == candidates.c.id)
        .order_by(candidates.c.id, origins.c.id)
    )
    with workspace.catalogue.read() as connection:
        rows = [dict(row._mapping) for row in connection.execute(query)]
    return [{name: value for name, value in row.items() if name != "seen"} for row in rows]


def numbers(workspace: Workspace, wnid: str | None = None) -> list[int]:
    """The numbers of the photos that became candidates, as their addresses have them, in order."""
    locators = [row["locator"] for row in taken(workspace) if wnid in (None, row["wnid"])]
    states_ = hit_rows(workspace)
    return [_number(states_[locator]["url"]) for locator in locators]


def _number(url: str) -> int:
    return int(url.rsplit("/", 1)[1].split("_")[0]) if "65535" in url else int(url.split("/")[-2])


def hit_rows(workspace: Workspace) -> dict[str, dict[str, Any]]:
    """Locator to hit."""
    with workspace.catalogue.read() as connection:
        rows = connection.execute(select(hits).order_by(hits.c.id))
        return {row.locator: dict(row._mapping) for row in rows}


def states(workspace: Workspace) -> dict[str, str]:
    """Locator to state."""
    return {locator: row["state"] for locator, row in hit_rows(workspace).items()}
