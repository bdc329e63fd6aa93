"""The page of an evaluation, made from what models say of real photos."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.labels.space import load_label_space
from curate.testbed.predictions import Predictions
from pipelines import evaluate_failures
from pipelines.evaluate import evaluate
from pipelines.evaluate_beside_page import comparisons, published
from pipelines.evaluate_failures import SHOTS, Errors, class_rows, errors_by_confusion
from pipelines.evaluate_plots import published_value, references
from tests.browser import browser_page
from tests.report.test_page import Structure

MODEL = "lite/efficientnet_lite0"
WNIDS = load_label_space("imagenet-1k").wnids

#: File names that are markup, turn the text around them, or are as long as a disk takes.
NAMES = [
    "<img src=x onerror=alert(1)>.jpg",
    "<\u2044script><svg onload=alert(1)>.jpg",
    "\u202egpj.exe\u2066.jpg",
    "$\\frac{1}{2}$ & 'quoted' \"twice\".jpg",
    "n" * 240 + ".jpg",
]

Photos = list[tuple[Path, int]]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, package_photos: Photos) -> tuple[Path, Path]:
    """Six photos with awkward names in class folders, the last one cut off, and predictions."""
    folder = tmp_path_factory.mktemp("<b>sets\u202e")
    root, rows = folder / "set <i>\u202e", []
    names = [*NAMES, "cut off.jpg"]
    for number, (name, (path, column)) in enumerate(zip(names, package_photos, strict=False)):
        (root / WNIDS[column]).mkdir(parents=True, exist_ok=True)
        target = root / WNIDS[column] / name
        shutil.copy(path, target)
        if name == "cut off.jpg":
            target.write_bytes(path.read_bytes()[:900])
        shown = f"{WNIDS[column]}/{name}"
        # The first one is right; the others are taken for the same class as each other.
        wrong = WNIDS[column] if number == 0 else WNIDS[7]
        rows.append([shown, WNIDS[column], wrong, number / 6])
    file = folder / "model <b>\u202e.csv"
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerows([["path", "wnid", "predicted_wnid", "confidence"], *rows])
    return root, file


def page_of(hostile: tuple[Path, Path], report: Path) -> str:
    root, file = hostile
    evaluate([root], [], predictions=[file], report=report, resamples=20)
    return (report / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def real(
    tmp_path_factory: pytest.TempPathFactory, weak_folder: Path
) -> tuple[dict[str, Any], Path]:
    """What a network says of photos with right and wrong labels."""
    report = tmp_path_factory.mktemp("real")
    return evaluate([weak_folder], [MODEL], report=report, resamples=20), report


def test_real_photos_that_are_wrong_are_shown_with_what_they_are_taken_for(
    real: tuple[dict[str, Any], Path],
) -> None:
    summary, report = real
    html = (report / "index.html").read_text(encoding="utf-8")
    (result,) = summary["results"]
    right = round(result["metrics"]["accuracy"]["value"] * result["n"])
    assert html.count('<figure class="shot">') == html.count("<img ") == result["n"] - right > 0
    assert f"{100 * right / result['n']:.2f}<small>" in html
    assert html.count('role="img"') == 4
    assert "Do not publish this page." in html
    assert result["model"]["fingerprint"] in html
    assert result["dataset"]["content_sha256"] in html


def test_the_results_hold_few_points_of_what_the_plots_show(
    real: tuple[dict[str, Any], Path],
) -> None:
    summary, report = real
    (kept,) = json.loads((report / "results.json").read_bytes())["results"]
    (told,) = summary["results"]
    assert kept["curves"] == told["curves"]
    curve = kept["curves"]["response_rate"]
    assert len(curve["rate"]) == len(curve["accuracy"]) == kept["n"]
    assert curve["accuracy"][-1] == pytest.approx(kept["metrics"]["accuracy"]["value"])
    assert np.mean(curve["accuracy"]) == pytest.approx(kept["metrics"]["aurra"]["value"])
    bins = kept["curves"]["reliability"]
    assert sum(bins["count"]) == kept["n"]
    assert all(
        low <= value <= high
        for low, value, high in zip(bins["low"], bins["accuracy"], bins["high"], strict=True)
    )
    counted = kept["curves"]["confidence"]
    right = round(kept["metrics"]["accuracy"]["value"] * kept["n"])
    assert (sum(counted["right"]), sum(counted["wrong"])) == (right, kept["n"] - right)
    rows = pq.read_table(report / kept["predictions"]).to_pylist()
    for name, is_right in (("right", True), ("wrong", False)):
        sure = [row["confidence"] for row in rows if row["correct"] is is_right]
        assert counted[name] == np.histogram(sure, counted["edges"])[0].tolist()


def test_names_of_files_folders_and_models_are_text(
    hostile: tuple[Path, Path], tmp_path: Path
) -> None:
    structure = Structure(page_of(hostile, tmp_path))
    tags = [tag for tag, *_ in structure.found]
    assert not {"script", "b", "i"} & set(tags)
    assert not any(name.startswith("on") for _, *names in structure.found for name in names)
    text = "".join(structure.text)
    assert all(name in text for name in NAMES[1:])
    assert text.count("cannot be shown: truncated") == 1


def test_the_same_evaluation_gives_the_same_page(
    hostile: tuple[Path, Path], tmp_path: Path
) -> None:
    assert page_of(hostile, tmp_path / "one") == page_of(hostile, tmp_path / "two")


def test_without_matplotlib_the_page_comes_without_plots_and_says_so(
    hostile: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    html = page_of(hostile, tmp_path)
    assert "natadv-curate[plots]" in html
    assert 'role="img"' not in html
    assert html.count('<figure class="shot">') == 5
    assert "curves" in json.loads((tmp_path / "results.json").read_bytes())["results"][0]


def test_a_full_page_names_further_photos_without_their_pictures(
    hostile: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate_failures, "PICTURE_BYTES", 1)
    html = page_of(hostile, tmp_path)
    assert html.count("<img ") == 1
    assert html.count("the page is full") == 3


def test_photos_of_a_release_carry_their_credits(
    hostile: tuple[Path, Path], tmp_path: Path
) -> None:
    root = tmp_path / "set"
    shutil.copytree(hostile[0], root)
    paths = [f"{path.parent.name}/{path.name}" for path in sorted(root.glob("*/*"))]
    for licences, withheld in ((["CC-BY-4.0"] * 6, False), (["CC-BY-4.0", ""] * 3, True)):
        lines = [f"by <i>{n}, CC BY 4.0" for n in range(6)]
        columns = {"path": paths, "attribution": lines, "licence": licences}
        pq.write_table(pa.table(columns), root / "manifest.parquet")
        html = page_of((root, hostile[1]), tmp_path / "report")
        assert html.count("by &lt;i&gt;") == 5
        assert ("Do not publish this page." in html) == withheld


SOME = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 4).map(lambda n: n / 4)),
    min_size=1,
    max_size=80,
)


@given(SOME, st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_error_belongs_to_one_confusion_and_the_surest_come_first(
    rows: list[tuple[int, int, float]], outliers: bool
) -> None:
    names = "abcd"
    predictions = Predictions(
        [str(n) for n in range(len(rows))],
        [names[true] for true, _, _ in rows],
        [names[predicted] for _, predicted, _ in rows],
        np.array([confidence for _, _, confidence in rows]),
    )
    found = errors_by_confusion(predictions, outliers=outliers)
    counts = [one.count for one in found]
    assert counts == sorted(counts, reverse=True)
    wrong = [n for n, (a, b, _) in enumerate(rows) if outliers or a != b]
    assert sum(counts) == len(wrong)
    for one in found:
        same = [
            n
            for n in wrong
            if names[rows[n][1]] == one.predicted and one.true in (None, names[rows[n][0]])
        ]
        assert one.count == len(same)
        assert len(one.rows) == min(SHOTS, one.count)
        surest = sorted((rows[n][2] for n in same), reverse=True)
        assert [rows[n][2] for n in one.rows] == surest[: len(one.rows)]


def test_classes_stand_with_the_worst_first_and_what_they_are_most_often_taken_for() -> None:
    errors = [Errors("a", "b", [4], 3), Errors("a", "c", [2], 1), Errors("b", "c", [3], 1)]
    per_class = [
        {"wnid": wnid, "n": n, "right": right, "low": 0.0, "high": 1.0}
        for wnid, n, right in (("a", 8, 4), ("b", 9, 8), ("c", 2, 2), ("d", 4, 2))
    ]
    rows = class_rows(per_class, errors, {name: name.upper() for name in "abcd"})
    assert [(row.name, row.taken_for) for row in rows] == [
        ("A", "B"),
        ("D", ""),
        ("B", "C"),
        ("C", ""),
    ]


PAIR = {
    "first": "torchvision/one",
    "second": "torchvision/two",
    "dataset": "set",
    "n": 200,
    "difference": "second less first",
    "metrics": {
        "accuracy": {"value": 0.015, "low": -0.01, "high": 0.04},
        "aurra": {"value": -0.02, "low": None, "high": None},
    },
    "mcnemar": {"both": 1, "first_only": 2, "second_only": 5, "neither": 9, "p_value": 0.00001},
}


def test_pairs_of_models_are_told_with_signs_and_with_who_is_right_alone() -> None:
    (told,) = comparisons([PAIR], {"torchvision/one": "one", "torchvision/two": "two"})
    assert (told.first, told.second) == ("one", "two")
    assert told.said == [
        ("accuracy", "+1.50 (−1.00 to +4.00)"),
        ("AURRA", "−2.00"),
        ("right: first alone, second alone", "2, 5"),
        ("McNemar's test, p", "< 0.0001"),
    ]


def test_published_numbers_stand_with_their_source_and_with_whom_to_hold_them_against() -> None:
    row = {"measure": "accuracy", "source": "a paper", "settings": "", "note": "trained anew"}
    rows = [
        {**row, "model": "ResNet-50", "value": 0.0217, "relation": "reference"},
        {**row, "model": "VGG-19", "value": 0.027, "relation": "same architecture"},
    ]
    beside = {"dataset": "ImageNet-A", "agreement": "counts agree", "evidence": ["x", "y"]}
    results = [
        {"metrics": {}, "published": {**beside, "rows": rows}},
        {"metrics": {}, "published": {**beside, "rows": rows[:1]}},
    ]
    found = published(results, ["vgg19", "mine"])
    assert [(one.model, one.measure, one.value, one.beside) for one in found] == [
        ("ResNet-50", "accuracy", 0.0217, "the dataset itself"),
        ("VGG-19", "accuracy", 0.027, "vgg19: same architecture"),
    ]
    assert found[0].source == "a paper; trained anew"
    assert published_value(results[0], "accuracy") == 0.027
    assert published_value(results[1], "accuracy") is None
    named = {**rows[1], "value": 0.03, "relation": "same name"}
    both = {"metrics": {}, "published": {**beside, "rows": [*rows, named]}}
    assert published_value(both, "accuracy") == 0.03, "timm's own weights come first"
    assert [dot.published for dot in references(results, "accuracy")] == [0.0217]
    assert published([{"metrics": {}, "published": None}], ["mine"]) == []


@pytest.mark.slow
def test_the_page_stands_on_its_own_in_a_browser(
    browser_path: str, hostile: tuple[Path, Path], tmp_path: Path
) -> None:
    page_of(hostile, tmp_path)
    asked: list[str] = []
    told: list[str] = []
    with browser_page(browser_path, 390) as page:
        page.on("request", lambda request: asked.append(request.url))
        page.on("dialog", lambda dialog: (told.append(dialog.message), dialog.dismiss()))
        page.on("console", lambda message: told.append(message.text))
        page.on("pageerror", lambda error: told.append(str(error)))
        page.goto((tmp_path / "index.html").as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            # Nothing is cut off, but in boxes that scroll and names that end in dots.
            cut = page.evaluate(
                """() => [...document.querySelectorAll('body *')].filter(e => {
                    const box = e.getBoundingClientRect();
                    return !e.closest('.scroll, .shot') && box.width && box.right > innerWidth + 1;
                }).map(e => e.outerHTML.slice(0, 80))"""
            )
            assert not cut
            drawn = page.evaluate(
                """() => [...document.querySelectorAll('svg[role=img]')].map(
                    e => e.getBoundingClientRect().width)"""
            )
            assert len(drawn) == 4
            assert min(drawn) > 300
    assert not told
    assert all(url.startswith(("file:", "data:")) for url in asked)


@pytest.fixture(scope="module")
def detection(
    tmp_path_factory: pytest.TempPathFactory, hostile: tuple[Path, Path]
) -> tuple[dict[str, Any], str]:
    """What made-up logits say of the photos as images of something else, and the page."""
    folder = tmp_path_factory.mktemp("detection")
    random = np.random.RandomState(5)
    paths = [f"{path.parent.name}/{path.name}" for path in sorted(hostile[0].glob("*/*"))]
    outside, inside = random.randn(len(paths), 1000) * 2, random.randn(24, 1000) * 3
    np.savez(folder / "out.npz", logits=outside.astype(np.float32), paths=np.array(paths))
    np.savez(folder / "in.npz", logits=inside.astype(np.float32))
    summary = evaluate(
        [hostile[0]],
        [],
        predictions=[folder / "out.npz"],
        in_distribution_predictions=[folder / "in.npz"],
        label_space="imagenet-1k",
        report=folder / "report",
        resamples=20,
    )
    return summary, (folder / "report" / "index.html").read_text(encoding="utf-8")


def test_detection_is_told_with_chance_and_base_rate_and_what_it_is_measured_by(
    detection: tuple[dict[str, Any], str],
) -> None:
    (result,) = detection[0]["results"]
    text = " ".join(Structure(detection[1]).text)
    for told in ("Base rate", "16.7 %", "AUPR at base rate 1/6", "maximum softmax probability"):
        assert told in text
    told = result["metrics"]["aupr_msp"]
    assert f"{100 * told['value']:.2f}<small>" in detection[1]
    beside = result["metrics"]["aupr_reweighted_msp"]
    (drawn,) = re.findall(
        r"AUPR at base rate 1/6 with 95 % intervals: \S+ ([0-9.]+) %", detection[1]
    )
    assert drawn == f"{100 * beside['value']:.1f}" != f"{100 * told['value']:.1f}"
    # All models: AUPR, precision over recall, ROC. This one: its confidence, and all scores.
    assert detection[1].count('role="img"') == 5
    assert "calibration" not in text


def test_the_curves_of_detection_hold_the_measures(
    detection: tuple[dict[str, Any], str],
) -> None:
    (result,) = detection[0]["results"]
    assert list(result["curves"]) == ["msp", "max_logit", "energy", "entropy"]
    for name, curve in result["curves"].items():
        area = np.trapezoid(curve["recall"], curve["false_positive_rate"])
        assert area == pytest.approx(result["metrics"][f"auroc_{name}"]["value"])
        assert (sum(curve["inside"]), sum(curve["outside"])) == (24, 6)


def test_photos_of_something_else_are_shown_by_what_they_are_taken_for(
    detection: tuple[dict[str, Any], str],
) -> None:
    structure = Structure(detection[1])
    assert detection[1].count('<figure class="shot">') == 6
    assert "Surest of what is not there" in "".join(structure.text)
    assert not {"script", "b", "i"} & {tag for tag, *_ in structure.found}


def test_scores_alone_make_a_page_without_photos(tmp_path: Path) -> None:
    for name, scores in (("out", (0.9, 0.4, 0.8)), ("in", (0.1, 0.5))):
        rows = "".join(f"{n}.jpg,{score}\n" for n, score in enumerate(scores))
        (tmp_path / f"{name}.csv").write_text(f"path,anomaly_mine\n{rows}")
    # What a model predicts among all of its outputs may be no class of the label space.
    more = (",confidence,predicted_wnid", *[",0.5,<b>of no class"] * 3)
    lines = (tmp_path / "out.csv").read_text().splitlines()
    joined = "".join(f"{one}{other}\n" for one, other in zip(lines, more, strict=True))
    (tmp_path / "out.csv").write_text(joined)
    evaluate(
        [],
        [],
        predictions=[tmp_path / "out.csv"],
        in_distribution_predictions=[tmp_path / "in.csv"],
        report=tmp_path / "report",
        resamples=20,
    )
    html = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "AUPR by mine" in html
    assert '<figure class="shot">' not in html
    assert "Do not publish this page." not in html
