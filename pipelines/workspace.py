"""Opening a workspace: settings, label space, catalogue, store and folders.

    curate.yaml         settings
    catalogue.sqlite    what is known (with its write-ahead log beside it), or
    catalogue.id        the number of the PostgreSQL database that holds it
    images/             original bytes by SHA-256, where the setting `store` names no other place
    incoming/           downloads that are not decided yet
    runs/ID/            scores and shortlist of a run
    releases/VERSION/   immutable datasets
    review/             a Label Studio of its own: accounts, data, log; its owner alone may enter
    lists/              refused items and duplicates, for people
    .curate/            locks

Nothing in it holds an absolute path: moved or copied, it works.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from curate.catalog import facts, intake
from curate.catalog.engine import Catalogue
from curate.catalog.store import ImageStore, open_store
from curate.errors import UsageError, WorkspaceError
from curate.files import hold, make_folder, printable, write_bytes
from curate.labels.concepts import load_concepts
from curate.labels.space import LabelSpace, load_label_space
from curate.settings import (
    FILE_NAME,
    Settings,
    load_settings,
    parse_settings,
    preset_text,
    with_options,
)
from pipelines.catalogues import open_workspace_catalogue

# What is pinned: the label space, and that candidates are labelled with concepts.
_SPACE, _WEAK = "label_space", "weak_labels"

#: The rule whose candidates are labelled with concepts.
OUTLIER = "outlier"


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
    def weak_labels(self) -> LabelSpace:
        """What candidates are labelled with: concepts under the rule outlier, else classes of the
        label space.
        """
        if self.settings.filter.rule != OUTLIER:
            return self.label_space
        return load_concepts(self.settings.concepts, self.root)

    @cached_property
    def store(self) -> ImageStore:
        """The images."""
        return open_store(self.settings.store, self.root)

    def run_folder(self, run_id: str) -> Path:
        """The folder of a run."""
        return self.root / "runs" / run_id

    @contextmanager
    def held(self, stage: str, *, shared: bool = False) -> Iterator[None]:
        """Hold a stage of this workspace against a second command of its kind.

        Args:
            stage: its name.
            shared: let other commands hold it that share it too, where the catalogue lets several
                work side by side; those that do not share it are kept out.

        Raises:
            BusyError: another command holds it; the text names it.
        """
        with ExitStack() as held:
            if not (shared and self.catalogue.side_by_side):
                folder = self.root / ".curate"
                make_folder(folder)
                held.enter_context(hold(folder / stage, f"curate {stage}"))
            held.enter_context(self.catalogue.held(stage, shared=shared))
            yield

    def changed(self, options: Mapping[str, Any]) -> Workspace:
        """The same workspace with some settings changed, by dotted name."""
        return replace(self, settings=with_options(self.settings, options))

    def close(self) -> None:
        """Let go of the catalogue."""
        self.catalogue.close()


def create_workspace(root: Path, preset: str) -> Workspace:
    """Make a workspace.

    Args:
        root: a folder that is absent, or without `curate.yaml`.
        preset: a preset's name, or a YAML file.

    Raises:
        WorkspaceError: there is one already, or the database belongs to another one.
        UnknownNameError, SettingsError, LabelSpaceError: the preset is unusable.
    """
    if (root / FILE_NAME).exists():
        raise WorkspaceError(f"{printable(root)} is a workspace already")
    if root.exists() and not root.is_dir():
        raise WorkspaceError(f"{printable(root)} is not a folder")
    text = preset_text(preset)
    settings = parse_settings(text, preset)
    load_label_space(settings.label_space, root)
    if settings.filter.rule == OUTLIER:
        load_concepts(settings.concepts, root)
    make_folder(root)
    catalogue = open_workspace_catalogue(root, settings.database, create=True)
    try:
        with catalogue.read() as connection:
            used = intake.count_images(connection) > 0
    finally:
        catalogue.close()
    # One that is empty was made by an init that was cut off.
    if used:
        raise WorkspaceError(
            f"{printable(root)} holds a catalogue but no {FILE_NAME}: put that back, or name "
            "another folder"
        )
    # The settings make the folder a workspace, so they come last.
    write_bytes(root / FILE_NAME, text)
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
    return Workspace(root, settings, open_workspace_catalogue(root, settings.database))


def claim_store(workspace: Workspace) -> None:
    """Take the store for this workspace, before images are put there or removed.

    Raises:
        WorkspaceError: it is another workspace's, or cannot be used.
        StorageError: it is away.
    """
    if workspace.store.inside:
        return
    with workspace.catalogue.write() as connection:
        number = facts.remember(connection, "workspace", uuid.uuid4().hex)
    workspace.store.claim(number)


def pin_label_space(workspace: Workspace) -> None:
    """Pin the label space before the first candidate: scores of two of them must not mix.

    What candidates are labelled with is pinned too, but not which concepts there are: more may be
    added, and no verdict depends on the others.

    Raises:
        UsageError: candidates were collected under another label space, or as classes where they
            are concepts now, or the reverse.
    """
    with workspace.catalogue.write() as connection:
        if facts.recall(connection, _SPACE) is None and workspace.settings.filter.rule == OUTLIER:
            facts.remember(connection, _WEAK, OUTLIER)
        facts.remember(connection, _SPACE, workspace.label_space.fingerprint)
    check_label_space(workspace)


def check_label_space(workspace: Workspace) -> None:
    """Refuse a label space that is not the one that the candidates were collected under.

    Raises:
        UsageError: it is another one, or its file has changed; or the candidates are labelled with
            concepts and the rule wants classes, or the reverse.
    """
    space = workspace.label_space
    if pinned_label_space(workspace) not in (None, space.fingerprint):
        raise UsageError(
            f"the label space {space.name!r} is not the one that this workspace's candidates were "
            "collected under; undo the change or make a new workspace"
        )
    with workspace.catalogue.read() as connection:
        pinned = facts.recall(connection, _SPACE) is not None
        of_concepts = facts.recall(connection, _WEAK) == OUTLIER
    rule = workspace.settings.filter.rule
    if pinned and of_concepts != (rule == OUTLIER):
        are, wanted = ("concepts", "classes") if of_concepts else ("classes", "concepts")
        raise UsageError(
            f"this workspace's candidates are labelled with {are}, and the rule {rule} judges "
            f"{wanted}: make a workspace of its own for it"
        )


def pinned_label_space(workspace: Workspace) -> str | None:
    """The fingerprint of the label space that candidates were collected under, if any were."""
    with workspace.catalogue.read() as connection:
        return facts.recall(connection, _SPACE)
