"""What an evaluation tells beside the measures: classes, confusions, models compared, tables."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curate.errors import UsageError
from curate.files import sha256_file
from curate.labels.space import load_label_space
from curate.testbed import published
from curate.testbed.beside_tables import comparison_table
from pipelines.evaluate import evaluate, results_notes

MODEL = "lite/efficientnet_lite0"
THOUSAND = load_label_space("imagenet-1k")

Photos = list[tuple[Path, int]]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, package_photos: Photos) -> Path:
    root = tmp_path_factory.mktemp("sets") / "dozen"
    for path, column in package_photos[:12]:
        folder = root / THOUSAND.wnids[column]
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / path.name)
    return root


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory, dataset: Path) -> Any:
    """A model beside predictions that take everything for one class, and the report."""
    folder = tmp_path_factory.mktemp("reports")
    mine = folder / "=mine.csv"
    with mine.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("path", "predicted_wnid", "confidence"))
        for number, path in enumerate(sorted(dataset.glob("*/*"))):
            name = path.relative_to(dataset).as_posix()
            writer.writerow((name, path.parent.name if number < 2 else THOUSAND.wnids[0], 0.9))
    summary = evaluate(
        [dataset],
        [MODEL],
        predictions=[mine],
        report=folder / "report",
        resamples=20,
        temperature_split=0.4,
    )
    return summary, folder / "report"


def test_models_are_compared_on_the_same_images(evaluated: Any) -> None:
    summary, _ = evaluated
    file, model = summary["results"]
    (one,) = summary["comparisons"]
    assert (one["first"], one["second"]) == ("=mine.csv", MODEL)
    assert (one["dataset"], one["n"]) == ("dozen", 12)
    for name, told in one["metrics"].items():
        gap = model["metrics"][name]["value"] - file["metrics"][name]["value"]
        assert told["value"] == pytest.approx(gap, abs=1e-12)
    test = one["mcnemar"]
    assert test["both"] + test["first_only"] == 2
    assert test["both"] + test["second_only"] == model["metrics"]["accuracy"]["value"] * 12


def test_classes_and_confusions_add_up_to_the_accuracy(evaluated: Any) -> None:
    for result in evaluated[0]["results"]:
        right = sum(row["right"] for row in result["per_class"])
        assert sum(row["n"] for row in result["per_class"]) == 12
        assert right == result["metrics"]["accuracy"]["value"] * 12
        assert result["confusions"]["wrong"] == 12 - right
        assert sum(row["n"] for row in result["confusions"]["top"]) == 12 - right
        assert result["published"] is None


def test_a_temperature_is_fitted_where_there_are_logits(evaluated: Any) -> None:
    file, model = (
        result["metrics"]["rms_calibration_error_scaled"] for result in evaluated[0]["results"]
    )
    assert file["value"] is None
    assert "needs logits" in file["note"]
    assert model["n"] + model["fitted_on"] == 12
    assert 0.01 <= model["temperature"] <= 100
    assert 0 <= model["value"] <= 1


def test_the_report_holds_the_same_numbers_in_every_form(evaluated: Any) -> None:
    summary, report = evaluated
    assert json.loads((report / "results.json").read_text()) == summary
    with (report / "results.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == sum(len(result["metrics"]) for result in summary["results"])
    assert {row["model"] for row in rows} == {"'=mine.csv", MODEL}
    for row in rows:
        result = summary["results"][row["model"] == MODEL]
        value = result["metrics"][row["measure"]]["value"]
        assert row["value"] == ("" if value is None else str(value))
    with (report / "comparisons.csv").open(newline="") as stream:
        assert [row["measure"] for row in csv.DictReader(stream)] == [
            "accuracy",
            "aurra",
            "rms_calibration_error",
        ]
    assert (
        r"measure & =mine.csv & lite/efficientnet\_lite0 \\" in (report / "results.tex").read_text()
    )
    markdown = (report / "results.md").read_text()
    assert "## Models compared" in markdown
    # The page and the tables tell one difference in the same digits.
    _, rows = comparison_table(summary["comparisons"])
    page = (report / "index.html").read_text()
    for row in rows:
        assert row[4].replace("-", "−") in page
        assert row[4] in markdown
    assert rows[0][-1] in page


def test_a_share_that_is_none_is_refused(dataset: Path) -> None:
    for share in (0.0, 1.0, float("nan")):
        with pytest.raises(UsageError, match="write one between 0 and 1"):
            evaluate([dataset], [MODEL], temperature_split=share)


def write_predictions(file: Path, rows: list[str]) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join(["path,wnid,predicted_wnid,confidence", *rows]) + "\n")
    return file


def test_files_of_the_same_images_are_compared_in_whatever_order_their_rows_stand(
    tmp_path: Path,
) -> None:
    one, other = THOUSAND.wnids[6], THOUSAND.wnids[7]
    rows = [f"{n}.jpg,{one},{one if n < 6 else other},0.{n + 1}" for n in range(8)]
    better = [row.replace(other, one) for row in rows]
    first = write_predictions(tmp_path / "first.csv", rows)
    second = write_predictions(tmp_path / "second.csv", better[::-1])
    third = write_predictions(tmp_path / "third.csv", rows[:-1])
    relabelled = [row.replace(f",{one},", f",{other},", 1) for row in rows]
    fourth = write_predictions(tmp_path / "fourth.csv", relabelled)
    fifth = write_predictions(tmp_path / "fifth.csv", better[:-1])
    summary = evaluate(
        [],
        [],
        predictions=[first, third, second, fourth, fifth],
        label_space="imagenet-1k",
        report=tmp_path / "report",
        resamples=20,
    )
    pair, others = summary["comparisons"]
    assert (others["first"], others["second"]) == ("third.csv", "fifth.csv")
    assert (pair["first"], pair["second"], pair["n"]) == ("first.csv", "second.csv", 8)
    assert pair["mcnemar"] | {"p_value": 0.5} == {
        "both": 6,
        "first_only": 0,
        "second_only": 2,
        "neither": 0,
        "p_value": 0.5,
    }
    page = (tmp_path / "report" / "index.html").read_text()
    assert page.count("Classes with images") == 3
    assert page.count("Pairs of models on the same images") == 2
    assert page.count(' <span class="muted">less</span> ') == 2


def test_an_image_under_two_classes_is_two_images_in_both_files(tmp_path: Path) -> None:
    labels, logits = np.array(THOUSAND.wnids[6:8]), 9 * np.eye(1000)[[6, 6]]
    for name, order in (("first", [0, 1]), ("second", [1, 0])):
        paths = np.array(["a.jpg", "a.jpg"])
        np.savez(tmp_path / name, logits=logits[order], labels=labels[order], paths=paths)
    files = [tmp_path / "first.npz", tmp_path / "second.npz"]
    summary = evaluate([], [], predictions=files, label_space="imagenet-1k", resamples=20)
    (pair,) = summary["comparisons"]
    assert (pair["mcnemar"]["both"], pair["mcnemar"]["neither"]) == (1, 1)


def test_each_file_of_something_else_has_its_own_other_side(tmp_path: Path) -> None:
    for name, scores in (("a", (3, 1)), ("b", (1, 3))):
        for side, score in zip(("out", "in"), scores, strict=True):
            (tmp_path / f"{name}-{side}.csv").write_text(f"path,anomaly_mine\nx.jpg,{score}\n")
    files = [tmp_path / f"{name}-{side}.csv" for side in ("out", "in") for name in "ab"]
    summary = evaluate(
        [], [], predictions=files[:2], in_distribution_predictions=files[2:], resamples=20
    )
    aurocs = [one["metrics"]["auroc_mine"]["value"] for one in summary["results"]]
    assert aurocs == [1.0, 0.0]
    with pytest.raises(UsageError, match="2 --predictions stand against 1"):
        evaluate([], [], predictions=files[:2], in_distribution_predictions=files[2:3])


def test_files_of_one_name_are_refused(tmp_path: Path) -> None:
    rows = [f"a.jpg,{THOUSAND.wnids[6]},{THOUSAND.wnids[6]},0.5"]
    files = [write_predictions(tmp_path / name / "mine.csv", rows) for name in "ab"]
    with pytest.raises(UsageError, match=r"predictions file mine\.csv is named twice"):
        evaluate([], [], predictions=files)


def test_the_weights_that_filtered_imagenet_a_are_flagged_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wnids = load_label_space("imagenet-a").wnids
    names = [f"0.0{n:05}_ant _ bee_0.5.jpg" for n in range(7500)]
    rows = [f"{name},{wnids[n % 200]},{wnids[0]},0.5" for n, name in enumerate(names)]
    file = write_predictions(tmp_path / "mine.csv", rows)
    flags = []
    for begins in ("0676ba61", sha256_file(file)[:8]):
        monkeypatch.setitem(published._FILTERS, "ImageNet-A", (begins,))
        (result,) = evaluate([], [], predictions=[file], resamples=2)["results"]
        assert result["published"]["dataset"] == "ImageNet-A"
        flags.append((result["took_part_in_selection"], "by construction" in told([result])))
    assert flags == [(None, False), (True, True)]


def told(results: list[dict[str, Any]]) -> str:
    return " ".join(results_notes(results))
