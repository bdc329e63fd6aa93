"""What another command, an odd file or other columns must not do to a run of the filter."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.catalog import claims, judging
from curate.catalog.tables import now
from curate.errors import ImageRefused, UsageError
from curate.filtration.scores import ScoreRows, table_bytes
from curate.filtration.terms import Counts, Verdict
from curate.progress import Stop
from pipelines.filter_identity import like
from pipelines.rejudge import Settled
from pipelines.scoring import Chunk, Scored, Scorer
from pipelines.sharing import SideBySide
from pipelines.workspace import Workspace, create_workspace
from tests.pipelines.engine_parts import any_job


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    made = create_workspace(tmp_path / "workspace", "imagenet-1k")
    yield made
    made.close()


def test_chunks_claimed_before_margins_were_widened_are_free_for_all_again(
    workspace: Workspace,
) -> None:
    row: dict[str, Any] = {"id": "r", "scoring": "s", "scores_run": "r", "rule": "misclassified"}
    row |= {"state": "running", "settings": {}, "record": {}, "started": now()}
    with workspace.catalogue.write() as connection:
        judging.start_run(connection, row)
    work = SideBySide(workspace, "r", 3)
    try:
        work.prepare(set)
        assert list(zip(range(2), work.numbers(Stop()), strict=False)) == [(0, 0), (1, 1)]
        work.prepare(set)
        with workspace.catalogue.read() as connection:
            assert claims.standing(connection, "r").held == 0
        assert not work._held
        assert list(work.numbers(Stop())) == [0, 1, 2]
    finally:
        work.close()


def test_scores_without_the_mean_settle_nothing_and_new_ones_stand_alone() -> None:
    old = ScoreRows().table([], []).slice(0, 0)
    fresh = ScoreRows(of_mean=True).table([], [])
    assert "ceiling" not in old.column_names
    scored = Scored([Verdict("survivor")], table_bytes(fresh), 0, 20, Counts(), 1.0)
    candidate = judging.Candidate(1, "k", "0" * 64, "jpg", "n1")
    whole = Settled(Chunk(0, (candidate,)), [None], old).joined(scored, {})
    assert pq.read_table(io.BytesIO(whole.part)).schema.equals(pa.schema(fresh.schema))
    assert whole.verdicts == scored.verdicts


SOUND: dict[str, Any] = {
    "run": "0" * 12,
    "models": [{"name": "lite/efficientnet_lite0", "fingerprint": "0"}],
    "label_space": {"fingerprint": "0"},
    "set": "0",
    "candidates": 3,
    "settings": {"classes": None, "filter": {"models": ["a"], "without": [], "cap": 3}},
}


@pytest.mark.parametrize(
    "odd",
    [
        {"models": None},
        {"models": [{}]},
        {"models": ["a"]},
        {"label_space": {}},
        {"candidates": "many"},
        {"run": 3},
        {"settings": {"classes": 5, "filter": {"models": ["a"], "without": []}}},
        {"settings": {"classes": None, "filter": {"models": "a", "without": []}}},
        {"settings": {"classes": None, "filter": {"models": ["a"], "without": [], "a.b": 1}}},
    ],
)
def test_a_run_json_that_is_not_what_it_says_is_one_line(
    workspace: Workspace, tmp_path: Path, odd: dict[str, Any]
) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(SOUND))
    assert like(workspace, str(path))[0].settings.filter.cap == 3
    path.write_text(json.dumps(SOUND | odd))
    with pytest.raises(UsageError, match="is no run.json") as told:
        like(workspace, str(path))
    assert "\n" not in str(told.value)


def test_a_run_is_repeated_with_the_defaults_that_it_was_made_with(
    workspace: Workspace, tmp_path: Path
) -> None:
    """Whatever the workspace sets by now, also of what a run of an older version did not know."""
    path = tmp_path / "run.json"
    given = {"models": ["a"], "without": [], "cap": 3, "chunk": None}
    path.write_text(json.dumps(SOUND | {"settings": {"classes": None, "filter": given}}))
    changed = workspace.changed({"filter.chunk": 8, "filter.seed": 5, "filter.device": "cpu"})
    again = like(changed, str(path))[0].settings.filter
    assert (again.chunk, again.seed, again.cap, again.models) == (None, 0, 3, ("a",))
    assert again.device == "cpu", "where to compute is the user's own"


def test_scores_tell_the_margins_that_they_were_judged_under(tmp_path: Path) -> None:
    job = replace(any_job(), device="cpu", backend="torch", store=tmp_path.as_uri())
    scorer = Scorer(job)

    class Late(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            scorer.widen(replace(job, widened=1))
            return super().__iter__()

    candidate = judging.Candidate(1, "k", "0" * 64, "jpg", "n01440764")
    photos = Late([ImageRefused("missing", "gone")])
    assert scorer.judge(Chunk(0, (candidate,)), photos).made_by["widened"] == 0
    assert scorer.made_by["widened"] == 1


def test_a_message_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    from curate.progress import say

    say("weights for \x1b[2Jmodel\u202e\ntwo lines")
    assert capsys.readouterr().err == "weights for ?[2Jmodel?\ntwo lines\n"
