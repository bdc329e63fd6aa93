"""Running the real command in a process of its own, whole or killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import PATIENCE

ROOT = Path(__file__).resolve().parent.parent


def run_curate(
    *arguments: str | Path, workspace: Path | None = None, expect: int | None = 0, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the real command in a process of its own."""
    before: Sequence[str | Path] = ["-w", workspace] if workspace else []
    done = subprocess.run(
        [sys.executable, "-m", "curate", *map(str, before), *map(str, arguments)],
        capture_output=True,
        text=True,
        errors="surrogateescape",
        env={**os.environ, **env},
        check=False,
        timeout=2 * PATIENCE,
    )
    if expect is not None:
        assert done.returncode == expect, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def peak() -> int:
    """The most memory that this process has held, in kB; 0 where Linux does not tell.

    Not `ru_maxrss`, which begins with that of the process that started this one.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def copy_of(root: Path, to: Path) -> Path:
    """A copy of a workspace that may be open, made by another process.

    To open and close the file of an open SQLite database here would drop this process's locks on
    it (https://www.sqlite.org/howtocorrupt.html, section 2.2).
    """
    subprocess.run(["cp", "-R", root, to], check=True)
    return to


def dying(*arguments: str | Path, at: str) -> dict[str, int] | None:
    """Run `curate` until the moment `at` (see tests/dying.py).

    Returns:
        None if it was killed, else how many moments of each kind there were.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.dying", at, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=2 * PATIENCE,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    if done.returncode:
        return None
    return json.loads(done.stderr.rsplit("moments ", 1)[1])


@contextmanager
def signalled(
    *arguments: str | Path, at: str, by: str, **env: str
) -> Iterator[subprocess.Popen[str]]:
    """Start a `curate` that sends itself a signal at the moment `at` (see tests/dying.py).

    Where a test fails before the process has ended, it is killed.

    Args:
        arguments: of the command.
        at: the moment.
        by: the signal, "INT" or "STOP".
        env: further variables.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.dying", at, "--signal", by, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **env},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def killed_until_done(command: Sequence[str | Path], kills: Sequence[str]) -> None:
    """Start a command again and again, killed at one moment after the other, then to its end.

    A kill that comes after the last moment of a start counts as that start's end.
    """
    killed = [dying(*command, at=at) is None for at in kills]
    assert sum(killed) >= len(kills) / 2, f"too few of the kills came in time: {killed}"
    assert dying(*command, at="any:1000000") is not None
