"""Workspaces of the rule outlier: concepts instead of classes, from collecting to the release.

The photos show classes of ImageNet-1k, and are labelled with concepts outside it: so classifiers
are confident of them, which is what the rule is after.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select
from typer.testing import CliRunner

from curate.catalog import listing
from curate.catalog.tables import candidates, hits
from curate.cli.common import shared
from curate.cli.main import app
from curate.errors import AmbiguousNameError, UsageError
from curate.files import csv_text, sha256_file
from pipelines.classes import check_classes, selected
from pipelines.collect import collect_folder, collect_tar
from pipelines.confident import most_confident
from pipelines.datasets import open_dataset
from pipelines.deduplicate import deduplicate
from pipelines.doctor import examine
from pipelines.filter import run_filter
from pipelines.ood_datasets import has_true_classes, open_inside, open_outside
from pipelines.public import _asks, collect_public, collect_urls
from pipelines.release import build_release
from pipelines.report import write_report
from pipelines.runs import read_shortlist
from pipelines.status import run_by_class, status
from pipelines.workspace import Workspace, create_workspace, open_workspace
from tests.pipelines.public_apis import World
from tests.running import copy_of, run_curate
from tests.sources.servers import LoopbackServer

HEDGEHOG, WHEELCHAIR, GERENUK, DOG = "n01893825", "n04576002", "n02420828", "n02084071"

#: Concepts of the user's own; the last two overlap with trained classes.
OWN = """\
id,name,names,wordnet
snoopy,Snoopy,cartoon beagle,
mayfly,mayfly,,n02262449
n04576002,,,
hedgehog,hedgehog,,n01893825
hound,hound,,n02087122
tabby,tabby cat,,n02123045
"""

Photos = list[tuple[Path, int]]


def workspace_at(root: Path, text: str = "", concepts: str | None = None) -> Workspace:
    preset = root.with_suffix(".yaml")
    root.mkdir(parents=True)
    lines = "label_space: imagenet-1k\n"
    if concepts is not None:
        (root / "concepts.csv").write_text(concepts, encoding="utf-8")
        lines += "concepts: concepts.csv\n"
    # No other backend for a few photos: each takes seconds to get ready.
    lines += "filter:\n  rule: outlier\n  backend: torch\n"
    preset.write_text(lines + text, encoding="utf-8")
    return create_workspace(root, str(preset))


def class_folders(root: Path, photos: Photos, names: list[str]) -> Path:
    for number, name in enumerate(names):
        (root / name).mkdir(parents=True, exist_ok=True)
        path = photos[number % len(photos)][0]
        shutil.copy(path, root / name / f"{number}{path.suffix}")
    return root


def labels_of(workspace: Workspace) -> list[str]:
    with workspace.catalogue.read() as connection:
        return sorted(connection.scalars(select(candidates.c.wnid)))


def refused(workspace: Workspace) -> dict[str, tuple[str, str]]:
    with (workspace.root / "lists" / "refused.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    return {row["label"]: (row["reason"], row["detail"]) for row in rows}


# Collecting


def test_the_preset_of_imagenet_o_labels_candidates_with_all_of_wordnet(tmp_path: Path) -> None:
    workspace = create_workspace(tmp_path / "ws", "imagenet-o")
    filtering = workspace.settings.filter
    assert (filtering.rule, filtering.confidence, filtering.min_confidence) == (
        "outlier",
        "centre",
        0.9,
    )
    assert workspace.label_space.name == "imagenet-o"
    assert workspace.weak_labels.name == "wordnet"
    assert create_workspace(tmp_path / "a", "imagenet-a").weak_labels.name == "imagenet-a"


def test_class_folders_are_matched_with_concepts_and_overlaps_are_refused(
    tmp_path: Path, package_photos: Photos
) -> None:
    names = ["wheelchair", GERENUK, "hedgehog", "dog", "n02123394", "silver fox", "no such thing"]
    folder = class_folders(tmp_path / "photos", package_photos, names)
    workspace = workspace_at(tmp_path / "ws")
    collected = collect_folder(workspace, folder)
    assert labels_of(workspace) == [GERENUK, WHEELCHAIR]
    assert collected.rejected == {"in-distribution": 2, "no-label": 3}
    told = refused(workspace)
    assert told["n02123394"] == ("in-distribution", "n02123394 (Persian cat) is a trained class")
    assert told["silver fox"][0] == "in-distribution"
    assert told["hedgehog"][0] == told["dog"][0] == told["no such thing"][0] == "no-label"
    assert "n01893825" in told["hedgehog"][1], "an ambiguous name lists the ids"
    assert "n02346627" in told["hedgehog"][1]


def test_own_concepts_are_matched_by_id_and_name_and_placed_by_their_column(
    tmp_path: Path, package_photos: Photos
) -> None:
    names = ["snoopy", "Mayfly", "wheelchair", "hound", "tabby", GERENUK]
    folder = class_folders(tmp_path / "photos", package_photos, names)
    workspace = workspace_at(tmp_path / "ws", concepts=OWN)
    collected = collect_folder(workspace, folder)
    assert labels_of(workspace) == ["mayfly", WHEELCHAIR, "snoopy"]
    assert collected.rejected == {"in-distribution": 2, "no-label": 1}
    assert "concepts.csv lacks WordNet's n02420828 (gerenuk)" in refused(workspace)[GERENUK][1]


def test_a_tar_of_an_overlapping_concept_is_refused(tmp_path: Path, package_photos: Photos) -> None:
    for number, wnid in enumerate((WHEELCHAIR, DOG)):
        with tarfile.open(tmp_path / f"{wnid}.tar", "w") as archive:
            archive.add(package_photos[number][0], f"{wnid}_1.JPEG")
    workspace = workspace_at(tmp_path / "ws")
    assert collect_tar(workspace, tmp_path / f"{WHEELCHAIR}.tar").new == 1
    assert collect_tar(workspace, tmp_path / f"{DOG}.tar").rejected == {"in-distribution": 1}


def test_the_classes_of_a_command_are_concepts_and_an_overlap_is_an_error(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path / "ws")
    assert selected(workspace, ["wheelchair", GERENUK]) == (GERENUK, WHEELCHAIR)
    with pytest.raises(AmbiguousNameError, match="n01893825"):
        selected(workspace, ["hedgehog"])
    with pytest.raises(UsageError) as caught:
        selected(workspace, [f"wheelchair,{DOG},n02123394"])
    assert str(caught.value) == (
        "n02084071 (dog) is above 118 trained classes, such as n02085620 (Chihuahua), and 1 more "
        "like it: no concept for the rule outlier; see curate classes check"
    )


def test_rows_of_a_list_are_refused_and_tried_again_when_their_concept_has_moved(
    tmp_path: Path, package_photos: Photos
) -> None:
    with LoopbackServer() as server:
        rows = [
            (server.serve(f"/{number}.jpg", path.read_bytes()), label)
            for number, ((path, _), label) in enumerate(
                zip(package_photos, ("hound", "mayfly", "unicorn"), strict=False)
            )
        ]
        listed = tmp_path / "list.csv"
        listed.write_text(
            csv_text(("url", "label", "licence"), [(*row, "CC0-1.0") for row in rows]), "utf-8"
        )
        text = (
            f"network:\n  allow_hosts: ['127.0.0.1:{server.port}']\n  per_second: 1000\n"
            "  robots: false\n"
        )
        workspace = workspace_at(tmp_path / "ws", text, OWN)
        collected = collect_urls(workspace, listed)
        assert collected.new == 1
        assert collected.rejected == {"in_distribution": 1, "no_label": 1}
        with pytest.raises(UsageError, match=r"above .* trained classes.*no concept for the rule"):
            collect_urls(workspace, listed, label="hound")
        # The user says that it is an antelope after all.
        moved = OWN.replace("n02087122", GERENUK)
        (workspace.root / "concepts.csv").write_text(moved, encoding="utf-8")
        workspace = open_workspace(workspace.root)
        again = collect_urls(workspace, listed, retry_failed="in_distribution")
        assert again.new == 1
    assert labels_of(workspace) == ["hound", "mayfly"]
    with workspace.catalogue.read() as connection:
        states = sorted(connection.scalars(select(hits.c.state)))
    assert states == ["downloaded", "downloaded", "no_label"]


def test_a_public_source_is_asked_by_the_names_of_concepts(
    make_world: Callable[[str], World], tmp_path: Path
) -> None:
    world = make_world("openverse")
    workspace_at(tmp_path / "ws", concepts="id,name,names\nfly,Anisoptera,my fly\nn02012849,,\n")
    workspace = open_workspace(tmp_path / "ws", world.settings())
    collected = collect_public(workspace, "openverse", ("fly", "n02012849"))
    assert [query["q"] for query in world.questions()] == [
        "Anisoptera",
        "my fly",
        "crane wading bird",
    ]
    assert collected.new == 3
    assert labels_of(workspace) == ["fly"] * 3


def test_a_source_of_taxa_is_asked_for_the_species_of_a_concept(tmp_path: Path) -> None:
    asks = _asks(workspace_at(tmp_path / "ws"), "inaturalist", ["n01519873"], (), {})
    assert [(ask.text, dict(ask.options)) for ask in asks] == [
        ("Dromaius novaehollandiae", {"taxon_rank": "species"})
    ]


@pytest.mark.parametrize(
    ("first", "then"), [("outlier", "misclassified"), ("misclassified", "outlier")]
)
def test_candidates_of_concepts_and_of_classes_are_kept_apart(
    tmp_path: Path, package_photos: Photos, first: str, then: str
) -> None:
    name = WHEELCHAIR if first == "outlier" else "n02123394"
    folder = class_folders(tmp_path / "photos", package_photos, [name])
    workspace = workspace_at(tmp_path / "ws").changed({"filter.rule": first})
    assert collect_folder(workspace, folder).new == 1
    turned = workspace.changed({"filter.rule": then})
    for act in (run_filter, lambda one: collect_folder(one, folder)):
        with pytest.raises(UsageError, match=f"labelled with .* and the rule {then} judges"):
            act(turned)
    assert collect_folder(workspace, folder).known == 1


# Filtered: what people see


@pytest.fixture(scope="module")
def filtered(tmp_path_factory: pytest.TempPathFactory, package_photos: Photos) -> Workspace:
    """Eight photos under four concepts, one of them under two, and what survives of them."""
    root = tmp_path_factory.mktemp("outlier")
    names = ["mayfly", "snoopy", "wheelchair", "hedgehog"] * 2
    folder = class_folders(root / "photos", package_photos, names)
    shutil.copy(folder / "mayfly" / "0.jpg", folder / "hedgehog" / "again.jpg")
    workspace = workspace_at(root / "ws", concepts=OWN)
    assert collect_folder(workspace, folder).new == 9
    summary = run_filter(workspace)
    assert summary["survivors"] >= 3
    assert summary["removed"].keys() == {"unconfident"}
    return workspace


def test_the_shortlist_names_the_concept_and_the_class_it_is_taken_for(
    filtered: Workspace,
) -> None:
    done = run_curate("shortlist", "--format", "csv", workspace=filtered.root)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert rows
    for row in rows:
        assert row["wnid"] in filtered.weak_labels
        assert row["name"] == filtered.weak_labels.get(row["wnid"]).name
        assert row["predicted_name"] == filtered.label_space.get(row["predicted_wnid"]).name
        assert row["p_true"] == ""
        assert float(row["confidence"]) >= 0.9


def test_the_funnel_is_told_by_concept(filtered: Workspace) -> None:
    told = status(filtered)["funnel"]["by_class"]
    assert {wnid: row["name"] for wnid, row in told.items()} == {
        "snoopy": "Snoopy",
        "mayfly": "mayfly",
        WHEELCHAIR: "wheelchair",
        "hedgehog": "hedgehog",
    }
    run_id, listed = read_shortlist(filtered)
    by_class = run_by_class(filtered, run_id)
    assert sum(row["shortlisted"] for row in by_class.values()) == len(listed)


@pytest.mark.slow
def test_a_concept_that_the_list_lacks_since_breaks_nothing(
    filtered: Workspace, tmp_path: Path
) -> None:
    root = copy_of(filtered.root, tmp_path / "copy")
    (root / "concepts.csv").write_text("wnid\nn02420828\n", encoding="utf-8")
    workspace = open_workspace(root)
    assert list(status(workspace)["funnel"]["by_class"]) == [
        "hedgehog",
        "mayfly",
        WHEELCHAIR,
        "snoopy",
    ]
    run_id, listed = read_shortlist(workspace)
    assert listed
    assert run_by_class(workspace, run_id)
    run_curate("shortlist", workspace=root)
    assert "hedgehog" in (root / write_report(workspace)["path"]).read_text(encoding="utf-8")
    assert build_release(workspace, "0.1.0", unreviewed=True)["images"]
    assert deduplicate(workspace).list is not None
    # Without its place in WordNet the folder's name is that of a trained class.
    with pytest.raises(UsageError, match="hedgehog bears the name .* name its WordNet id"):
        run_filter(workspace)


def test_the_report_shows_each_concept_and_what_it_is_taken_for(filtered: Workspace) -> None:
    summary = write_report(filtered)
    page = (filtered.root / summary["path"]).read_text(encoding="utf-8")
    with filtered.catalogue.read() as connection:
        listed = listing.shortlist(connection, summary["run"])
    assert summary["photos"] == len(listed)
    for row in listed:
        name = filtered.weak_labels.get(row.wnid).name
        assert f'<p class="true"><bdi>{name}</bdi></p>' in page
        assert f'<bdi class="wrong">{filtered.label_space.get(row.predicted_wnid).name}' in page
    assert "p(true)" not in page
    assert "at least 0.9 confident on its centre crop" in page
    assert "<th>Concept</th><th>Taken for</th>" in page
    assert "outlier, confidence of the centre crop at least 0.9" in page


@pytest.mark.slow
def test_the_nearest_misses_are_those_that_were_nearly_confident(
    filtered: Workspace, tmp_path: Path
) -> None:
    copy = open_workspace(copy_of(filtered.root, tmp_path / "copy"))
    workspace = copy.changed({"filter.min_confidence": 0.999})
    run = run_filter(workspace)
    assert run["survivors"] < 12
    summary = write_report(workspace, run["run"])
    page = (workspace.root / summary["path"]).read_text(encoding="utf-8")
    misses = page[page.index('id="misses"') : page.index('id="scores"')]
    assert summary["misses"] == min(12 - run["shortlisted"], sum(run["removed"].values()))
    assert misses.count("takes it for") == summary["misses"]
    assert "nearest to 0.999" in misses


def test_who_was_nearest_is_told_by_the_least_confident_model() -> None:
    rows = [
        *[("a", 0, 0, 0.99), ("a", 1, 0, 0.2), ("a", 1, 1, 0.9)],
        *[("b", 0, 0, 0.6), ("b", 1, 0, 0.7)],
        *[("c", 0, 0, 0.95)],
        *[("d", 0, 0, 0.6)],
    ]
    assert most_confident(rows, 3, {"c"}, of_mean=False) == ["b", "d", "a"]
    assert most_confident(rows, 9, (), of_mean=True) == ["c", "b", "d", "a"]
    assert most_confident(rows, 0, (), of_mean=True) == []


def test_the_doctor_finds_concepts_that_are_not_listed_or_not_outside(
    filtered: Workspace, tmp_path: Path
) -> None:
    root = copy_of(filtered.root, tmp_path / "copy")
    assert examine(open_workspace(root))["problems"] == []
    text = OWN.replace("n01893825", DOG).replace("snoopy,Snoopy,cartoon beagle,\n", "")
    (root / "concepts.csv").write_text(text, encoding="utf-8")
    told = {problem["what"] for problem in examine(open_workspace(root))["problems"]}
    assert told == {
        "concepts.csv lacks concepts that candidates have (1): snoopy",
        "hedgehog is above 118 trained classes, such as n02085620 (Chihuahua)",
    }
    (root / "concepts.csv").unlink()
    (problem,) = examine(open_workspace(root))["problems"]
    assert (problem["kind"], problem["advice"]) == ("concepts", "put the file back")
    settings = root / "curate.yaml"
    settings.write_text(settings.read_text("utf-8").replace("outlier", "misclassified"), "utf-8")
    (problem,) = examine(open_workspace(root))["problems"]
    assert (problem["kind"], problem["advice"]) == ("label-space", "undo the change of filter.rule")


# Released


def test_a_release_has_the_layout_of_imagenet_o_and_its_card_a_command_that_works(
    filtered: Workspace,
    tmp_path: Path,
    package_photos: Photos,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workspace = open_workspace(copy_of(filtered.root, tmp_path / "copy"))
    summary = build_release(workspace, "0.1.0", unreviewed=True)
    root = Path(summary["path"])
    with (root / "manifest.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == summary["images"]
    for row in rows:
        assert row["path"].partition("/")[0] == row["predicted_wnid"]
        assert row["wnid"] in workspace.weak_labels
        assert row["name"] == workspace.weak_labels.get(row["wnid"]).name
        assert row["p_true"] == ""
        assert sha256_file(root / row["path"]) == row["sha256"]
    folders = {path.name for path in root.iterdir() if path.is_dir()}
    assert folders == {row["predicted_wnid"] for row in rows}
    record = json.loads((root / "release.json").read_text(encoding="utf-8"))
    assert record["layout"] == "imagenet-o"
    assert record["filter"]["min_confidence"] == 0.9
    _, listed = read_shortlist(workspace)
    twice = len(listed) - len({row.sha256 for row in listed})
    assert len(rows) == len(listed) - twice
    text = (root / "README.md").read_text(encoding="utf-8")
    assert "Images by concept" in text
    (command,) = re.findall(r"^    curate (evaluate .*)$", text, flags=re.MULTILINE)
    assert command == "evaluate 0.1.0 --in-distribution val --model lite/efficientnet_lite2"
    with pytest.raises(UsageError, match="folders name what a .* add --in-distribution DIR"):
        open_dataset(root)
    outside = open_outside(root)
    assert (outside.truth, outside.chosen_by) == (False, "the release")
    assert list(outside.paths) == sorted(row["path"] for row in rows)
    assert set(outside.wnids) == folders
    assert outside.release is not None
    assert outside.release.selection == {model["fingerprint"] for model in record["models"]}
    assert not has_true_classes(root)
    with pytest.raises(UsageError, match="holds images of something else, in ImageNet-O layout"):
        open_inside(root, outside.space)
    # What the card says to do works as it stands there.
    for path, index in package_photos[:10]:
        (root.parent / "val" / outside.space.wnids[index]).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root.parent / "val" / outside.space.wnids[index])
    monkeypatch.chdir(root.parent)
    monkeypatch.setattr(shared, "workspace", None)
    done = CliRunner().invoke(app, ["--json", *command.split()])
    assert done.exit_code == 0, done.output
    (result,) = json.loads(done.stdout)["results"]
    assert "aupr_msp" in json.dumps(result)


@pytest.mark.slow
def test_an_image_under_two_concepts_is_released_once(
    tmp_path: Path, package_photos: Photos
) -> None:
    folder = class_folders(tmp_path / "photos", package_photos[17:18], ["mayfly"])
    shutil.copytree(folder / "mayfly", folder / "hedgehog")
    workspace = workspace_at(tmp_path / "ws", "  min_confidence: 0.1\n", concepts=OWN)
    assert collect_folder(workspace, folder).new == 2
    assert run_filter(workspace)["shortlisted"] == 2
    summary = build_release(workspace, "0.1.0", unreviewed=True)
    assert summary["images"] == 1
    assert any("under several concepts: 1 candidates left out" in p for p in summary["problems"])


def test_names_of_the_paper_need_a_true_class(filtered: Workspace) -> None:
    with pytest.raises(UsageError, match="p\\(true class\\), which the rule outlier has not"):
        build_release(filtered, "9.0.0", unreviewed=True, naming="paper")


# Checking


def test_a_workspace_s_check_is_about_the_concepts_of_its_candidates(
    filtered: Workspace,
) -> None:
    told = check_classes(filtered)
    assert (told["label_space"], told["classes"], told["concepts"]) == ("imagenet-1k", 1000, 4)
    mine = [
        p for p in told["problems"] if p["wnid"] in ("snoopy", "hedgehog", "mayfly", WHEELCHAIR)
    ]
    assert {(p["wnid"], p["kind"], p["severity"]) for p in mine} == {
        ("hedgehog", "shared-name", "refused"),
        ("snoopy", "unplaced", "warned"),
        (WHEELCHAIR, "near", "warned"),
    }
    only = check_classes(filtered, classes=["hound"])
    assert only["concepts"] == 1
    assert only["problems"][0]["kind"] == "ancestor"


def test_the_command_tells_what_is_refused_and_exits_with_1(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(OWN, encoding="utf-8")
    env = {"CURATE_WORKSPACE": ""}
    done = run_curate("classes", "check", "--concepts", tmp_path / "mine.csv", expect=1, **env)
    assert done.stderr == "curate: 3 were refused\n"
    lines = done.stdout.splitlines()
    assert lines[-2:] == [
        "checked 6 concepts against 1,000 trained classes",
        "3 refused, 2 warned (ancestor 1, near 1, same 1, shared-name 1, unplaced 1)",
    ]
    assert "refused  same         tabby (tabby cat) is the trained class n02123045 (tabby)" in lines
    done = run_curate("--json", "classes", "check", "--concepts", f"wheelchair,{DOG}", expect=1)
    told = json.loads(done.stdout)
    assert told["refused"] == 1
    assert told["problems"][0] == {
        "wnid": DOG,
        "name": "dog",
        "kind": "ancestor",
        "severity": "refused",
        "other": "n02085620",
        "other_name": "Chihuahua",
        "text": "n02084071 (dog) is above 118 trained classes, such as n02085620 (Chihuahua)",
    }


@pytest.mark.slow
def test_the_command_checks_a_label_space_and_warns_without_failing(tmp_path: Path) -> None:
    done = run_curate("--json", "classes", "check", "--label-space", "imagenet-1k")
    told = json.loads(done.stdout)
    assert (told["refused"], told["warned"], told["concepts"]) == (0, 54, None)
    pair = ["n02012849", "n03126707"]
    done = run_curate("--json", "classes", "check", "--classes", ",".join(pair))
    (problem,) = json.loads(done.stdout)["problems"]
    assert [problem["wnid"], problem["other"]] == pair
    (tmp_path / "own.csv").write_text("wnid,name\nn02084071,dog\nn02088364,beagle\n", "utf-8")
    run_curate("classes", "check", "--label-space", tmp_path / "own.csv", expect=1)
    done = run_curate("classes", "check", "--concepts", "hedgehog", expect=2)
    assert done.stderr.startswith("curate: concept 'hedgehog' is ambiguous: write one of n01893825")


def test_the_command_lists_usable_concepts() -> None:
    done = run_curate("--json", "classes", "list", "--concepts", "wordnet", "--usable")
    told = json.loads(done.stdout)
    found = {item["wnid"] for item in told["classes"]}
    assert told["concepts"] == "wordnet"
    assert {WHEELCHAIR, GERENUK} <= found
    assert not {DOG, HEDGEHOG, "n02123394", "n01314388"} & found
    assert 14_000 < len(found) < 14_799
    run_curate("classes", "list", "--usable", expect=2)


# The real photos


def test_the_real_photos_of_62_concepts_are_taken_but_for_the_five_that_overlap(
    tmp_path: Path, shared_data: Path
) -> None:
    concepts = (Path(__file__).parent / "ood_concepts.csv").read_text(encoding="utf-8")
    with (shared_data / "photos" / "labels.csv").open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["kind"] == "OOD"]
    table = tmp_path / "labels.csv"
    table.write_text(csv_text(("path", "label"), [(r["path"], r["label"]) for r in rows]), "utf-8")
    workspace = workspace_at(tmp_path / "ws", concepts=concepts)
    collected = collect_folder(workspace, shared_data / "photos", table)
    assert collected.found == 230
    assert collected.rejected == {"in-distribution": 10}
    overlapping = {"anchor", "clothing_longsleeve", "clothing_outwear", "clothing_pants", "dolphin"}
    assert set(refused(workspace)) == overlapping
    assert len(set(labels_of(workspace))) == 57
