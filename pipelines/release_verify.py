"""Verify: a release or a dataset of others, on the disk, in an archive or at an address, with or
without a workspace."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from curate._version import __version__
from curate.catalog import releases
from curate.errors import ImageRefused, Interrupted, SourceError, UsageError
from curate.files import printable, storage_errors
from curate.progress import progress, stop_on_interrupt
from curate.release.contents import INNER, OUTER, Seen, Waiting, in_folder, in_tar
from curate.release.findings import Findings
from curate.release.layout import RELEASE_RECORD, is_of_host
from curate.release.reading import CHECKSUMS, MANIFEST, read_tombstones
from curate.release.verify import verify_release
from curate.release.verify_folder import verify_folder
from curate.release.verify_form import is_form, verify_form
from curate.release.zipped import in_zip, is_zip
from curate.setting_groups import NetworkSettings
from curate.sources.failures import FetchFailed
from pipelines.release_versions import release_folder
from pipelines.retractions import retracted_here
from pipelines.threads import run_here, usable_cores
from pipelines.workspace import Workspace

# 1 TB, and a day for it.
_LARGEST_ARCHIVE, _LONGEST_FETCH = 1 << 40, 86_400.0
_PIECE = 1_000_000

#: What zip files that were made on macOS hold beside what was packed.
_BESIDE = "__MACOSX"

#: What makes a folder a release, and not class folders of somebody else.
_OF_RELEASES = (RELEASE_RECORD, MANIFEST, CHECKSUMS)


def verify(
    workspace: Workspace | None,
    name: str,
    *,
    tombstones: Path | None = None,
    sha256: str | None = None,
    allow_hosts: Sequence[str] = (),
) -> dict[str, Any]:
    """Check a release, or class folders without a manifest.

    Args:
        workspace: whose versions may be named, and whose catalogue says what was built and taken
            back; None where there is none.
        name: a folder, a tar or zip file or the http or https address of one, or a version of the
            workspace.
        tombstones: a list of images that were taken back, such as a later release carries.
        sha256: what the manifest's SHA-256 must be.
        allow_hosts: hosts that may be asked although their addresses are private.

    Returns:
        `version`, `images`, `classes`, `sha256` (of the manifest), `problems`, a line each, of
        which at most 1,000 are told, `problem_counts` by kind of `curate.release.findings.KINDS`,
        `warnings`, and `dataset`: "release", "form" (of a release), the
        name of a published set, or "folder".

    Raises:
        UsageError: there is no such release, or `tombstones` cannot be read.
        SourceError: the address does not answer as it should.
        StorageError: the disk is full.
        Interrupted: stopped by the user.
    """
    remote = name.lower().startswith(("https://", "http://"))
    path = None if remote else release_folder(workspace, name)
    retracted = read_tombstones(tombstones) if tombstones is not None else {}
    if workspace is not None:
        retracted |= retracted_here(workspace)
    findings = Findings()
    with tempfile.TemporaryDirectory(prefix="curate-verify-") as kept:
        texts = Path(kept) / "texts"
        texts.mkdir()
        if path is None:
            path = _fetched(workspace, name, Path(kept), allow_hosts)
        if path.is_dir():
            texts, files = path, _without_hosts(_look(in_folder(path), findings), findings)
        elif path.is_file():
            members = in_zip(path, texts) if is_zip(path) else in_tar(path, texts)
            texts, files = _within_one_folder(texts, _look(members, findings), findings)
        else:
            raise UsageError(f"{printable(path)} is neither a folder nor an archive")
        dataset: str | None = "release"
        if path.is_dir() and is_form(files):
            dataset = "form"
            verify_form(texts, files, findings)
        elif any(one in files for one in _OF_RELEASES):
            verify_release(texts, files, findings, retracted)
            _check_name(path, findings)
        else:
            dataset = verify_folder(files, findings, path.resolve().name.casefold())
    if sha256 is not None and findings.manifest_sha256 != sha256.strip().lower():
        findings.add("manifest", f"the SHA-256 of {MANIFEST} is not {sha256}")
    _check_catalogue(workspace, path, findings)
    return {
        "version": findings.version,
        "images": findings.images,
        "classes": findings.classes,
        "sha256": findings.manifest_sha256,
        "problems": findings.told,
        "problem_counts": dict(sorted(findings.counts.items())),
        "warnings": findings.warnings,
        "dataset": dataset or "folder",
        "path": printable(name if remote else path),
    }


def _fetched(
    workspace: Workspace | None, address: str, folder: Path, allow_hosts: Sequence[str]
) -> Path:
    """Fetch an archive, however large, under the rules of addresses that downloads keep to."""
    from curate.sources.http import Fetcher, user_agent

    settings, contact = NetworkSettings(), ""
    if workspace is not None:
        settings, contact = workspace.settings.network, workspace.settings.collect.contact
    hosts = (*settings.allow_hosts, *allow_hosts)
    settings = settings.model_copy(update={"allow_hosts": hosts})
    target = folder / "release.tar"
    fetcher = Fetcher(settings, user_agent(__version__, contact))
    try:
        with (
            stop_on_interrupt() as stop,
            storage_errors("what is fetched"),
            fetcher.open(address, max_bytes=_LARGEST_ARCHIVE, seconds=_LONGEST_FETCH) as answer,
            progress("fetch", None, unit="MB") as bar,
            target.open("wb") as stream,
        ):
            for piece in answer.chunks(_PIECE):
                if stop.requested:
                    raise Interrupted("stopped; the same command starts anew")
                stream.write(piece)
                bar.advance()
    except FetchFailed as failure:
        hint = ""
        if failure.state == "forbidden_address":
            hint = "; --allow-host HOST:PORT exempts a host of your own"
        raise SourceError(f"cannot fetch the release: {failure}{hint}") from failure
    return target


def _look(waiting: Iterator[Waiting], findings: Findings) -> dict[str, Seen]:
    files: dict[str, Seen] = {}
    with stop_on_interrupt() as stop, progress("verify", None, unit="files") as bar:
        try:
            for one, seen in run_here(waiting, Waiting.read, usable_cores(), stop):
                if one.path in files:
                    findings.add("stranger", f"{one.path} is there twice")
                files[one.path] = seen
                bar.advance()
        except ImageRefused as refusal:
            findings.add("unreadable", f"the archive: {refusal}")
        if stop.requested:
            raise Interrupted("stopped; the same command starts anew")
    return files


def _without_hosts(files: dict[str, Seen], findings: Findings) -> dict[str, Seen]:
    beside = {path for path in files if is_of_host(path)}
    if beside:
        findings.warnings.append(f"files that the host has put beside the release: {len(beside):,}")
    return {path: seen for path, seen in files.items() if path not in beside}


def _within_one_folder(
    texts: Path, files: dict[str, Seen], findings: Findings
) -> tuple[Path, dict[str, Seen]]:
    """Where the texts of an archive are, and its members by their paths within the release."""
    tops = {path.partition("/")[0] for path in files}
    if _BESIDE in tops and len(tops) == 2:
        beside = {path for path in files if path.startswith(f"{_BESIDE}/")}
        findings.warnings.append(f"files that macOS has put beside the folder: {len(beside):,}")
        files = {path: seen for path, seen in files.items() if path not in beside}
        tops -= {_BESIDE}
    if len(tops) != 1 or any("/" not in path for path in files):
        return texts / OUTER, files
    return texts / INNER, {path.partition("/")[2]: seen.within() for path, seen in files.items()}


def _check_name(path: Path, findings: Findings) -> None:
    """A version in the folder of another one is not what somebody asked for."""
    name = path.resolve().name
    if findings.version and name != findings.version and name.replace(".", "").isdigit():
        findings.add("record", f"it is version {findings.version} under the name {name}")


def _check_catalogue(workspace: Workspace | None, path: Path, findings: Findings) -> None:
    """A version that was built here must be what was built."""
    if workspace is None or path.resolve().parent != (workspace.root / "releases").resolve():
        return
    with workspace.catalogue.read() as connection:
        built = {
            row["version"]: row["manifest_sha256"] for row in releases.all_releases(connection)
        }
    name = path.resolve().name
    if name not in built:
        findings.warnings.append("the catalogue does not know this version")
    elif built[name] != findings.manifest_sha256:
        findings.add("manifest", f"{MANIFEST} is not the one that was built here")
