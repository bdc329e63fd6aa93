"""The whole way on SQLite and on PostgreSQL: the same rows, files and words."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, select

from curate.catalog.tables import metadata
from curate.settings import preset_text
from pipelines.collect import collect_folder
from pipelines.deduplicate import deduplicate
from pipelines.doctor import examine
from pipelines.filter import run_filter
from pipelines.public import collect_urls
from pipelines.release import build_release, list_releases
from pipelines.report import write_report
from pipelines.runs import read_shortlist
from pipelines.status import run_by_class, status
from pipelines.workspace import Workspace, create_workspace
from tests.pipelines.lists import HASTE, awkward_list, distinct_photos
from tests.postgres import Server
from tests.sources.servers import LoopbackServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.thorough]

#: Columns that speak of time, or of how far a chunk's lease reaches.
_CLOCKS = {"seen", "taken_in", "updated", "next_try", "started", "finished", "seconds", "built"}
_CLOCKS |= {"found", "until", "holder", "attempts"}

#: Names that tell the folder, and which command wrote a part.
_NAMES = {"path", "file"}

_WHEN = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)? UTC")

#: Only where several work on one run, and what hosts were asked when.
_ITS_OWN = {"claims", "hosts"}

Story = dict[str, Any]


@pytest.fixture(scope="module")
def material(
    tmp_path_factory: pytest.TempPathFactory,
    package_photos: list[tuple[Path, int]],
    weak_folder: Path,
) -> Path:
    """Photos, copies and bad files under names that databases order in different ways."""
    root = tmp_path_factory.mktemp("material")
    photos = Path(shutil.copytree(weak_folder, root / "photos"))
    folders = sorted(folder for folder in photos.iterdir())
    for number, name in enumerate(("a.jpg", "B.jpg", "_.jpg", "é.jpg", "Z z.jpg", "10.jpg")):
        folder = folders[number % 3]
        shutil.copy(package_photos[number][0], folder / name)
        (folder / f"bad {name}").write_bytes(b"no image" * number)
        (folder / f"Bad{name}").write_bytes(b"\xff\xd8\xff\xe0")
    if sys.platform != "darwin":
        (folders[0] / os.fsdecode(b"\xe9.jpg")).write_bytes(b"latin")
    (photos / "no such class").mkdir()
    shutil.copy(package_photos[0][0], photos / "no such class" / "x.jpg")
    (root / "labels.csv").write_text(
        "path,label,source,title,author,licence\n"
        + "".join(
            f'{path.relative_to(photos)},{path.parent.name},"=1+1 {number}","{"é" * 3000}",'
            f"{'' if number % 2 else 'Ann'},{('CC BY 4.0', 'CC0', 'nothing', '')[number % 4]}\n"
            for number, path in enumerate(sorted(photos.rglob("imagenet_*.jpg")))
        ),
        encoding="utf-8",
    )
    return root


@pytest.fixture(scope="module")
def stories(
    postgres: Server,
    material: Path,
    package_photos: list[tuple[Path, int]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, Story]]:
    """What a workspace tells of the whole way, by the kind of its database."""
    other_order = postgres.make(locale=postgres.locales[0])
    photos = distinct_photos([path for path, _ in package_photos], 12)
    told: dict[str, Story] = {}
    with pytest.MonkeyPatch.context() as patch, LoopbackServer() as server:
        for name, value in HASTE.items():
            patch.setenv(name, value)
        patch.setenv("CURATE_FILTER__CHUNK", "5")
        # One network: what is compared is what databases keep of it.
        patch.setenv("CURATE_FILTER__MODELS", '["lite/efficientnet_lite0"]')
        listed = awkward_list(server, material / "list.csv", photos).path
        for kind, address in (("sqlite", ""), ("postgresql", other_order)):
            root = tmp_path_factory.mktemp(kind) / "workspace"
            preset = root.parent / "preset.yaml"
            named = f'\ndatabase: "{address}"\n' if address else ""
            preset.write_bytes(preset_text("imagenet-1k") + named.encode())
            workspace = create_workspace(root, str(preset))
            hosts = {"network.allow_hosts": (server.allow_host,)}
            told[kind] = the_whole_way(workspace.changed(hosts), material, listed)
            workspace.close()
    yield told
    postgres.drop(other_order)


def the_whole_way(workspace: Workspace, material: Path, listed: Path) -> Story:
    told: Story = {
        "collect": [
            collect_folder(workspace, material / "photos").to_dict(),
            collect_folder(workspace, material / "photos", material / "labels.csv").to_dict(),
            collect_urls(workspace, listed).to_dict(),
            collect_urls(workspace, listed).to_dict(),
        ],
        "dedup": deduplicate(workspace, across_labels="keep").to_dict(),
        "filter": [
            run_filter(workspace),
            run_filter(workspace.changed({"filter.cap": 1, "filter.cap_order": "confidence"})),
            run_filter(workspace, ["n02815834", "jeep"]),
            run_filter(workspace),
        ],
    }
    first = told["filter"][0]["run"]
    told["shortlist"] = [dataclasses.astuple(row) for row in read_shortlist(workspace, first)[1]]
    told["release"] = build_release(workspace, "0.1.0", unreviewed=True, run_id=first)
    told["releases"] = list_releases(workspace)
    told["status"] = status(workspace, first, quality=True)
    told["by class"] = run_by_class(workspace, first)
    write_report(workspace, first)
    told["doctor"] = examine(workspace)
    told["rows"] = {
        name: rows_of(workspace, table)
        for name, table in metadata.tables.items()
        if name not in _ITS_OWN
    }
    told["files"] = files_of(workspace.root)
    return told


def rows_of(workspace: Workspace, table: Table) -> list[dict[str, Any]]:
    with workspace.catalogue.read() as connection:
        rows = connection.execute(select(table).order_by(*table.primary_key)).mappings()
        kept = [{n: v for n, v in row.items() if n not in _CLOCKS} for row in rows]
    return [row for row in kept if row.get("name") != "workspace"]


def files_of(root: Path) -> dict[str, bytes]:
    """The files by name without times, but for settings and catalogue."""
    return {
        str(path.relative_to(root)): _WHEN.sub(b"", path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file()
        and path.name not in ("curate.yaml", "catalogue.id")
        and not path.name.startswith("catalogue.sqlite")
        and ".curate" not in path.parts
    }


def timeless(value: Any) -> Any:
    """A summary, or rows, without times and names of folders."""
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if k not in _CLOCKS | _NAMES}
    if isinstance(value, list | tuple):
        return [timeless(item) for item in value]
    return value


def test_the_way_meets_what_is_compared(stories: dict[str, Story]) -> None:
    told = stories["sqlite"]
    assert told["collect"][0]["rejected"].keys() >= {"duplicate-exact", "no-label", "truncated"}
    assert told["collect"][2]["new"] > 5
    assert told["collect"][2]["failed"]
    assert told["dedup"]["near"] + told["dedup"]["exact"] > 0
    assert len(told["shortlist"]) > 5
    assert {row["outcome"] for row in told["rows"]["verdicts"]} >= {"removed", "survivor"}
    assert len(told["rows"]["runs"]) == 3
    assert told["release"]["images"] > 0
    assert not told["doctor"]["problems"]


@pytest.mark.parametrize(
    "what",
    ["collect", "dedup", "filter", "shortlist", "release", "releases", "status", "by class"],
)
def test_summaries_are_the_same(stories: dict[str, Story], what: str) -> None:
    one, other = (timeless(stories[kind][what]) for kind in ("sqlite", "postgresql"))
    assert one == other
    # To the order of keys and counts.
    assert json.dumps(one, default=str) == json.dumps(other, default=str)


@pytest.mark.parametrize("table", sorted(metadata.tables.keys() - _ITS_OWN))
def test_rows_are_the_same(stories: dict[str, Story], table: str) -> None:
    one, other = (stories[kind]["rows"][table] for kind in ("sqlite", "postgresql"))
    assert timeless(one) == timeless(other)


def test_files_are_the_same_to_the_byte(stories: dict[str, Story]) -> None:
    one, other = (stories[kind]["files"] for kind in ("sqlite", "postgresql"))
    assert one.keys() == other.keys()
    assert [name for name in one if one[name] != other[name]] == []
    assert {"lists/refused.csv", "lists/duplicates.csv"} <= one.keys()


def test_a_finished_run_is_found_again_on_both(stories: dict[str, Story]) -> None:
    for told in stories.values():
        assert told["filter"][3] == told["filter"][0]
        assert timeless(told["doctor"]) == timeless(stories["sqlite"]["doctor"])
