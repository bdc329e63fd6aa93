"""Files of weights on this machine, and how they get there."""

from __future__ import annotations

import hashlib
import re
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from curate.errors import WeightsError
from curate.files import atomic_write, printable, sha256_file, storage_errors
from curate.progress import say

#: Seconds without an answer after which a download fails.
TIMEOUT = 15.0
#: Larger files than any network here are refused.
MAX_BYTES = 20_000_000_000
_PIECE = 1 << 20
_HASH = re.compile(r"-([0-9a-f]{8,64})\.[a-z]+$")


def hub_file(name: str) -> Path:
    """Where a file of weights belongs: PyTorch's own folder, which `TORCH_HOME` moves."""
    import torch

    return Path(torch.hub.get_dir()) / "checkpoints" / name


def file_name(url: str) -> str:
    """The last part of a URL's path."""
    return urlsplit(url).path.rpartition("/")[2]


def verified_sha256(path: Path) -> str:
    """The SHA-256 of a file, whose name may promise how it begins ("resnet50-0676ba61.pth").

    Raises:
        WeightsError: it does not begin so, or the file cannot be read.
    """
    try:
        digest = sha256_file(path)
    except OSError as error:
        raise WeightsError(f"cannot read {printable(path)}: {error.strerror}") from error
    promised = _HASH.search(path.name)
    if promised is not None and not digest.startswith(promised[1]):
        raise WeightsError(
            f"{printable(path)} is damaged: its SHA-256 begins with {digest[:8]}, its name says "
            f"{promised[1]}; delete it and run again"
        )
    return digest


def absent(what: str, url: str, path: Path, reason: str) -> WeightsError:
    """The error that says which file to put where."""
    return WeightsError(
        f"the weights of {what} are not on this machine and could not be downloaded ({reason}): "
        f"save {url} as {printable(path)}"
    )


def download(url: str, path: Path, what: str) -> None:
    """Download weights to `path`, whole or not at all.

    PyTorch's own function has no time limit and writes to standard output; that of the Hugging
    Face hub tries for half a minute where there is no network.

    Args:
        url: where the library says that they are.
        path: where they shall stand.
        what: whose weights they are, for messages.

    Raises:
        FileNotFoundError: the server has no such file.
        WeightsError: it cannot be had; the text says what to save where.
        StorageError: the disk refuses.
    """
    say(f"downloading the weights of {what}: {url}")
    request = Request(url, headers={"User-Agent": "natadv-curate"})
    try:
        answer = urlopen(request, timeout=TIMEOUT)
    except HTTPError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            raise FileNotFoundError(url) from error
        raise absent(what, url, path, f"HTTP {error.code}") from error
    except (OSError, HTTPException) as error:
        raise absent(what, url, path, str(getattr(error, "reason", error))) from error

    with storage_errors(printable(path.parent)):
        path.parent.mkdir(parents=True, exist_ok=True)
    size = answer.headers.get("Content-Length")
    digest, done = hashlib.sha256(), 0
    with answer, atomic_write(path) as stream:
        while True:
            try:
                piece = answer.read(_PIECE)
            except (OSError, HTTPException) as error:
                raise absent(what, url, path, f"broke off: {error}") from error
            if not piece:
                break
            done += len(piece)
            if done > MAX_BYTES:
                raise absent(what, url, path, f"more than {MAX_BYTES:,} bytes")
            stream.write(piece)
            digest.update(piece)
        if size is not None and done != int(size):
            raise absent(what, url, path, f"{done:,} of {size} bytes came")
        promised = _HASH.search(path.name)
        if promised is not None and not digest.hexdigest().startswith(promised[1]):
            raise absent(what, url, path, "what came is another file, by its SHA-256")
