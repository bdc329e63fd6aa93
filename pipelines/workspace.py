"""Opening a workspace: settings, label space, catalogue, store and folders.

    curate.yaml         settings
    catalogue.sqlite    what is known (with its write-ahead log beside it)
    images/             original bytes by SHA-256
    runs/ID/            scores and shortlist of a run
    releases/VERSION/   immutable datasets
    lists/              refused and failed items, for people
    .curate/            locks

Nothing in it holds an absolute path: moved or copied, it works.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from curate.catalog import facts
from curate.catalog.engine import Catalogue, open_catalogue
from curate.catalog.store import ImageStore
from curate.errors import UsageError, WorkspaceError
from curate.files import hold, printable, storage_errors
from curate.labels.space import LabelSpace, load_label_space
from curate.settings import FILE_NAME, Settings, load_settings, write_settings

_CATALOGUE = "catalogue.sqlite"


@dataclass(frozen=True)
class Workspace:
    """An open workspace.

    Attributes:
        root: its folder.
        settings: `curate.yaml`, the environment and options together.
        catalogue: the open catalogue.
    """

    root: Path
    settings: Settings
    catalogue: Catalogue

    @cached_property
    def label_space(self) -> LabelSpace:
        """The label space that every softmax of this workspace runs over."""
        return load_label_space(self.settings.label_space, self.root)

    @cached_property
    def store(self) -> ImageStore:
        """The images."""
        return ImageStore(self.root / "images")

    def run_folder(self, run_id: str) -> Path:
        """The folder of a run."""
        return self.root / "runs" / run_id

    @contextmanager
    def held(self, stage: str) -> Iterator[None]:
        """Hold a stage of this workspace against a second command of its kind.

        Raises:
            BusyError: another command holds it; the text names it.
        """
        folder = self.root / ".curate"
        with storage_errors(printable(folder)):
            folder.mkdir(exist_ok=True)
        with hold(folder / stage, f"curate {stage}"):
            yield

    def close(self) -> None:
        """Let go of the catalogue."""
        self.catalogue.close()


def create_workspace(root: Path, preset: str) -> Workspace:
    """Make a workspace.

    Args:
        root: a folder that is absent, or without `curate.yaml`.
        preset: a preset's name, or a YAML file.

    Raises:
        WorkspaceError: there is one already.
        UnknownNameError, SettingsError, LabelSpaceError: the preset is unusable.
    """
    if (root / FILE_NAME).exists():
        raise WorkspaceError(f"{printable(root)} is a workspace already")
    if root.exists() and not root.is_dir():
        raise WorkspaceError(f"{printable(root)} is not a folder")
    made = not root.exists()
    with storage_errors(printable(root)):
        root.mkdir(parents=True, exist_ok=True)
    try:
        # The settings make the folder a workspace, so they come last.
        open_catalogue(root / _CATALOGUE, create=True).close()
        write_settings(root, preset)
        load_label_space(load_settings(root).label_space, root)
    except BaseException:
        (root / FILE_NAME).unlink(missing_ok=True)
        for leftover in root.glob(f"{_CATALOGUE}*"):
            leftover.unlink()
        if made:
            root.rmdir()
        raise
    return open_workspace(root)


def open_workspace(root: Path, options: Mapping[str, Any] | None = None) -> Workspace:
    """Open the workspace at `root`; see `curate.settings.find_workspace` for where to look.

    Args:
        root: its folder.
        options: settings by dotted name that win over the file and the environment.

    Raises:
        WorkspaceError: no workspace, or one of a newer version.
        SettingsError: its settings are wrong.
    """
    settings = load_settings(root, options)
    return Workspace(root, settings, open_catalogue(root / _CATALOGUE))


def remember_label_space(workspace: Workspace) -> None:
    """Pin the label space with the first candidate: scores of two of them must not mix.

    Raises:
        UsageError: candidates were collected under another label space.
    """
    space = workspace.label_space
    with workspace.catalogue.write() as connection:
        pinned = facts.remember(connection, "label_space", space.fingerprint)
    if pinned != space.fingerprint:
        raise UsageError(
            f"the label space {space.name!r} is not the one that this workspace's candidates were "
            "collected under; undo the change or make a new workspace"
        )


def pinned_label_space(workspace: Workspace) -> str | None:
    """The fingerprint of the label space that candidates were collected under, if any were."""
    with workspace.catalogue.read() as connection:
        return facts.recall(connection, "label_space")
