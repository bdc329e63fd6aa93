"""A workspace whose images are in S3: the same results as with a folder, kills and faults too."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from sqlalchemy import select

from curate.catalog.remote_store import RemoteStore
from curate.catalog.store import ImageStore, key_of
from curate.catalog.tables import candidates, images, origins, verdicts
from curate.errors import WorkspaceError
from curate.files import sha256_bytes
from pipelines.collect import collect_folder
from pipelines.demo import _lay_out
from pipelines.doctor import examine
from pipelines.filter import run_filter
from pipelines.release import build_release
from pipelines.report import write_report
from pipelines.runs import finished_run
from pipelines.workspace import Workspace, create_workspace, open_workspace
from tests.object_store import KEY, SECRET, ObjectStore
from tests.pipelines.lists import HASTE, awkward_list, distinct_photos
from tests.running import dying, run_curate
from tests.sources.servers import LoopbackServer


@pytest.fixture
def address(bucket: str) -> str:
    return f"s3://{bucket}/images"


def workspace_with(root: Path, store: str, preset: str = "imagenet-1k") -> Workspace:
    """A new workspace whose settings name its store."""
    create_workspace(root, preset).close()
    with (root / "curate.yaml").open("a", encoding="utf-8") as stream:
        stream.write(f"\nstore: {store}\n")
    return open_workspace(root)


def content(workspace: Workspace) -> list[list[tuple[object, ...]]]:
    """What was taken in, without times."""
    with workspace.catalogue.read() as connection:
        return [
            [
                tuple(v for c, v in row._mapping.items() if c not in ("seen", "taken_in"))
                for row in connection.execute(select(table).order_by(*table.primary_key))
            ]
            for table in (images, candidates, origins)
        ]


def named(workspace: Workspace) -> list[str]:
    """The keys of the images that rows name."""
    with workspace.catalogue.read() as connection:
        rows = connection.execute(select(images.c.sha256, images.c.extension)).all()
    return sorted(key_of(row.sha256, row.extension) for row in rows)


def bytes_of(store: ImageStore) -> dict[str, bytes]:
    return {key: store.read(*key.rpartition("/")[2].split(".")) for key in store}


_TIME = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)? UTC")


def files_of(folder: Path) -> dict[str, bytes]:
    """All files by name; the times on pages are left out."""
    return {
        str(path.relative_to(folder)): _TIME.sub(b"", path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.slow
def test_s3_gives_the_candidates_shortlist_report_and_release_of_a_folder(
    tmp_path: Path, weak_folder: Path, address: str, object_store: ObjectStore
) -> None:
    made = {}
    for name, store in (("folder", "images"), ("remote", address)):
        workspace = workspace_with(tmp_path / name / "workspace", store)
        collect_folder(workspace, weak_folder)
        summary = run_filter(workspace)
        assert summary["survivors"] > 0
        write_report(workspace)
        build_release(workspace, "0.1.0", unreviewed=True)
        run = finished_run(workspace)
        shortlist = run_curate("shortlist", workspace=workspace.root).stdout
        made[name] = {
            "images": bytes_of(workspace.store),
            "candidates": content(workspace),
            "run": run["id"],
            "files": files_of(workspace.run_folder(run["id"])),
            "shortlist": shortlist,
            "release": files_of(workspace.root / "releases"),
        }
        assert examine(workspace)["problems"] == []
    assert made["remote"] == made["folder"]
    assert any(name.endswith("report.html") for name in made["folder"]["files"])
    assert not (tmp_path / "remote" / "workspace" / "images").exists()
    # The secrets are nowhere in the workspace.
    for path in (tmp_path / "remote").rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes()
            assert KEY.encode() not in path.read_bytes()


def killed(command: list[str | Path], moments: list[str], workspace: Workspace) -> int:
    """Kill a command at one moment after the other, and look whether all named images are there.

    Returns:
        How many kills came in time.
    """
    count = 0
    for moment in moments:
        count += dying(*command, at=moment) is None
        there = bytes_of(RemoteStore(workspace.store.address))
        assert set(named(workspace)) <= set(there), moment
    return count


@pytest.mark.slow
def test_a_collect_killed_at_every_moment_ends_as_one_never_killed(
    tmp_path: Path, weak_folder: Path, address: str
) -> None:
    whole = workspace_with(tmp_path / "whole", "images")
    collect_folder(whole, weak_folder)
    workspace = workspace_with(tmp_path / "killed", address)
    command = ["-w", workspace.root, "collect", "folder", weak_folder]
    moments = ["put:1", "put:2", "put:4", "put:15", "commit:3", "put:9", "commit:4"]
    assert killed(command, moments, workspace) >= 5
    assert dying(*command, at="any:100000") is not None
    assert content(workspace) == content(whole)
    assert bytes_of(workspace.store) == bytes_of(whole.store)


@pytest.mark.slow
def test_the_kill_test_finds_images_that_are_named_before_they_are_there(
    tmp_path: Path, weak_folder: Path, address: str
) -> None:
    workspace = workspace_with(tmp_path / "killed", address)
    command = ["--fault", "early", "-w", workspace.root, "collect", "folder", weak_folder]
    # The first two are those of the store's mark.
    with pytest.raises(AssertionError, match="put:3"):
        killed(command, ["put:3"], workspace)


@pytest.mark.thorough
@pytest.mark.slow
def test_downloads_killed_on_their_way_up_end_as_ones_never_killed(
    tmp_path: Path,
    package_photos: list[tuple[Path, int]],
    address: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in HASTE.items():
        monkeypatch.setenv(name, value)
    photos = distinct_photos([path for path, _ in package_photos], 12)
    with LoopbackServer() as server:
        listed = awkward_list(server, tmp_path / "list.csv", photos)
        made = {}
        for name, store in (("whole", "images"), ("killed", address)):
            workspace = workspace_with(tmp_path / name, store, "imagenet-a")
            command = ["-w", workspace.root, "collect", "urls", listed.path]
            command += ["--allow-host", server.allow_host]
            if name == "killed":
                moments = ["put:2", "unlink:1", "put:5", "unlink:3", "commit:9", "unlink:6"]
                assert killed(command, moments, workspace) >= 4
            assert dying(*command, at="any:100000") is not None
            assert list((workspace.root / "incoming").iterdir()) == []
            made[name] = (content(workspace), bytes_of(workspace.store))
        assert made["killed"] == made["whole"]


def harm(store: ObjectStore, address: str, keys: list[str]) -> dict[str, str]:
    """Lose, shorten and alter one image each; gives the SHA-256 of each by what was done."""
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    lost, short, other = ({"Bucket": bucket, "Key": f"{prefix}/{key}"} for key in keys[:3])
    store.client.delete_object(**lost)
    whole = store.client.get_object(**short)["Body"].read()
    store.client.put_object(**short, Body=whole[:-1])
    whole = store.client.get_object(**other)["Body"].read()
    store.client.put_object(**other, Body=whole[:-1] + b"x")
    hashes = [key[3:].partition(".")[0] for key in keys[:3]]
    return dict(zip(("lost", "short", "other"), hashes, strict=True))


@pytest.mark.slow
def test_lost_and_altered_objects_are_found_by_filter_and_doctor_and_put_back_by_collect(
    tmp_path: Path, weak_folder: Path, address: str, object_store: ObjectStore
) -> None:
    workspace = workspace_with(tmp_path / "workspace", address)
    collect_folder(workspace, weak_folder)
    whole = bytes_of(workspace.store)
    harmed = harm(object_store, address, list(workspace.store))
    bucket = address.split("/")[2]
    unnamed = key_of("0" * 64, "jpg")
    object_store.client.put_object(Bucket=bucket, Key=f"images/{unnamed}", Body=b"?")
    object_store.client.put_object(Bucket=bucket, Key="images/README", Body=b"mine")

    assert run_filter(workspace)["failed"] >= 3
    found = examine(workspace)["problems"]
    assert {(p["kind"], p["what"]) for p in found if p["kind"].startswith("image")} == {
        ("image-missing", harmed["lost"]),
        ("image-altered", harmed["short"]),
        ("image-altered", harmed["other"]),
        ("image-unnamed", unnamed.rpartition("/")[2]),
    }
    done = run_curate("doctor", "--repair", "--json", workspace=workspace.root, expect=1)
    assert json.loads(done.stdout)["unrepaired"] == 3
    assert unnamed not in list(workspace.store)
    collect_folder(workspace, weak_folder)
    assert bytes_of(workspace.store) == whole
    run_curate("doctor", workspace=workspace.root)
    assert run_filter(workspace)["failed"] == 0
    assert "images/README" in object_store.keys(bucket)


def test_a_store_is_not_shared_by_workspaces(
    tmp_path: Path, weak_folder: Path, address: str
) -> None:
    first = workspace_with(tmp_path / "first", address)
    collect_folder(first, weak_folder)
    second = workspace_with(tmp_path / "second", address)
    for use in (lambda: collect_folder(second, weak_folder), lambda: examine(second, repair=True)):
        with pytest.raises(WorkspaceError, match="another workspace"):
            use()
    assert sorted(first.store) == named(first)
    collect_folder(first, weak_folder)


@pytest.mark.slow
def test_a_store_that_is_away_costs_nothing_but_time(
    tmp_path: Path, weak_folder: Path, address: str
) -> None:
    root = workspace_with(tmp_path / "workspace", address).root
    away = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}

    def told(*command: str | Path, code: int = 1, **env: str) -> str:
        done = run_curate(*command, workspace=root, expect=code, **env)
        assert "Traceback" not in done.stderr
        (line,) = [text for text in done.stderr.splitlines() if text.startswith("curate: ")]
        assert SECRET not in done.stderr
        return line

    assert "cannot be reached" in told("collect", "folder", weak_folder, **away)
    run_curate("collect", "folder", weak_folder, workspace=root)
    assert "cannot be reached" in told("filter", **away)
    assert "cannot be reached" in told("doctor", **away)
    run_curate("doctor", workspace=root)
    with open_workspace(root).catalogue.read() as connection:
        assert not connection.execute(select(verdicts)).all(), "none failed for the network's sake"
    done = run_curate(
        "--debug", "doctor", workspace=root, expect=2, AWS_ACCESS_KEY_ID="", AWS_PROFILE="nobody"
    )
    assert SECRET not in done.stderr + done.stdout
    assert "Traceback" in done.stderr


def test_photos_to_evaluate_on_come_from_the_store(
    tmp_path: Path, weak_folder: Path, address: str
) -> None:
    workspace = workspace_with(tmp_path / "workspace", address)
    collect_folder(workspace, weak_folder)
    with workspace.catalogue.read() as connection:
        ids = list(connection.scalars(select(candidates.c.id)))
    (tmp_path / "photos").mkdir()
    workspace.store.remove(next(iter(workspace.store)))
    _lay_out(workspace, ids, tmp_path / "photos")
    laid = [path for path in (tmp_path / "photos").rglob("*") if path.is_file()]
    assert all(sha256_bytes(path.read_bytes()) == path.stem for path in laid)
    assert {path.stem for path in laid} == {key[3:67] for key in workspace.store}
