"""How long tests wait, and ports that stay theirs.

Several test processes, their children and a browser share a few cores: what takes a moment alone
may take a hundred there. A test waits for what must come as long as a test may, and what it counts
or compares hangs on what came before, not on when.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import psutil
import pytest

from curate.progress import Stop

#: The longest wait for what must come, in seconds: only what hangs meets it.
PATIENCE = 240.0

_reserved: list[socket.socket] = []


def wait_until(seen: Callable[[], object], what: str = "") -> None:
    """Look again and again until something is so.

    Args:
        seen: whether it is.
        what: it is, for the error.

    Raises:
        AssertionError: it never is.
    """
    until = time.monotonic() + PATIENCE
    while not seen():
        assert time.monotonic() < until, f"it never came: {what or seen}"
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, though its parent may not have looked yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until_stopped(process: subprocess.Popen[str]) -> None:
    """Wait until a process has stopped itself by SIGSTOP.

    Raises:
        AssertionError: it ends, or never stops.
    """

    def stopped() -> bool:
        assert process.poll() is None, process.communicate()
        return bool(psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)

    wait_until(stopped, f"process {process.pid} stops")


def interrupt() -> None:
    """Interrupt this process, as a terminal does, and wait until its main thread has heeded it:
    threads beside it may end all their work before that.
    """
    heeded, request = threading.Event(), Stop.request

    def heeds(stop: Stop) -> None:
        request(stop)
        heeded.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stop, "request", heeds)
        os.kill(os.getpid(), signal.SIGINT)
        assert heeded.wait(PATIENCE)


def reserved_port() -> int:
    """A port of 127.0.0.1 at which nothing listens, and that nobody else gets meanwhile.

    It stays bound until this process ends. On Linux a server that sets SO_REUSEADDR, as servers do,
    can listen there nevertheless; elsewhere the port can only be let go of at once.
    """
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    port = int(kept.getsockname()[1])
    if sys.platform == "linux":
        _reserved.append(kept)
    else:
        kept.close()
    return port
