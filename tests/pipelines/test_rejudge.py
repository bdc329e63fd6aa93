"""Judging stored scores anew: the verdicts of a run from the start, with few passes or none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from sqlalchemy import select

from curate.catalog.tables import verdicts
from curate.errors import StorageError, UsageError
from pipelines.collect import collect_folder
from pipelines.filter import run_filter
from pipelines.workspace import Workspace, create_workspace, open_workspace
from tests.running import run_curate

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def chunks_of_eight() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CURATE_FILTER__CHUNK", "8")
        yield


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory, weak_folder: Path) -> tuple[Path, str, str]:
    """A workspace with a run of the cascade and a complete one that kept its logits."""
    workspace = create_workspace(tmp_path_factory.mktemp("rejudge") / "workspace", "imagenet-1k")
    collect_folder(workspace, weak_folder)
    cascade = run_filter(workspace)["run"]
    complete = workspace.changed({"filter.complete": True, "filter.keep_logits": True})
    return workspace.root, cascade, run_filter(complete)["run"]


@pytest.fixture
def copied(scored: tuple[Path, str, str], tmp_path: Path) -> tuple[Path, str, str]:
    root, cascade, complete = scored
    return Path(shutil.copytree(root, tmp_path / "workspace")), cascade, complete


def said(workspace: Workspace, run_id: str) -> list[tuple[Any, ...]]:
    """What decides, of all verdicts; all of the survivors'."""
    query = select(verdicts).where(verdicts.c.run_id == run_id).order_by(verdicts.c.candidate_id)
    with workspace.catalogue.read() as connection:
        rows = connection.execute(query).all()
    return [
        (r.candidate_id, r.outcome, r.reason, r.model, r.view)
        + ((r.predicted_wnid, r.confidence, r.p_true, r.place) if r.outcome == "survivor" else ())
        for r in rows
    ]


@pytest.mark.parametrize("threshold", [0.0, 0.15, 0.5])
def test_any_threshold_over_complete_scores_needs_no_forward_pass(
    copied: tuple[Path, str, str], threshold: float
) -> None:
    root, _, complete = copied
    workspace = open_workspace(root, {"filter.threshold": threshold})
    again = run_filter(workspace, from_run=complete)
    assert again["forwards"] == 0
    assert again["scores_run"] == complete
    assert run_filter(workspace, from_run=complete) == again
    fresh = run_filter(workspace)
    assert said(workspace, again["run"]) == said(workspace, fresh["run"])
    assert again["removed"] == fresh["removed"]
    assert (root / "runs" / again["run"] / "shortlist.csv").read_bytes() == (
        root / "runs" / fresh["run"] / "shortlist.csv"
    ).read_bytes()


@pytest.mark.parametrize("threshold", [0.001, 0.9])
def test_scores_of_a_cascade_serve_where_they_suffice_and_the_rest_is_scored(
    copied: tuple[Path, str, str],
    threshold: float,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root, cascade, _ = copied
    monkeypatch.setattr("curate.progress.LINE_SECONDS", 0.0)
    workspace = open_workspace(root, {"filter.threshold": threshold})
    again = run_filter(workspace, from_run=cascade)
    told = capsys.readouterr().err
    fresh = run_filter(workspace)
    assert said(workspace, again["run"]) == said(workspace, fresh["run"])
    assert again["forwards"] < fresh["forwards"]
    if again["forwards"]:
        assert "candidates needed more views" in told
        assert "filter: 20 of 20" in told, "those that stored scores decide are counted too"
    table = pq.read_table(root / "runs" / again["scores_run"] / "scores.parquet")
    order = list(zip(*(table[c].to_pylist() for c in ("candidate", "model", "view")), strict=True))
    assert order == sorted(set(order))
    if again["scores_run"] == again["run"]:
        # Scores that are lost are made anew, by the same command.
        (root / "runs" / again["run"] / "scores.parquet").unlink()
        redone = run_filter(workspace, from_run=cascade)
        assert redone["scores_sha256"] == again["scores_sha256"]
        assert said(workspace, again["run"]) == said(workspace, fresh["run"])


def test_a_tiny_threshold_over_a_cascade_removes_by_views_that_are_there(
    copied: tuple[Path, str, str],
) -> None:
    root, cascade, _ = copied
    workspace = open_workspace(root, {"filter.threshold": 0.0})
    assert run_filter(workspace, from_run=cascade)["forwards"] == 0


def test_a_class_selects_among_the_stored_scores(copied: tuple[Path, str, str]) -> None:
    root, _, complete = copied
    workspace = open_workspace(root)
    some = run_filter(workspace, ["jeep"], from_run=complete)
    assert 0 < some["candidates"] < 20
    assert some["forwards"] == 0
    everything = said(workspace, complete)
    assert {row[:5] for row in said(workspace, some["run"])} <= {row[:5] for row in everything}


def test_candidates_that_came_later_are_scored_and_no_others(
    copied: tuple[Path, str, str], tmp_path: Path, package_photos: list[tuple[Path, int]]
) -> None:
    root, _, complete = copied
    workspace = open_workspace(root)
    wnids = workspace.label_space.wnids
    path, _ = package_photos[15]
    folder = tmp_path / "later" / wnids[package_photos[2][1]]
    folder.mkdir(parents=True)
    shutil.copy(path, folder)
    assert collect_folder(workspace, tmp_path / "later").new == 1
    again = run_filter(workspace, from_run=complete)
    assert again["candidates"] == 21
    # Two models see ten views each, at most once by a forward and once canonically.
    assert 1 <= again["forwards"] <= 40
    assert said(workspace, again["run"]) == said(workspace, run_filter(workspace)["run"])


def test_kept_logits_are_judged_within_another_label_space(
    copied: tuple[Path, str, str], tmp_path: Path
) -> None:
    root, cascade, complete = copied
    workspace = open_workspace(root)
    labels = sorted({row["wnid"] for row in shortlist_of(workspace, complete)})
    others = [wnid for wnid in workspace.label_space.wnids if wnid not in labels][:40]
    (root / "small.csv").write_text("\n".join(["wnid", *sorted([*labels, *others])]) + "\n")
    small = open_workspace(root, {"label_space": "small.csv"})
    again = run_filter(small, labels, from_run=complete)
    assert again["forwards"] == 0
    assert again["candidates"] >= 6
    # The same candidates under that label space from the start.
    fresh = fresh_under(tmp_path, small, labels)
    told = {(c, o, r) for c, o, r in outcomes(small, again["run"])}
    assert told == set(outcomes(fresh, run_filter(fresh, labels)["run"]))
    rows = pq.read_table(root / "runs" / again["run"] / "scores.parquet").to_pylist()
    assert {row["predicted_wnid"] for row in rows} <= {*labels, *others}
    with pytest.raises(UsageError, match="kept no logits"):
        run_filter(small, labels, from_run=cascade)
    with pytest.raises(UsageError, match="lacks .* of the candidates' labels"):
        run_filter(small, from_run=complete)


def shortlist_of(workspace: Workspace, run_id: str) -> list[dict[str, Any]]:
    done = run_curate("shortlist", "--run", run_id, "--format", "jsonl", workspace=workspace.root)
    return [json.loads(line) for line in done.stdout.splitlines()]


def outcomes(workspace: Workspace, run_id: str) -> list[tuple[str, str, str | None]]:
    from curate.catalog.tables import candidates

    query = (
        select(candidates.c.key, verdicts.c.outcome, verdicts.c.reason)
        .join(candidates, candidates.c.id == verdicts.c.candidate_id)
        .where(verdicts.c.run_id == run_id)
    )
    with workspace.catalogue.read() as connection:
        return [tuple(row) for row in connection.execute(query)]  # type: ignore[misc]


def fresh_under(tmp_path: Path, like: Workspace, labels: list[str]) -> Workspace:
    """A new workspace of the same photos whose label space is that of `like`."""
    preset = tmp_path / "small.yaml"
    preset.write_text("label_space: small.csv\n")
    (tmp_path / "fresh").mkdir()
    shutil.copy(like.root / "small.csv", tmp_path / "fresh")
    fresh = create_workspace(tmp_path / "fresh", str(preset))
    folder = tmp_path / "again"
    from curate.catalog.tables import candidates

    with like.catalogue.read() as connection:
        rows = connection.execute(select(candidates).where(candidates.c.wnid.in_(labels))).all()
    for row in rows:
        (folder / row.wnid).mkdir(parents=True, exist_ok=True)
        data = like.store.read(row.sha256, "jpg")
        (folder / row.wnid / f"{row.sha256}.jpg").write_bytes(data)
    collect_folder(fresh, folder)
    return fresh


def test_a_corrected_label_is_judged_by_the_logits_of_the_same_photo(
    copied: tuple[Path, str, str], tmp_path: Path
) -> None:
    root, _, complete = copied
    workspace = open_workspace(root)
    listed = shortlist_of(workspace, complete)
    folder = tmp_path / "corrected"
    for row in listed[:3]:
        # What the models say it is: right by now, so that it must leave.
        (folder / row["predicted_wnid"]).mkdir(parents=True, exist_ok=True)
        data = workspace.store.read(row["sha256"], "jpg")
        (folder / row["predicted_wnid"] / f"{row['sha256']}.jpg").write_bytes(data)
    # Some of these photos are there under that label already.
    new = collect_folder(workspace, folder).new
    assert new >= 1
    again = run_filter(workspace, from_run=complete)
    assert (again["candidates"], again["forwards"]) == (20 + new, 0)
    # Scores are read by the candidates' own keys, which those of the earlier run lack.
    table = pq.read_table(root / "runs" / again["scores_run"] / "scores.parquet")
    assert len(set(table["candidate"].to_pylist())) == 20 + new
    assert said(workspace, again["run"]) == said(workspace, run_filter(workspace)["run"])


def test_other_models_or_views_and_altered_scores_are_refused(
    copied: tuple[Path, str, str],
) -> None:
    root, cascade, complete = copied
    with pytest.raises(UsageError, match="other models"):
        run_filter(
            open_workspace(root, {"filter.models": ("lite/efficientnet_lite0",)}), from_run=complete
        )
    with pytest.raises(UsageError, match="other views"):
        run_filter(open_workspace(root, {"filter.views": "native"}), from_run=complete)
    path = root / "runs" / cascade / "scores.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(StorageError, match="missing or altered"):
        run_filter(open_workspace(root, {"filter.threshold": 0.3}), from_run=cascade)
    done = run_curate("filter", "--label-space", "imagenet-a", workspace=root, expect=2)
    assert "--from-run" in done.stderr
    done = run_curate("filter", "--from-run", "nothing", workspace=root, expect=2)
    assert done.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def of_concepts(
    tmp_path_factory: pytest.TempPathFactory, package_photos: list[tuple[Path, int]]
) -> Path:
    """A workspace of the rule outlier with four photos."""
    root = tmp_path_factory.mktemp("outlier")
    for number, (path, _) in enumerate(package_photos[:4]):
        (root / "photos" / "wheelchair").mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / "photos" / "wheelchair" / f"{number}{path.suffix}")
    preset = root / "preset.yaml"
    lines = ("label_space: imagenet-1k", "filter:", "  rule: outlier", "  keep_logits: true")
    preset.write_text("\n".join((*lines, "  backend: torch", "")))
    workspace = create_workspace(root / "workspace", str(preset))
    assert collect_folder(workspace, root / "photos").new == 4
    workspace.close()
    return workspace.root


@pytest.mark.parametrize("complete", [True, False])
def test_kept_logits_of_the_centre_are_judged_by_the_mean(
    of_concepts: Path, tmp_path: Path, complete: bool
) -> None:
    root = Path(shutil.copytree(of_concepts, tmp_path / "workspace"))
    options: dict[str, Any] = {"filter.models": ("lite/efficientnet_lite0",), "filter.chunk": 2}
    first = run_filter(open_workspace(root, options | {"filter.complete": complete}))
    mean = open_workspace(root, options | {"filter.confidence": "mean"})
    again = run_filter(mean, from_run=first["run"])
    fresh = run_filter(mean)
    assert said(mean, again["run"]) == said(mean, fresh["run"])
    assert again["survivors"] > 0
    if complete:
        assert (again["forwards"], again["scores_run"]) == (0, first["run"])
    else:
        assert again["forwards"] < fresh["forwards"]
        # Of rows told anew and new ones, which can be judged once more.
        assert again["scores_run"] == again["run"]
        other = mean.changed({"filter.min_confidence": 0.8})
        once_more = run_filter(other, from_run=again["run"])
        assert said(other, once_more["run"]) == said(other, run_filter(other)["run"])
