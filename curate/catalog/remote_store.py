"""Images in an object store: S3 and what speaks its protocol, or whatever else fsspec reaches.

A whole object appears under a name or none does. S3 checks what arrives against its SHA-256 and
tells that again when asked, so that `holds` moves no image; where a store cannot tell, it is read.
Keys and regions come from where the store's own tools find them (for S3 the environment or
`~/.aws`), and so never stand in a workspace.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as all_of
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from curate.catalog.store_faults import away, fault
from curate.catalog.store_protocol import (
    MARK,
    checked,
    is_key,
    key_of,
    missing,
    refuse_other,
    two_digits,
)
from curate.errors import CurateError, ImageRefused, MissingExtraError, SettingsError, StorageError
from curate.files import printable, sha256_bytes, storage_errors, write_bytes

_S3 = {"s3", "s3a"}

#: Seconds until an operation is given up: connecting, waiting for bytes, and all tries together.
_CONNECT, _SILENCE, _MOST = 10, 60, 600

#: How often an operation is tried, with growing random waits between.
_TRIES = 4

#: How often the whole of it is tried where bytes end early; each time `_TRIES` times.
_READS = 2

#: Images that are on their way to the store at a time, and connections to it.
_UPLOADS, _CONNECTIONS = 8, 32


@dataclass
class _Here:
    """What belongs to one process: a fork may use neither its parent's threads nor connections."""

    system: Any = None
    uploads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_UPLOADS))
    pending: list[Future[None]] = field(default_factory=list)


class RemoteStore:
    """Images in an object store; see `ImageStore` for what its methods do.

    What `put` and `adopt` are given is uploaded in the background; `sync` waits for it.

    Args:
        address: a URL such as s3://bucket/prefix, without keys.

    Raises:
        SettingsError: there can be no such store.
    """

    inside = False

    def __init__(self, address: str) -> None:
        parts = _split(address)
        self.protocol = parts.scheme.lower()
        self.address = f"{self.protocol}://{parts.netloc}{parts.path.rstrip('/')}"
        self._states: dict[int, _Here] = {}

    def __reduce__(self) -> tuple[type[RemoteStore], tuple[str]]:
        return type(self), (self.address,)

    def name(self, sha256: str, extension: str) -> str:
        """As `ImageStore` says."""
        return f"{self.address}/{key_of(sha256, extension)}"

    def claim(self, owner: str) -> None:
        """As `ImageStore` says."""
        try:
            found = self._ask("cat_file", self._path(MARK))
        except FileNotFoundError:
            self._write(MARK, owner.encode())
            # Of two that claim it at once, the later one has it.
            found = self._ask("cat_file", self._path(MARK))
        refuse_other(found, owner, self.address)

    def put(self, data: bytes, sha256: str, extension: str) -> None:
        """As `ImageStore` says."""
        self._start(lambda: self._upload(data, sha256, extension))

    def adopt(self, file: Path, sha256: str, extension: str) -> None:
        """As `ImageStore` says."""
        self._start(lambda: self._take(file, sha256, extension))

    def sync(self) -> None:
        """As `ImageStore` says."""
        here = self._here()
        pending, here.pending = here.pending, []
        try:
            for future in pending:
                future.result()
        finally:
            for future in pending:
                future.cancel()
            all_of(pending)

    def holds(self, sha256: str, extension: str) -> bool:
        """As `ImageStore` says; where the store cannot tell what it holds, it is read."""
        if self.protocol not in _S3:
            return self.check(sha256, extension)
        try:
            told = self._head(self._path(key_of(sha256, extension)))
        except FileNotFoundError:
            return False
        if (theirs := told.get("ChecksumSHA256")) is None:
            return self.check(sha256, extension)
        return bool(theirs == _base64(sha256))

    def check(self, sha256: str, extension: str) -> bool:
        """As `ImageStore` says."""
        try:
            self.read(sha256, extension)
        except ImageRefused:
            return False
        return True

    def read(self, sha256: str, extension: str) -> bytes:
        """As `ImageStore` says."""
        path = self._path(key_of(sha256, extension))
        try:
            return checked(self._ask("cat_file", path), sha256)
        except FileNotFoundError:
            raise missing(sha256) from None

    def copy_to(self, sha256: str, extension: str, target: Path) -> None:
        """As `ImageStore` says."""
        write_bytes(target, self.read(sha256, extension))

    def remove(self, key: str) -> None:
        """As `ImageStore` says."""
        with suppress(FileNotFoundError):
            self._ask("rm_file", self._path(key))

    def leftovers(self, *, remove: bool) -> dict[str, int]:
        """As `ImageStore` says: there are none, as an unfinished upload has no name."""
        return {}

    def __iter__(self) -> Iterator[str]:
        for folder in self._names(""):
            if two_digits(folder):
                yield from (
                    key for name in self._names(folder) if is_key(key := f"{folder}/{name}")
                )

    # Uploads

    def _start(self, work: Callable[[], None]) -> None:
        here = self._here()
        here.pending.append(here.uploads.submit(work))

    def _upload(self, data: bytes, sha256: str, extension: str) -> None:
        if not self.holds(sha256, extension):
            self._write(key_of(sha256, extension), data, sha256)

    def _take(self, file: Path, sha256: str, extension: str) -> None:
        if not self.holds(sha256, extension):
            try:
                data = file.read_bytes()
            except FileNotFoundError:
                # Two labels of one picture: the other upload may have ended just now.
                if self.holds(sha256, extension):
                    return
                raise StorageError(f"{printable(file)} is gone; run again") from None
            except OSError as error:
                raise StorageError(f"cannot read {printable(file)}: {error.strerror}") from error
            if sha256_bytes(data) != sha256:
                raise StorageError(
                    f"{printable(file)} is damaged: remove it and run again, then it is "
                    "downloaded anew"
                )
            self._write(key_of(sha256, extension), data, sha256)
        with storage_errors(printable(file)):
            file.unlink(missing_ok=True)

    def _write(self, key: str, data: bytes, sha256: str | None = None) -> None:
        path = self._path(key)
        if self.protocol in _S3:
            check = _base64(sha256 or sha256_bytes(data))
            sent = {"ChecksumAlgorithm": "SHA256", "ChecksumSHA256": check}
            # In one piece, whatever its size: what is sent in parts has no SHA-256 of the whole.
            self._ask("pipe_file", path, data, chunksize=2**40, **sent)
            return
        try:
            self._ask("pipe_file", path, data)
        except FileNotFoundError:
            self._ask("makedirs", path.rpartition("/")[0], exist_ok=True)
            self._ask("pipe_file", path, data)

    # The store

    def _head(self, path: str) -> dict[str, Any]:
        """What S3 tells of an object without sending it."""
        bucket, key, _ = self._system().split_path(path)
        asked = {"Bucket": bucket, "Key": key, "ChecksumMode": "ENABLED"}
        try:
            told: dict[str, Any] = self._ask("call_s3", "head_object", **asked)
        except CurateError:
            # An answer to this question has no body, and so no words for what is wrong.
            self._ask("cat_file", path, start=0, end=1)
            raise
        return told

    def _names(self, folder: str) -> list[str]:
        """What is directly in a folder of the store, sorted; nothing where it is absent."""
        path = self._path(folder) if folder else self._root()
        try:
            found = self._ask("ls", path, detail=False)
        except FileNotFoundError:
            return []
        return sorted(name.rstrip("/").rpartition("/")[2] for name in found)

    def _path(self, key: str) -> str:
        return f"{self._root()}/{key}"

    def _root(self) -> str:
        return str(self._system()._strip_protocol(self.address))

    def _ask(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the file system, within bounded time.

        Raises:
            FileNotFoundError: there is no such object.
            StorageError, WorkspaceError: anything else.
        """
        try:
            return _timed(self._system(), name, *args, **kwargs)
        except Exception as error:
            told = fault(error, self.address)
            if told is None:
                raise FileNotFoundError(self.address) from error
            raise told from error

    def _system(self) -> Any:
        here = self._here()
        if here.system is None:
            try:
                here.system = _connect(self.protocol)
            except CurateError:
                raise
            except Exception as error:
                raise fault(error, self.address) or away(error, self.address) from error
        return here.system

    def _here(self) -> _Here:
        # Two threads may both make one; the dictionary keeps the first.
        return self._states.get(os.getpid()) or self._states.setdefault(os.getpid(), _Here())


def _split(address: str) -> Any:
    try:
        parts = urlsplit(address)
        keys = parts.password is not None or (parts.scheme in _S3 and "@" in parts.netloc)
    except ValueError:
        raise SettingsError("store: not a URL of the form s3://bucket/prefix") from None
    if keys:
        raise SettingsError(
            "store: no keys in the URL; they come from the environment (AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY) or from the files of the store's own tools"
        )
    odd = parts.query or parts.fragment or "::" in address or "//" in parts.path
    if odd or not parts.netloc or ".." in parts.path.split("/"):
        raise SettingsError(f"store: {address!r} is not of the form s3://bucket/prefix")
    return parts


def _connect(protocol: str) -> Any:
    """The file system of a protocol, with a bound on every wait; nothing is sent yet."""
    try:
        import fsspec

        if protocol in _S3:
            import s3fs  # noqa: F401
        kind = fsspec.get_filesystem_class(protocol)
    except ImportError:
        needed = {"gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}.get(protocol, "")
        package = "natadv-curate[s3]" if protocol in _S3 else needed or "fsspec[full]"
        raise MissingExtraError(package, f"store: {protocol}://") from None
    except ValueError:
        raise SettingsError(
            f"store: {protocol}:// is not known; there are s3://, file:// and what fsspec reaches"
        ) from None
    if protocol not in _S3:
        return kind(skip_instance_cache=True, use_listings_cache=False)
    system = kind(
        skip_instance_cache=True,
        use_listings_cache=False,
        # One question an image, not one for its length and one for its bytes.
        max_concurrency=1,
        config_kwargs={
            "connect_timeout": _CONNECT,
            "read_timeout": _SILENCE,
            "retries": {"mode": "standard", "total_max_attempts": _TRIES},
            "max_pool_connections": _CONNECTIONS,
            # What arrives is checked by those who asked for it.
            "response_checksum_validation": "when_required",
        },
    )
    system.retries = _READS
    return system


def _timed(system: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a method of a file system; one that waits for a network is given up after a time."""
    if not getattr(system, "async_impl", False):
        return getattr(system, name)(*args, **kwargs)
    from fsspec.asyn import sync

    work = getattr(system, f"_{name}")
    return sync(system.loop, work, *args, timeout=_MOST, **kwargs)


def _base64(sha256: str) -> str:
    return base64.b64encode(bytes.fromhex(sha256)).decode()
