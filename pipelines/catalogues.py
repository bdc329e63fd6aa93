"""Which catalogue belongs to a workspace: SQLite in its folder, or a PostgreSQL database.

A database and the folders that use it know each other by a number: `catalogue.id` in the folder,
a fact in the database. So no workspace writes into the catalogue of another one, and machines that
share a folder, or have copies of it, share the catalogue.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from curate.catalog import facts, intake
from curate.catalog.engine import Catalogue, open_catalogue
from curate.errors import WorkspaceError
from curate.files import make_folder, printable, write_bytes

#: The catalogue where the setting `database` is empty.
FILE = "catalogue.sqlite"

#: The file that holds the number of the database.
NUMBER = "catalogue.id"
_FACT = "workspace"


def open_workspace_catalogue(root: Path, database: str, *, create: bool = False) -> Catalogue:
    """Open the catalogue of the workspace in `root`.

    Args:
        root: the workspace's folder.
        database: the setting.
        create: make it where it is absent.

    Raises:
        WorkspaceError: absent, of a newer version, or the catalogue of another workspace.
        SettingsError: `database` is no address of PostgreSQL.
        StorageError: the database cannot be reached, or the disk refuses.
    """
    number = _number(root)
    if database:
        return _in_database(root, database, number, create)
    if number is not None:
        raise WorkspaceError(
            f"the catalogue of {printable(root)} is in a PostgreSQL database: name it in the "
            "environment variable CURATE_DATABASE, or in curate.yaml (database: …)"
        )
    return open_catalogue(root / FILE, create=create)


def holds_images(path: Path) -> bool:
    """Whether a SQLite catalogue holds an image: not one of an init that was cut off."""
    if not path.exists():
        return False
    catalogue = open_catalogue(path)
    try:
        with catalogue.read() as connection:
            return intake.count_images(connection) > 0
    finally:
        catalogue.close()


def _number(root: Path) -> str | None:
    try:
        return (root / NUMBER).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise WorkspaceError(f"cannot read {printable(root / NUMBER)}: {error}") from error


def _in_database(root: Path, database: str, number: str | None, create: bool) -> Catalogue:
    from curate.catalog.postgres import open_database

    # A workspace that has taken nothing in may still change its mind.
    fresh = number is None
    if fresh and holds_images(root / FILE):
        raise WorkspaceError(
            f"the catalogue of {printable(root)} is {FILE}, and is not moved to a database: leave "
            "the setting database out, or make a new workspace with: curate init"
        )
    catalogue = open_database(database, create=create or fresh)
    try:
        if fresh:
            _take(catalogue, root)
        else:
            with catalogue.read() as connection:
                owner = facts.recall(connection, _FACT)
            if owner != number:
                raise WorkspaceError(
                    f"the database {catalogue.name} is not the one that {printable(root)} was "
                    f"made with; name that one, or remove {NUMBER} to begin anew in an empty one"
                )
    except BaseException:
        catalogue.close()
        raise
    return catalogue


def _take(catalogue: Catalogue, root: Path) -> None:
    """Make a database that is nobody's the workspace's own."""
    number = uuid.uuid4().hex
    path = root / NUMBER
    with catalogue.write() as connection:
        owner = facts.recall(connection, _FACT)
        # Another command may have done so while this one waited for its turn.
        if owner is not None and owner == _number(root):
            return
        if owner is not None:
            raise WorkspaceError(
                f"the database {catalogue.name} belongs to another workspace: name an empty one, "
                f"or put the file {NUMBER} of that workspace into {printable(root)} to share it"
            )
        facts.remember(connection, _FACT, number)
        make_folder(root)
        write_bytes(path, f"{number}\n".encode())
