"""Projects at a Label Studio, each made once, whatever is cut off between the two sides."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from annotation.client import Client
from annotation.client_errors import GoneError, Unanswered
from annotation.client_faults import checked_url
from annotation.interface import Purpose
from annotation.server import served
from curate.catalog import blind, facts, judging
from curate.catalog import review_queues as queues
from curate.catalog.store import FolderStore
from curate.errors import UsageError
from curate.files import make_folder, sha256_bytes
from curate.progress import say
from pipelines.runs import as_judged
from pipelines.workspace import Workspace

#: Seconds in which a server stores what it has not answered yet: after a request of this command,
#: and after one of a command that was killed.
PATIENCE, SETTLED = 30.0, 3.0

#: Seconds between two looks.
PAUSE = 0.5

#: What a title may be long at Label Studio.
_TITLE = 50

#: A row of `review_projects` and, under `problem`, what is wrong with its page at the server.
Project = dict[str, Any]


def server_of(workspace: Workspace) -> str:
    """How the catalogue calls the server that the settings name; empty for the workspace's own."""
    url = workspace.settings.review.url
    return checked_url(url) if url else ""


def ensure_project(
    workspace: Workspace,
    client: Client,
    purpose: Purpose,
    annotator: Mapping[str, Any] | None,
    interface: str,
    record: Mapping[str, Any],
    *,
    name: str = "",
) -> Project:
    """The project of one queue, made where it is not there.

    Args:
        workspace: whose stage "review" the caller holds.
        client: of its server.
        purpose: what people are asked there.
        annotator: the row of whose queue it is; None for one that is whoever opens it.
        interface: the page, see `annotation.interface`.
        record: what gives the answers their meaning (question, label space, …): for another one
            there is another project.
        name: what the project is called; by default by purpose and annotator. A code of the
            workspace is added.

    Returns:
        Its row. A page that somebody has edited by hand stays as it is, and `problem` says so; one
        that an earlier version of this program made becomes the present one.

    Raises:
        ReviewServerError: as `annotation.client_errors` says.
    """
    server = server_of(workspace)
    name = name or " ".join([purpose, *([annotator["name"]] if annotator else ())])
    kept = {**record, "name": name}
    found: Mapping[str, Any]
    row = _known(workspace, server, purpose, annotator, kept)
    if row["number"] is not None:
        try:
            found = client.project(row["number"])
        except GoneError:
            if not is_gone(workspace, client, row):
                raise
            row = _known(workspace, server, purpose, annotator, kept)
        else:
            row = _same_page(workspace, client, row, found, interface)
    if row["number"] is None:
        found = _made(client, row["title"], interface, seconds=SETTLED if row["asked"] else 0.0)
        row = _record(workspace, row, found, interface)
    if not server:
        show_files(workspace, client, row["number"])
    return row


def is_gone(workspace: Workspace, client: Client, project: Mapping[str, Any]) -> bool:
    """Whether somebody has deleted a project, after an answer which says that something is not
    there; it is recorded then.

    A task that was deleted, or a server behind another one that is away for a moment, is answered
    in the same way, and a project that is given up is pulled no more.

    Args:
        workspace: whose stage "review" the caller holds.
        client: of its server.
        project: a row of `ensure_project`.

    Raises:
        ReviewServerError: as `annotation.client_errors` says.
    """
    # Where even this is not there the server is, and no project.
    client.version()
    try:
        client.project(project["number"])
    except GoneError:
        with workspace.catalogue.write() as connection:
            queues.lose_project(connection, project["id"])
        say(f"the project {project['title']} was deleted at Label Studio; it is made anew")
        return True
    return False


def _known(
    workspace: Workspace,
    server: str,
    purpose: str,
    annotator: Mapping[str, Any] | None,
    record: Mapping[str, Any],
) -> Project:
    """The row of the open project that was asked for with this record, or a new one.

    `asked` says whether an earlier command may have asked the server to make it.
    """
    annotator_id = annotator["id"] if annotator else None
    with workspace.catalogue.write() as connection:
        code = _code(connection)
        rows = [
            row
            for row in queues.projects(connection, server, purpose)
            if row["annotator_id"] == annotator_id and row["record"].get("name") == record["name"]
        ]
        for row in rows:
            if row["state"] == "open" and _asked_for(row["record"]) == record:
                return {**row, "problem": None, "asked": True}
        ending = f" {len(rows) + 1} ({code})" if rows else f" ({code})"
        values = {
            "title": record["name"][: _TITLE - len(ending)] + ending,
            "server": server,
            "purpose": purpose,
            "annotator_id": annotator_id,
            "record": record,
        }
        return {**queues.add_project(connection, values), "problem": None, "asked": False}


def _code(connection: Connection) -> str:
    """What tells this workspace's projects from others at a server of several teams."""
    return facts.remember(connection, "workspace", uuid.uuid4().hex)[:8]


def photos_project(workspace: Workspace, client: Client) -> int:
    """The number of the project that holds the photos of a workspace at a team's own server.

    It has no tasks, and the catalogue knows nothing of it: it is found by its title.
    """
    with workspace.catalogue.write() as connection:
        title = f"photos ({_code(connection)})"
    page = '<View><Image name="image" value="$image"/></View>'
    return int(_made(client, title, page, seconds=0.0)["id"])


def as_asked(workspace: Workspace, record: Mapping[str, Any]) -> Workspace:
    """The workspace with the question and the label space that a project was made for.

    A run may have been judged within another label space than the workspace's (see `rejudge`), and
    what people say of it names classes of that.

    Args:
        workspace: the workspace.
        record: of the project's row.

    Raises:
        UsageError: that label space is gone, or has changed.
    """
    workspace = workspace.changed(
        {"filter.rule": record.get("question", workspace.settings.filter.rule)}
    )
    wanted = record.get("label_space")
    if wanted in (None, workspace.label_space.fingerprint):
        return workspace
    with workspace.catalogue.read() as connection:
        runs = judging.all_runs(connection)
    for run in runs:
        if run["record"] and run["record"].get("label_space", {}).get("fingerprint") == wanted:
            return as_judged(workspace, run)
    raise UsageError(
        "the label space that it asks about is not there any more or has changed; undo the change"
    )


def _asked_for(record: Mapping[str, Any]) -> dict[str, Any]:
    later = ("interface", blind.EXAMPLES)
    return {name: value for name, value in record.items() if name not in later}


def page_digest(project: Mapping[str, Any]) -> str:
    """The SHA-256 of a project's page, as the server keeps it."""
    return sha256_bytes(str(project["label_config"]).encode("utf-8", "surrogatepass"))


def _same_page(
    workspace: Workspace, client: Client, row: Project, found: Mapping[str, Any], interface: str
) -> Project:
    if page_digest(found) != row["page"]:
        return row | {
            "problem": f"the page of the project {row['title']} was edited by hand; answers that "
            "do not fit are set aside: curate review doctor --repair brings it back"
        }
    if row["record"].get("interface") == sha256_bytes(interface.encode()):
        return row
    return _record(workspace, row, renew_page(client, row["number"], interface), interface)


def renew_page(client: Client, number: int, interface: str) -> Mapping[str, Any]:
    """Give a project its page; gives the project as the server keeps it then.

    Raises:
        ReviewServerError: it is refused, or not answered; to do it again does no harm.
    """
    client.update_project(number, label_config=interface)
    return client.project(number)


def _record(
    workspace: Workspace, row: Project, found: Mapping[str, Any], interface: str
) -> Project:
    values = {
        "number": found["id"],
        "page": page_digest(found),
        "record": {**row["record"], "interface": sha256_bytes(interface.encode())},
    }
    with workspace.catalogue.write() as connection:
        queues.update_project(connection, row["id"], values)
    return row | values


def _made(client: Client, title: str, interface: str, seconds: float) -> Mapping[str, Any]:
    """The project of this title at the server, made where it is not there.

    Args:
        client: of the server.
        title: no other project has it.
        interface: its page.
        seconds: how long an earlier request for it may still be at work.
    """
    number = _titled(client, title, seconds)
    if number is None:
        try:
            made = client.create_project(
                title,
                interface,
                maximum_annotations=1,
                show_collab_predictions=False,
                enable_empty_annotation=False,
                show_skip_button=True,
                sampling="Sequential sampling",
            )
            number = made["id"]
        except Unanswered:
            number = _titled(client, title, PATIENCE)
            if number is None:
                raise
    return client.project(number)


def _titled(client: Client, title: str, seconds: float) -> int | None:
    until = time.monotonic() + seconds
    while not (found := client.projects(title)):
        if time.monotonic() >= until:
            return None
        time.sleep(PAUSE)
    for other in found[1:]:
        # Made by a request that was still at work when it was sent again.
        if not client.task_ids(other["id"]):
            client.delete_project(other["id"])
    return int(found[0]["id"])


def _shown_folders(workspace: Workspace) -> list[str]:
    """The folders that the workspace's own server shows files of: the store's, where it is one,
    and that of files that were made of it."""
    root = served(workspace.root)
    make_folder(root / "derived")
    inside = isinstance(workspace.store, FolderStore) and (root / "images").is_dir()
    return [str(root / name) for name in ("images", "derived") if inside or name != "images"]


def lacking_folders(workspace: Workspace, client: Client, number: int) -> list[str]:
    """The folders of photos that a project of the workspace's own server may not show."""
    there = {each["path"] for each in client.local_storages(number)}
    return [path for path in _shown_folders(workspace) if path not in there]


def show_files(workspace: Workspace, client: Client, number: int) -> None:
    """Let a project of the workspace's own server show the photos."""
    for path in lacking_folders(workspace, client, number):
        try:
            client.create_local_storage(number, path, title=path.rpartition("/")[2])
        except Unanswered:
            if path in lacking_folders(workspace, client, number):
                raise
