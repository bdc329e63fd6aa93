"""The candidates of a run, sorted by key, and the hash of the set."""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterator, Sequence

from curate.catalog import judging, twins
from curate.choices import QUALITY_FLAGS
from curate.errors import UsageError
from pipelines.quality import Flags, candidate_flags, measure_missing
from pipelines.workspace import Workspace

#: Candidates in a chunk: at most this many, and fewer where that keeps every core busy.
_LARGEST_CHUNK, _SMALLEST_CHUNK, _CHUNKS_WANTED = 256, 16, 32


class CandidateSet:
    """The candidates of a run.

    Args:
        workspace: what holds them; its settings leave some out by quality.
        wnids: their labels; None for all.

    Attributes:
        wnids: the labels that were asked for.
        ids: in the order of the candidates' keys.
        set_hash: over the keys in order.
        set_aside: how many are left out, by quality flag.
        control: the ids of the control sample in review order: candidates whose seeded hashes are
            smallest, whatever else is in the set.

    Raises:
        UsageError: there are none.
    """

    def __init__(self, workspace: Workspace, wnids: Sequence[str] | None) -> None:
        self.wnids = wnids
        self.ids: list[int] = []
        drawn: list[tuple[int, int]] = []
        # Each is counted once, under the first of its flags that is not wanted.
        set_aside: Counter[str] = Counter()
        digest = hashlib.sha256()
        settings = workspace.settings.filter
        by_quality = bool(settings.without) or settings.cap_order == "quality"
        if by_quality:
            measure_missing(workspace)
        with workspace.catalogue.read() as connection:
            flags: Flags = candidate_flags(workspace, connection) if by_quality else {}
            for key, number in judging.candidate_keys(connection, wnids):
                unwanted = [flag for flag in flags.get(number, ()) if flag in settings.without]
                if unwanted:
                    set_aside[unwanted[0]] += 1
                    continue
                self.ids.append(number)
                digest.update(key.encode())
                if settings.control:
                    lot = hashlib.sha256(f"{settings.seed}:control:{key}".encode()).digest()
                    entry = (-int.from_bytes(lot, "big"), number)
                    (heapq.heappush if len(drawn) < settings.control else heapq.heappushpop)(
                        drawn, entry
                    )
        self.control = [number for _, number in sorted(drawn, reverse=True)]
        self._flags = flags
        self.set_aside = {flag: set_aside[flag] for flag in QUALITY_FLAGS if set_aside[flag]}
        if not self.ids and set_aside:
            raise UsageError(f"all {set_aside.total()} candidates have a flag that is left out")
        if not self.ids:
            what = "of these classes " if wnids is not None else ""
            with workspace.catalogue.read() as connection:
                dropped = twins.count_dropped(connection)
            told = f"left: curate dedup has dropped {dropped:,}" if dropped else "yet"
            raise UsageError(f"there are no candidates {what}{told}; begin with: curate collect")
        self.set_hash = digest.hexdigest()
        self._chunk = settings.chunk or self._suitable_chunk()

    def _suitable_chunk(self) -> int:
        size = -(-len(self.ids) // _CHUNKS_WANTED)
        return min(_LARGEST_CHUNK, max(_SMALLEST_CHUNK, -(-size // 8) * 8))

    @property
    def chunk_size(self) -> int:
        """Candidates in a chunk, but for the last one."""
        return self._chunk

    @property
    def chunk_count(self) -> int:
        """The number of chunks."""
        return -(-len(self.ids) // self._chunk)

    def arrival_hash(self) -> str:
        """The hash of the order in which the candidates arrived."""
        digest = hashlib.sha256()
        for number in sorted(range(len(self.ids)), key=self.ids.__getitem__):
            digest.update(f"{number} ".encode())
        return digest.hexdigest()

    def flagged_hash(self) -> str:
        """The hash of which candidates have a quality flag."""
        digest = hashlib.sha256()
        for place, number in enumerate(self.ids):
            if self.is_flagged(number):
                digest.update(f"{place} ".encode())
        return digest.hexdigest()

    def is_flagged(self, number: int) -> bool:
        """Whether a candidate has a quality flag; known for the order `quality`."""
        return number in self._flags

    def spans(self) -> Iterator[tuple[int, Sequence[int]]]:
        """The number of each chunk and the ids of its candidates."""
        for number, start in enumerate(range(0, len(self.ids), self._chunk)):
            yield number, self.ids[start : start + self._chunk]

    def span(self, number: int) -> Sequence[int]:
        """The ids of one chunk's candidates."""
        return self.ids[number * self._chunk : (number + 1) * self._chunk]
