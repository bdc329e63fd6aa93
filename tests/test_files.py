"""Files that are whole or absent, locks that name their holder, text that is safe everywhere."""

from __future__ import annotations

import csv
import io
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.errors import BusyError, StorageError, UsageError
from curate.files import (
    atomic_write,
    canonical_json,
    csv_plain,
    csv_safe,
    csv_text,
    hold,
    printable,
    read_csv,
    remove_leftovers,
    write_bytes,
    written_together,
)


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "x"
    write_bytes(target, b"before")
    with pytest.raises(RuntimeError), atomic_write(target) as stream:
        stream.write(b"half")
        assert target.read_bytes() == b"before"
        raise RuntimeError
    assert target.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["x"]


def test_a_write_killed_in_the_middle_leaves_the_old_file_and_a_leftover(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.write_bytes(b"before")
    code = (
        "import os, signal, sys; from pathlib import Path; from curate.files import atomic_write\n"
        f"with atomic_write(Path({str(target)!r})) as s:\n"
        "    s.write(b'half'); s.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    assert target.read_bytes() == b"before"
    assert len(os.listdir(tmp_path)) == 2
    assert remove_leftovers(tmp_path) == 1
    assert os.listdir(tmp_path) == ["x"]


def filled(folder: Path, word: str) -> None:
    with written_together(folder, "results.json") as place:
        (place / "plots").mkdir()
        for name in ("index.html", "plots/a.svg", "results.json"):
            write_bytes(place / name, word.encode())


def test_files_that_belong_together_appear_together(tmp_path: Path) -> None:
    filled(tmp_path, "one")
    (tmp_path / "notes.txt").write_text("the user's")
    with pytest.raises(ZeroDivisionError), written_together(tmp_path, "results.json") as place:
        write_bytes(place / "index.html", b"two")
        raise ZeroDivisionError
    files = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert files == {"index.html", "plots", "plots/a.svg", "results.json", "notes.txt"}
    assert (tmp_path / "index.html").read_text() == "one"
    filled(tmp_path, "three")
    assert {path.read_text() for path in tmp_path.rglob("*.[hsj]*")} == {"three"}


@pytest.mark.parametrize("name", ["index.html", "plots/a.svg", "results.json"])
def test_a_kill_leaves_files_of_one_time_and_what_it_left_goes_later(
    tmp_path: Path, name: str
) -> None:
    filled(tmp_path, "one")
    killed = (
        "import os, sys; from pathlib import Path; from curate.files import *\n"
        "with written_together(Path(sys.argv[1]), 'results.json') as place:\n"
        "    (place / 'plots').mkdir()\n"
        "    for name in ('index.html', 'plots/a.svg', 'results.json'):\n"
        "        write_bytes(place / name, b'two')\n"
        "        if name == sys.argv[2]: os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", killed, tmp_path, name], check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = tmp_path.glob(".*")
    assert {path.read_text() for path in tmp_path.glob("[!.]*") if path.is_file()} == {"one"}
    filled(tmp_path, "three")
    assert left.is_dir(), "somebody may still be writing it"
    os.utime(left, (0, 0))
    filled(tmp_path, "three")
    assert not list(tmp_path.glob(".*"))


def test_what_cannot_be_written_together_is_told_by_its_own_name(tmp_path: Path) -> None:
    with (
        pytest.raises(StorageError, match=f"cannot write {tmp_path}/absent/x: No such file"),
        written_together(tmp_path, "x") as place,
    ):
        write_bytes(place / "absent" / "x", b"")
    (tmp_path / "index.html").mkdir()
    with pytest.raises(StorageError, match=f"cannot write {tmp_path}: "):
        filled(tmp_path, "one")
    with pytest.raises(StorageError, match="absent: No such file"):
        filled(tmp_path / "absent", "one")


def test_a_full_disk_is_one_line_and_leaves_nothing() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    from curate.files import storage_errors

    with (
        pytest.raises(StorageError, match="the disk is full while writing the list"),
        storage_errors("the list"),
        full.open("wb", buffering=0) as stream,
    ):
        stream.write(b"x")


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot write .*No such file"):
        write_bytes(tmp_path / "absent" / "x", b"")


def _holder(path: str, ready: str) -> None:
    with hold(Path(path), "curate filter"):
        Path(ready).touch()
        time.sleep(600)


def test_the_second_holder_is_told_who_the_first_is_and_a_kill_lets_go(tmp_path: Path) -> None:
    lock, ready = tmp_path / "filter", tmp_path / "ready"
    process = multiprocessing.get_context("spawn").Process(
        target=_holder, args=(str(lock), str(ready))
    )
    process.start()
    try:
        while not ready.exists():
            assert process.is_alive()
            time.sleep(0.02)
        with (
            pytest.raises(BusyError, match=rf"curate filter \(process {process.pid} on "),
            hold(lock, "another"),
        ):
            pass
    finally:
        process.kill()
        process.join()
    with hold(lock, "another"):
        pass


@given(st.text(max_size=20))
def test_csv_safe_disarms_formulas_and_is_undone(cell: str) -> None:
    safe = csv_safe(cell)
    assert csv_plain(safe) == cell
    assert safe[:1] not in ("=", "+", "-", "@", "\t", "\r")


@given(
    st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=2, max_size=2))
)
def test_csv_text_is_read_back_by_any_reader(rows: list[list[str]]) -> None:
    text = csv_text(["a", "b"], rows)
    back = list(csv.reader(io.StringIO(text, newline="")))
    assert back[0] == ["a", "b"]
    assert [[csv_plain(cell) for cell in row] for row in back[1:]] == rows


def test_names_that_are_not_utf8_are_printable() -> None:
    name = os.fsdecode(b"latin1_\xe9\xff.jpg")
    assert printable(name) == r"latin1_\udce9\udcff.jpg"
    assert printable(b"latin1_\xe9") == r"latin1_\udce9"
    canonical_json({"name": name}).decode("utf-8")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,c\n1,2\n", "column 'b' is missing; the header has a, c"),
        (b"", "column 'a' is missing; the header has nothing"),
        (b"a,b\n1,2,3\n", "line 2: more cells than columns"),
        (b"a,b,b\n1,2,3\n", "column 'b' is there twice; keep one"),
        (b",a,x,b,,x\n", "column 'x' is there twice; keep one"),
        (b"a,b\n\xff\xfe,1\n", "cannot read .*utf-8"),
        (b'a,b\n"x', "cannot read"),
    ],
)
def test_a_broken_table_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        list(read_csv(path, ["a", "b"]))
    assert "\n" not in str(caught.value)


def test_json_with_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"x": float("nan")})


def test_a_disk_that_fills_up_while_a_file_is_closed_is_one_line(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("making a small disk needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", disk], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this system does not let tests mount a small disk")
    try:
        (disk / "filler").write_bytes(bytes(16_384))
        with pytest.raises(StorageError, match="disk is full"):
            write_bytes(disk / "small", b"fits into the buffer, not on the disk")
        assert [path.name for path in disk.iterdir()] == ["filler"]
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
