"""The files of a workspace whose images are in its folder."""

from __future__ import annotations

from pathlib import Path

from curate.catalog.store import FolderStore
from pipelines.workspace import Workspace


def stored_files(workspace: Workspace) -> list[tuple[str, Path]]:
    """Each stored image's SHA-256 by its name, and its file; sorted."""
    store = workspace.store
    assert isinstance(store, FolderStore)
    return [(Path(key).stem, store.root / key) for key in store]
