"""Label Studio in a virtual environment of its own, in the user's cache folder.

It needs other versions of many packages than this project (NumPy below 2.3 among them), and about
a gigabyte, which all workspaces share. Beside it lies a database with its migrations applied and
nothing else in it, so that a workspace's server starts in seconds instead of minutes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from curate.errors import CurateError, StorageError, UsageError
from curate.files import (
    TEMPORARY,
    make_folder,
    printable,
    storage_errors,
    sync_folder,
    user_cache,
    write_bytes,
)
from curate.progress import LINE_SECONDS, say

#: The version of Label Studio that this project knows.
VERSION = "1.23.2"
REQUIREMENT = f"label-studio=={VERSION}"

#: What the environment takes on the disk, and what pip needs beside it.
NEEDED_BYTES = 1_600_000_000

LAUNCH = Path(__file__).with_name("server_launch.py")

#: Telemetry in all its forms, the question for a newer version, and what they send it by.
QUIET = {
    "COLLECT_ANALYTICS": "false",
    "LATEST_VERSION_CHECK": "false",
    "SENTRY_DSN": "",
    "FRONTEND_SENTRY_DSN": "",
    "LOG_LEVEL": "ERROR",
    "DJANGO_DB": "sqlite",
    "DJANGO_RUNSERVER_HIDE_WARNING": "true",
}

# Label Studio takes settings from variables with names such as HOST, PORT and DEBUG.
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
# They would lead pip elsewhere, or Python to other packages.
_KEPT_BACK = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER")


@dataclass(frozen=True)
class Installed:
    """Label Studio on this machine.

    Attributes:
        python: the interpreter of its environment.
        database: a SQLite file with the migrations applied; without accounts or secrets.
    """

    python: Path
    database: Path


def cache_folder() -> Path:
    """Where Label Studio is kept: below `curate.files.user_cache`.

    Raises:
        UsageError: this user has no home.
    """
    if (caches := user_cache()) is None:
        raise UsageError("there is no home folder to keep Label Studio in; set XDG_CACHE_HOME")
    return caches / "label-studio"


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """The variables that Label Studio runs with: nothing of the user's that it would obey.

    Args:
        more: what else to set.
    """
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {**passed_on, **QUIET, **more}


def install(python: str = sys.executable) -> Installed:
    """Label Studio, installed on first use: about two minutes and a gigabyte.

    Whatever a killed first use leaves behind goes with the next one; a second command waits for the
    first to end.

    Args:
        python: what makes the environment.

    Raises:
        StorageError: the disk is full or refuses.
        CurateError: pip cannot install it, or Python makes no environments.
        UsageError: this user has no home.
    """
    root = cache_folder()
    name = f"{VERSION}-py{sys.version_info.major}.{sys.version_info.minor}"
    venv, database = root / f"venv-{name}", root / f"template-{name}.sqlite3"
    installed = Installed(venv / "bin" / "python", database)
    # A link to an interpreter that has been removed does not exist.
    if installed.python.exists() and database.exists():
        return installed
    make_folder(root)
    with _held(root / "lock") as lock:
        _remove_leftovers(root)
        if not installed.python.exists():
            _make_venv(venv, python, lock)
        if not database.exists():
            _make_database(database, installed.python, lock)
    return installed


@contextmanager
def _held(path: Path) -> Iterator[int]:
    """Hold a lock, which what this process starts may hold on to."""
    with storage_errors(printable(path)):
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    told = False
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    say("waiting for another command that installs Label Studio")
                told = True
                time.sleep(0.2)
        yield lock
    finally:
        os.close(lock)


def _remove_leftovers(root: Path) -> None:
    for path in root.glob(f"{TEMPORARY}*"):
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _unfinished(root: Path) -> Iterator[Path]:
    """A folder to make something in, gone at the end."""
    folder = root / f"{TEMPORARY}{os.getpid()}"
    with storage_errors(printable(folder)):
        folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_venv(venv: Path, python: str, lock: int) -> None:
    if shutil.disk_usage(venv.parent).free < NEEDED_BYTES:
        raise StorageError(
            f"Label Studio needs {NEEDED_BYTES / 1e9:.1f} GB in {printable(venv.parent)}, and the "
            "disk is too full; free some space, or set XDG_CACHE_HOME to another disk"
        )
    say(f"installing Label Studio {VERSION} in {printable(venv.parent)} (about 2 minutes, 1 GB)")
    env = {k: v for k, v in os.environ.items() if k not in _KEPT_BACK and k[:7] != "CURATE_"}
    with _unfinished(venv.parent) as folder:
        told = _run([python, "-m", "venv", str(folder / "venv")], env, lock)
        if told is not None:
            _tell_full(told)
            raise CurateError(
                f"{python} makes no virtual environment for Label Studio ({_last(told)}); on "
                "Debian and Ubuntu install the package python3-venv"
            )
        # Not the script pip, which would name the temporary folder. Compiling every file would take
        # as long as half the rest; those that are ever imported the first start compiles.
        pip = [str(folder / "venv" / "bin" / "python"), "-m", "pip", "install", "--no-compile"]
        pip += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off", REQUIREMENT]
        told = _run(pip, env, lock)
        if told is not None:
            _tell_full(told)
            raise CurateError(
                f"pip cannot install {REQUIREMENT} ({_last(told)}); is this machine online? The "
                "same command tries again"
            )
        # Nothing that pip writes is synced.
        os.sync()
        shutil.rmtree(venv, ignore_errors=True)
        with storage_errors(printable(venv)):
            (folder / "venv").replace(venv)
            sync_folder(venv.parent)


def _make_database(database: Path, python: Path, lock: int) -> None:
    say("preparing Label Studio's database (about a minute, once)")
    with _unfinished(database.parent) as folder:
        env = environment({"LABEL_STUDIO_BASE_DATA_DIR": str(folder), "SECRET_KEY": "unused"})
        told = _run([str(python), "-I", str(LAUNCH)], env, lock)
        if told is not None:
            _tell_full(told)
            raise CurateError(f"Label Studio's database cannot be prepared ({_last(told)})")
        with storage_errors(printable(database)):
            write_bytes(database, (folder / "label_studio.sqlite3").read_bytes())


def _run(command: Sequence[str], env: Mapping[str, str], lock: int) -> list[str] | None:
    """Run a program, telling of pip's progress; gives its last lines where it fails.

    The program holds the lock as well: killed alone, this process leaves nobody who writes unseen.
    """
    try:
        process = subprocess.Popen(
            command,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=(lock,),
        )
    except OSError as error:
        return [f"{command[0]}: {error.strerror or error}"]
    lines: list[str] = []
    packages, told_at = 0, time.monotonic()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            lines = [*lines[-50:], line.strip()]
            packages += line.startswith("Collecting ")
            if line.startswith("Installing collected packages"):
                say(f"Label Studio: unpacking {packages} packages")
                packages = 0
            elif packages and time.monotonic() - told_at > LINE_SECONDS:
                told_at = time.monotonic()
                say(f"Label Studio: {packages} packages found so far")
        return lines if process.wait() else None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _tell_full(lines: Sequence[str]) -> None:
    if any("No space left" in line or "disk is full" in line for line in lines):
        raise StorageError(
            f"the disk is full while installing Label Studio in {printable(cache_folder())}; free "
            "some space and run again"
        )


def _last(lines: Sequence[str]) -> str:
    """Of what a program says, the line that tells most."""
    errors = [line for line in lines if line.startswith("ERROR:")]
    found = (errors or [line for line in lines if line] or ["it says nothing"])[-1]
    return "".join(c if c.isprintable() else " " for c in found.removeprefix("ERROR: "))[:300]
