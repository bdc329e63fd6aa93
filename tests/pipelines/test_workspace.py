"""Making and opening workspaces: nothing that is there is ever lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from curate.errors import SettingsError, UnknownNameError, WorkspaceError
from pipelines.collect import collect_folder
from pipelines.status import status
from pipelines.workspace import create_workspace, open_workspace


def test_a_catalogue_without_its_settings_is_never_touched(
    tmp_path: Path, weak_folder: Path
) -> None:
    root = tmp_path / "workspace"
    workspace = create_workspace(root, "imagenet-1k")
    collect_folder(workspace, weak_folder)
    workspace.close()
    settings = (root / "curate.yaml").rename(tmp_path / "saved.yaml")
    for preset in ("imagnet-a", "imagenet-1k"):
        with pytest.raises((UnknownNameError, WorkspaceError)):
            create_workspace(root, preset)
    settings.rename(root / "curate.yaml")
    assert status(open_workspace(root))["funnel"]["candidates"] == 20


def test_a_failed_init_leaves_nothing(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("label_space: absent.csv\n", encoding="utf-8")
    for preset in ("imagenet-x", str(bad), str(tmp_path / "absent.yaml")):
        with pytest.raises((UnknownNameError, SettingsError, Exception), match=r"imagenet|absent"):
            create_workspace(tmp_path / "new", preset)
        assert not (tmp_path / "new").exists()


def test_a_second_init_and_a_file_in_the_way_are_refused(tmp_path: Path) -> None:
    create_workspace(tmp_path / "w", "imagenet-a").close()
    with pytest.raises(WorkspaceError, match="is a workspace already"):
        create_workspace(tmp_path / "w", "imagenet-a")
    (tmp_path / "file").touch()
    with pytest.raises(WorkspaceError, match="is not a folder"):
        create_workspace(tmp_path / "file", "imagenet-a")


def test_an_own_label_space_lies_beside_the_settings(tmp_path: Path) -> None:
    root = tmp_path / "birds"
    root.mkdir()
    (root / "birds.csv").write_text("wnid\nn01531178\nn01614925\n", encoding="utf-8")
    preset = tmp_path / "birds.yaml"
    preset.write_text("label_space: birds.csv\n", encoding="utf-8")
    workspace = create_workspace(root, str(preset))
    assert [item.name for item in workspace.label_space] == ["goldfinch", "bald eagle"]
    moved = shutil.copytree(root, tmp_path / "moved")
    assert open_workspace(moved).label_space.fingerprint == workspace.label_space.fingerprint
