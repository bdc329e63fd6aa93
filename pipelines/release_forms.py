"""The forms of a release: packing one that stands on the disk, with or without its workspace."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from curate.choices import PACK_FORMS
from curate.errors import Interrupted, UnknownNameError, UsageError
from curate.files import hold, make_folder, printable
from curate.licences import parse
from curate.progress import progress, say, stop_on_interrupt
from curate.release.forms import Packed, pack
from curate.release.opening import open_packable
from curate.release.packable import Packable
from curate.release.reading import MANIFEST
from curate.release.shards import SHARD_IMAGES
from curate.release.version import parse_version

# The lock lies beside what is packed.
_LOCK = ".curate-pack"


def find_release(named: str, workspace: Path | None) -> Path:
    """The folder of a release that a user names.

    Args:
        named: a version of the workspace, or else a folder.
        workspace: the workspace's folder; None where there is none.

    Raises:
        UsageError: there is neither.
    """
    try:
        version = str(parse_version(named))
    except UsageError:
        version = ""
    if workspace is not None and version:
        found = workspace / "releases" / version
        if found.is_dir():
            return found
    if Path(named).is_dir():
        return Path(named)
    if version:
        where = "no workspace is here" if workspace is None else f"not in {printable(workspace)}"
        raise UsageError(f"there is no release {version}: {where}; name its folder")
    raise UsageError(f"{printable(named)!r} is neither a version nor the folder of a release")


def pack_release(
    source: Path,
    out: Path,
    forms: Sequence[str],
    *,
    shard_images: int = SHARD_IMAGES,
    retracted: Collection[str] = (),
) -> dict[str, Any]:
    """Pack a release in some forms.

    Args:
        source: the folder of a release.
        out: where to; it is made if need be. `VERSION.tar` stands there afterwards, or
            `VERSION-webdataset/`, or `VERSION-parquet/`.
        forms: of `PACK_FORMS`, at least one; their order does not matter.
        shard_images: images of one shard or Parquet file at most.
        retracted: the SHA-256 of images that were taken back, to be told of.

    Returns:
        The JSON summary: `version`, `images`, `classes`, `sha256` (of the manifest), `problems`,
        and `forms`, by name: `path`, `files` (`path`, `images`, `bytes`, `sha256` and `split` of
        each) and `known`, which says that the very same stood there already.

    Raises:
        UsageError: no release, no such form, or something else stands where one would.
        VerificationError: the release is not as it was built.
        BusyError: another pack is at work in `out`.
        StorageError: the disk is full or refuses.
        Interrupted: stopped by the user; forms that were finished are there.
    """
    for form in forms:
        if form not in PACK_FORMS:
            raise UnknownNameError("form", form, PACK_FORMS)
    if not forms:
        raise UsageError(f"name at least one form: --form {', --form '.join(PACK_FORMS)}")
    if shard_images < 1:
        raise UsageError(f"--shard-images must be at least 1, not {shard_images}")
    inside = out.resolve()
    if source.resolve() in (inside, *inside.parents):
        raise UsageError(
            f"{printable(out)} lies within the release, which never changes; choose another --out"
        )
    release = open_packable(source)
    make_folder(out)
    packed = {}
    with hold(out / _LOCK, "curate release pack", printable(out)), stop_on_interrupt() as stop:
        for form in PACK_FORMS:
            if form not in forms:
                continue
            if stop.requested:
                raise Interrupted("stopped; the same command goes on with the next form")
            with progress(f"pack {form}", len(release.images)) as bar:
                made = pack(release, form, out, shard_images=shard_images, bar=bar, stop=stop)
            if made.adopted:
                say(f"{printable(made.path)} stood there already, the same byte for byte")
            packed[form] = _summary(made)
    return {
        "version": str(release.version),
        "images": len(release.images),
        "classes": len({image.label for image in release.images}),
        "sha256": release.sums[MANIFEST],
        "problems": _problems(release, frozenset(retracted)),
        "forms": packed,
    }


def _summary(made: Packed) -> dict[str, Any]:
    return {
        "path": printable(made.path),
        "known": made.adopted,
        "files": [
            {
                "path": one.path,
                "images": one.images,
                "bytes": one.bytes,
                "sha256": one.sha256,
                "split": one.split,
            }
            for one in made.files
        ],
    }


def _problems(release: Packable, retracted: frozenset[str]) -> list[str]:
    problems = []
    if retracted and "original_sha256" in release.schema.names:
        gone = retracted.intersection(release.column("original_sha256"))
        if gone:
            problems.append(
                f"images that were taken back since: {len(gone)}; publish a later version"
            )
    if release.record.get("reviewed") is not True:
        problems.append("unreviewed: nobody has confirmed these labels")
    if "licence" in release.schema.names:
        licences = release.column("licence")
        unknown = sum(not parse(licence).redistributable for licence in licences)
        if unknown:
            problems.append(
                "images without a licence that allows passing them on: "
                f"{unknown} of {len(release.images)}; do not publish this"
            )
    return problems
