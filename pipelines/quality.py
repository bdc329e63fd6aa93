"""Quality: the flags of candidates, and measuring images that were taken in without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Connection

from curate.catalog import qualities
from curate.choices import QUALITY_FLAGS
from curate.errors import ImageRefused
from curate.images.decode import decode_trusted
from curate.images.quality import Quality, flags, measure
from curate.progress import progress
from pipelines.engines import usable_cores
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
    """How many images were taken in without measuring their quality, or before a new measure."""
    return sum(len(page) for page in _unmeasured(workspace))


def measure_missing(workspace: Workspace) -> int:
    """Measure these images from the store.

    Returns:
        How many are left because their stored files are bad.
    """
    left = 0
    total = count_unmeasured(workspace)
    with ThreadPoolExecutor(usable_cores()) as pool, progress("measure", total) as bar:
        for page in _unmeasured(workspace):
            found = pool.map(lambda image: _measured(workspace, *image), page)
            known = {
                sha256: quality.to_dict()
                for (sha256, _), quality in zip(page, found, strict=True)
                if quality is not None
            }
            with workspace.catalogue.write() as connection:
                qualities.set_measured(connection, known)
            left += len(page) - len(known)
            bar.advance(len(page))
    return left


def _measured(workspace: Workspace, sha256: str, extension: str) -> Quality | None:
    try:
        data = workspace.store.read(sha256, extension)
        return measure(decode_trusted(data, workspace.settings.images))
    except ImageRefused:
        return None


def _unmeasured(workspace: Workspace) -> Iterator[list[tuple[str, str]]]:
    """The images without measurements, a page at a time."""
    last = ""
    while True:
        with workspace.catalogue.read() as connection:
            page = qualities.of_images_after(connection, last, _PAGE)
        if not page:
            return
        last = page[-1][0]
        yield [(sha256, ext) for sha256, ext, told in page if Quality.from_dict(told) is None]
