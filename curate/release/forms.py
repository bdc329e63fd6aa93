"""The forms of a release besides its folder: one archive, shards, Parquet files.

Each is made from a release that stands on the disk, in a hidden folder beside its place, synced,
and renamed at the end: whole under its name, or not there. The bytes depend on the release alone.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from curate.choices import PACK_FORMS, PackForm
from curate.errors import Interrupted, UsageError
from curate.files import TEMPORARY, printable, sha256_file, storage_errors, sync_folder
from curate.progress import Bar, Stop
from curate.release.archive import PackedFile, write_tar
from curate.release.build import CHECKSUMS, README, checksums
from curate.release.embedded import write_parquet
from curate.release.loading import evaluated_split
from curate.release.packable import Packable
from curate.release.reading import TOMBSTONES
from curate.release.shards import INDEX, write_shards
from curate.release.syncing import Syncing

#: What of a release goes with its images into every folder of a form, where it is there.
_COMPANIONS = ("ATTRIBUTION.md", "CITATION.cff", "classes.csv", "release.json", TOMBSTONES)

#: The release's own card, which tells how to load the folders, beside that of the form.
_CARD = "CARD.md"


@dataclass(frozen=True)
class Packed:
    """A release in one form.

    Attributes:
        path: the archive, or the folder.
        files: those that hold the images.
        adopted: whether the very same stood there already.
    """

    path: Path
    files: Sequence[PackedFile]
    adopted: bool


class _StoppingBar:
    """A bar that ends the work between two images where the user asked for it."""

    def __init__(self, bar: Bar, stop: Stop) -> None:
        self._bar, self._stop = bar, stop

    def advance(self, count: int = 1) -> None:
        self._bar.advance(count)
        if self._stop.requested:
            raise Interrupted("stopped; this form was not packed, and the same command starts anew")


def pack(
    release: Packable, form: PackForm, out: Path, *, shard_images: int, bar: Bar, stop: Stop
) -> Packed:
    """Pack a release as `VERSION.tar`, or as `VERSION-webdataset/` or `VERSION-parquet/`.

    Only one pack at a time may work in `out`.

    Args:
        release: what to pack.
        form: one of `PACK_FORMS`.
        out: the folder to write into.
        shard_images: images of one shard or Parquet file at most.
        bar: advanced by one an image.
        stop: asks to stop.

    Raises:
        UsageError: something else stands at its place.
        VerificationError: an image is not what the manifest says.
        StorageError: the disk is full or refuses.
        Interrupted: stopped by the user; nothing of this form is left.
    """
    target = out / form_name(release, form)
    with (
        storage_errors(printable(target)),
        _hidden_folder(target) as folder,
        Syncing(folder) as syncing,
    ):
        watched = _StoppingBar(bar, stop)
        if form == "tar":
            files = write_tar(release, folder, watched)
            made = folder / target.name
        elif form == "webdataset":
            files = write_shards(release, folder, shard_images, watched)
            made = folder
            _add_companions(release, form, folder, files, [INDEX])
        else:
            files = write_parquet(release, folder, shard_images, watched)
            made = folder
            _add_companions(release, form, folder, files, [])
        if adopted := os.path.lexists(target):
            _compare(made, target)
        else:
            syncing.finish()
            made.rename(target)
            sync_folder(out)
    return Packed(target, files, adopted)


def form_name(release: Packable, form: PackForm) -> str:
    """What the archive or the folder of a form is called."""
    if form not in PACK_FORMS:
        raise ValueError(f"form must be one of {', '.join(PACK_FORMS)}, not {form!r}")
    return f"{release.version}.tar" if form == "tar" else f"{release.version}-{form}"


@contextmanager
def _hidden_folder(target: Path) -> Iterator[Path]:
    folder = target.with_name(f"{TEMPORARY}{target.name}")
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _add_companions(
    release: Packable,
    form: PackForm,
    folder: Path,
    files: Sequence[PackedFile],
    written: Sequence[str],
) -> None:
    """Licences, authors, classes and the card go where the images go; checksums of everything."""
    names = list(written)
    for path in sorted(release.others):
        name = _CARD if path == README else path
        if path == README or path in _COMPANIONS or path.startswith("LICENSE"):
            (folder / name).write_bytes(release.bytes_of(path))
            names.append(name)
    (folder / README).write_bytes(_readme(release, form, files))
    sums = {one.path: one.sha256 for one in files}
    sums |= {name: sha256_file(folder / name) for name in [*names, README]}
    (folder / CHECKSUMS).write_bytes(checksums(sums))


def _readme(release: Packable, form: PackForm, files: Sequence[PackedFile]) -> bytes:
    reviewed = release.record.get("reviewed") is True
    mark = "" if reviewed else "UNREVIEWED: "
    images = sum(one.images for one in files)
    counts = Counter[str]()
    for one in files:
        counts[str(one.split)] += one.images
    split = str(evaluated_split(counts))
    if form == "webdataset":
        what = (
            f"{images:,} images in {len(files):,} shards for WebDataset. `{INDEX}` counts them. An "
            "image is three members: its bytes, `.cls` (the place of its class in `classes.csv`, "
            "from 0) and `.json` (all that is known of it)."
        )
        loading = [
            "import webdataset",
            f'shards = "{_braces([one.path for one in files if one.split == split])}"',
            'dataset = webdataset.WebDataset(shards, shardshuffle=False).decode("pil")',
        ]
    else:
        what = (
            f"{images:,} images in {len(files):,} Parquet files for Hugging Face's datasets. "
            "`image` holds the bytes, `label` the place of the class in `classes.csv`, from 0; the "
            "other columns say all that is known of the image."
        )
        loading = [
            "from datasets import load_dataset",
            f'files = {{"{split}": "data/{split}-*.parquet"}}',
            f'dataset = load_dataset("parquet", data_files=files, split="{split}")',
        ]
    told = ", ".join(f"{name} ({count:,})" for name, count in sorted(counts.items()))
    paragraphs = [
        f"# {mark}release {release.version} as {form}",
        *([] if reviewed else ["Nobody has confirmed these labels."]),
        what,
        *([f"Images by split: {told}."] if len(counts) > 1 else []),
        "\n".join(f"    {line}" for line in loading),
        f"What the release is, how it was made and what to mind: `{_CARD}`. Each photo has its own "
        "licence and author, which its row names. To check every file:",
        "    sha256sum -c SHA256SUMS",
    ]
    return ("\n\n".join(paragraphs) + "\n").encode()


def _braces(shards: Sequence[str]) -> str:
    """The names of one split's shards in one, as shells and WebDataset expand it."""
    if len(shards) == 1:
        return shards[0]
    stem, _, last = shards[-1].removesuffix(".tar").rpartition("-")
    return f"{stem}-{{{0:06}..{last}}}.tar"


def _files(made: Path) -> list[Path]:
    return sorted(path for path in made.rglob("*") if path.is_file()) if made.is_dir() else [made]


def _compare(made: Path, target: Path) -> None:
    """Refuse what stands at `target`, unless it is the very same."""
    ours = _files(made)
    places = [target / path.relative_to(made) for path in ours] if made.is_dir() else [target]
    strangers = set(target.rglob("*")) if target.is_dir() else set()
    strangers -= {folder for place in places for folder in [place, *place.parents]}
    same = not strangers and not target.is_symlink()
    for path, place in zip(ours, places, strict=True):
        same = same and not place.is_symlink() and place.is_file()
        if not same or sha256_file(place) != sha256_file(path):
            raise UsageError(
                f"{printable(target)} exists and is not what this command makes; choose another "
                "folder with --out, or move it away"
            )
