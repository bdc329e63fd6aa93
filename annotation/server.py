"""A Label Studio for one workspace: started, found again, stopped.

    review/                    only its owner may enter
        accounts.json          log-ins, passwords and the token of the first account
        label-studio/          Label Studio's data: database, uploads, the key that signs sessions
        served/images          a link to the images: below `served` is all that it can show
        server.lock, .json     held by the running server, and who that is
        server.log             what it says
        .gitignore             keeps all of it out of a workspace's history

It listens on loopback alone, lets nobody sign up without an invitation, and tells nobody of itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from annotation import server_process
from annotation.client import Client
from annotation.client_errors import TokenRefused
from annotation.server_accounts import (
    ACCOUNTS,
    Account,
    Accounts,
    accounts_held,
    add_accounts,
    checked_emails,
    first_accounts,
    make_private,
    owner_only,
    read_accounts,
)
from annotation.server_process import RECORD, Process
from annotation.venv import environment, install
from curate.errors import BusyError, StorageError, UsageError
from curate.files import (
    TEMPORARY,
    make_folder,
    printable,
    remove_leftovers,
    storage_errors,
    write_bytes,
)
from curate.progress import say
from curate.setting_groups import ReviewSettings

#: Where all this is, in a workspace.
FOLDER = "review"

#: The variable that holds the token for a team's own server.
TOKEN_VARIABLE = "CURATE_REVIEW_TOKEN"

_DATA, _DATABASE, _SERVED = "label-studio", "label_studio.sqlite3", "served"
# The other command may be installing.
_WAIT_SECONDS = 1800.0
# One that runs may have much to do.
_SILENT_SECONDS = 60.0
# One whose process is not seen may just have ended.
_LOST_SECONDS = 5.0


@dataclass(frozen=True)
class Server:
    """A running Label Studio.

    Attributes:
        url: where it is.
        pid: its process.
        started: whether it was started now.
        owner: the account that commands work under.
        new: accounts made now, whose passwords nobody has seen yet.
        known: annotators who had an account already.
    """

    url: str
    pid: int
    started: bool
    owner: Account
    new: tuple[Account, ...] = ()
    known: tuple[str, ...] = ()


def serve(
    root: Path,
    settings: ReviewSettings,
    images: Path | None,
    *,
    port: int | None = None,
    annotators: Sequence[str] = (),
) -> Server:
    """Start the workspace's Label Studio, or find it running, and give people accounts.

    Args:
        root: the workspace.
        settings: its group `review`.
        images: the folder of the images; None where they are no files of this machine.
        port: where it shall listen; by default where the settings say.
        annotators: mail addresses of further people.

    Raises:
        UsageError: the settings name another server, or it runs on another port; an address is
            none.
        BusyError: another program has the port.
        StorageError: the disk is full or refuses.
        CurateError: it cannot be installed, or does not start.
    """
    if settings.url:
        raise UsageError(
            "review.url names a Label Studio of your own: there is nothing to start; people log in "
            "there"
        )
    emails = checked_emails(annotators)
    folder = root.absolute() / FOLDER
    make_private(folder)
    process, started, first = _running(folder, images, port or settings.port)
    accounts = _accounts(folder)
    if port is not None and process.port != port:
        raise UsageError(
            f"Label Studio of this workspace runs at {_url(process.port)} already; to move it, "
            "first: curate review serve --stop"
        )
    client = Client(_url(process.port), accounts.token)
    try:
        client.who_am_i()
    except TokenRefused:
        raise UsageError(
            f"Label Studio no longer takes the token in {FOLDER}/{ACCOUNTS}; stopped and started "
            "again it does: curate review serve --stop, then curate review serve"
        ) from None
    new, known = add_accounts(folder, client, emails)
    if first:
        new = [accounts.owner, *new]
    url = _url(process.port)
    return Server(url, process.pid, started, accounts.owner, tuple(new), tuple(known))


def stop(root: Path) -> Process | None:
    """End the workspace's Label Studio, and wait until it has ended.

    Returns:
        The process that was ended; None where none ran.

    Raises:
        BusyError: another command is starting it.
        CurateError: it does not end.
    """
    return server_process.stop(root.absolute() / FOLDER)


def connect(
    root: Path,
    settings: ReviewSettings,
    environ: Mapping[str, str],
    stop: Callable[[], bool] | None = None,
) -> Client:
    """A client of the Label Studio that the settings name, or else of the workspace's own.

    Args:
        root: the workspace.
        settings: its group `review`.
        environ: where the token of one that the settings name is.
        stop: as `Client` takes it.

    Raises:
        UsageError: the token is absent, or no server of the workspace's own runs.
    """
    if settings.url:
        token = environ.get(TOKEN_VARIABLE, "")
        if not token.strip():
            raise UsageError(
                f"review.url names a Label Studio; put its token into {TOKEN_VARIABLE} (there: "
                "Account & Settings)"
            )
        return Client(settings.url, token, stop=stop)
    folder = root.absolute() / FOLDER
    process = server_process.find(folder)
    if process is None or not process.ready:
        raise UsageError("no Label Studio runs for this workspace; start it: curate review serve")
    return Client(_url(process.port), _accounts(folder).token, stop=stop)


def served(root: Path) -> Path:
    """The folder below which the workspace's own server shows files: its document root."""
    return root.absolute() / FOLDER / _SERVED


def _running(folder: Path, images: Path | None, port: int) -> tuple[Process, bool, bool]:
    """The server's process, whether it was started now, and whether for the first time."""
    begun = time.monotonic()
    lost_since: float | None = None
    told = False
    while time.monotonic() < begun + _WAIT_SECONDS:
        with server_process.try_lock(folder) as lock:
            if lock is not None:
                first = read_accounts(folder) is None
                with server_process.listen(port) as listening:
                    installed = install()
                    env = _prepare(folder, images, installed.database)
                    say("starting Label Studio")
                    process = server_process.start(folder, installed.python, env, lock, listening)
                    return process, True, first
        found = server_process.find(folder)
        if found is not None and found.ready:
            if not server_process.answers(found.port, _SILENT_SECONDS):
                now = server_process.find(folder)
                if now is None or now.pid != found.pid:
                    # It was just ending.
                    continue
                raise BusyError(
                    f"Label Studio (process {found.pid}) runs and does not answer; end it: "
                    "curate review serve --stop"
                )
            return found, False, False
        if (folder / RECORD).exists() and found is None:
            lost_since = lost_since or time.monotonic()
            if time.monotonic() > lost_since + _LOST_SECONDS:
                raise BusyError(
                    "Label Studio of this workspace runs elsewhere: on another machine, or in a "
                    "container"
                )
        else:
            lost_since = None
            if not told:
                say("waiting for another command that starts Label Studio")
                told = True
        time.sleep(0.1)
    raise BusyError("another command has been starting Label Studio for long; look what it does")


def _prepare(folder: Path, images: Path | None, template: Path) -> dict[str, str]:
    """Lay out what a server needs, and give the variables that it runs with."""
    data = folder / _DATA
    accounts = read_accounts(folder)
    if accounts is None:
        if (data / _DATABASE).exists():
            # Its password and token are lost; to begin anew would lose what people have said.
            raise StorageError(
                f"{printable(folder)} holds Label Studio's data without {ACCOUNTS}; put that file "
                "back, or move the data away"
            )
        accounts = first_accounts(folder)
    with owner_only(), accounts_held(folder):
        remove_leftovers(folder)
        write_bytes(folder / ".gitignore", b"*\n")
        make_folder(data)
        if not (data / _DATABASE).exists():
            with storage_errors(printable(template)):
                content = template.read_bytes()
            write_bytes(data / _DATABASE, content)
        served = folder / _SERVED
        make_folder(served)
        _link(served / "images", images)
    for file in (folder / ACCOUNTS, data / _DATABASE):
        with storage_errors(printable(file)):
            file.chmod(0o600)
    return environment(
        {
            "LABEL_STUDIO_BASE_DATA_DIR": str(data),
            "LABEL_STUDIO_USERNAME": accounts.owner.email,
            "LABEL_STUDIO_PASSWORD": accounts.owner.password,
            "LABEL_STUDIO_USER_TOKEN": accounts.token,
            # Set as the first account is made.
            "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
            "LABEL_STUDIO_DISABLE_SIGNUP_WITHOUT_LINK": "true",
            "LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED": "true",
            "LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT": str(served),
            # A page elsewhere cannot reach it under a name of its own.
            "LABEL_STUDIO_ALLOWED_HOSTS": "127.0.0.1,localhost",
        }
    )


def _link(link: Path, images: Path | None) -> None:
    """Point a link at the images: a relative one, which holds in a moved workspace."""
    with storage_errors(printable(link)):
        if images is None:
            link.unlink(missing_ok=True)
            return
        target = Path(os.path.relpath(os.path.realpath(images), os.path.realpath(link.parent)))
        if link.is_symlink() and link.readlink() == target:
            return
        fresh = link.with_name(f"{TEMPORARY}{os.getpid()}")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target, target_is_directory=True)
        fresh.replace(link)


def _accounts(folder: Path) -> Accounts:
    accounts = read_accounts(folder)
    if accounts is None:
        raise StorageError(f"{printable(folder / 'accounts.json')} is gone; put it back")
    return accounts


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}"
