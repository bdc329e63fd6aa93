"""The referee on real photos: who it puts first, who may be one, and that its words are kept."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sqlalchemy import func, select

import pipelines.referee as refereeing
from annotation.order import referee_order
from curate.catalog import judging
from curate.catalog.judging import Candidate
from curate.catalog.review_tables import referee_scores
from curate.catalog.store import key_of
from curate.errors import Interrupted, UnknownNameError, UsageError
from curate.files import sha256_file
from curate.labels.space import load_label_space
from curate.metrics.ranking import auc
from curate.models.zoo import load_classifier
from pipelines.collect import collect_folder
from pipelines.filter import run_filter
from pipelines.referee import RefereeScores, referee_probabilities, word
from pipelines.workspace import Workspace, create_workspace, open_workspace
from tests.running import ROOT, copy_of
from tests.waiting import PATIENCE, interrupt

LITE0, LITE1 = "lite/efficientnet_lite0", "lite/efficientnet_lite1"

#: One model filters; no other backend for a few photos, since each takes seconds to get ready.
PRESET = f"label_space: imagenet-1k\nfilter:\n  models: [{LITE0}]\n  backend: torch\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, weak_folder: Path) -> Path:
    """A workspace whose filter has judged 12 rightly and 8 wrongly labelled photos."""
    folder = tmp_path_factory.mktemp("referee")
    (folder / "preset.yaml").write_text(PRESET, encoding="utf-8")
    workspace = create_workspace(folder / "workspace", str(folder / "preset.yaml"))
    collect_folder(workspace, weak_folder)
    run_filter(workspace)
    workspace.close()
    return workspace.root


@pytest.fixture
def workspace(made: Path, tmp_path: Path) -> Iterator[Workspace]:
    opened = open_workspace(copy_of(made, tmp_path / "workspace"))
    yield opened
    opened.close()


def candidates_of(workspace: Workspace) -> list[Candidate]:
    with workspace.catalogue.read() as connection:
        ids = [number for _, number in judging.candidate_keys(connection, None)]
        return judging.candidates_by_id(connection, ids)


def kept(workspace: Workspace) -> int:
    with workspace.catalogue.read() as connection:
        return connection.scalar(select(func.count()).select_from(referee_scores)) or 0


class Looks:
    """Counts the photos that a referee looks at, and may do something at the N-th."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int = 0, act: Any = None) -> None:
        self.count = 0
        looked = refereeing._Referee._word

        def look(referee: Any, candidate: Candidate, target: int) -> float:
            self.count += 1
            if self.count == at:
                act()
            return looked(referee, candidate, target)

        monkeypatch.setattr(refereeing._Referee, "_word", look)


# What it says


@pytest.mark.slow
def test_wrongly_labelled_photos_come_after_rightly_labelled_ones(
    workspace: Workspace, package_photos: list[tuple[Path, int]]
) -> None:
    said = referee_probabilities(workspace, LITE1, candidates_of(workspace))
    assert not said.unread
    assert (said.name, said.model["fingerprint"]) == (LITE1, said.fingerprint)
    wnids = load_label_space("imagenet-1k").wnids
    true = {sha256_file(path): wnids[label] for path, label in package_photos}
    p, right = zip(
        *((said.p[c.key], true[c.sha256] == c.wnid) for c in candidates_of(workspace)), strict=True
    )
    assert sum(right) == 12
    assert auc(p, right).value > 0.9
    assert 0.0 < min(p) < 0.1 < 0.5 < max(p) <= 1.0


@pytest.mark.slow
def test_a_word_is_the_same_to_the_last_bit_whatever_else_is_asked(
    made: Path, workspace: Workspace, tmp_path: Path
) -> None:
    candidates = candidates_of(workspace)
    whole = referee_probabilities(workspace, LITE1, candidates).p
    assert list(whole) == sorted(whole)
    other = open_workspace(copy_of(made, tmp_path / "other"))
    shuffled = random.Random(1).sample(candidates, len(candidates))
    parts: dict[str, float] = {}
    for some in (shuffled[:1], shuffled[1:8], shuffled[5:] + shuffled[5:7]):
        parts |= referee_probabilities(other, LITE1, some).p
    other.close()
    assert parts == whole


@given(arrays.arrays(np.float32, st.integers(2, 30), elements=st.floats(-400, 400, width=32)))
def test_a_word_is_a_probability_above_nothing(logits: np.ndarray) -> None:
    claimed = [word(logits, target) for target in range(len(logits))]
    assert all(0.0 < p <= 1.0 for p in claimed)
    assert sum(claimed) == pytest.approx(1.0)
    assert 0.0 < word(logits, -1) <= 1.0
    assert word(logits, -1) == pytest.approx(1.0 - max(claimed), abs=1e-12)
    assert int(np.argmax(claimed)) in np.flatnonzero(logits >= logits.max() - 1e-5)


def test_of_outliers_the_one_that_looks_most_like_a_class_comes_last_even_where_all_are_sure() -> (
    None
):
    sure, surer, unsure = (np.array([top, 0.0, -1.0]) for top in (60.0, 90.0, 1.0))
    words = [word(logits, -1) for logits in (surer, unsure, sure)]
    assert words[0] < words[2] < words[1]


@pytest.mark.slow
def test_outliers_that_show_a_class_come_after_those_that_show_none(
    tmp_path: Path, package_photos: list[tuple[Path, int]]
) -> None:
    wnids = load_label_space("imagenet-1k").wnids
    shown = [wnids[label] for _, label in package_photos[:6]]
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "space.csv").write_text("wnid\n" + "\n".join(dict.fromkeys(shown)) + "\n")
    (tmp_path / "ws" / "own.csv").write_text("id,name,names,wordnet\nsnoopy,Snoopy,,\n")
    (tmp_path / "outlier.yaml").write_text(
        "label_space: space.csv\nconcepts: own.csv\nfilter:\n  rule: outlier\n"
        f"  min_confidence: 0\n  backend: torch\n  models: [{LITE0}]\n",
        encoding="utf-8",
    )
    folder = tmp_path / "photos" / "snoopy"
    folder.mkdir(parents=True)
    for path, _ in package_photos:
        shutil.copy(path, folder)
    workspace = create_workspace(tmp_path / "ws", str(tmp_path / "outlier.yaml"))
    collect_folder(workspace, tmp_path / "photos")
    run_filter(workspace)
    said = referee_probabilities(workspace, LITE1, candidates_of(workspace))
    workspace.close()
    # The classes of the first six photos are the label space; of the others it has no class.
    inside = {sha256_file(path) for path, label in package_photos if wnids[label] in shown}
    by_image = {c.sha256: said.p[c.key] for c in candidates_of(workspace)}
    found = auc(list(by_image.values()), [image not in inside for image in by_image])
    assert found.value > 0.9


# Who may be one


@pytest.mark.slow
def test_a_model_of_the_ensemble_is_refused(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match=r"lite0 cannot be the referee.* in the filter"):
        referee_probabilities(workspace, LITE0, candidates_of(workspace))
    assert kept(workspace) == 0


@pytest.mark.slow
def test_weights_of_the_ensemble_are_refused_from_another_file_too(tmp_path: Path) -> None:
    import torch

    torch.save(load_classifier(LITE0).module.state_dict(), tmp_path / "a.pth")
    shutil.copy(tmp_path / "a.pth", tmp_path / "b.pth")
    how = "arch=timm/tf_efficientnet_lite0&labels=imagenet-1k"
    member, other = (load_classifier(f"checkpoint/{tmp_path}/{x}.pth?{how}") for x in "ab")
    with pytest.raises(
        UsageError, match=r"its weights \(checkpoint/a.pth.*filter of run 0123"
    ) as told:
        refereeing._check_independent(other, [member.record()], "0123")
    assert str(tmp_path) not in str(told.value)
    refereeing._check_independent(load_classifier(LITE1), [member.record()], "0123")


@pytest.mark.slow
def test_an_unknown_model_or_run_or_class_is_named(workspace: Workspace) -> None:
    candidates = candidates_of(workspace)
    with pytest.raises(UnknownNameError, match="efficientnet_lite"):
        referee_probabilities(workspace, "lite/efficientnet_lite9", candidates)
    with pytest.raises(UnknownNameError, match="run"):
        referee_probabilities(workspace, LITE1, candidates, run="nonesuch")
    odd = Candidate(1, "a" * 32, candidates[0].sha256, candidates[0].extension, "n99999999")
    with pytest.raises(UnknownNameError, match="n99999999"):
        referee_probabilities(workspace, LITE1, [odd])


# What is kept


@pytest.mark.slow
def test_what_was_said_is_not_computed_again_and_another_question_is(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates = candidates_of(workspace)
    looks = Looks(monkeypatch)
    first = referee_probabilities(workspace, LITE1, candidates[:15])
    assert looks.count == kept(workspace) == 15
    assert referee_probabilities(workspace, LITE1, candidates[:15]) == first
    assert looks.count == 15
    grown = referee_probabilities(workspace, LITE1, candidates)
    assert looks.count == kept(workspace) == 20
    assert {key: grown.p[key] for key in first.p} == first.p
    # The same weights within other classes say something else.
    space = workspace.root / "space.csv"
    space.write_text("wnid\n" + "\n".join(sorted({c.wnid for c in candidates})) + "\n")
    narrower = workspace.changed({"label_space": "space.csv"})
    monkeypatch.setattr(refereeing, "as_judged", lambda workspace, run: workspace)
    few = referee_probabilities(narrower, LITE1, candidates)
    assert looks.count == 40
    assert all(few.p[key] > grown.p[key] for key in grown.p if grown.p[key] < 0.9)


@pytest.mark.slow
def test_an_interrupt_keeps_every_word_and_the_next_start_goes_on(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates = candidates_of(workspace)
    with monkeypatch.context() as patch:
        stopped = Looks(patch, at=6, act=interrupt)
        with pytest.raises(Interrupted, match=r"has seen \d+ of 20 photos"):
            referee_probabilities(workspace, LITE1, candidates)
    assert kept(workspace) == stopped.count < 20
    looks = Looks(monkeypatch)
    assert len(referee_probabilities(workspace, LITE1, candidates).p) == 20
    assert looks.count == 20 - stopped.count


KILLED = """
import os, signal, sys
from pathlib import Path
import pipelines.referee as refereeing
from curate.catalog import judging
from pipelines.workspace import open_workspace

refereeing._TOGETHER = 4
looked, count = refereeing._Referee._word, 0

def look(referee, candidate, target):
    global count
    count += 1
    if count == 14:
        os.kill(os.getpid(), signal.SIGKILL)
    return looked(referee, candidate, target)

refereeing._Referee._word = look
workspace = open_workspace(Path(sys.argv[1]))
with workspace.catalogue.read() as connection:
    ids = [number for _, number in judging.candidate_keys(connection, None)]
    candidates = judging.candidates_by_id(connection, ids)
refereeing.referee_probabilities(workspace, sys.argv[2], candidates)
"""


@pytest.mark.slow
def test_a_kill_loses_little_and_changes_no_word(
    made: Path, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copy_of(made, tmp_path / "killed")
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(root), LITE1],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    killed = open_workspace(root)
    before = kept(killed)
    assert 8 <= before <= 12
    looks = Looks(monkeypatch)
    after = referee_probabilities(killed, LITE1, candidates_of(killed))
    killed.close()
    assert looks.count == 20 - before
    assert after == referee_probabilities(workspace, LITE1, candidates_of(workspace))


@pytest.mark.slow
def test_a_photo_that_cannot_be_read_goes_last_and_is_tried_again(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    candidates = candidates_of(workspace)
    images = Counter(one.sha256 for one in candidates)
    lost, altered = [one for one in candidates if images[one.sha256] == 1][:2]
    paths = [
        workspace.root / "images" / key_of(one.sha256, one.extension) for one in (lost, altered)
    ]
    contents = [path.read_bytes() for path in paths]
    paths[0].unlink()
    paths[1].chmod(0o644)
    paths[1].write_bytes(contents[1][:-100])
    said = referee_probabilities(workspace, LITE1, candidates)
    assert said.unread == {lost.key: "missing", altered.key: "altered"}
    assert "2 of 20 photos gave" in capsys.readouterr().err
    assert set(said.p) | set(said.unread) == {c.key for c in candidates}
    keys = [c.key for c in candidates]
    order = referee_order(said.ordering(keys), keys, 0)
    assert {keys[place] for place in order[-2:]} == {lost.key, altered.key}
    for path, data in zip(paths, contents, strict=True):
        path.write_bytes(data)
    again = referee_probabilities(workspace, LITE1, candidates)
    assert not again.unread
    assert {key: again.p[key] for key in said.p} == said.p


def test_whom_the_referee_has_not_seen_stands_behind_the_least_likely_one() -> None:
    least = word(np.array([0.0, 2000.0]), 0)
    said = RefereeScores("m", "f", {}, {"a": least, "c": 0.5}, {"b": "missing"})
    p = said.ordering("abc")
    assert [("abc")[place] for place in referee_order(p, ["2", "1", "3"], 0)] == ["c", "a", "b"]
