"""`curate review`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from curate.cli import review_pull, review_push, review_status
from curate.cli.common import Debug, Json, emit, shared
from curate.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    group = typer.Typer(help="The human part, in Label Studio.", no_args_is_help=True)
    group.command("serve")(serve)
    review_push.register(group)
    review_pull.register(group)
    review_status.register(group)
    app.add_typer(group, name="review")


def serve(
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="Where it listens, on this machine alone. Example: --port 8091. Default: 8090, or "
            "review.port of curate.yaml.",
            show_default=False,
        ),
    ] = None,
    annotator: Annotated[
        list[str] | None,
        typer.Option(
            metavar="EMAIL",
            help="Give somebody an account, with a password that is shown once; no mail is sent. "
            "May be repeated. Example: --annotator ann@example.org. Default: none.",
            show_default=False,
        ),
    ] = None,
    stop: Annotated[
        bool, typer.Option("--stop", help="End the running server instead. Example: --stop")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Start a Label Studio for this workspace, which runs on after the command.

    The first one installs Label Studio in a virtual environment of its own in your cache folder,
    which takes minutes. Where it runs already the command says where. All it knows is in the
    workspace's folder review/.

    Example: curate review serve --annotator ann@example.org
    """
    from curate.settings import find_workspace

    if stop and (port is not None or annotator):
        raise UsageError("--stop takes neither --port nor --annotator")
    root = find_workspace(shared.workspace)
    if stop:
        _stop(root)
    else:
        _serve(root, port, annotator or [])


def _serve(root: Path, port: int | None, annotators: list[str]) -> None:
    from annotation.server import serve
    from curate.catalog.store import FolderStore, open_store
    from curate.files import printable
    from curate.settings import load_settings

    settings = load_settings(root)
    store = open_store(settings.store, root)
    images = store.root if isinstance(store, FolderStore) else None
    server = serve(root, settings.review, images, port=port, annotators=annotators)
    accounts = [{"email": each.email, "password": each.password} for each in server.new]
    summary: dict[str, Any] = {
        "url": server.url,
        "pid": server.pid,
        "state": "started" if server.started else "running",
        "owner": server.owner.email,
        "accounts": accounts,
        "known": list(server.known),
    }
    kept = printable(Path("review", "accounts.json"))
    how = "runs now" if server.started else "runs already"
    text = f"Label Studio {how}: {server.url}"
    if server.owner not in server.new:
        text += f"\nlog in as {server.owner.email}; {kept} has the password"
    for each in server.new:
        text += f"\nlog in as {each.email} with the password {each.password}"
    if server.new:
        text += f"\n(passwords are shown this once; {kept} keeps them)"
    for email in server.known:
        text += f"\n{email} has an account already"
    emit(summary, text)


def _stop(root: Path) -> None:
    from annotation.server import stop

    ended = stop(root)
    if ended is None:
        emit({"state": "absent", "pid": None}, "no Label Studio runs for this workspace")
    else:
        emit({"state": "stopped", "pid": ended.pid}, f"stopped (process {ended.pid})")
