"""Joining a Ray cluster, or starting one of this machine's own for as long as a run takes.

One of our own listens on loopback alone, asks for a token that no other user of the machine can
know, has no dashboard, sends no usage statistics, and keeps what Ray writes in a folder that is
removed at its end; one left behind by a process that was killed goes at the next start.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from curate.errors import BusyError, CurateError, MissingExtraError, UsageError
from curate.files import hold

#: Bytes of Ray's object store here. Only verdicts and scores pass through it; what does not fit is
#: put on the disk.
_STORE = 128 << 20

_PREFIX = "curate-ray-"

#: What Ray reads from the environment when it is imported, for a cluster of our own: addresses on
#: loopback, no statistics, and a token.
_OWN_ENVIRON = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}

#: The same for joining one: a quarter of an hour is too long to find out that nobody answers.
_JOIN_ENVIRON = {"RAY_NUM_REDIS_GET_RETRIES": "2"}

#: Seconds that a cluster has to answer at all.
_ANSWER = 10.0

_ADDRESS = re.compile(r"(ray://)?([^/:]+|\[[0-9A-Fa-f:]+\]):([0-9]{1,5})")
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class Cluster:
    """A Ray cluster that this process uses.

    Args:
        address: as Ray takes it ("auto", "HOST:PORT", "ray://HOST:PORT"); empty for one of our own.
        cores: that one of our own has.
        gpus: that one of our own has.
        named: what sets the address, for errors.
        command: which command holds one of our own.
    """

    def __init__(
        self,
        address: str,
        cores: int,
        gpus: int,
        named: str = "filter.ray_address",
        command: str = "curate filter",
    ) -> None:
        self.address, self._named, self._command = address, named, command
        self._cores, self._gpus = cores, gpus
        self._joined = ExitStack()
        self.is_joined = False

    def join(self) -> None:
        """Join the cluster, or start it.

        Raises:
            MissingExtraError: Ray is not installed.
            UsageError: there is no such cluster, or its versions are others.
            CurateError: no cluster can be started here.
        """
        if self.is_joined:
            return
        ray = import_ray(own=not self.address)
        if not ray.is_initialized():
            try:
                with _signal_handlers_kept():
                    self._init(ray)
            except BaseException:
                self.leave()
                raise
        _be_quiet()
        self.is_joined = True

    def leave(self) -> None:
        """Leave the cluster; one of our own ends."""
        self.is_joined = False
        self._joined.close()

    def resources(self) -> dict[str, float]:
        """What the cluster has of each resource in all, "CPU" and "GPU" among them."""
        import ray

        return dict(ray.cluster_resources())

    def cores_a_gpu(self) -> int:
        """Cores that each GPU's worker may have on every node with GPUs, at least 1."""
        import ray

        each = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        shares = [one.get("CPU", 0) // one["GPU"] for one in each if one.get("GPU", 0) >= 1]
        return max(1, int(min(shares, default=1)))

    def _init(self, ray: Any) -> None:
        shared = {
            "namespace": "curate",
            "log_to_driver": False,
            "configure_logging": False,
            "logging_level": "error",
        }
        self._joined.callback(ray.shutdown)
        try:
            if self.address:
                _check_address(self.address, ray.util.get_node_ip_address, self._named)
                ray.init(address=self.address, **shared)
                return
            folder = self._joined.enter_context(_own_folder(self._command))
            # What Ray keeps in the folder goes before the folder does.
            self._joined.callback(ray.shutdown)
            ray.init(
                address="local",
                include_dashboard=False,
                num_cpus=self._cores,
                num_gpus=self._gpus,
                object_store_memory=_STORE,
                _temp_dir=str(folder),
                **shared,
            )
        except CurateError:
            raise
        except ImportError as error:
            raise MissingExtraError("ray[client]", f"Ray at {self.address}") from error
        except Exception as error:
            if self.address == "auto" and isinstance(error, ConnectionError):
                raise UsageError(
                    "cannot join Ray: no cluster runs on this machine; start it, or name its "
                    f"address ({self._named})"
                ) from error
            told = " ".join(str(error).split())[:300] or type(error).__name__
            if not self.address:
                raise CurateError(f"Ray does not start on this machine: {told}") from error
            raise UsageError(f"cannot join Ray at {self.address}: {told}") from error


def import_ray(*, own: bool) -> Any:
    """Ray's module.

    Args:
        own: whether it is to serve a cluster of our own.

    Raises:
        MissingExtraError: it is not installed.
    """
    late = "ray" in sys.modules
    for name, value in (_OWN_ENVIRON if own else _JOIN_ENVIRON).items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise MissingExtraError("natadv-curate[ray]", "--engine ray") from None
    if late and own and not ray.is_initialized():
        _read_environ_again()
    return ray


def _read_environ_again() -> None:
    """Ray reads whether to ask for a token once; a program may have imported it before."""
    with suppress(ImportError, AttributeError):
        inner: Any = import_module("ray._raylet")
        inner.Config.initialize("")
        inner.AuthenticationTokenLoader.instance().reset_cache()


def _check_address(address: str, own_address: Callable[[], str], named: str) -> None:
    """See that somebody answers at an address; Ray itself would try for minutes.

    Args:
        address: of a cluster.
        own_address: gives what Ray takes for this machine's own address.
        named: what sets the address.

    Raises:
        UsageError: it is none, or nobody answers.
    """
    if address == "auto":
        return
    if (parts := _ADDRESS.fullmatch(address)) is None:
        raise UsageError(
            f"{named}: {address!r} is no address of Ray; write auto, HOST:PORT or ray://HOST:PORT"
        )
    host = parts[2].strip("[]")
    if host in _LOOPBACK and not parts[1]:
        host = own_address()
    try:
        socket.create_connection((host, int(parts[3])), _ANSWER).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"cannot join Ray at {address}: {host} does not answer on port {parts[3]} "
            f"({type(error).__name__}); start the cluster, or correct {named}"
        ) from error


@contextmanager
def _own_folder(command: str) -> Iterator[Path]:
    """A folder for what Ray writes, with a short name: it holds sockets."""
    base = Path("/tmp") if Path("/tmp").is_dir() else Path(tempfile.gettempdir())
    for left in base.glob(f"{_PREFIX}*"):
        _remove_if_left(left, command)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    try:
        with hold(folder / "holder", command):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_if_left(folder: Path, command: str) -> None:
    """Remove the folder of a process that was killed."""
    with suppress(OSError, BusyError):
        ours = folder.lstat().st_uid == os.getuid() and not folder.is_symlink()
        if ours and (folder / "holder.lock").is_file():
            with hold(folder / "holder", command):
                shutil.rmtree(folder, ignore_errors=True)


def _be_quiet() -> None:
    """Ray prints what it notices on standard output, which is for results; an engine tells in a
    line what is lost.
    """
    from ray._private import worker

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_, **__: None


@contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """Ray takes SIGTERM for itself; an interrupt is to stop a run after the batch in hand."""
    names = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.getsignal(name) for name in names]
    try:
        yield
    finally:
        # Only the main thread may set them, and only there Ray does.
        with suppress(ValueError):
            for name, handler in zip(names, handlers, strict=True):
                signal.signal(name, handler)
