"""The report page of real runs on real photos, and how it looks to a browser."""

from __future__ import annotations

import csv
import html
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from curate.catalog import listing
from curate.errors import StorageError, UnknownNameError, UsageError
from curate.files import csv_text
from curate.labels.space import load_label_space
from curate.report.page import fraction
from pipelines.collect import collect_folder
from pipelines.filter import run_filter
from pipelines.report import write_report
from pipelines.workspace import Workspace, create_workspace, open_workspace
from tests.browser import PICTURES, browser_page
from tests.running import copy_of as copied

#: Names that a page must show as they are.
MARKUP_FILE = "<img src=x onerror=alert(1)>.jpg"
MARKUP_CLASS = "</script><b>"
RIGHT_TO_LEFT = "\u202egpj.exe"
LONG = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft"

Photos = list[tuple[Path, int]]


@pytest.fixture(scope="module")
def survivors_none(tmp_path_factory: pytest.TempPathFactory, package_photos: Photos) -> Workspace:
    """Three photos that are labelled right, so that none survives."""
    root = tmp_path_factory.mktemp("none")
    space = load_label_space("imagenet-1k")
    rows = [
        [path.name, space.classes[column].wnid, "ImageNet", "CC0-1.0", "nobody", ""]
        for path, column in package_photos[:3]
    ]
    return _filtered(root, package_photos, rows, label_space="imagenet-1k")


@pytest.fixture(scope="module")
def survivors_some(tmp_path_factory: pytest.TempPathFactory, package_photos: Photos) -> Workspace:
    """Photos under wrong labels, so that they survive, with hostile text wherever it fits."""
    root = tmp_path_factory.mktemp("some")
    space = load_label_space("imagenet-1k")
    chosen = package_photos[:5]
    classes = [[f"own-{column}", space.classes[column].name, column] for _, column in chosen]
    classes[0][1], classes[1][1], classes[2][1] = MARKUP_CLASS, LONG, RIGHT_TO_LEFT
    (root / "classes.csv").write_text(csv_text(["id", "name", "index"], classes), "utf-8")
    named = [MARKUP_FILE, "=1+1.jpg", "a b'\".jpg", f"{LONG}.jpg", "plain.jpg"]
    rows = []
    for number, name in enumerate(named):
        label = classes[number if number == 4 else (number + 1) % 4][0]
        page = "javascript:alert(1)" if number == 0 else "https://example.org/?a=1&b=<2>"
        author = [MARKUP_FILE, LONG, "{{ 7 * 7 }}", "", '" onclick="x'][number]
        rows.append([name, label, LONG, "CC BY 4.0" if number else "ask me", author, page])
    return _filtered(root, chosen, rows, label_space="classes.csv")


def _filtered(root: Path, photos: Photos, rows: list[list[str]], *, label_space: str) -> Workspace:
    source = root / "photos"
    source.mkdir()
    for (path, _), row in zip(photos, rows, strict=False):
        shutil.copy(path, source / row[0])
    columns = ["path", "label", "source", "licence", "author", "page"]
    table = root / "labels.csv"
    table.write_text(csv_text(columns, rows), encoding="utf-8")
    (root / "preset.yaml").write_text(f"label_space: {label_space}\n", encoding="utf-8")
    (root / "ws").mkdir()
    if (root / "classes.csv").exists():
        shutil.copy(root / "classes.csv", root / "ws" / "classes.csv")
    workspace = create_workspace(root / "ws", str(root / "preset.yaml"))
    assert collect_folder(workspace, source, table).new == len(rows)
    run_filter(workspace)
    return workspace


def read(workspace: Workspace, summary: dict[str, object]) -> str:
    return (workspace.root / str(summary["path"])).read_text(encoding="utf-8")


def test_the_same_run_gives_the_same_bytes(survivors_some: Workspace, tmp_path: Path) -> None:
    summary = write_report(survivors_some)
    first = (survivors_some.root / summary["path"]).read_bytes()
    again = write_report(survivors_some, summary["run"], tmp_path / "again.html")
    assert again["path"] == str(tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == first
    # What is collected later is no part of the run, not even another origin of a photo shown.
    copied(survivors_some.root, tmp_path / "copy")
    later = open_workspace(tmp_path / "copy")
    with later.catalogue.read() as connection:
        shown = listing.shortlist(connection, summary["run"])[0]
    more = tmp_path / "more" / shown.wnid
    more.mkdir(parents=True)
    shutil.copy(later.store.path(shown.sha256, shown.extension), more / "again.jpg")
    collect_folder(later, tmp_path / "more")
    write_report(later, out=tmp_path / "later.html")
    later.close()
    assert (tmp_path / "later.html").read_bytes() == first


def test_the_page_shows_what_the_run_found(survivors_some: Workspace) -> None:
    summary = write_report(survivors_some)
    page = read(survivors_some, summary)
    with survivors_some.catalogue.read() as connection:
        listed = listing.shortlist(connection, summary["run"])
    assert summary["photos"] == len(listed) == 4
    assert f"{len(listed)} of 5 photos survived the filter" in page
    names = [row.candidate for row in listed]
    places = [page.index(f'<dd class="mono">{name}</dd>') for name in names]
    assert places == sorted(places)
    for row in listed:
        told = html.escape(fraction(row.confidence))
        assert f'<span class="num wrong">{told}</span>' in page
    assert "lite/efficientnet_lite0" in page
    assert "579344248a93e230" in page


def test_a_removed_photo_tells_which_crop_of_which_classifier_removed_it(
    survivors_none: Workspace,
) -> None:
    summary = write_report(survivors_none)
    assert (summary["photos"], summary["misses"], summary["withheld"]) == (0, 3, 0)
    page = read(survivors_none, summary)
    assert "None of 3 photos survived the filter" in page
    assert "Do not publish" not in page
    scores = pq.read_table(survivors_none.run_folder(summary["run"]) / "scores.parquet").to_pylist()
    with survivors_none.catalogue.read() as connection:
        misses = listing.nearest_misses(connection, summary["run"], 3)
    for miss in misses:
        (score,) = (
            s
            for s in scores
            if (s["candidate"], s["model"], s["view"]) == (miss["key"], miss["model"], miss["view"])
        )
        p_true = html.escape(fraction(score["p_true"]))
        who = f"removed: lite{miss['model']}"
        verb = "predicts its class" if miss["reason"] == "correct" else "gives its class"
        assert miss["view"] == 0
        assert any(
            f"{who} {verb} {value} on the centre crop" in page for value in (p_true, f"({p_true})")
        )


def test_hostile_names_are_text_on_the_page(survivors_some: Workspace) -> None:
    page = read(survivors_some, write_report(survivors_some))
    assert html.escape(MARKUP_FILE) in page
    assert html.escape(MARKUP_CLASS) in page
    assert MARKUP_FILE not in page
    assert MARKUP_CLASS not in page
    assert "{{ 7 * 7 }}" in page
    assert 'href="javascript' not in page
    assert 'href="https://example.org/?a=1&amp;b=&lt;2&gt;"' in page
    assert f"<bdi>{RIGHT_TO_LEFT}</bdi>" in page


def test_photos_without_a_known_licence_are_counted_and_forbid_publishing(
    survivors_some: Workspace,
) -> None:
    summary = write_report(survivors_some)
    page = read(survivors_some, summary)
    assert summary["withheld"] == 1
    assert "Do not publish this page." in page
    assert "CC BY 4.0" in page


def test_at_most_so_many_photos_are_shown_and_the_rest_is_counted(
    survivors_some: Workspace, tmp_path: Path
) -> None:
    summary = write_report(survivors_some, out=tmp_path / "two.html", photos=2)
    page = (tmp_path / "two.html").read_text(encoding="utf-8")
    assert (summary["photos"], summary["more"], summary["misses"]) == (2, 2, 0)
    assert page.count("<img ") == 2
    assert "2 more photos stand on the shortlist" in page
    none = write_report(survivors_some, out=tmp_path / "none.html", photos=0)
    assert (none["photos"], none["more"], none["misses"]) == (0, 4, 0)
    assert "<img " not in (tmp_path / "none.html").read_text(encoding="utf-8")


def test_the_table_of_confusions_adds_up(survivors_some: Workspace) -> None:
    page = read(survivors_some, write_report(survivors_some))
    table = page.split('id="confusions"')[1].split("</table>")[0]
    rows = [row.split('<td class="num">')[1:] for row in table.split("<tr>")[2:]]
    counts = [[int(cell.split("<")[0]) for cell in row] for row in rows]
    assert sum(row[0] for row in counts) == 4
    assert all(survivors == listed + held for survivors, listed, held in counts)


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[Workspace], Workspace]:
    def make(workspace: Workspace) -> Workspace:
        copied(workspace.root, tmp_path / "copy")
        return open_workspace(tmp_path / "copy")

    return make


def test_a_stored_file_that_is_gone_or_altered_leaves_its_caption(
    survivors_some: Workspace, copy_of: Callable[[Workspace], Workspace]
) -> None:
    workspace = copy_of(survivors_some)
    run = write_report(survivors_some)["run"]
    with workspace.catalogue.read() as connection:
        first, second = listing.shortlist(connection, run)[:2]
    workspace.store.path(first.sha256, first.extension).unlink()
    workspace.store.path(second.sha256, second.extension).write_bytes(b"\xff\xd8other")
    summary = write_report(workspace)
    page = read(workspace, summary)
    assert summary["unreadable"] == 2
    assert summary["photos"] == 4
    assert page.count("<img ") == 3  # two survivors, and the near miss
    assert "no picture: missing from the store" in page
    assert "no picture: altered in the store" in page


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_scores_that_are_missing_or_damaged_are_named(
    damage: str, survivors_some: Workspace, copy_of: Callable[[Workspace], Workspace]
) -> None:
    workspace = copy_of(survivors_some)
    run = write_report(workspace)["run"]
    before = (workspace.run_folder(run) / "report.html").read_bytes()
    scores = workspace.run_folder(run) / "scores.parquet"
    if damage == "missing":
        scores.unlink()
    else:
        scores.write_bytes(scores.read_bytes()[:200])
    with pytest.raises(StorageError, match=f"runs/{run}/scores.parquet is {damage}"):
        write_report(workspace)
    assert (workspace.run_folder(run) / "report.html").read_bytes() == before


def test_what_cannot_be_written_is_refused_in_one_line(
    survivors_some: Workspace, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="is a folder: name the file to write"):
        write_report(survivors_some, out=tmp_path)
    with pytest.raises(UsageError, match="is no folder: make it first"):
        write_report(survivors_some, out=tmp_path / "absent" / "page.html")
    with pytest.raises(UsageError, match="--photos must be 0 or more, not -1"):
        write_report(survivors_some, photos=-1)
    with pytest.raises(UnknownNameError, match="unknown run 'nonsense'"):
        write_report(survivors_some, "nonsense")
    with pytest.raises(UsageError, match="no run has ended yet"):
        write_report(create_workspace(tmp_path / "new", "imagenet-a"))


@pytest.mark.slow
@pytest.mark.photos
def test_the_survivors_of_the_shared_photos_are_all_on_the_page(
    shared_data: Path, tmp_path: Path
) -> None:
    photos = shared_data / "photos"
    with (photos / "reference.csv").open(encoding="utf-8") as stream:
        reference = {row["path"]: row["outcome"] for row in csv.DictReader(stream)}
    survivors = [path for path, outcome in reference.items() if outcome == "survivor"]
    others = sorted(path for path in reference if path not in survivors)[:12]
    for path in (*survivors, *others):
        target = tmp_path / "photos" / Path(path).parent.name / Path(path).name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(photos / path, target)
    workspace = create_workspace(tmp_path / "ws", "imagenet-a")
    collect_folder(workspace, tmp_path / "photos")
    run_filter(workspace)
    summary = write_report(workspace)
    page = read(workspace, summary)
    assert summary["photos"] == page.count("<img ") >= len(survivors) - 1
    assert summary["withheld"] == summary["photos"]
    assert "18 photos on it have no known licence" in page


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("which", ["some", "none"])
def test_the_page_stands_on_its_own_in_a_browser(
    which: str,
    width: int,
    browser_path: str,
    survivors_some: Workspace,
    survivors_none: Workspace,
) -> None:
    workspace = survivors_some if which == "some" else survivors_none
    summary = write_report(workspace)
    address = (workspace.root / summary["path"]).as_uri()
    asked, dialogs, errors = [], [], []
    with browser_page(browser_path, width) as page:
        page.on("request", lambda request: asked.append(request.url))
        page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        for opened in (False, True):
            page.evaluate(
                "open => document.querySelectorAll('details').forEach(d => { d.open = open })",
                opened,
            )
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{wide} pixels wide, details open: {opened}"
        # Nothing is cut off either, but in boxes that scroll by themselves.
        cut = page.evaluate(
            """() => [...document.querySelectorAll('body *')].filter(e => {
                const box = e.getBoundingClientRect();
                return !e.closest('.scroll') && box.width && box.right > innerWidth + 1;
            }).map(e => e.outerHTML.slice(0, 80))"""
        )
        pictures = page.evaluate(PICTURES)
        scripts = page.evaluate("document.scripts.length")
    assert cut == []
    assert len(pictures) == summary["photos"] + summary["misses"]
    assert all(natural > 0 for natural in pictures)
    assert scripts == 0
    assert [url for url in asked if not url.startswith("data:")] == [address]
    assert dialogs == []
    assert errors == []
