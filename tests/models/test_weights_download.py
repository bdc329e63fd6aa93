from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from curate.errors import WeightsError
from curate.models import downloads
from curate.models.downloads import download, verified_sha256
from tests.waiting import PATIENCE

DATA = b"weights" * 1000
GOOD = f"net-{hashlib.sha256(DATA).hexdigest()[:8]}.pth"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        if name == "absent.pth":
            self.send_error(404)
            return
        if name == "broken.pth":
            self.send_error(500)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(DATA)))
        self.end_headers()
        if name == "short.pth":
            self.wfile.write(DATA[:100])
        elif name == "stalled.pth":
            self.wfile.write(DATA[:100])
            self.wfile.flush()
            stalled.wait(PATIENCE)
        else:
            self.wfile.write(DATA)

    def log_message(self, *_: object) -> None:
        pass


stalled = threading.Event()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    stalled.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.daemon_threads = True
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        stalled.set()
        running.shutdown()
        thread.join()


def test_a_download_arrives_whole_in_a_new_folder(server: str, tmp_path: Path) -> None:
    path = tmp_path / "hub" / GOOD
    download(f"{server}/{GOOD}", path, "net")
    assert path.read_bytes() == DATA
    assert list(path.parent.iterdir()) == [path]


def test_the_download_is_announced_on_standard_error(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    download(f"{server}/{GOOD}", tmp_path / GOOD, "net")
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"downloading the weights of net: {server}/{GOOD}\n"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("broken.pth", r"\(HTTP 500\)"),
        ("short.pth", r"\(100 of 7000 bytes came\)"),
        ("stalled.pth", r"\(broke off: timed out\)"),
        ("net-00000000.pth", r"\(what came is another file, by its SHA-256\)"),
    ],
)
def test_a_failed_download_leaves_nothing_and_says_what_to_save_where(
    name: str, told: str, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "stalled.pth":
        monkeypatch.setattr(downloads, "TIMEOUT", 0.5)
    with pytest.raises(WeightsError, match=told) as caught:
        download(f"{server}/{name}", tmp_path / name, "net")
    assert str(caught.value).endswith(f"save {server}/{name} as {tmp_path / name}")
    assert list(tmp_path.iterdir()) == []


def test_a_download_beyond_all_bounds_is_stopped(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "MAX_BYTES", 6999)
    with pytest.raises(WeightsError, match=r"more than 6,999 bytes"):
        download(f"{server}/{GOOD}", tmp_path / GOOD, "net")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_the_server_lacks_is_told_apart(server: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        download(f"{server}/absent.pth", tmp_path / "absent.pth", "net")


def test_a_file_is_compared_with_the_hash_that_its_name_promises(tmp_path: Path) -> None:
    digest = hashlib.sha256(DATA).hexdigest()
    for name in (GOOD, "any.pth", f"net-{digest}.safetensors"):
        (tmp_path / name).write_bytes(DATA)
        assert verified_sha256(tmp_path / name) == digest
    (tmp_path / GOOD).write_bytes(DATA[:-1])
    with pytest.raises(WeightsError, match=r"its name says [0-9a-f]{8}; delete it"):
        verified_sha256(tmp_path / GOOD)
    with pytest.raises(WeightsError, match="cannot read"):
        verified_sha256(tmp_path / "none.pth")
