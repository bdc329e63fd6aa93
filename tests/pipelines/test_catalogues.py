"""Which catalogue is a workspace's: a database belongs to one workspace, and nothing is lost."""

from __future__ import annotations

import json
import shutil
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from curate.catalog import facts
from curate.errors import SettingsError, StorageError, WorkspaceError
from pipelines.catalogues import FILE, NUMBER
from pipelines.collect import collect_folder
from pipelines.status import status
from pipelines.workspace import Workspace, create_workspace, open_workspace
from tests.postgres import PASSWORD, Server
from tests.running import run_curate


@pytest.fixture
def database(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a new database, which the environment names."""
    address = postgres.make()
    monkeypatch.setenv("CURATE_DATABASE", address)
    yield address
    postgres.drop(address)


def candidates(workspace: Workspace) -> int:
    return int(status(workspace)["funnel"]["candidates"])


def test_a_workspace_is_made_in_the_database_that_the_environment_names(
    database: str, tmp_path: Path, weak_folder: Path
) -> None:
    workspace = create_workspace(tmp_path / "w", "imagenet-1k")
    collect_folder(workspace, weak_folder)
    assert workspace.catalogue.side_by_side
    assert candidates(open_workspace(tmp_path / "w")) == 20
    assert not (tmp_path / "w" / FILE).exists()


def test_the_settings_file_may_name_the_database(
    postgres: Server, tmp_path: Path, weak_folder: Path
) -> None:
    address = postgres.make()
    preset = tmp_path / "mine.yaml"
    preset.write_text(f'label_space: imagenet-1k\ndatabase: "{address}"\n', encoding="utf-8")
    collect_folder(create_workspace(tmp_path / "w", str(preset)), weak_folder)
    assert address in (tmp_path / "w" / "curate.yaml").read_text(encoding="utf-8")
    assert candidates(open_workspace(tmp_path / "w")) == 20
    moved = (tmp_path / "w").rename(tmp_path / "moved")
    assert candidates(open_workspace(moved)) == 20
    postgres.drop(address)


def test_a_workspace_that_is_empty_may_still_be_given_a_database(
    postgres: Server, tmp_path: Path, weak_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "w"
    create_workspace(root, "imagenet-1k").close()
    address = postgres.make()
    monkeypatch.setenv("CURATE_DATABASE", address)
    collect_folder(open_workspace(root), weak_folder)
    monkeypatch.delenv("CURATE_DATABASE")
    with pytest.raises(WorkspaceError, match="is in a PostgreSQL database: name it"):
        open_workspace(root)
    postgres.drop(address)


def test_a_workspace_with_candidates_in_sqlite_is_not_cut_off_from_them(
    postgres: Server, tmp_path: Path, weak_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "w"
    collect_folder(create_workspace(root, "imagenet-1k"), weak_folder)
    address = postgres.make()
    monkeypatch.setenv("CURATE_DATABASE", address)
    with pytest.raises(WorkspaceError, match="is not moved to a database"):
        open_workspace(root)
    monkeypatch.delenv("CURATE_DATABASE")
    assert candidates(open_workspace(root)) == 20
    postgres.drop(address)


def test_the_database_of_another_workspace_is_refused(
    database: str, tmp_path: Path, weak_folder: Path
) -> None:
    collect_folder(create_workspace(tmp_path / "one", "imagenet-1k"), weak_folder)
    with pytest.raises(WorkspaceError, match="belongs to another workspace"):
        create_workspace(tmp_path / "two", "imagenet-a")
    assert not (tmp_path / "two" / "curate.yaml").exists()
    assert not (tmp_path / "two" / NUMBER).exists()
    # A second machine that has its own folder shares the catalogue by the number.
    shutil.copy(tmp_path / "one" / NUMBER, tmp_path / "two" / NUMBER)
    shutil.copy(tmp_path / "one" / "curate.yaml", tmp_path / "two" / "curate.yaml")
    assert candidates(open_workspace(tmp_path / "two")) == 20


def test_another_or_an_emptied_database_is_refused(
    database: str,
    postgres: Server,
    tmp_path: Path,
    weak_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = tmp_path / "w"
    collect_folder(create_workspace(root, "imagenet-1k"), weak_folder)
    other = postgres.make()
    monkeypatch.setenv("CURATE_DATABASE", other)
    with pytest.raises(WorkspaceError, match="holds no catalogue"):
        open_workspace(root)
    create_workspace(tmp_path / "other", "imagenet-1k").close()
    with pytest.raises(WorkspaceError, match="is not the one that .* was made with"):
        open_workspace(root)
    postgres.drop(other)


def test_an_init_that_was_cut_off_can_be_repeated_and_a_lost_settings_file_is_told(
    database: str, tmp_path: Path, weak_folder: Path
) -> None:
    root = tmp_path / "w"
    create_workspace(root, "imagenet-1k").close()
    (root / "curate.yaml").unlink()
    workspace = create_workspace(root, "imagenet-1k")
    collect_folder(workspace, weak_folder)
    (root / "curate.yaml").unlink()
    with pytest.raises(WorkspaceError, match=r"holds a catalogue but no curate\.yaml"):
        create_workspace(root, "imagenet-1k")


def test_a_database_that_is_away_leaves_no_half_made_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CURATE_DATABASE", f"postgresql+psycopg://u:{'x' * 9}@127.0.0.1:9/d")
    with pytest.raises(StorageError, match=r"127\.0\.0\.1:9/d cannot be reached"):
        create_workspace(tmp_path / "w", "imagenet-1k")
    assert list((tmp_path / "w").glob("*")) == []


def test_the_number_is_a_fact_of_the_database_and_never_changes(
    database: str, tmp_path: Path
) -> None:
    workspace = create_workspace(tmp_path / "w", "imagenet-1k")
    number = (tmp_path / "w" / NUMBER).read_text(encoding="ascii").strip()
    for _ in range(2):
        with workspace.catalogue.read() as connection:
            assert facts.recall(connection, "workspace") == number
        workspace = open_workspace(tmp_path / "w")


def test_what_stands_in_the_place_of_an_address_is_not_shown(tmp_path: Path) -> None:
    preset = tmp_path / "wrong.yaml"
    preset.write_text("database: {password: geheim}\n", encoding="utf-8")
    with pytest.raises(SettingsError, match="database: input should be") as caught:
        create_workspace(tmp_path / "w", str(preset))
    assert "geheim" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.slow
def test_the_password_stands_in_no_output_and_in_no_file(
    database: str, postgres: Server, tmp_path: Path, weak_folder: Path
) -> None:
    root = tmp_path / "w"
    told = [run_curate("init", root, "--preset", "imagenet-1k", "--debug")]
    told.append(run_curate("collect", "folder", weak_folder, workspace=root))
    told.append(run_curate("--json", "status", workspace=root))
    assert json.loads(told[-1].stdout)["funnel"]["candidates"] == 20
    name = database.rpartition("/")[2]
    for wrong, code in (
        (postgres.address("absent"), 2),
        (postgres.address(name, user="nobody-there"), 2),
        (database.replace(str(postgres.port), "9"), 1),
        (database.replace("psycopg:", "mysql:"), 2),
        (database.replace("%40", "@"), 2),
        (f"{database}?wrong=1", 2),
        (f"{database}%zz?options=-csearch_path%3Dabsent", 2),
    ):
        done = run_curate("status", "--debug", workspace=root, expect=code, CURATE_DATABASE=wrong)
        assert done.stderr.splitlines()[-1].startswith("curate: ")
        told.append(done)
    secrets = [PASSWORD, database.split(":")[2].split("@")[0], "geheim"]
    for done in told:
        assert not [secret for secret in secrets if secret in done.stdout + done.stderr]
    for path in root.rglob("*"):
        assert not path.is_file() or b"geheim" not in path.read_bytes()
    for (row,) in postgres.run("SELECT row_to_json(facts)::text FROM facts", name):
        assert "geheim" not in row
