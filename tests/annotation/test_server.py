"""What `curate review serve` does around the server: refusals, locks, files, faults."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from annotation import server, server_process
from annotation.server import connect, serve, stop
from annotation.server_accounts import checked_emails, first_accounts, make_private, read_accounts
from annotation.server_launch import process_start, write_record
from annotation.venv import Installed
from curate.catalog.store import open_store
from curate.errors import BusyError, CurateError, SettingsError, StorageError, UsageError
from curate.setting_groups import ReviewSettings
from curate.settings import load_settings
from tests.running import run_curate
from tests.sources.servers import Exchange, LoopbackServer
from tests.waiting import reserved_port


@pytest.fixture(autouse=True)
def nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Installed:
        raise AssertionError("this would install Label Studio")

    monkeypatch.setattr(server, "install", refuse)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_private(tmp_path / "review")
    return tmp_path / "review"


@pytest.fixture
def held(folder: Path) -> Iterator[int]:
    """The lock of a server's folder, held as if by another command."""
    with server_process.try_lock(folder) as lock:
        assert lock is not None
        yield lock


def program(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_where_a_server_of_ones_own_is_named_there_is_nothing_to_start(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to start"):
        serve(tmp_path, ReviewSettings(url="https://labels.example.org"), None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "email", ["", "ann", "ann@", "@example.org", "a b@c.org", "a@b@c", "a@b\0"]
)
def test_what_is_no_mail_address_is_refused_before_anything_is_done(
    tmp_path: Path, email: str
) -> None:
    with pytest.raises(UsageError, match="no mail address"):
        serve(tmp_path, ReviewSettings(), None, annotators=["ann@example.org", email])
    assert list(tmp_path.iterdir()) == []


def test_addresses_count_once_whatever_their_case() -> None:
    assert checked_emails(["Bob@X.org", "ann@x.org", "bob@x.org "]) == ["bob@x.org", "ann@x.org"]


def test_stop_takes_no_other_option(tmp_path: Path) -> None:
    done = run_curate("review", "serve", "--stop", "--port", "8091", expect=2)
    assert "--stop takes neither" in done.stderr


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"token": "x", "accounts": []}'])
def test_an_accounts_file_that_cannot_be_read_is_told_and_kept(folder: Path, text: str) -> None:
    (folder / "accounts.json").write_text(text)
    with pytest.raises(StorageError, match=r"accounts\.json cannot be read"):
        serve(folder.parent, ReviewSettings(), None)
    assert (folder / "accounts.json").read_text() == text


def test_data_whose_accounts_are_lost_is_not_begun_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "install", lambda: Installed(Path("python"), Path("template")))
    data = folder / "label-studio" / "label_studio.sqlite3"
    data.parent.mkdir()
    data.write_text("what people have said")
    with pytest.raises(StorageError, match=r"without accounts\.json"):
        serve(folder.parent, ReviewSettings(), None, port=reserved_port())
    assert data.read_text() == "what people have said"
    assert read_accounts(folder) is None


def test_accounts_show_no_secret_where_they_are_printed(folder: Path) -> None:
    accounts = first_accounts(folder)
    assert read_accounts(folder) == accounts
    assert accounts.token not in repr(accounts)
    assert accounts.owner.password not in f"{accounts!r}{accounts.owner!r}"
    assert (folder / "accounts.json").stat().st_mode & 0o777 == 0o600


def test_a_process_is_told_from_a_later_one_of_its_number() -> None:
    process = subprocess.Popen(["sleep", "600"])
    try:
        first = process_start(process.pid)
        assert first == process_start(process.pid)
        assert first != process_start(os.getppid())
    finally:
        process.kill()
    # It has ended, though its parent has not looked yet.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert process_start(process.pid) is None
    process.wait()
    assert process_start(process.pid) is None


def test_a_record_counts_while_its_process_holds_the_lock(folder: Path, held: int) -> None:
    write_record(folder / "server.json", 8090, ready=True)
    found = server_process.find(folder)
    assert found == server_process.Process(os.getpid(), 8090, True)
    told = json.loads((folder / "server.json").read_bytes())
    (folder / "server.json").write_text(json.dumps({**told, "started": "another time"}))
    assert server_process.find(folder) is None
    write_record(folder / "server.json", 8090, ready=True)
    fcntl.flock(held, fcntl.LOCK_UN)
    assert server_process.find(folder) is None


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "null", '{"pid": "1"}', '{"pid": -1}'),
        *(
            f'{{"pid": {pid}, "started": null, "port": 1, "ready": true}}'
            for pid in (-1, 0, 1, 2e9)
        ),
    ],
)
def test_a_record_that_makes_no_sense_is_none(folder: Path, held: int, text: str) -> None:
    (folder / "server.json").write_text(text)
    assert server_process.find(folder) is None


def test_stop_ends_no_process_but_the_server(
    folder: Path, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record left by a server whose number a process of somebody else has now."""
    monkeypatch.setattr(server_process, "STOP_SECONDS", 0.3)
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        record = {"pid": bystander.pid, "started": "earlier", "port": 8090, "ready": True}
        (folder / "server.json").write_text(json.dumps(record))
        with pytest.raises(BusyError, match="another command is starting Label Studio"):
            stop(folder.parent)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_server_on_another_machine_is_told(
    folder: Path, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_LOST_SECONDS", 0.2)
    first_accounts(folder)
    record = {"pid": os.getpid(), "started": "another boot 1", "port": 8090, "ready": True}
    (folder / "server.json").write_text(json.dumps(record))
    with pytest.raises(BusyError, match="runs elsewhere"):
        serve(folder.parent, ReviewSettings(), None)


@pytest.mark.slow
def test_a_server_that_has_much_to_do_is_found_running(folder: Path, held: int) -> None:
    first_accounts(folder)

    def late(exchange: Exchange) -> None:
        time.sleep(12)
        exchange.json({"status": "UP"})

    with LoopbackServer() as busy:
        busy.on("/health", late)
        write_record(folder / "server.json", busy.port, ready=True)
        found, started, first = server._running(folder, None, busy.port)
    assert (found.pid, found.port) == (os.getpid(), busy.port)
    assert not started
    assert not first


def test_without_a_folder_there_is_nothing_to_stop(tmp_path: Path) -> None:
    assert stop(tmp_path) is None


@pytest.mark.parametrize(
    ("says", "kind", "told"),
    [
        ("echo Traceback; echo 'KeyError: x'; exit 1", CurateError, r"ends as it starts .KeyError"),
        ("exit 1", CurateError, "it says nothing"),
        (
            "echo 'OSError: [Errno 28] No space left on device'; exit 1",
            StorageError,
            "disk is full",
        ),
    ],
)
def test_a_server_that_ends_as_it_starts_is_one_line(
    tmp_path: Path, folder: Path, says: str, kind: type[CurateError], told: str
) -> None:
    python = program(tmp_path, says)
    with (
        server_process.try_lock(folder) as lock,
        server_process.listen(0) as listening,
        pytest.raises(kind, match=told) as caught,
    ):
        assert lock is not None
        server_process.start(folder, python, {}, lock, listening)
    assert "\n" not in str(caught.value)
    assert not server_process.is_held(folder)
    assert (folder / "server.log").stat().st_mode & 0o777 == 0o600


def test_a_server_that_does_not_answer_in_time_is_ended(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_process, "START_SECONDS", 0.3)
    python = program(tmp_path, "exec sleep 600")
    with (
        server_process.try_lock(folder) as lock,
        server_process.listen(0) as listening,
        pytest.raises(CurateError, match="does not answer after"),
    ):
        assert lock is not None
        server_process.start(folder, python, {}, lock, listening)
    assert not server_process.is_held(folder)


def test_on_a_disk_that_has_become_read_only_a_server_is_seen_and_stop_ends(
    tmp_path: Path, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(path: Path, flags: int, *more: int) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, flags, *more)

    opened = os.open
    monkeypatch.setattr(os, "open", read_only)
    assert server_process.is_held(tmp_path / "review")
    fcntl.flock(held, fcntl.LOCK_UN)
    assert stop(tmp_path) is None


def test_a_lock_that_cannot_be_read_is_one_line(folder: Path) -> None:
    (folder / "server.lock").symlink_to("server.lock")
    with pytest.raises(StorageError, match="cannot read"):
        stop(folder.parent)


def test_without_a_server_nobody_can_ask_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="start it: curate review serve"):
        connect(tmp_path, ReviewSettings(), {})


@pytest.mark.parametrize("token", [{}, {"CURATE_REVIEW_TOKEN": " "}])
def test_a_server_of_ones_own_needs_a_token(tmp_path: Path, token: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="CURATE_REVIEW_TOKEN"):
        connect(tmp_path, ReviewSettings(url="https://labels.example.org"), token)


def test_the_link_to_the_images_holds_in_a_moved_workspace(tmp_path: Path) -> None:
    root = tmp_path / "one"
    (root / "review" / "served").mkdir(parents=True)
    (root / "images").mkdir()
    link = root / "review" / "served" / "images"
    server._link(link, root / "images")
    server._link(link, root / "images")
    (root / "images" / "photo.jpg").write_bytes(b"photo")
    moved = root.rename(tmp_path / "two")
    assert (moved / "review" / "served" / "images" / "photo.jpg").read_bytes() == b"photo"
    elsewhere = tmp_path / "elsewhere"
    server._link(moved / "review" / "served" / "images", elsewhere)
    assert (moved / "review" / "served" / "images").resolve() == elsewhere.resolve()
    server._link(moved / "review" / "served" / "images", None)
    assert list((moved / "review" / "served").iterdir()) == []


def test_the_port_is_a_setting_and_the_token_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "curate.yaml").write_text("review:\n  port: 8091\n")
    monkeypatch.setenv("CURATE_REVIEW_TOKEN", "geheim")
    monkeypatch.setenv("CURATE_REVIEW__URL", "https://labels.example.org")
    settings = load_settings(tmp_path)
    assert settings.review == ReviewSettings(url="https://labels.example.org", port=8091)
    assert "geheim" not in repr(settings)
    monkeypatch.setenv("CURATE_REVIEW__TOKEN", "geheim")
    with pytest.raises(SettingsError, match=r"unknown setting 'review\.token'") as caught:
        load_settings(tmp_path)
    assert "geheim" not in str(caught.value)


def test_no_store_lies_where_the_passwords_are(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="review"):
        open_store("review", tmp_path)


def test_what_runs_the_server_imports_nothing_of_this_project() -> None:
    code = (
        "import runpy, sys\n"
        f"runpy.run_path({str(server_process.LAUNCH)!r}, run_name='launch')\n"
        "assert not {'annotation', 'curate'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-I", "-c", code], check=True)
