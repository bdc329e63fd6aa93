"""Quality: the flags of candidates, and measuring images that were taken in without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy import Connection

from curate.catalog import qualities
from curate.choices import QUALITY_FLAGS
from curate.errors import ImageRefused
from curate.images.decode import decode_trusted
from curate.images.quality import Quality, flags
from curate.progress import progress
from pipelines.reading import looks_of
from pipelines.threads import usable_cores
from pipelines.workspace import Workspace

#: The flags of candidates by id. One that is not there has none, or was never measured.
Flags = Mapping[int, tuple[str, ...]]

_PAGE = 1000


def candidate_flags(
    workspace: Workspace, connection: Connection, ids: Sequence[int] | None = None
) -> Flags:
    """The flags of the candidates `ids` (all for None), by the settings of the workspace."""
    limits = workspace.settings.quality
    found = {}
    for number, measured in qualities.of_candidates(connection, ids):
        quality = Quality.from_dict(measured)
        if quality is not None and (noted := flags(quality, limits)):
            found[number] = noted
    return found


def flag_counts(workspace: Workspace, connection: Connection) -> dict[str, int]:
    """How many candidates have each flag; one may have several."""
    counts: Counter[str] = Counter()
    for noted in candidate_flags(workspace, connection).values():
        counts.update(noted)
    return {flag: counts[flag] for flag in QUALITY_FLAGS}


def count_unmeasured(workspace: Workspace) -> int:
    """How many images nobody has looked at: downloads, and those of versions that measured less."""
    return sum(len(page) for page in _unmeasured(workspace))


def measure_missing(workspace: Workspace, *, unhashed: bool = False) -> int:
    """Look at these images in the store: hash what they look like, and measure their quality.

    Args:
        workspace: the workspace.
        unhashed: only those without hashes of what they look like.

    Returns:
        How many are left because their stored files are bad.
    """
    total = sum(len(page) for page in _unmeasured(workspace, unhashed))
    left = 0
    with ThreadPoolExecutor(usable_cores()) as pool, progress("look", total) as bar:
        for page in _unmeasured(workspace, unhashed) if total else ():
            left += _measure(workspace, pool, page)
            bar.advance(len(page))
    return left


def measure_some(workspace: Workspace, sha256s: Sequence[str]) -> None:
    """Look at some images, as far as nobody has."""
    with workspace.catalogue.read() as connection:
        told = qualities.of_images(connection, sha256s)
    missing = [(sha256, ext) for sha256, ext, known in told if Quality.from_dict(known) is None]
    with ThreadPoolExecutor(usable_cores()) as pool:
        for start in range(0, len(missing), _PAGE):
            _measure(workspace, pool, missing[start : start + _PAGE])


def _measure(
    workspace: Workspace, pool: ThreadPoolExecutor, page: Sequence[tuple[str, str]]
) -> int:
    """Look at some images; gives how many could not be looked at."""
    found = pool.map(lambda image: _looks(workspace, *image), page)
    known = {
        sha256: looks for (sha256, _), looks in zip(page, found, strict=True) if looks is not None
    }
    with workspace.catalogue.write() as connection:
        qualities.set_looks(connection, known)
    return len(page) - len(known)


def _looks(workspace: Workspace, sha256: str, extension: str) -> dict[str, Any] | None:
    try:
        data = workspace.store.read(sha256, extension)
        return looks_of(decode_trusted(data, workspace.settings.images))
    except ImageRefused:
        return None


def _unmeasured(workspace: Workspace, unhashed: bool = False) -> Iterator[list[tuple[str, str]]]:
    """The images that nobody has looked at, a page at a time."""
    last = ""
    while True:
        with workspace.catalogue.read() as connection:
            page = qualities.of_images_after(connection, last, _PAGE, unhashed=unhashed)
        if not page:
            return
        last = page[-1][0]
        yield [(sha256, ext) for sha256, ext, told in page if Quality.from_dict(told) is None]
