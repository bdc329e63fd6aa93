"""Runs Label Studio, in the Python of its own virtual environment; imports nothing of this project.

    python -I server_launch.py LOCK SOCKET RECORD

LOCK is a descriptor that holds the lock of the server's folder as long as this process lives.
SOCKET is one that listens already: no other program can come between the look for a free port and
the server, and whoever connects there reaches this process. RECORD is the file that says who this
is, and from when on it answers. Without arguments the migrations are applied and nothing else.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any


def process_start(pid: int) -> str | None:
    """What tells a process from a later one of the same number; None where there is none.

    Args:
        pid: its number.
    """
    try:
        # The name before it may hold blanks and brackets.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return None if fields[0] == "Z" else f"{boot} {fields[19]}"
    except (OSError, IndexError):
        if Path("/proc/self/stat").exists():
            return None
    try:
        told = subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return told.stdout.strip() or None


def write_record(path: Path, port: int, *, ready: bool) -> None:
    """Say who this process is.

    Args:
        path: the file, which appears whole.
        port: where it listens.
        ready: whether it answers.
    """
    told = {"pid": os.getpid(), "started": process_start(os.getpid()), "port": port, "ready": ready}
    temporary = path.with_name(f".partial-{os.getpid()}-record")
    temporary.write_text(json.dumps(told), encoding="utf-8")
    temporary.replace(path)


def serve(server: Any, listening: socket.socket, record: Path) -> None:
    """Run the server on a socket that listens, and say when it does.

    Args:
        server: the module `label_studio.server`.
        listening: the socket.
        record: the file for `write_record`.
    """
    host, port = listening.getsockname()
    basehttp = importlib.import_module("django.core.servers.basehttp")
    create_user = server._create_user

    def bind(self: Any) -> None:
        self.socket.close()
        self.socket = listening
        self.server_address, self.server_name, self.server_port = (host, port), host, port
        self.setup_environ()

    def activate(self: Any) -> None:
        write_record(record, port, ready=True)

    def create_user_with_token(*arguments: Any) -> Any:
        user = create_user(*arguments)
        # A start that was killed between account and token leaves an account with another token.
        tokens = importlib.import_module("rest_framework.authtoken.models").Token
        tokens.objects.filter(user=user).update(key=os.environ["LABEL_STUDIO_USER_TOKEN"])
        # Anybody may have switched it off on the settings page.
        organization = user.active_organization
        organization.jwt.legacy_api_tokens_enabled = True
        organization.jwt.save()
        return user

    basehttp.WSGIServer.server_bind = bind
    basehttp.WSGIServer.server_activate = activate
    # Addresses that are asked for may hold what lets people in.
    basehttp.WSGIRequestHandler.log_message = lambda *_: None
    server._create_user = create_user_with_token
    # It would go on to the next port where one is taken, and this one is, by ourselves.
    server._get_free_port = lambda port, debug: port
    sys.argv[1:] = ["start", "--no-browser", "--internal-host", host, "--port", str(port)]
    server.main()


def migrate(server: Any) -> None:
    """Apply the migrations to a database that nobody needs if this is cut off.

    Args:
        server: the module `label_studio.server`.
    """
    signals = importlib.import_module("django.db.backends.signals")

    def hurry(connection: Any, **_: Any) -> None:
        with connection.cursor() as cursor:
            # Hundreds of transactions, each of which would wait for the disk.
            cursor.execute("PRAGMA synchronous = OFF")
            cursor.execute("PRAGMA journal_mode = MEMORY")

    signals.connection_created.connect(hurry, weak=False)
    sys.argv[1:] = ["version"]
    server.main()


def main() -> None:
    """Run as the module says."""
    if len(sys.argv) == 1:
        migrate(importlib.import_module("label_studio.server"))
        return
    lock, descriptor, record = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    # What this process starts must not outlive it with the lock in its hands.
    os.set_inheritable(lock, False)
    listening = socket.socket(fileno=descriptor)
    listening.set_inheritable(False)
    write_record(record, listening.getsockname()[1], ready=False)
    serve(importlib.import_module("label_studio.server"), listening, record)


if __name__ == "__main__":
    main()
