"""The process of a workspace's Label Studio: at most one, found again whoever started it.

The server itself holds a lock on its folder, taken by the command that starts it and handed on, so
that there is no moment in which a killed command could leave a server that nobody finds. A copy of
the workspace has a lock of its own, which nobody holds.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import requests

from annotation.server_launch import process_start
from annotation.venv import LAUNCH
from curate.errors import BusyError, CurateError, StorageError, UsageError
from curate.files import printable, storage_errors

LOCK, RECORD, LOG = "server.lock", "server.json", "server.log"

#: How long a server may take to start; one of an older version migrates its data first.
START_SECONDS = 300.0
STOP_SECONDS = 120.0

_LOOK = 0.1
_BACKLOG = 128
_LONGEST_LOG = 5_000_000


@dataclass(frozen=True)
class Process:
    """A server's process.

    Attributes:
        pid: its number.
        port: where it listens on loopback.
        ready: whether it answers.
    """

    pid: int
    port: int
    ready: bool


@contextmanager
def try_lock(folder: Path) -> Iterator[int | None]:
    """Take the lock of a server's folder, or None where somebody has it.

    Whoever inherits the descriptor keeps the lock.
    """
    with storage_errors(printable(folder / LOCK)):
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        # Of one that has ended.
        (folder / RECORD).unlink(missing_ok=True)
        yield lock
    finally:
        os.close(lock)


def is_held(folder: Path) -> bool:
    """Whether a server runs in the folder, or is being started.

    Raises:
        StorageError: the lock cannot be read, as another user's.
    """
    try:
        # To look needs no right to write, as on a disk that has become read-only.
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StorageError(f"cannot read {printable(folder / LOCK)}: {error.strerror}") from error
    try:
        # Shared, so that two who look do not see each other.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def find(folder: Path) -> Process | None:
    """The server that runs in the folder, whether or not it answers yet.

    Returns:
        None where none runs, or one is being started that has not said who it is.
    """
    if not is_held(folder):
        return None
    try:
        told = json.loads((folder / RECORD).read_bytes())
        pid, started = int(told["pid"]), process_start(int(told["pid"]))
        # Numbers below stand for groups, or for all processes there are.
        if pid <= 1 or started is None or started != told["started"]:
            return None
        return Process(pid, int(told["port"]), bool(told["ready"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def listen(port: int) -> socket.socket:
    """A socket that listens on loopback.

    Raises:
        BusyError: another program has the port.
        UsageError: this user may not listen there.
    """
    listening = socket.socket()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise BusyError(
                f"another program has port {port}; name another one: --port, or review.port in "
                "curate.yaml"
            ) from None
        raise UsageError(f"cannot listen on port {port}: {error.strerror}") from None
    return listening


def start(
    folder: Path, python: Path, env: Mapping[str, str], lock: int, listening: socket.socket
) -> Process:
    """Start a server that outlives this process, and wait until it answers.

    Args:
        folder: where its files are.
        python: the interpreter of Label Studio's environment.
        env: its variables.
        lock: from `try_lock`.
        listening: from `listen`.

    Raises:
        StorageError: the disk is full.
        CurateError: it ends, or does not answer in time.
    """
    log = folder / LOG
    with storage_errors(printable(log)):
        fresh = not log.exists() or log.stat().st_size > _LONGEST_LOG
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_TRUNC * fresh)
        stream = os.fdopen(os.open(log, flags, 0o600), "ab")
        begin = stream.tell()
    with stream:
        child = subprocess.Popen(
            [
                *(str(python), "-I", str(LAUNCH)),
                *(str(lock), str(listening.fileno()), str(folder / RECORD)),
            ],
            env=dict(env),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            pass_fds=(lock, listening.fileno()),
            start_new_session=True,
            umask=0o077,
        )
    until = time.monotonic() + START_SECONDS
    try:
        while child.poll() is None and time.monotonic() < until:
            process = find(folder)
            if process is not None and process.ready and answers(process.port):
                return process
            time.sleep(_LOOK)
        raise _not_started(log, begin, child.poll())
    except BaseException:
        child.terminate()
        child.wait()
        raise


def _not_started(log: Path, begin: int, code: int | None) -> CurateError:
    try:
        lines = log.read_bytes()[begin:].decode("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    if any("No space left" in line or "disk is full" in line for line in lines):
        return StorageError("the disk is full while starting Label Studio; free some space")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "it says nothing")
    last = "".join(c if c.isprintable() else " " for c in last)[:200]
    how = f"does not answer after {START_SECONDS:.0f} s" if code is None else "ends as it starts"
    return CurateError(f"Label Studio {how} ({last}); {printable(log)} tells more")


def answers(port: int, seconds: float = 10.0) -> bool:
    """Whether a Label Studio answers on a port of loopback that it is well.

    Args:
        port: where.
        seconds: the longest wait for it.
    """
    try:
        with requests.Session() as session:
            session.trust_env = False
            url = f"http://127.0.0.1:{port}/health"
            told = session.get(url, timeout=seconds, allow_redirects=False)
        return told.status_code == 200 and told.json().get("status") == "UP"
    except (requests.RequestException, ValueError, AttributeError):
        return False


def stop(folder: Path) -> Process | None:
    """End the server of a folder, and wait until it has ended.

    Returns:
        The process that was ended; None where none ran.

    Raises:
        BusyError: another command is starting one.
        CurateError: it does not end.
    """
    until = time.monotonic() + STOP_SECONDS
    ended: Process | None = None
    while is_held(folder):
        if ended is not None and ((now := find(folder)) is None or now.pid != ended.pid):
            # It has ended; who has the lock now is another command.
            break
        if ended is None and (ended := find(folder)) is not None:
            try:
                os.kill(ended.pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
            except PermissionError:
                raise CurateError(f"process {ended.pid} is another user's; ask them") from None
        if time.monotonic() > until:
            if ended is None:
                raise BusyError("another command is starting Label Studio; wait for it to end")
            raise CurateError(f"Label Studio (process {ended.pid}) does not end")
        time.sleep(_LOOK)
    if ended is not None:
        # Takes its record away; one that stays says nothing without a process.
        with suppress(OSError, StorageError), try_lock(folder):
            pass
    return ended
