"""Installing Label Studio: whole or not at all, by one command at a time, and told in one line.

The real thing takes minutes (see test_label_studio.py). Here a program stands in for Python that
makes environments and "installs" in a moment, or fails as Python and pip do.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from annotation import venv
from curate.errors import CurateError, StorageError, UsageError
from tests.running import ROOT
from tests.waiting import wait_until

PYTHON = """#!/bin/sh
echo "$$ $*" >> "{log}"
case "$2" in
venv)
    {venv}
    mkdir -p "$3/bin" && ln -s "{path}" "$3/bin/python" ;;
pip)
    {pip}
    touch "$(dirname "$0")/../whole" ;;
*)
    {migrate}
    sleep {seconds}
    echo whole > "$LABEL_STUDIO_BASE_DATA_DIR/label_studio.sqlite3" ;;
esac
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(venv, "NEEDED_BYTES", 1_000_000)
    return tmp_path / "cache" / "curate" / "label-studio"


def python(tmp_path: Path, seconds: float = 0, **steps: str) -> str:
    """A program in Python's place, with more steps before one of its own."""
    path = tmp_path / "python"
    told = {"venv": ":", "pip": ":", "migrate": ":", **steps}
    # Under another name first: a shell reads its script as it goes.
    fresh = tmp_path / "fresh"
    fresh.write_text(PYTHON.format(path=path, log=tmp_path / "log", seconds=seconds, **told))
    fresh.chmod(0o755)
    fresh.replace(path)
    return str(path)


def calls(tmp_path: Path) -> list[str]:
    lines = (tmp_path / "log").read_text().splitlines()
    return [line.split()[2].removeprefix(str(ROOT)) for line in lines]


def names(cache: Path) -> list[str]:
    return sorted(path.name.split("-")[0] for path in cache.iterdir())


def test_it_is_installed_once_and_found_again(tmp_path: Path, cache: Path) -> None:
    first = venv.install(python(tmp_path))
    assert venv.install(python(tmp_path)) == first
    assert calls(tmp_path) == ["venv", "pip", "/annotation/server_launch.py"]
    assert first.python.exists()
    assert first.database.read_text() == "whole\n"
    assert names(cache) == ["lock", "template", "venv"]


def test_one_whose_interpreter_was_removed_is_made_anew(tmp_path: Path, cache: Path) -> None:
    first = venv.install(python(tmp_path))
    first.python.unlink()
    first.python.symlink_to(tmp_path / "removed")
    assert venv.install(python(tmp_path)).python.exists()
    assert calls(tmp_path).count("pip") == 2


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        (
            {"venv": "echo 'ensurepip is not available.'; echo; exit 1"},
            r"makes no virtual environment.*ensurepip.*python3-venv",
        ),
        (
            {"pip": "echo 'ERROR: No matching distribution found for x'; echo 'a hint'; exit 1"},
            r"pip cannot install label-studio==[\d.]+ \(No matching distribution.*online",
        ),
        (
            {"pip": "echo 'ERROR: [Errno 28] No space left on device'; exit 1"},
            "the disk is full while installing",
        ),
        (
            {"migrate": "echo 'OperationalError: database or disk is full'; exit 1"},
            "the disk is full while installing",
        ),
        ({"migrate": "echo Traceback; echo 'KeyError: x'; exit 1"}, "prepared .KeyError: x"),
    ],
    ids=["no-venv", "no-network", "disk-full", "disk-full-later", "no-database"],
)
def test_what_fails_is_one_line_and_tried_again(
    tmp_path: Path, cache: Path, steps: dict[str, str], told: str
) -> None:
    with pytest.raises(CurateError, match=told) as caught:
        venv.install(python(tmp_path, **steps))
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, StorageError) == ("disk is full" in told)
    assert not [path for path in cache.iterdir() if path.name.startswith(".")]
    assert venv.install(python(tmp_path)).database.exists()


def test_a_disk_with_too_little_room_is_told_before_anything_is_fetched(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(venv, "NEEDED_BYTES", 1 << 60)
    with pytest.raises(StorageError, match="needs .* GB in .*XDG_CACHE_HOME"):
        venv.install(python(tmp_path))
    assert not (tmp_path / "log").exists()


def test_a_python_that_is_not_there_is_told(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(CurateError, match="No such file"):
        venv.install(str(tmp_path / "nowhere"))


def test_a_cache_that_takes_nothing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(StorageError, match="cannot write"):
        venv.install(python(tmp_path))


def test_without_a_home_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(UsageError, match="XDG_CACHE_HOME"):
        venv.cache_folder()


def test_two_at_once_install_it_once(tmp_path: Path, cache: Path) -> None:
    program = python(tmp_path, seconds=0.3)
    threads = [threading.Thread(target=venv.install, args=(program,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls(tmp_path) == ["venv", "pip", "/annotation/server_launch.py"]


def test_settings_of_pip_are_the_users_and_nothing_leads_elsewhere(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_TIMEOUT", "7")
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("CURATE_REVIEW_TOKEN", "geheim")
    venv.install(python(tmp_path, pip=f"env > {tmp_path / 'env'}"))
    seen = (tmp_path / "env").read_text()
    assert "PIP_TIMEOUT=7" in seen
    for absent in ("PIP_TARGET", "PYTHONPATH", "geheim"):
        assert absent not in seen


def test_label_studio_obeys_no_variable_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DEBUG", "HOST", "PORT", "SECRET_KEY", "LABEL_STUDIO_HOST", "POSTGRE_NAME"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("CURATE_REVIEW_TOKEN", "geheim")
    given = venv.environment({"LABEL_STUDIO_USERNAME": "ann"})
    assert {"DEBUG", "HOST", "PORT", "SECRET_KEY", "POSTGRE_NAME"}.isdisjoint(given)
    assert {name for name in given if "LABEL" in name} == {"LABEL_STUDIO_USERNAME"}
    assert given["SENTRY_DSN"] == ""
    assert "geheim" not in given.values()


INSTALL = """
import sys
from annotation import venv
venv.NEEDED_BYTES = 1_000_000
venv.install(sys.argv[1])
"""


#: Part of a step: it goes on for a moment after whoever began it has been killed.
OUTLIVES = "while kill -0 $PPID 2> /dev/null; do sleep 0.05; done; sleep 0.5"


@pytest.fixture
def killed(tmp_path: Path, cache: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.mark.parametrize("step", ["venv", "pip", "migrate"])
def test_one_killed_at_any_step_leaves_nothing_half_made(
    tmp_path: Path, cache: Path, killed: list[subprocess.Popen[bytes]], step: str
) -> None:
    half = 'mkdir -p "$3/bin"' if step == "venv" else f"touch {tmp_path / 'half'}"
    wait = f"touch {tmp_path / 'there'}; {OUTLIVES}; {half}"
    command = [sys.executable, "-c", INSTALL, python(tmp_path, **{step: wait})]
    killed.append(subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL))
    wait_until((tmp_path / "there").exists)
    killed[0].send_signal(signal.SIGKILL)
    killed[0].wait()
    assert not list(cache.glob("template-*"))
    again = venv.install(python(tmp_path))
    # What the killed one had started ended before the next one began.
    last = calls(tmp_path)[-1]
    assert last == "/annotation/server_launch.py"
    assert again.database.read_text() == "whole\n"
    assert (again.python.parent.parent / "whole").exists()
    assert names(cache) == ["lock", "template", "venv"]


def test_the_test_that_kills_can_fail(
    tmp_path: Path, cache: Path, killed: list[subprocess.Popen[bytes]]
) -> None:
    """Made in place instead of under another name, a killed one is taken for whole."""
    planted = INSTALL.replace(
        "venv.install(",
        "from contextlib import contextmanager\n"
        "@contextmanager\n"
        "def in_place(root):\n"
        "    yield root\n"
        "venv._unfinished = in_place\n"
        "venv.install(",
    )
    name = f"venv-{venv.VERSION}-py{sys.version_info.major}.{sys.version_info.minor}"
    pip = (
        f'ln -sfn "$(dirname "$0")/.." {cache / name}; touch {tmp_path / "there"}; {OUTLIVES}; exit'
    )
    command = [sys.executable, "-c", planted, python(tmp_path, pip=pip)]
    killed.append(subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL))
    wait_until((tmp_path / "there").exists)
    os.kill(killed[0].pid, signal.SIGKILL)
    killed[0].wait()
    again = venv.install(python(tmp_path))
    assert not (again.python.parent.parent / "whole").exists()
    shutil.rmtree(cache)


@pytest.mark.slow
def test_the_real_pip_without_a_network_is_told_in_one_line(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIP_FIND_LINKS", "PIP_CONFIG_FILE", "PIP_NO_INDEX"):
        monkeypatch.setenv(name, {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}.get(name, ""))
    with pytest.raises(CurateError, match="No matching distribution found for label-studio.*onlin"):
        venv.install()
    assert names(cache) == ["lock"]
