"""Doctor: catalogue, store, scores and settings checked against each other."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

from curate.catalog import hits, intake, judging, overview, releases
from curate.catalog.store import ImageStore, key_of
from curate.errors import CurateError, UsageError
from curate.files import TEMPORARY, files_by_content, remove_leftovers, sha256_file
from curate.progress import progress
from pipelines.classes import overlaps
from pipelines.network import REMOTE_SOURCES
from pipelines.quality import count_unmeasured, measure_missing
from pipelines.runs import scores_path
from pipelines.threads import run_here
from pipelines.workspace import (
    OUTLIER,
    Workspace,
    check_label_space,
    claim_store,
    pinned_label_space,
)

#: Images that are read at a time; a store elsewhere lets each of them wait.
_READERS = 8

_REPAIR = "run with --repair to remove it"


@dataclass
class Problem:
    """Something that does not fit.

    Attributes:
        kind: "image-missing", "image-altered", "image-unnamed", "leftover", "scores-missing",
            "scores-altered", "verdicts-missing", "label-space", "concepts" or "release-altered".
        what: which one.
        advice: what to do.
        repaired: whether `--repair` has set it right.
    """

    kind: str
    what: str
    advice: str
    repaired: bool = False


def examine(workspace: Workspace, *, repair: bool = False) -> dict[str, Any]:
    """Check a workspace, and set right what can be set right without loss.

    Repairing removes leftovers of killed commands and stored images that no row names, and measures
    images that were taken in before their quality was measured. It never
    removes what a row names: a lost image comes back by collecting its folder again, and lost
    scores by the run's command.

    Args:
        workspace: the workspace.
        repair: whether to repair.

    Returns:
        `problems` (a list, see `Problem`), `checked` (counts), `unrepaired` (how many are left),
        `unmeasured` (images whose quality is not known, which is no fault).

    Raises:
        BusyError: a collect or filter is at work, so that nothing would stand still.
    """
    with ExitStack() as stages:
        for stage in ("collect", "filter", "report", "release"):
            stages.enter_context(workspace.held(stage))
        if repair:
            # What no row here names may be named in another workspace.
            claim_store(workspace)
        problems = [
            *_label_space(workspace),
            *_concepts(workspace),
            *_leftovers(workspace, repair),
            *_images(workspace, repair),
            *_runs(workspace),
            *_releases(workspace),
        ]
        unmeasured = measure_missing(workspace) if repair else count_unmeasured(workspace)
        with workspace.catalogue.read() as connection:
            checked = {
                "images": intake.count_images(connection),
                "runs": len(judging.all_runs(connection)),
                "releases": len(releases.all_releases(connection)),
            }
    left = sum(not problem.repaired for problem in problems)
    return {
        "problems": [asdict(problem) for problem in problems],
        "checked": checked,
        "unrepaired": left,
        "unmeasured": unmeasured,
    }


def _label_space(workspace: Workspace) -> list[Problem]:
    pinned = pinned_label_space(workspace)
    try:
        found = workspace.label_space.fingerprint
    except CurateError as error:
        return [Problem("label-space", str(error), "put the label space's file back")]
    if pinned in (None, found):
        try:
            check_label_space(workspace)
        except UsageError as error:
            return [Problem("label-space", str(error), "undo the change of filter.rule")]
        return []
    return [
        Problem(
            "label-space",
            f"{workspace.label_space.name} is not the one that candidates were collected under",
            "undo the change in curate.yaml or in the CSV file",
        )
    ]


def _concepts(workspace: Workspace) -> list[Problem]:
    """Under the rule outlier: concepts of candidates that are not listed, or not outside."""
    if workspace.settings.filter.rule != OUTLIER:
        return []
    with workspace.catalogue.read() as connection:
        wnids = overview.labels(connection)
    try:
        known, inside = workspace.weak_labels, overlaps(workspace, wnids)
    except CurateError as error:
        return [Problem("concepts", str(error), "put the file back")]
    absent = [wnid for wnid in wnids if wnid not in known]
    advice = "put their rows back; until then they are called by their ids"
    first = ", ".join(absent[:3])
    missing = f"{known.name} lacks concepts that candidates have ({len(absent):,}): {first}"
    found = [Problem("concepts", missing, advice)] if absent else []
    advice = "correct the list of concepts; what is no concept makes no outlier"
    found += [Problem("concepts", one.text, advice) for one in inside]
    return found


def _leftovers(workspace: Workspace, repair: bool) -> list[Problem]:
    """Unfinished files and folders in the places that commands write to."""
    root = workspace.root
    places = {
        folder.relative_to(root).as_posix(): remove_leftovers(folder, dry=not repair)
        for folder in [root, root / "incoming", root / "lists", *root.glob("runs/*")]
    }
    places |= workspace.store.leftovers(remove=repair)
    found = [
        Problem("leftover", f"{count} unfinished files in {place}", _REPAIR, repair)
        for place, count in places.items()
        if count
    ]
    found += _downloads(workspace, repair)
    with workspace.catalogue.read() as connection:
        ended = [r["id"] for r in judging.all_runs(connection) if r["state"] == "finished"]
    folders = [workspace.run_folder(run_id) / "parts" for run_id in ended]
    for folder in [*root.glob(f"releases/{TEMPORARY}*"), *folders]:
        if folder.is_dir():
            if repair:
                shutil.rmtree(folder)
            what = f"the folder {folder.relative_to(root)}"
            found.append(Problem("leftover", what, _REPAIR, repair))
    return found


def _downloads(workspace: Workspace, repair: bool) -> list[Problem]:
    """Downloaded files that no hit waits with, as a kill leaves them."""
    with workspace.catalogue.read() as connection:
        named = hits.fetched_files(connection, REMOTE_SOURCES)
    folder = workspace.root / "incoming"
    lost = [path for path in files_by_content(folder) if path.name not in named]
    if not lost:
        return []
    if repair:
        for path in lost:
            path.unlink(missing_ok=True)
    what = f"{len(lost)} downloaded files in incoming that nothing waits for"
    return [Problem("leftover", what, _REPAIR, repair)]


def _images(workspace: Workspace, repair: bool) -> list[Problem]:
    """What is wrong with stored images, in the order of their keys."""
    store = workspace.store
    with workspace.catalogue.read() as connection:
        total = intake.count_images(connection)

    def looked_at(found: _Found) -> str:
        if found.kind or store.check(found.sha256, found.extension):
            return found.kind
        return "image-altered"

    problems: list[tuple[str, Problem]] = []
    with progress("doctor", total) as bar:
        for found, kind in run_here(_compared(workspace), looked_at, _READERS):
            if kind == "image-unnamed":
                problems.append((found.key, _unnamed(store, found.key, repair)))
                continue
            if kind:
                problem = _bad_image(workspace, kind, found.sha256, repair)
                problems.append((found.key, problem))
            bar.advance()
    return [problem for _, problem in sorted(problems, key=lambda pair: pair[0])]


@dataclass(frozen=True)
class _Found:
    """An image of the store or the catalogue; the kind is empty where both have it."""

    key: str
    kind: str = ""
    sha256: str = ""
    extension: str = ""


def _compared(workspace: Workspace) -> Iterator[_Found]:
    """Store and catalogue, both in the order of their keys; memory does not grow."""
    stored = iter(workspace.store)
    there = next(stored, None)
    for sha256, extension in _named(workspace):
        key = key_of(sha256, extension)
        while there is not None and there < key:
            yield _Found(there, "image-unnamed")
            there = next(stored, None)
        if there == key:
            there = next(stored, None)
            yield _Found(key, "", sha256, extension)
        else:
            yield _Found(key, "image-missing", sha256, extension)
    while there is not None:
        yield _Found(there, "image-unnamed")
        there = next(stored, None)


def _bad_image(workspace: Workspace, kind: str, sha256: str, repair: bool) -> Problem:
    """A stored image is lost or altered; what was downloaded can be downloaded anew."""
    with workspace.catalogue.read() as connection:
        arrived = hits.addresses_of(connection, [sha256]).get(sha256, [])
    sources = sorted({row["source"] for row in arrived if row["state"] == "downloaded"})
    if not sources:
        return Problem(kind, sha256, "collect its folder again")
    again = f"collect from {' and '.join(sources)} again: it is downloaded anew"
    if not repair:
        return Problem(kind, sha256, f"run with --repair, then {again}")
    with workspace.catalogue.write() as connection:
        hits.fetch_anew(connection, sha256)
    return Problem(kind, sha256, again)


def _named(workspace: Workspace) -> Iterator[tuple[str, str]]:
    """The images of the catalogue; no transaction stays open while they are looked at."""
    last = ""
    while True:
        with workspace.catalogue.read() as connection:
            page = intake.images_after(connection, last, 1000)
        if not page:
            return
        yield from page
        last = page[-1][0]


def _unnamed(store: ImageStore, key: str, repair: bool) -> Problem:
    if repair:
        store.remove(key)
    name = key.rpartition("/")[2]
    return Problem("image-unnamed", name, f"{_REPAIR}: no candidate uses it", repair)


def _runs(workspace: Workspace) -> list[Problem]:
    problems = []
    with workspace.catalogue.read() as connection:
        runs = judging.all_runs(connection)
        parts = {run["id"]: judging.run_parts(connection, run["scores_run"]) for run in runs}
        verdicts = {run["id"]: judging.count_verdicts(connection, run["id"]) for run in runs}
    for run in runs:
        run_id, folder = run["id"], workspace.run_folder(run["id"])
        advice = "start its curate filter again"
        if verdicts[run_id] != sum(part["candidates"] for part in parts[run_id]):
            problems.append(Problem("verdicts-missing", run_id, "restore the catalogue"))
        if run["state"] == "finished":
            expected = {scores_path(workspace, run): run["summary"]["scores_sha256"]}
        else:
            expected = {folder / "parts" / p["file"]: p["sha256"] for p in parts[run_id]}
        for path, sha256 in expected.items():
            what = str(path.relative_to(workspace.root))
            if not path.is_file():
                problems.append(Problem("scores-missing", what, advice))
            elif sha256_file(path) != sha256:
                problems.append(Problem("scores-altered", what, advice))
    return problems


_RESTORE = (
    "restore it from a copy; or move away what is left of it, and build it again: curate release "
    "build VERSION"
)


def _releases(workspace: Workspace) -> list[Problem]:
    problems = []
    with workspace.catalogue.read() as connection:
        built = releases.all_releases(connection)
    for release in built:
        manifest = workspace.root / "releases" / release["version"] / "manifest.parquet"
        if not manifest.is_file() or sha256_file(manifest) != release["manifest_sha256"]:
            problems.append(Problem("release-altered", release["version"], _RESTORE))
    return problems
