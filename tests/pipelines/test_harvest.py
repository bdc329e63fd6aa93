"""Downloading a list: what every address ends as, what a kill leaves, what a rerun asks."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from sqlalchemy import select

from curate.catalog.tables import candidates, hits, images, origins
from curate.errors import ImageRefused, StorageError, UnknownNameError, UsageError
from curate.files import TEMPORARY, sha256_bytes
from curate.labels.space import load_label_space
from curate.sources.download import Downloader
from curate.sources.states import is_state
from pipelines import searching
from pipelines.admission import Labels
from pipelines.collect import Collected
from pipelines.deduplicate import deduplicate
from pipelines.doctor import examine
from pipelines.harvest import Harvest
from pipelines.network import Network, source_module
from pipelines.public import collect_urls
from pipelines.quality import count_unmeasured
from pipelines.status import status
from pipelines.workspace import Workspace, create_workspace, open_workspace
from tests.pipelines.lists import HASTE, PhotoList, awkward_list, distinct_photos
from tests.pipelines.stored import stored_files
from tests.running import ROOT, dying, run_curate
from tests.sources.servers import Exchange, LoopbackServer
from tests.waiting import PATIENCE, wait_until

_CLOCKS = {"seen", "taken_in", "updated"}

#: Limits on a server's time that a busy machine does not meet.
SLOWLY = {"network.read_seconds": PATIENCE, "network.total_seconds": 2 * PATIENCE}


@pytest.fixture(autouse=True)
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in HASTE.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def server() -> LoopbackServer:  # type: ignore[misc]
    with LoopbackServer() as running:
        yield running


@pytest.fixture(scope="session")
def photos(package_photos: list[tuple[Path, int]]) -> list[bytes]:
    return distinct_photos([path for path, _ in package_photos], 40)


def workspace_at(path: Path, server: LoopbackServer, **options: object) -> Workspace:
    made = create_workspace(path, "imagenet-a")
    return made.changed(
        {"network.allow_hosts": (server.allow_host,), "network.patience_seconds": 5.0, **options}
    )


def states(workspace: Workspace) -> dict[str, str]:
    """The end of each address, or of each locator where there is none."""
    with workspace.catalogue.read() as connection:
        rows = connection.execute(select(hits.c.url, hits.c.locator, hits.c.state)).all()
    return {row.url or row.locator: row.state for row in rows}


def content(workspace: Workspace) -> tuple[list[tuple[object, ...]], ...]:
    """Everything in the catalogue that does not speak of time or of attempts."""
    apart = {*_CLOCKS, "attempts"}
    with workspace.catalogue.read() as connection:
        return tuple(
            [
                tuple(v for c, v in row._mapping.items() if c not in apart)
                for row in connection.execute(select(table).order_by(*table.primary_key))
            ]
            for table in (images, candidates, origins, hits)
        )


def files(workspace: Workspace) -> list[str]:
    """Every file of the store and of the folder for downloads."""
    folders = (workspace.root / "images", workspace.root / "incoming")
    return sorted(
        str(path.relative_to(workspace.root))
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file()
    )


def assert_whole(workspace: Workspace) -> None:
    """Every stored file is named by a row with its content, and nothing else lies about."""
    with workspace.catalogue.read() as connection:
        named = {
            tuple(row) for row in connection.execute(select(images.c.sha256, images.c.extension))
        }
    assert {(name, path.suffix[1:]) for name, path in stored_files(workspace)} == named
    assert all(workspace.store.holds(sha256, extension) for sha256, extension in named)
    assert len(files(workspace)) == len(named)
    assert not list(workspace.root.rglob(f"{TEMPORARY}*"))


def test_every_address_ends_in_a_named_state(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    listed = awkward_list(server, tmp_path / "list.csv", photos[:9])
    workspace = workspace_at(tmp_path / "workspace", server)
    collected = collect_urls(workspace, listed.path)
    ended = states(workspace)
    assert all(map(is_state, ended.values()))
    expected = {
        "page": "not_an_image",
        "cut": "truncated",
        "copy": "duplicate",
        "gone": "http_404",
    }
    assert {n: ended[server.url(f"/{n}.jpg")] for n in expected} == expected
    assert ended["http://127.0.0.1:1/private.jpg"] == "forbidden_address"
    assert ended["file:///etc/passwd"] == "bad_url"
    assert collected.new == 9
    assert collected.failed == {"http_404": 1, "truncated": 1}
    assert collected.rejected == {
        "not_an_image": 1,
        "duplicate": 1,
        "no_label": 1,
        "licence": 1,
        "forbidden_address": 1,
        "bad_url": 1,
        "malformed": 1,
    }
    assert collected.found == 18
    told = status(workspace)["sources"]["urls"]
    assert told == {"downloaded": 9, **collected.failed, **collected.rejected}
    assert_whole(workspace)
    listing = (workspace.root / "lists" / "refused.csv").read_text(encoding="utf-8")
    assert server.url("/gone.jpg") in listing
    assert "file:///etc/passwd" in listing


def test_origin_and_licence_stand_with_the_candidate(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    listed = PhotoList(tmp_path / "list.csv")
    listed.add(server.serve("/0.jpg", photos[0]), licence="CC BY-SA 3.0", author="Jörg")
    workspace = workspace_at(tmp_path / "workspace", server)
    collect_urls(workspace, listed.path)
    with workspace.catalogue.read() as connection:
        origin = connection.execute(select(origins)).one()
    assert (origin.licence, origin.licence_url, origin.author, origin.title, origin.page) == (
        "CC-BY-SA-3.0",
        "https://creativecommons.org/licenses/by-sa/3.0/",
        "Jörg",
        "photo 1",
        "https://example.org/1",
    )
    assert origin.seen is not None


def test_the_same_command_again_asks_nothing_and_changes_nothing(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    listed = awkward_list(server, tmp_path / "list.csv", photos[:6])
    workspace = workspace_at(tmp_path / "workspace", server)
    first = collect_urls(workspace, listed.path)
    before, asked = content(workspace), server.hits()
    again = collect_urls(workspace, listed.path)
    assert (again.new, again.known, again.found) == (0, first.new, first.found)
    assert (again.rejected, again.failed) == (first.rejected, first.failed)
    assert server.hits() == asked
    assert content(workspace) == before


def test_a_list_that_grew_brings_only_what_is_new(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    listed = PhotoList(tmp_path / "list.csv")
    for number in range(3):
        listed.add(server.serve(f"/{number}.jpg", photos[number]))
    workspace = workspace_at(tmp_path / "workspace", server)
    collect_urls(workspace, listed.path)
    asked = server.hits()
    listed.add(server.serve("/3.jpg", photos[3]))
    assert collect_urls(workspace, listed.path).new == 1
    assert server.hits() == asked + 2, "robots.txt and the new photo"


@pytest.mark.parametrize(("times", "seconds"), [(10_000, 0.0), (2500, 0.03)])
def test_rows_of_a_long_list_that_are_known_do_not_wait_for_anything(
    tmp_path: Path,
    server: LoopbackServer,
    photos: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    times: int,
    seconds: float,
) -> None:
    """Also where reading them takes longer than one look at the downloads."""
    fill, results, waits = searching._fill, Downloader.results, []

    def slowly(*about: Any) -> None:
        time.sleep(seconds)
        fill(*about)

    monkeypatch.setattr(searching, "_fill", slowly)

    def noted(self: Downloader[Any], timeout: float) -> Any:
        waits.append(timeout)
        return results(self, timeout)

    monkeypatch.setattr(Downloader, "results", noted)
    urls = [server.serve(f"/{number}.jpg", photo) for number, photo in enumerate(photos[:4])]
    listed = tmp_path / "list.csv"
    rows = "".join(f"{url},dragonfly,CC0-1.0\n" for url in urls)
    listed.write_text("url,label,licence\n" + times * rows, encoding="utf-8")
    collected = collect_urls(workspace_at(tmp_path / "workspace", server), listed)
    # Two hundred rows a step, with up to a tenth of a second after each.
    steps = 4 * times // 200
    assert len(waits) >= steps
    assert sum(waits) < 0.1 * steps / 2
    assert (collected.new, len(server.requests)) == (4, 4 + 1)


def test_hits_are_decided_in_their_order_whatever_server_is_slow(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    def slow(exchange: Exchange) -> None:
        time.sleep(0.7)
        exchange.send(body=photos[0])

    server.on("/slow.jpg", slow)
    listed = PhotoList(tmp_path / "list.csv")
    listed.add(server.url("/slow.jpg"))
    listed.add(server.serve("/fast.jpg", photos[0]))
    listed.add(server.serve("/other.jpg", photos[1]))
    workspace = workspace_at(tmp_path / "workspace", server)
    collect_urls(workspace, listed.path)
    assert states(workspace) == {
        server.url("/slow.jpg"): "downloaded",
        server.url("/fast.jpg"): "duplicate",
        server.url("/other.jpg"): "downloaded",
    }


@pytest.mark.parametrize("fault", [False, True])
def test_a_slow_host_does_not_hold_up_the_rows_behind_it(
    tmp_path: Path,
    server: LoopbackServer,
    photos: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    fault: bool,
) -> None:
    monkeypatch.setattr("pipelines.feeding._IN_HAND", 300)
    if fault:
        monkeypatch.setattr(Downloader, "takes", lambda self, url: True)

    asked = threading.Event()

    def slow(exchange: Exchange) -> None:
        time.sleep(0.005)
        if server.hits() == 600:
            # With the fault it is never asked as long as this host is.
            asked.wait(1 if fault else PATIENCE)
        exchange.send(404)

    def fast(exchange: Exchange) -> None:
        asked.set()
        exchange.send(body=photos[0])

    server.on("/slow/*", slow)
    with LoopbackServer("127.0.0.2") as other:
        other.on("/fast.jpg", fast)
        listed = PhotoList(tmp_path / "list.csv")
        for number in range(1000):
            listed.rows.append(f"{server.url(f'/slow/{number}.jpg')},dragonfly,CC0 1.0,,,")
        listed.add(other.url("/fast.jpg"))
        hosts = (server.allow_host, other.allow_host)
        workspace = workspace_at(
            tmp_path / "workspace",
            server,
            **{"network.allow_hosts": hosts, "network.per_host": 1, **SLOWLY},
        )
        assert collect_urls(workspace, listed.path).failed == {"http_404": 1000}
        fast = next(r.time for r in other.requests if r.path == "/fast.jpg")
    before = sum(request.time < fast for request in server.requests)
    assert (before > 600) is fault, "the fast host must not wait for the slow one"


def test_only_failed_hits_are_tried_again_and_only_those_asked_for(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    listed = awkward_list(server, tmp_path / "list.csv", photos[:4])
    listed.add(server.url("/later.jpg"))
    server.on("/later.jpg", lambda exchange: exchange.send(410))
    workspace = workspace_at(tmp_path / "workspace", server)
    collect_urls(workspace, listed.path)
    server.serve("/gone.jpg", photos[5])
    server.serve("/later.jpg", photos[6])
    asked = Counter(request.path for request in server.requests)

    collected = collect_urls(workspace, listed.path, retry_failed="http_410")
    assert (collected.found, collected.new) == (1, 1)
    newly = Counter(request.path for request in server.requests) - asked
    assert newly == {"/robots.txt": 1, "/later.jpg": 1}
    assert states(workspace)[server.url("/gone.jpg")] == "http_404"

    collected = collect_urls(workspace, listed.path, retry_failed="")
    assert (collected.found, collected.new, collected.failed) == (2, 1, {"truncated": 1})
    assert states(workspace)[server.url("/gone.jpg")] == "downloaded"
    assert collect_urls(workspace, listed.path, retry_failed="").found == 1
    assert collect_urls(workspace, listed.path, retry_failed="http_404").found == 0
    with pytest.raises(UnknownNameError, match="http_404"):
        collect_urls(workspace, listed.path, retry_failed="http404")


def test_trying_again_steps_round_neither_licence_nor_label(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    listed = PhotoList(tmp_path / "list.csv")
    listed.add(server.serve("/reserved.jpg", photos[0]), licence="all rights reserved")
    listed.add(server.serve("/untold.jpg", photos[1]), licence="")
    listed.add(server.serve("/unlabelled.jpg", photos[2]), label="no such class")
    listed.add(server.serve("/fine.jpg", photos[3]))
    workspace = workspace_at(tmp_path / "workspace", server)
    collect_urls(workspace, listed.path)
    before = states(workspace)
    for reason in ("licence", "no_label"):
        assert collect_urls(workspace, listed.path, retry_failed=reason).new == 0
    assert states(workspace) == before
    assert [server.hits(f"/{name}.jpg") for name in ("reserved", "untold", "unlabelled")] == [0] * 3
    for reason in ("downloaded", "waiting", "fetched"):
        with pytest.raises(UnknownNameError, match="reason"):
            collect_urls(workspace, listed.path, retry_failed=reason)
    again = collect_urls(workspace, listed.path, retry_failed="licence", allow_unknown_licence=True)
    assert again.new == 1
    assert states(workspace)[server.url("/reserved.jpg")] == "licence"


def test_what_waits_is_judged_by_the_allow_list_of_the_start_that_downloads_it(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    listed = PhotoList(tmp_path / "list.csv")
    licences = ("", "CC BY-NC 4.0", "CC0 1.0")
    for number, licence in enumerate(licences):
        listed.add(server.serve(f"/{number}.jpg", photos[number]), licence=licence)
    workspace = workspace_at(tmp_path / "workspace", server)
    collect_urls(workspace, listed.path, allow_unknown_licence=True)
    forget(workspace, "waiting")
    strict = workspace.changed({"collect.licences": ("CC0-1.0",)})
    collected = collect_urls(strict, listed.path)
    assert (collected.new, collected.rejected) == (1, {"licence": 2})
    assert list(states(workspace).values()) == ["licence", "licence", "downloaded"]
    assert_whole(workspace)


def test_a_list_that_changed_takes_its_open_hits_along(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    listed = PhotoList(tmp_path / "list.csv")
    for number in range(3):
        listed.add(server.serve(f"/{number}.jpg", photos[number]))
    listed.add(server.url("/gone.jpg"))
    workspace = workspace_at(tmp_path / "workspace", server)
    collect_urls(workspace, listed.path)
    forget(workspace, "waiting")
    listed.add(server.serve("/3.jpg", photos[3]))
    collected = collect_urls(workspace, listed.path)
    assert (collected.found, collected.new, collected.failed) == (5, 4, {"http_404": 1})
    os.utime(listed.path, (1, 1))
    again = collect_urls(workspace, listed.path)
    assert (again.found, again.known, again.failed) == (5, 4, {"http_404": 1})
    os.utime(listed.path, (2, 2))
    assert collect_urls(workspace, listed.path, retry_failed="").found == 1


def twins_list(server: LoopbackServer, path: Path, photo: Path) -> PhotoList:
    """One photo in three forms: its bytes, the same pixels as PNG, and smaller."""
    listed = PhotoList(path)
    with Image.open(photo) as opened:
        picture = opened.convert("RGB")
    small = picture.resize((picture.width * 2 // 3, picture.height * 2 // 3))
    listed.add(server.serve("/0.jpg", photo.read_bytes()))
    for name, image, form in (("1.png", picture, "PNG"), ("2.jpg", small, "JPEG")):
        stream = io.BytesIO()
        image.save(stream, form)
        listed.add(server.serve(f"/{name}", stream.getvalue()))
    return listed


def test_downloads_are_looked_at_by_the_stage_that_needs_it(
    tmp_path: Path, server: LoopbackServer, package_photos: list[tuple[Path, int]]
) -> None:
    listed = twins_list(server, tmp_path / "list.csv", package_photos[0][0])
    workspace = workspace_at(tmp_path / "workspace", server)
    assert collect_urls(workspace, listed.path).new == 3
    assert count_unmeasured(workspace) == 3
    found = deduplicate(workspace)
    assert (found.checked, found.exact, found.near, found.kept) == (3, 1, 1, 1)
    assert count_unmeasured(workspace) == 0


def test_near_duplicates_are_refused_as_they_come_in_where_that_is_asked_for(
    tmp_path: Path, server: LoopbackServer, package_photos: list[tuple[Path, int]]
) -> None:
    listed = twins_list(server, tmp_path / "list.csv", package_photos[0][0])
    strict = {"collect.near_duplicates": "reject"}
    workspace = workspace_at(tmp_path / "workspace", server, **strict)
    collected = collect_urls(workspace, listed.path)
    assert (collected.new, collected.rejected) == (1, {"duplicate": 2})
    assert count_unmeasured(workspace) == 0
    assert_whole(workspace)


def test_a_host_that_is_exempted_later_is_asked_by_the_same_command(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    listed = PhotoList(tmp_path / "list.csv")
    listed.add(server.serve("/0.jpg", photos[0]))
    listed.add("http://127.0.0.1:1/0.jpg")
    workspace = workspace_at(tmp_path / "workspace", server, **{"network.allow_hosts": ()})
    assert collect_urls(workspace, listed.path).rejected == {"forbidden_address": 2}
    exempt = workspace.changed({"network.allow_hosts": (server.allow_host,)})
    assert collect_urls(exempt, listed.path).new == 1
    assert list(states(workspace).values()) == ["downloaded", "forbidden_address"]


def test_trying_again_counts_what_its_licence_keeps_out(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    listed = PhotoList(tmp_path / "list.csv")
    listed.add(server.url("/gone.jpg"), licence="")
    workspace = workspace_at(tmp_path / "workspace", server)
    collect_urls(workspace, listed.path, allow_unknown_licence=True)
    collected = collect_urls(workspace, listed.path, retry_failed="")
    assert (collected.found, collected.rejected) == (1, {"licence": 1})


def test_lists_that_share_rows_count_them_each_time(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    one, other = PhotoList(tmp_path / "one.csv"), PhotoList(tmp_path / "other.csv")
    for number in range(3):
        url = server.serve(f"/{number}.jpg", photos[number])
        one.add(url)
        if number:
            other.add(url)
    workspace = workspace_at(tmp_path / "workspace", server)
    told = [collect_urls(workspace, listed.path) for listed in (one, other, one, other)]
    assert [(one.found, one.new, one.known) for one in told] == [
        (3, 3, 0),
        (2, 0, 2),
        (3, 0, 3),
        (2, 0, 2),
    ]


def test_an_image_that_the_store_lost_is_downloaded_again_after_a_repair(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    listed = PhotoList(tmp_path / "list.csv")
    for number in range(3):
        listed.add(server.serve(f"/{number}.jpg", photos[number]))
    workspace = workspace_at(tmp_path / "workspace", server)
    collect_urls(workspace, listed.path)
    # The repair looks at images that nobody has looked at.
    before = content(workspace)[1:]
    (_, lost), (_, altered), _ = stored_files(workspace)
    lost.unlink()
    altered.write_bytes(b"something else")
    problems = examine(workspace, repair=True)["problems"]
    assert sorted(p["kind"] for p in problems) == ["image-altered", "image-missing"]
    assert all("collect from urls again" in p["advice"] for p in problems)
    collected = collect_urls(workspace, listed.path)
    assert (collected.new, collected.known) == (0, 3)
    assert server.hits() == 2 + 3 + 2
    assert content(workspace)[1:] == before
    assert_whole(workspace)


def forget(workspace: Workspace, state: str) -> None:
    """Let all hits that were not refused stand in an earlier state, without candidates."""
    with workspace.catalogue.write() as connection:
        for table in (origins, candidates, images):
            connection.execute(table.delete())
        ended = hits.c.state.in_(("downloaded", "http_404"))
        connection.execute(hits.update().where(ended).values(state=state))
    for _, path in stored_files(workspace):
        path.unlink()


def test_passwords_in_addresses_are_neither_used_nor_kept(
    tmp_path: Path, server: LoopbackServer
) -> None:
    listed = PhotoList(tmp_path / "list.csv")
    for address in ("http://ann:s3cret@{}/0.jpg", "  HTTPS:\\\\ann:s3cret@{}", "//s3cret@{}/"):
        listed.add(address.format(f"{server.host}:{server.port}"))
    workspace = workspace_at(tmp_path / "workspace", server)
    assert collect_urls(workspace, listed.path).rejected == {"bad_url": 3}
    assert server.hits() == 0
    workspace.close()
    kept = [path for path in workspace.root.rglob("*") if path.is_file()]
    assert not [path for path in kept if b"s3cret" in path.read_bytes()]


def test_the_time_a_licence_was_seen_is_when_the_source_told_it(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    listed = PhotoList(tmp_path / "list.csv")
    listed.add(server.serve("/0.jpg", photos[0]))
    workspace = workspace_at(tmp_path / "workspace", server)
    collect_urls(workspace, listed.path)
    forget(workspace, "waiting")
    earlier = datetime(2026, 1, 2, 3, 4, 5)
    with workspace.catalogue.write() as connection:
        connection.execute(hits.update().values(seen=earlier))
    collect_urls(workspace, listed.path)
    with workspace.catalogue.read() as connection:
        assert connection.execute(select(origins.c.seen)).scalar_one() == earlier


def test_a_list_of_captions_instead_of_labels_takes_little_time_and_memory() -> None:
    labels = Labels(load_label_space("imagenet-a"))
    for number in range(3000):
        with pytest.raises(ImageRefused, match="unknown class"):
            labels.wnid(f"a photo of something, number {number}")
    assert labels.wnid("Dragonfly") == "n02268443"
    assert len(labels._unknown) <= 1000


def test_a_placeholder_stays_while_a_filter_is_at_work(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    workspace = workspace_at(tmp_path / "workspace", server)
    listed = PhotoList(tmp_path / "list.csv")
    listed.add(server.serve("/unavailable/0.jpg", photos[0]))
    collect_urls(workspace, listed.path)
    for number in (1, 2):
        listed.add(server.serve(f"/unavailable/{number}.jpg", photos[0]))
    with workspace.held("filter"):
        collect_urls(workspace, listed.path)
    assert list(states(workspace).values()) == ["downloaded", "placeholder", "placeholder"]
    with workspace.catalogue.read() as connection:
        assert len(connection.execute(select(candidates)).all()) == 1
    assert_whole(workspace)


def test_one_picture_under_many_addresses_is_a_placeholder(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    listed = PhotoList(tmp_path / "list.csv")
    for number in range(4):
        listed.add(server.serve(f"/unavailable/{number}.jpg", photos[0]))
        listed.add(server.serve(f"/{number}.jpg", photos[1 + number]))
    # The same address under another query is one address.
    for number in range(4):
        listed.add(server.serve("/same.jpg", photos[7]) + f"?size={number}")
    workspace = workspace_at(tmp_path / "workspace", server)
    collected = collect_urls(workspace, listed.path)
    ended = states(workspace)
    assert {s for url, s in ended.items() if "unavailable" in url} == {"placeholder"}
    assert ended[server.url("/same.jpg?size=0")] == "downloaded"
    assert ended[server.url("/same.jpg?size=3")] == "duplicate"
    assert collected.rejected["placeholder"] == 4
    with workspace.catalogue.read() as connection:
        assert len(connection.execute(select(candidates)).all()) == 5
    assert_whole(workspace)


def test_placeholders_of_the_users_own_list_are_refused(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    listed = PhotoList(tmp_path / "list.csv")
    listed.add(server.serve("/0.jpg", photos[0]))
    listed.add(server.serve("/1.jpg", photos[1]))
    workspace = workspace_at(
        tmp_path / "workspace", server, **{"collect.placeholders": "placeholders.csv"}
    )
    with pytest.raises(UsageError, match=r"placeholders\.csv"):
        collect_urls(workspace, listed.path)
    (workspace.root / "placeholders.csv").write_text(
        f"kind,pattern,note\nsha256,{sha256_bytes(photos[1])},a sign\n", encoding="utf-8"
    )
    collect_urls(workspace, listed.path)
    assert list(states(workspace).values()) == ["downloaded", "placeholder"]


def test_a_placeholder_that_comes_in_a_later_list_withdraws_the_candidates_before(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    workspace = workspace_at(tmp_path / "workspace", server)
    for number in range(3):
        listed = PhotoList(tmp_path / f"list{number}.csv")
        listed.add(server.serve(f"/unavailable/{number}.jpg", photos[0]))
        collect_urls(workspace, listed.path)
    assert set(states(workspace).values()) == {"placeholder"}
    assert_whole(workspace)
    assert files(workspace) == []


@pytest.mark.parametrize("fault", [False, True])
def test_candidates_that_are_withdrawn_later_in_the_same_start_are_not_counted_as_new(
    tmp_path: Path,
    server: LoopbackServer,
    photos: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    fault: bool,
) -> None:
    # Decided one by one, the first placeholder is a candidate until the third one comes.
    monkeypatch.setattr("pipelines.harvest._FLUSH", 1)
    if fault:
        monkeypatch.setattr(Harvest, "_discount", lambda self, withdrawn: None)
    workspace = workspace_at(tmp_path / "workspace", server)
    listed = PhotoList(tmp_path / "list.csv")
    for number in (1, 2):
        listed.add(server.serve(f"/{number}.jpg", photos[number]))
    collect_urls(workspace, listed.path)
    listed.add(server.serve("/3.jpg", photos[3]))
    for number in range(4):
        listed.add(server.serve(f"/unavailable/{number}.jpg", photos[0]))
    collected = collect_urls(workspace, listed.path)
    assert (collected.new == 1) is not fault
    assert (collected.known == 2) is not fault
    assert (collected.rejected["placeholder"], collected.found) == (4, 7)


def test_a_host_that_asks_for_a_long_pause_is_left_and_asked_no_more(
    tmp_path: Path,
    server: LoopbackServer,
    photos: list[bytes],
    capsys: pytest.CaptureFixture[str],
) -> None:
    wait = {"Retry-After": "7200"}
    server.on("/*", lambda exchange: exchange.send(429, headers=wait))
    server.serve("/robots.txt", b"", "text/plain")
    with LoopbackServer("127.0.0.2") as other:
        listed = PhotoList(tmp_path / "list.csv")
        for number in range(3):
            listed.add(server.url(f"/{number}.jpg"))
            listed.add(other.serve(f"/{number}.jpg", photos[number]))
        hosts = (server.allow_host, other.allow_host)
        workspace = workspace_at(tmp_path / "workspace", server, **{"network.allow_hosts": hosts})
        collected = collect_urls(workspace, listed.path)
        assert (collected.new, collected.waiting, collected.failed) == (3, 3, Counter())
        assert "run the same command again after" in capsys.readouterr().err
        asked = server.hits()
        again = collect_urls(workspace, listed.path)
        assert (again.known, again.waiting) == (3, 3)
        assert server.hits() == asked, "the pause holds for the next start too"


def test_robots_and_tags_are_honoured_unless_the_settings_say_otherwise(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    server.serve("/robots.txt", b"User-agent: *\nDisallow: /private/\n", "text/plain")
    tag = {"X-Robots-Tag": "noai"}
    server.on("/tagged.jpg", lambda exchange: exchange.send(body=photos[1], headers=tag))
    listed = PhotoList(tmp_path / "list.csv")
    listed.add(server.serve("/private/0.jpg", photos[0]))
    listed.add(server.url("/tagged.jpg"))
    workspace = workspace_at(tmp_path / "workspace", server)
    collect_urls(workspace, listed.path)
    assert list(states(workspace).values()) == ["robots", "robots_tag"]
    assert server.hits("/private/0.jpg") == 0
    careless = workspace.changed({"network.robots": False})
    for reason in ("robots", "robots_tag"):
        assert collect_urls(careless, listed.path, retry_failed=reason).new == 1


def test_hosts_of_public_sources_keep_their_rules_in_lists_and_their_robots_are_asked(
    tmp_path: Path, server: LoopbackServer
) -> None:
    workspace = workspace_at(tmp_path / "workspace", server)
    host = "upload.wikimedia.org"
    with Network(workspace, [], {}, lambda: False) as network:
        rule = network.manners.rule(host)
        assert (rule.concurrency, rule.robots) == (2, True)
    with Network(workspace, [source_module("wikimedia")], {}, lambda: False) as network:
        assert network.manners.rule(host) == replace(rule, robots=False)


def test_a_file_that_somebody_removed_is_downloaded_again(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    listed = PhotoList(tmp_path / "list.csv")
    listed.add(server.serve("/0.jpg", photos[0]))
    workspace = workspace_at(tmp_path / "workspace", server)
    collect_urls(workspace, listed.path)
    with workspace.catalogue.write() as connection:
        row = connection.execute(select(images)).one()._mapping
        image = {k: v for k, v in row.items() if k != "taken_in"}
        for table in (origins, candidates, images):
            connection.execute(table.delete())
        connection.execute(hits.update().values(state="fetched", image=image))
    workspace.store.path(row["sha256"], row["extension"]).unlink()
    assert collect_urls(workspace, listed.path).new == 1
    assert server.hits("/0.jpg") == 2
    assert_whole(workspace)


def test_the_doctor_finds_what_a_kill_left_among_the_downloads(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    listed = PhotoList(tmp_path / "list.csv")
    listed.add(server.serve("/0.jpg", photos[0]))
    workspace = workspace_at(tmp_path / "workspace", server)
    collect_urls(workspace, listed.path)
    assert examine(workspace)["problems"] == []
    (workspace.root / "incoming" / ("0" * 64)).write_bytes(photos[1])
    assert [problem["kind"] for problem in examine(workspace)["problems"]] == ["leftover"]
    assert examine(workspace, repair=True)["unrepaired"] == 0
    assert_whole(workspace)


def test_a_collect_removes_what_a_kill_left_among_the_lists(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    listed = PhotoList(tmp_path / "list.csv")
    listed.add(server.serve("/0.jpg", photos[0]))
    listed.add("file:///etc/passwd")
    workspace = workspace_at(tmp_path / "workspace", server)
    (workspace.root / "lists").mkdir(exist_ok=True)
    (workspace.root / "lists" / f"{TEMPORARY}1-2").write_bytes(b"source,loc")
    collect_urls(workspace, listed.path)
    assert [path.name for path in (workspace.root / "lists").iterdir()] == ["refused.csv"]


def test_nothing_is_removed_from_among_the_downloads_but_downloads(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    listed = PhotoList(tmp_path / "list.csv")
    listed.add(server.serve("/0.jpg", photos[0]))
    workspace = workspace_at(tmp_path / "workspace", server)
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "folder").mkdir(parents=True)
    (elsewhere / "diary.txt").write_text("mine", encoding="utf-8")
    (elsewhere / ("0" * 64)).write_bytes(photos[1])
    (workspace.root / "incoming").symlink_to(elsewhere)
    assert collect_urls(workspace, listed.path).new == 1
    assert sorted(path.name for path in elsewhere.iterdir()) == ["diary.txt", "folder"]
    assert examine(workspace, repair=True)["problems"] == []
    assert sorted(path.name for path in elsewhere.iterdir()) == ["diary.txt", "folder"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("name,label\n", "url"), ("url,name\nhttp://example.org/x,y\n", "label")],
)
def test_an_unusable_list_is_one_line(
    tmp_path: Path, server: LoopbackServer, text: str, message: str
) -> None:
    path = tmp_path / "list.csv"
    path.write_text(text, encoding="utf-8")
    workspace = workspace_at(tmp_path / "workspace", server)
    with pytest.raises(UsageError, match=message):
        collect_urls(workspace, path)


def test_a_full_disk_is_told_and_the_next_start_ends_as_if_nothing_had_been(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("making a small disk needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=680k", "tmpfs", disk], check=False, capture_output=True
    )
    if made.returncode:
        pytest.skip("this system does not let tests mount a small disk")
    listed = awkward_list(server, tmp_path / "list.csv", photos)
    try:
        small = workspace_at(disk / "workspace", server)
        with pytest.raises(StorageError, match="disk is full"):
            collect_urls(small, listed.path)
        subprocess.run(["mount", "-o", "remount,size=50m", disk], check=True)
        collect_urls(small, listed.path)
        whole = workspace_at(tmp_path / "whole", server)
        collect_urls(whole, listed.path)
        assert content(small) == content(whole)
        assert_whole(small)
        small.close()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_an_interrupt_stops_cleanly_and_the_same_command_goes_on(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    listed = PhotoList(tmp_path / "list.csv")
    running: list[subprocess.Popen[str]] = []
    interrupted = threading.Event()

    def slow(body: bytes):  # type: ignore[no-untyped-def]
        def answer(exchange: Exchange) -> None:
            if server.hits() == 8:
                wait_until(lambda: running)
                running[0].send_signal(signal.SIGINT)
                interrupted.set()
            # By the last one it has long heeded the interrupt.
            if interrupted.is_set() and running[0].poll() is None:
                time.sleep(1)
            exchange.send(body=body)

        return answer

    for number, photo in enumerate(photos):
        server.on(f"/{number}.jpg", slow(photo))
        listed.add(server.url(f"/{number}.jpg"))
    create_workspace(tmp_path / "workspace", "imagenet-a").close()
    command = ["-w", tmp_path / "workspace", "collect", "urls", listed.path]
    command += ["--allow-host", server.allow_host]
    process = subprocess.Popen(
        [sys.executable, "-m", "curate", *map(str, command)],
        cwd=ROOT,
        env={**os.environ, "CURATE_NETWORK__PER_HOST": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    running.append(process)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "run again to go on" in told
    done = run_curate(*command)
    assert "40" in done.stdout
    killed = open_workspace(tmp_path / "workspace")
    assert Counter(states(killed).values()) == {"downloaded": 40}
    assert_whole(killed)
    most = Counter(request.path for request in server.requests if request.path != "/robots.txt")
    assert sum(most.values()) <= 42, "what was finished is not asked for again"


def killed_twenty_times(command: list[object], *fault: str) -> int:
    """Start a command again and again, killed later and later, then to its end.

    Returns:
        How often it was killed.
    """
    killed = 0
    for number in range(20):
        kind = ("any", "commit", "replace", "fsync", "unlink")[number % 5]
        killed += dying(*fault, *command, at=f"{kind}:{3 + number}") is None
    while dying(*command, at="any:1000000") is None:
        pass
    return killed


@pytest.mark.thorough
@pytest.mark.slow
def test_a_collect_killed_twenty_times_ends_as_one_never_killed(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    listed = awkward_list(server, tmp_path / "list.csv", photos)
    for number in range(3):
        listed.add(server.serve(f"/unavailable/{number}.jpg", photos[20]))
    whole = workspace_at(tmp_path / "whole", server)
    collected: Collected = collect_urls(whole, listed.path)
    assert collected.new == 39
    killed = create_workspace(tmp_path / "killed", "imagenet-a")
    killed.close()
    command = ["-w", killed.root, "collect", "urls", listed.path]
    command += ["--allow-host", server.allow_host]
    assert killed_twenty_times(command) >= 10
    assert content(killed) == content(whole)
    assert files(killed) == files(whole)
    assert_whole(killed)


@pytest.mark.slow
def test_the_kill_test_finds_a_search_that_runs_ahead_of_its_hits(
    tmp_path: Path, server: LoopbackServer, photos: list[bytes]
) -> None:
    listed = PhotoList(tmp_path / "list.csv")
    for number, photo in enumerate(photos[:6]):
        listed.add(server.serve(f"/{number}.jpg", photo))
    killed = create_workspace(tmp_path / "killed", "imagenet-a")
    killed.close()
    command = ["-w", killed.root, "collect", "urls", listed.path]
    command += ["--allow-host", server.allow_host]
    assert dying("--fault", "ahead", *command, at="half:1") is None
    assert dying(*command, at="any:1000000") is not None
    assert len(states(killed)) < 6, "the planted fault loses hits, and the comparison sees it"
