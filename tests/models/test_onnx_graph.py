from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curate.files import TEMPORARY, sha256_bytes
from curate.models import Classifier, onnx_graph
from curate.models.onnx_forward import OnnxForward
from curate.models.onnx_graph import cache_folder, export, graph

Toy = Callable[..., Classifier]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(onnx_graph, "_told", set())
    return tmp_path / "curate" / "onnx"


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the networks that were exported."""
    names: list[str] = []

    def counted(classifier: Classifier, side: int) -> bytes:
        names.append(classifier.name)
        return export(classifier, side)

    monkeypatch.setattr(onnx_graph, "export", counted)
    return names


def test_a_network_is_exported_once(
    toy: Toy, cache: Path, exports: list[str], views: np.ndarray
) -> None:
    first, second = OnnxForward(toy()), OnnxForward(toy())
    assert exports == ["toy"]
    assert np.array_equal(first.logits(views), second.logits(views))
    assert first.record() == second.record()
    assert len(list(cache.iterdir())) == 1


def test_other_weights_sizes_and_versions_are_other_graphs(
    toy: Toy, exports: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = [
        graph(toy(), 224).content,
        graph(toy(seed=1), 224).content,
        graph(toy(), 64).content,
        graph(toy(architecture="other"), 224).content,
    ]
    assert len(exports) == 4
    assert len(set(contents)) == 3
    monkeypatch.setattr(onnx_graph, "_version", lambda name: "0.0")
    graph(toy(), 224)
    assert len(exports) == 5


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "cut in the header": lambda whole: whole[:50],
    "cut in the graph": lambda whole: whole[:-1000],
    "longer": lambda whole: whole + b"\0",
    "a flipped bit": lambda whole: whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:],
    "another file": lambda whole: os.urandom(len(whole)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_made_again(
    damage: str, toy: Toy, cache: Path, exports: list[str]
) -> None:
    wanted = graph(toy(), 224)
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    path.write_bytes(DAMAGES[damage](whole))
    assert graph(toy(), 224) == wanted
    assert len(exports) == 2
    assert path.read_bytes() == whole


@given(data=st.data())
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_damage_is_seen(data: st.DataObject, tmp_path: Path) -> None:
    body = data.draw(st.binary(max_size=300))
    path = tmp_path / "graph.onnx"
    whole = onnx_graph._header(onnx_graph.Graph(body, sha256_bytes(body))) + body
    path.write_bytes(whole)
    kept = onnx_graph._kept(path)
    assert kept is not None
    assert kept.content == body
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        path.write_bytes(whole[:place])
    else:
        flipped = whole[place] ^ data.draw(st.integers(1, 255))
        path.write_bytes(whole[:place] + bytes([flipped]) + whole[place + 1 :])
    assert onnx_graph._kept(path) is None


def test_a_graph_of_another_network_is_not_taken_for_this_one(
    toy: Toy, exports: list[str], views: np.ndarray
) -> None:
    OnnxForward(toy(fingerprint="f" * 64, seed=1))
    right = toy(fingerprint="f" * 64)
    found = OnnxForward(right).logits(views)
    assert len(exports) == 2
    assert np.abs(found - right.logits(views).numpy()).max() < 1e-4


def test_a_cache_that_takes_nothing_costs_one_line_and_no_more(
    toy: Toy, cache: Path, exports: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    cache.parent.parent.mkdir(exist_ok=True)
    cache.parent.write_text("in the way")
    OnnxForward(toy())
    OnnxForward(toy())
    assert len(exports) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "the cache takes none" in told


def test_the_graphs_unused_for_longest_go_and_so_does_what_killed_writers_left(
    toy: Toy, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifiers = [toy(seed=seed) for seed in range(4)]
    paths = []
    for age, classifier in enumerate(classifiers[:3]):
        known = set(cache.glob("*"))
        graph(classifier, 224)
        (path,) = set(cache.glob("*")) - known
        os.utime(path, (time.time() - 1000 + age, time.time() - 1000 + age))
        paths.append(path)
    leftover, fresh = cache / f"{TEMPORARY}1-a", cache / f"{TEMPORARY}2-b"
    for path in (leftover, fresh):
        path.write_bytes(b"half a graph")
    os.utime(leftover, (0, 0))
    monkeypatch.setattr(onnx_graph, "MOST_BYTES", 3 * paths[0].stat().st_size + 100)
    # The oldest is used again, and so the second one is the one unused for longest.
    graph(classifiers[0], 224)
    graph(classifiers[3], 224)
    assert [path.exists() for path in paths] == [True, False, True]
    assert (leftover.exists(), fresh.exists()) == (False, True)


ELSEWHERE = """
import hashlib, sys
import torch
from curate.images.views import PAPER
from curate.labels.space import load_label_space
from curate.models import Classifier, Preprocessing
from curate.models.onnx_forward import OnnxForward

torch.manual_seed(0)
module = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3, stride=4), torch.nn.BatchNorm2d(8),
    torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 1000),
)
half = (0.5, 0.5, 0.5)
classifier = Classifier(
    name="toy", architecture="toy", module=module, output=load_label_space("imagenet-1k"),
    preprocessing=Preprocessing(PAPER, half, half, "by hand"),
)
print(OnnxForward(classifier).record()["graphs"]["224"])
"""


@pytest.mark.slow
def test_processes_that_export_side_by_side_leave_one_whole_file(toy: Toy, cache: Path) -> None:
    running = [
        subprocess.Popen([sys.executable, "-c", ELSEWHERE], cwd=ROOT, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    told = {process.communicate()[0] for process in running}
    assert [process.returncode for process in running] == [0, 0, 0]
    # The same bytes in each: a graph depends on the network alone.
    assert told == {graph(toy(), 224).sha256.encode() + b"\n"}
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize(
    "exporter",
    [onnx_graph._traced, pytest.param(onnx_graph._captured, marks=pytest.mark.slow)],
)
def test_both_exporters_of_pytorch_give_a_graph_that_runs_alike(
    exporter: Callable[..., bytes], toy: Toy, views: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_traced", "_captured"):
        monkeypatch.setattr(onnx_graph, name, exporter)
    classifier = toy()
    found = OnnxForward(classifier).logits(views)
    assert np.abs(found - classifier.logits(views).numpy()).max() < 1e-5


def test_the_cache_lies_where_the_system_keeps_such_things(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache_folder() == tmp_path / "curate" / "onnx"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    place = "Library/Caches" if sys.platform == "darwin" else ".cache"
    assert cache_folder() == tmp_path / "home" / place / "curate" / "onnx"
