"""Demo: the whole way on real photos with the embedded defaults, and what that shows."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curate.catalog import judging, listing
from curate.errors import ImageRefused, MissingExtraError, UsageError, WorkspaceError
from curate.files import (
    csv_plain,
    csv_text,
    printable,
    read_csv,
    sha256_file,
    storage_errors,
    write_bytes,
    write_json,
)
from curate.progress import say
from curate.settings import FILE_NAME, data_file
from pipelines.collect import collect_folder
from pipelines.evaluate import evaluate
from pipelines.filter import run_filter
from pipelines.release import build_release, list_releases
from pipelines.report import write_report
from pipelines.workspace import Workspace, create_workspace, open_workspace

_PRESET = "imagenet-1k"
_EXTRA = "natadv-curate[demo]"

#: The classifier that is evaluated; it takes no part in the filter.
_UNSEEN = "lite/efficientnet_lite2"

#: Up to so many candidates every view is scored: the nearest misses are then exact.
_COMPLETE = 100

#: What makes a workspace one of the demo.
_MARK = Path(".curate", "made-by-demo.json")

_LABELS = ("path", "label", "source", "page", "title", "author", "licence")


def run_demo(folder: Path, *, photos: Path | None = None) -> dict[str, Any]:
    """Collect, filter, report, release and evaluate in a workspace of the demo's own.

    The workspace has the label space imagenet-1k and the embedded ensemble. The same call goes on
    where an earlier one was cut off, and repeats no finished filter, release or evaluation.

    Args:
        folder: the workspace; absent, empty, or made by an earlier demo on the same photos.
        photos: class folders of the user's own; by default the photos that come with the
            packages of the extra "demo" (`configs/demo/photos.csv`).

    Returns:
        The summary of the filter, and `workspace`, `report` (the page), `nearest_misses` (how many
        of them it shows), `release` (its folder;
        None where nothing survived), `evaluation` (accuracy of a classifier that took no part, on
        all photos and on the release), `collected` (the summary of collect), `doubtful` (photos
        with a label that does not hold at a look, in all and on the shortlist; None for the
        user's own photos).

    Raises:
        MissingExtraError: none of the packages with photos is installed.
        WorkspaceError: `folder` holds something else, or the demo on other photos.
        UsageError: `photos` is no folder, or holds no photo that can be used.
        BusyError: another demo is at work here.
        Interrupted: stopped by the user; the same call goes on.
    """
    if photos is not None and not photos.is_dir():
        raise UsageError(f"{printable(photos)} is not a folder")
    bundled = find_bundled() if photos is None else None
    workspace = _open(folder, "packages" if photos is None else "own")
    try:
        with workspace.held("demo"):
            return _run(workspace, folder, photos, bundled)
    finally:
        workspace.close()


def _run(
    workspace: Workspace, folder: Path, photos: Path | None, bundled: Bundled | None
) -> dict[str, Any]:
    if bundled is not None:
        bundled.announce()
        collected = _collect_bundled(workspace, bundled.photos)
    else:
        assert photos is not None
        collected = collect_folder(workspace, photos).to_dict()
    with workspace.catalogue.read() as connection:
        ids = [number for _, number in judging.candidate_keys(connection, None)]
    if not ids:
        refused = ", ".join(f"{reason} {n}" for reason, n in collected["rejected"].items())
        raise UsageError(
            f"no photo in {printable(photos or folder)} can be used ({refused or 'it is empty'}); "
            "photos belong into folders named by ImageNet classes, such as dragonfly or n02268443"
        )
    summary = run_filter(workspace.changed({"filter.complete": len(ids) <= _COMPLETE}))
    report = write_report(workspace, summary["run"])
    release = _release(workspace, summary) if summary["shortlisted"] else None
    told = {
        **summary,
        "workspace": printable(folder),
        "report": report["path"],
        "nearest_misses": report["misses"],
        "release": None if release is None else printable(folder / "releases" / release),
        "evaluation": _evaluate(workspace, summary["run"], release, ids),
        "collected": collected,
        "doubtful": _doubtful(workspace, summary["run"], bundled),
        "threshold": workspace.settings.filter.threshold,
        "models": list(workspace.settings.filter.models),
    }
    return told


@dataclass(frozen=True)
class BundledPhoto:
    """A row of photos.csv whose file is there, with the content it had when it was labelled."""

    path: Path
    row: Mapping[str, str]


@dataclass
class Bundled:
    """The photos that installed packages carry.

    Attributes:
        photos: those to take.
        absent: packages that are not installed.
        altered: files that are missing from their package, or are others by now.
    """

    photos: list[BundledPhoto] = field(default_factory=list)
    absent: dict[str, None] = field(default_factory=dict)
    altered: list[str] = field(default_factory=list)

    def announce(self) -> None:
        """Say where the photos come from and what is left out."""
        packages = sorted({photo.row["package"] for photo in self.photos})
        say(f"the demo takes {len(self.photos)} real photos that come with {_listed(packages)}")
        if self.absent:
            say(
                f"left out: the photos of {_listed(list(self.absent))}, not installed; "
                f"to add them: pip install '{_EXTRA}'"
            )
        if self.altered:
            say(
                f"left out: {len(self.altered)} photos that the installed version of their "
                f"package does not have as they were labelled, the first is {self.altered[0]}"
            )


def find_bundled() -> Bundled:
    """The photos of `configs/demo/photos.csv` that installed packages carry unaltered.

    Raises:
        MissingExtraError: there are none.
    """
    found = Bundled()
    columns = ["package", "module", "file", "wnid", "doubt", "sha256"]
    for _, cells in read_csv(data_file("demo/photos.csv"), columns):
        row = {name: csv_plain(cell) for name, cell in cells.items()}
        # The packages are data here: to import them would be slow, and run their code.
        spec = importlib.util.find_spec(row["module"])
        if spec is None or not spec.submodule_search_locations:
            found.absent[row["package"]] = None
            continue
        path = Path(next(iter(spec.submodule_search_locations)), row["file"])
        if path.is_file() and sha256_file(path) == row["sha256"]:
            found.photos.append(BundledPhoto(path, row))
        else:
            found.altered.append(f"{row['package']}/{row['file']}")
    if not found.photos:
        raise MissingExtraError(_EXTRA, "curate demo without --photos DIR")
    return found


def _open(folder: Path, kind: str) -> Workspace:
    """Open the demo's workspace, or make it; a folder that holds anything else is left alone."""
    mark = folder / _MARK
    if mark.is_file():
        try:
            made_on = json.loads(mark.read_bytes())["photos"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise WorkspaceError(f"cannot read {printable(mark)}; remove the folder") from error
        if made_on != kind:
            other = "photos of your own" if made_on == "own" else "the photos of packages"
            raise WorkspaceError(
                f"{printable(folder)} holds the demo on {other}; name another folder"
            )
    else:
        with storage_errors(printable(folder)):
            if folder.exists() and not folder.is_dir():
                raise WorkspaceError(f"{printable(folder)} is not a folder")
            if folder.exists() and any(folder.iterdir()):
                raise WorkspaceError(
                    f"{printable(folder)} is not empty and was not made by the demo; "
                    "name another folder: curate demo DIR"
                )
            mark.parent.mkdir(parents=True)
        write_json(mark, {"photos": kind})
    if (folder / FILE_NAME).exists():
        return open_workspace(folder)
    return create_workspace(folder, _PRESET)


def _collect_bundled(workspace: Workspace, photos: Sequence[BundledPhoto]) -> dict[str, Any]:
    with _temporary(workspace, "packages") as folder:
        rows = []
        for photo in photos:
            row = photo.row
            name = f"{row['package']}/{row['file']}"
            with storage_errors(f"a copy of {name}"):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(photo.path, folder / name)
            title = row["title"]
            if row["doubt"]:
                title = f"{title} (the label is doubtful: {row['doubt']})"
            origin = (row["page"], title, row["author"], row["licence"])
            rows.append([name, row["wnid"], row["package"], *origin])
        labels = folder / "labels.csv"
        write_bytes(labels, csv_text(_LABELS, rows).encode())
        return collect_folder(workspace, folder, labels).to_dict()


@contextmanager
def _temporary(workspace: Workspace, name: str) -> Iterator[Path]:
    """An empty folder in the workspace, removed at the end and at the next start."""
    folder = workspace.root / ".curate" / name
    shutil.rmtree(folder, ignore_errors=True)
    with storage_errors(printable(folder)):
        folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _release(workspace: Workspace, summary: Mapping[str, Any]) -> str:
    """The version of the run's release: 0.1.0 at first, then 0.2.0 and so on."""
    releases = list_releases(workspace)
    for row in releases:
        if row["run"] == summary["run"]:
            return str(row["version"])
    version = f"0.{len(releases) + 1}.0"
    build_release(workspace, version, unreviewed=True, run_id=summary["run"])
    return version


def _evaluate(
    workspace: Workspace, run_id: str, release: str | None, ids: Sequence[int]
) -> dict[str, Any]:
    """How a classifier that took no part does on all candidates and on the release."""
    saved = workspace.run_folder(run_id) / "evaluation.json"
    try:
        results = json.loads(saved.read_bytes())["results"]
    except (OSError, ValueError, KeyError):
        with _temporary(workspace, "all-photos") as folder:
            _lay_out(workspace, ids, folder)
            datasets = [folder]
            if release is not None:
                datasets.append(workspace.root / "releases" / release)
            device = workspace.settings.filter.device
            told = evaluate(datasets, [_UNSEEN], label_space=_PRESET, device=device)
        write_json(saved, told)
        results = told["results"]
    return {
        "model": results[0]["model"]["name"],
        "all": _accuracy(results[0]),
        "release": _accuracy(results[1]) if len(results) > 1 else None,
        "path": f"runs/{run_id}/evaluation.json",
    }


def _accuracy(result: Mapping[str, Any]) -> dict[str, Any]:
    metric = result["metrics"]["accuracy"]
    return {key: metric[key] for key in ("value", "low", "high", "n")}


def _lay_out(workspace: Workspace, ids: Sequence[int], folder: Path) -> None:
    """Candidates as a dataset in ImageNet-A layout, in links to the store where links work."""
    with workspace.catalogue.read() as connection:
        candidates = judging.candidates_by_id(connection, ids)
    for candidate in candidates:
        image = (candidate.sha256, candidate.extension)
        target = folder / candidate.wnid / ".".join(image)
        with storage_errors("the photos to evaluate on"):
            target.parent.mkdir(exist_ok=True)
        # An image that is missing from the store has failed in the filter already.
        with suppress(ImageRefused):
            workspace.store.copy_to(*image, target)


def _doubtful(workspace: Workspace, run_id: str, bundled: Bundled | None) -> dict[str, int] | None:
    if bundled is None:
        return None
    doubts = {photo.row["sha256"] for photo in bundled.photos if photo.row["doubt"]}
    with workspace.catalogue.read() as connection:
        listed = listing.shortlist(connection, run_id)
    return {"all": len(doubts), "shortlisted": sum(row.sha256 in doubts for row in listed)}


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
