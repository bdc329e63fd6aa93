"""Pictures that stand in for missing ones, told by one file arriving under many addresses."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from sqlalchemy import Connection

from curate.catalog import facts, hits, intake
from curate.catalog.store import key_of
from curate.errors import BusyError, ImageRefused
from curate.progress import say
from curate.sources.protocol import LOCAL_SOURCES
from pipelines.admission import Ready, Refused
from pipelines.workspace import Workspace

#: The fact that says that images of withdrawn candidates may be there.
_WITHDRAWN = "withdrawn"


def withdraw_placeholders(
    workspace: Workspace, batch: Sequence[Ready | Refused]
) -> tuple[list[Ready | Refused], list[int]]:
    """Refuse images that arrived under many addresses of one host, and withdraw earlier ones.

    The first of them became a candidate when it was not yet known what it is. It is withdrawn,
    unless a run has judged it or is at work; then it stays, and people will reject it.

    Args:
        workspace: its setting `collect.placeholder_urls` says how many addresses are too many.
        batch: downloaded hits in their order.

    Returns:
        The batch, with placeholders refused, and the ids of the candidates that were withdrawn.
    """
    many = workspace.settings.collect.placeholder_urls
    shas = sorted({item.image["sha256"] for item in batch if isinstance(item, Ready)})
    with workspace.catalogue.read() as connection:
        arrived = hits.addresses_of(connection, shas)
    suspects: dict[str, str] = {}
    result: list[Ready | Refused] = []
    withdrawn: list[int] = []
    for item in batch:
        if isinstance(item, Refused) or item.number is None:
            result.append(item)
            continue
        sha256, last = item.image["sha256"], item.number
        if sha256 not in suspects:
            # Only what came before counts, so that the answer does not depend on how far
            # downloads are.
            rows = [row for row in arrived.get(sha256, ()) if row["id"] <= last]
            host = _shared_host([row["url"] for row in rows], many)
            if host is None and not any(row["state"] == "placeholder" for row in rows):
                result.append(item)
                continue
            told = (
                f"under {many} addresses of {host} (collect.placeholder_urls)"
                if host
                else "as a placeholder before"
            )
            suspects[sha256] = f"one picture that arrived {told}"
        refusal = ImageRefused("placeholder", suspects[sha256])
        result.append(Refused(item.hit, refusal, item.number))
    if suspects:
        # A run that is at work has read its candidates already.
        with (
            suppress(BusyError),
            workspace.held("filter"),
            workspace.catalogue.write() as connection,
        ):
            for sha256, detail in suspects.items():
                withdrawn += _withdraw(connection, sha256, detail)
        if withdrawn:
            say(f"{len(withdrawn)} candidates are taken back: their pictures are placeholders")
        # In this batch, too, the ones before the one too many are placeholders.
        result = [
            Refused(item.hit, ImageRefused("placeholder", suspects[sha]), item.number)
            if isinstance(item, Ready) and (sha := item.image["sha256"]) in suspects
            else item
            for item in result
        ]
    return result, withdrawn


def remove_withdrawn(workspace: Workspace) -> None:
    """Remove the images of withdrawn candidates, unless a run is at work; then a later start does.

    The file goes first: a row without its file is found again, a file without a row is not.
    """
    with workspace.catalogue.read() as connection:
        if facts.recall(connection, _WITHDRAWN) is None:
            return
    with suppress(BusyError), workspace.held("filter"):
        with workspace.catalogue.read() as connection:
            unused = intake.images_unused(connection)
        for sha256, extension in unused:
            workspace.store.remove(key_of(sha256, extension))
        with workspace.catalogue.write() as connection:
            for sha256, _ in unused:
                intake.remove_image(connection, sha256)
            facts.forget(connection, _WITHDRAWN)


def _withdraw(connection: Connection, sha256: str, detail: str) -> list[int]:
    numbers = intake.withdraw_image(connection, sha256, LOCAL_SOURCES)
    if not numbers:
        return []
    facts.remember(connection, _WITHDRAWN, "images")
    rows = hits.addresses_of(connection, [sha256]).get(sha256, [])
    hits.change_hits(
        connection,
        [
            {"id": row["id"], "state": "placeholder", "detail": detail, "image": None}
            for row in rows
            if row["state"] in ("downloaded", "duplicate")
        ],
    )
    return numbers


def _shared_host(urls: Sequence[str | None], many: int) -> str | None:
    """The host that has at least `many` different pages among the addresses, if one has."""
    by_host: dict[str, set[str]] = {}
    for url in urls:
        try:
            parts = urlsplit(url or "")
        except ValueError:
            continue
        # What follows "?" often does not change the picture.
        by_host.setdefault(parts.netloc.lower(), set()).add(parts.path)
    return next((host for host, paths in by_host.items() if len(paths) >= many), None)
