"""Writing a release's images: read, checked, cleaned and written by several threads.

Names by content need the SHA-256 of all images, so each is written under its whole one first.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from curate.choices import Metadata
from curate.errors import Interrupted, VerificationError
from curate.files import sha256_bytes
from curate.progress import Bar, Stop
from curate.release.content import REMOVED_NOTES, content_of
from curate.release.hashed import write_all
from curate.release.manifest import ManifestRow
from curate.release.naming import hash_stems, unique_stems
from curate.release.rows import Released, WaitingRows

# Threads that read and write, images that one of them takes at a time, and how many such batches
# wait. A disk is fast with few; a store elsewhere answers late, and many ask it at once.
_THREADS, _BATCH, _AHEAD = 8, 16, 16


@dataclass(frozen=True)
class Item:
    """One image to release.

    Attributes:
        row: its row of the manifest; `path`, `sha256` and `reencoded` are filled in by the build.
        folder: the class folder: in ImageNet-A style that of the true class, in ImageNet-O style
            that of the class it is taken for. It lies in the row's `split`, where it has one.
        extension: what the original bytes call for, without a dot.
        stem: the file's name without extension; None names it by content.
        notes: what was noticed when it was decoded (`curate.images.decode.NOTES`).
    """

    row: ManifestRow
    folder: str
    extension: str
    stem: str | None = None
    notes: Sequence[str] = ()

    @property
    def place(self) -> str:
        """The folder within the release."""
        return f"{self.row.split}/{self.folder}" if self.row.split else self.folder


class _Written(NamedTuple):
    sha256: str
    extension: str
    reencoded: bool
    cleaned: bool


class Images:
    """The images of a release that is being built in `folder`.

    Attributes:
        notes: what was noticed in the files as they are released, and how often.
    """

    def __init__(self, folder: Path, waiting: WaitingRows) -> None:
        self._folder, self._waiting = str(folder), waiting
        self._by_place: dict[str, list[tuple[Released, str | None, str]]] = {}
        self._texts: dict[str, str] = {}
        self.notes: Counter[str] = Counter()

    def write(
        self,
        items: Iterable[Item],
        read: Callable[[str, str], bytes],
        metadata: Metadata,
        bar: Bar,
        stop: Stop,
    ) -> None:
        """Write all of them; see `build_folder` for the arguments.

        Raises:
            VerificationError: one cannot be re-encoded or cleaned.
            Interrupted: stopped by the user.
        """
        pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="release")
        queue: deque[tuple[Sequence[Item], Future[list[_Written]]]] = deque()

        def take() -> None:
            batch, done = queue.popleft()
            for item, written in zip(batch, done.result(), strict=True):
                self._remember(item, written, metadata)
            bar.advance(len(batch))

        try:
            for batch in _batches(items):
                if stop.requested:
                    raise Interrupted(
                        "stopped; no release was built, and the same command starts anew"
                    )
                for item in batch:
                    if item.place not in self._by_place:
                        Path(self._folder, item.place).mkdir(parents=True, exist_ok=True)
                        self._by_place[item.place] = []
                queue.append((batch, pool.submit(self._write_batch, batch, read, metadata)))
                if len(queue) > _AHEAD:
                    take()
            while queue:
                take()
        finally:
            # No thread may write on in a folder that is being removed.
            pool.shutdown(cancel_futures=True)

    def _write_batch(
        self, batch: Sequence[Item], read: Callable[[str, str], bytes], metadata: Metadata
    ) -> list[_Written]:
        return [self._write(item, read, metadata) for item in batch]

    def _write(self, item: Item, read: Callable[[str, str], bytes], metadata: Metadata) -> _Written:
        original = item.row.original_sha256
        data = read(original, item.extension)
        what = f"candidate {item.row.candidate}"
        content = content_of(data, item.extension, notes=item.notes, metadata=metadata, what=what)
        changed = content.reencoded or content.cleaned
        digest = sha256_bytes(content.data) if changed else original
        # Where two items are one image, the second writes the same bytes; `named` refuses it.
        # `Path` takes as long as the system does to open a file.
        with open(f"{self._folder}/{item.place}/{digest}", "wb", 0) as stream:  # noqa: PTH123
            write_all(stream.fileno(), (content.data,))
        return _Written(digest, content.extension, content.reencoded, content.cleaned)

    def _remember(self, item: Item, written: _Written, metadata: Metadata) -> None:
        row = item.row
        if not written.reencoded:
            # A re-encoded image is upright and has lost its metadata.
            gone = frozenset() if metadata == "keep" else REMOVED_NOTES
            self.notes.update(note for note in item.notes if note not in gone)
        same = written.sha256 == row.original_sha256
        released = Released(
            path="",
            candidate=row.candidate,
            wnid=self._one(row.wnid),
            name=self._one(row.name),
            licence=self._one(row.licence),
            split=None if row.split is None else self._one(row.split),
            sha256=row.original_sha256 if same else written.sha256,
            original_sha256=row.original_sha256,
            reencoded=written.reencoded,
            cleaned=written.cleaned,
            number=self._waiting.add(row),
        )
        extension = self._one(written.extension)
        self._by_place[item.place].append((released, item.stem, extension))

    def _one(self, text: str) -> str:
        """One object for all equal texts."""
        return self._texts.setdefault(text, text)

    def named(self) -> list[Released]:
        """Give the images their names, once; gives them sorted by path.

        Raises:
            VerificationError: two are one image.
        """
        by_content = hash_stems(
            one.sha256 for images in self._by_place.values() for one, _, _ in images
        )
        named = []
        while self._by_place:
            place, images = self._by_place.popitem()
            digests = [one.sha256 for one, _, _ in images]
            _check_once(place, [one for one, _, _ in images])
            stems = [stem or by_content[one.sha256] for one, stem, _ in images]
            unique = unique_stems(stems, digests)
            for (one, _, extension), stem in zip(images, unique, strict=True):
                path = f"{place}/{stem}.{extension}"
                # `Path` takes twice as long as the renaming itself.
                os.rename(f"{self._folder}/{place}/{one.sha256}", f"{self._folder}/{path}")  # noqa: PTH104
                named.append(one._replace(path=path))
        return sorted(named, key=lambda one: one.path.encode())


def _check_once(place: str, images: Sequence[Released]) -> None:
    seen: set[str] = set()
    for one in images:
        if one.sha256 in seen:
            raise VerificationError(
                f"no release was built: two candidates of class {place} are one image, "
                f"{one.sha256}; the second is {one.candidate}"
            )
        seen.add(one.sha256)


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    waiting = iter(items)
    while batch := list(islice(waiting, _BATCH)):
        yield batch
