"""What docs/evaluating.md says can be typed can be typed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from curate.cli import common
from curate.cli.main import app
from curate.labels.space import load_label_space
from tests.pipelines.zoo import loaded_once
from tests.running import ROOT

PAGE = (ROOT / "docs" / "evaluating.md").read_text(encoding="utf-8")
MODEL = "lite/efficientnet_lite0"
O = load_label_space("imagenet-o")  # noqa: E741
THOUSAND = load_label_space("imagenet-1k")

Photos = list[tuple[Path, int]]


@pytest.fixture
def folder(
    tmp_path: Path, package_photos: Photos, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A working folder with the datasets that the page names, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(common.shared, "json", False)  # else one command's option stays
    for number, (path, column) in enumerate(package_photos[:8]):
        wnid = THOUSAND.wnids[column]
        place = Path("val", wnid) if wnid in O else Path("something-else")
        for target in (place, Path("dataset", wnid)):
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target / f"{number}.jpg")
    with loaded_once():
        yield tmp_path


def typed(kind: str) -> list[dict[str, Any]]:
    """The summaries of the commands of a block."""
    (block,) = re.findall(rf"<!-- test: {kind} -->\n```\n(.*?)```", PAGE, re.DOTALL)
    told = []
    for line in str(block).splitlines():
        words = shlex.split(line)
        assert words[0] == "curate"
        done = CliRunner().invoke(app, ["--json", *words[1:]])
        assert done.exit_code == 0, done.output
        told.append(json.loads(done.stdout))
    return told


@pytest.mark.slow
def test_two_models_are_evaluated_and_a_report_is_written(folder: Path) -> None:
    (summary,) = typed("classification")
    assert [one["kind"] for one in summary["results"]] == ["classification"] * 2
    written = {path.name for path in (folder / "results").iterdir()}
    assert {"results.json", "results.md", "index.html"} <= written
    assert (folder / "caches" / "curate" / "evaluations").is_dir()


def test_flat_images_are_evaluated_with_a_file_of_labels(folder: Path) -> None:
    lines = [f"{path.name} {path.parent.name}\n" for path in folder.glob("val/*/*")]
    for path in list(folder.glob("val/*/*")):
        path.rename(folder / "val" / path.name)
        path.parent.rmdir()
    (folder / "val.txt").write_text("".join(lines))
    (summary,) = typed("flat")
    assert summary["results"][0]["label_space"]["name"] == "imagenet-o"
    assert summary["results"][0]["metrics"]["accuracy"]["value"] > 0.5


def test_detection_names_every_measure_of_the_page(folder: Path) -> None:
    (summary,) = typed("detection")
    (result,) = summary["results"]
    named = set(re.findall(r"^\| `(\w+)`: ", PAGE, re.MULTILINE)) | {"auroc"}
    scores = re.findall(r"^\| `(msp|max_logit|energy|entropy)` \|", PAGE, re.MULTILINE)
    assert len(scores) == 4
    assert set(result["metrics"]) == {
        f"{name}_{score}{end}"
        for name in named
        for score in scores
        for end in ("", "_unrestricted")
    }


def test_every_form_of_file_is_read(folder: Path) -> None:
    lines = ["path,predicted_wnid,confidence\n"]
    lines += [f"{path.name},{path.parent.name},0.5\n" for path in folder.glob("dataset/*/*")]
    (folder / "mine.csv").write_text("".join(lines))
    (folder / "yours.csv").write_text("".join(lines))
    wnids = load_label_space("imagenet-a").wnids[:3]
    np.savez(folder / "mine.npz", logits=9 * np.eye(3, 1000), labels=np.array(wnids))
    (folder / "outside.csv").write_text("path,anomaly_mine\na.jpg,3\nb.jpg,1\n")
    (folder / "inside.csv").write_text("path,anomaly_mine\nc.jpg,2\nd.jpg,0\n")
    own, logits, detection, both = typed("files")
    assert own["results"][0]["metrics"]["accuracy"]["value"] == 1
    assert logits["results"][0]["metrics"]["accuracy_unrestricted"]["value"] == 0
    assert detection["results"][0]["metrics"]["auroc_mine"]["value"] == 0.75
    assert [one["model"]["name"] for one in both["results"]] == ["mine.csv", "yours.csv"]
    assert len(both["comparisons"]) == 1


def test_strict_tells_what_is_doubtful_and_no_cache_keeps_nothing(folder: Path) -> None:
    next(folder.glob("something-else/*")).with_name("text.jpg").write_text("no image")
    words = ["evaluate", "something-else", "--in-distribution", "val", "--model", MODEL]
    done = CliRunner().invoke(app, [*words, "--no-cache"])
    assert done.exit_code == 0, done.output
    assert "something-else" in done.stdout
    assert "energy" in done.stdout
    assert "note: something-else: " in done.stdout
    assert not (folder / "caches").exists()
    done = CliRunner().invoke(app, [*words, "--strict"])
    assert done.exit_code == 1
    assert "1 images could not be evaluated" in str(done.exception)
