from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from curate.labels.space import load_label_space
from curate.metrics import ood_detection
from curate.metrics.anomaly import SCORES
from curate.testbed.ood import DETECTION, detection_notes, detection_table, measure_ood, scores_of
from curate.testbed.predictions import Predictions
from curate.testbed.tables import results_markdown, results_notes

SPACE = load_label_space("imagenet-o")


def predictions(count: int, shift: float, failed: dict[int, str] | None = None) -> Predictions:
    random = np.random.RandomState(count)
    scores = {name: random.randn(count) + shift for name in ("mine", *SCORES)}
    everywhere = {"energy": random.randn(count) + shift}
    for row in failed or {}:
        for values in (*scores.values(), *everywhere.values()):
            values[row] = np.nan
    return Predictions(
        [f"{row}.jpg" for row in range(count)],
        [""] * count,
        [None] * count,
        np.full(count, np.nan),
        failed=failed or {},
        outputs=1000,
        anomaly=scores,
        anomaly_unrestricted=everywhere,
    )


INSIDE = predictions(40, 0.0, {3: "truncated"})
OUTSIDE = predictions(12, 1.0, {0: "nan-logits"})


def test_every_score_that_both_sides_have_is_measured() -> None:
    told: list[int] = []
    found = measure_ood(INSIDE, OUTSIDE, SPACE, resamples=20, done=lambda: told.append(1))
    assert scores_of(INSIDE, OUTSIDE) == [
        *((name, False) for name in (*SCORES, "mine")),
        ("energy", True),
    ]
    assert len(told) == 6
    assert list(found) == [
        *(f"{name}_{score}" for score in (*SCORES, "mine") for name in DETECTION),
        *(f"{name}_energy_unrestricted" for name in DETECTION),
    ]
    one = found["aupr_msp"]
    plain = ood_detection(
        INSIDE.anomaly["msp"][INSIDE.sound], OUTSIDE.anomaly["msp"][OUTSIDE.sound]
    )
    assert one["value"] == pytest.approx(plain.aupr, abs=1e-12)
    assert one["low"] < one["value"] < one["high"]
    assert (one["n_in"], one["n_out"], one["n"]) == (39, 11, 50)
    assert one["base_rate"] == plain.base_rate == 0.22
    assert one["positive"] == "out-of-distribution"
    assert found["aupr_in_msp"]["positive"] == "in-distribution"
    assert found["fpr95_mine"]["label"] == "FPR at 95 % recall, mine"
    assert (one["restricted_to"], one["classes"]) == ("imagenet-o", 200)
    last = found["auroc_energy_unrestricted"]
    assert (last["restricted_to"], last["classes"]) == (None, 1000)
    assert last["label"] == "AUROC, energy, all outputs"


def test_one_image_on_a_side_has_no_interval() -> None:
    found = measure_ood(INSIDE, predictions(1, 0.0), SPACE, resamples=5)
    assert found["aupr_msp"]["low"] is None
    assert "no interval" in found["aupr_msp"]["note"]


def result(**changes: Any) -> dict[str, Any]:
    dataset = {"name": "odd|set", "images": 12, "classes": 3, "passed_over": 0, "release": None}
    plain = {
        "kind": "ood",
        "model": {"name": "timm/x", "fingerprint": "f" * 64, "fingerprint_of": "file"},
        "dataset": dataset,
        "in_distribution": {**dataset, "name": "val", "other_classes": 0},
        "label_space": {
            "name": "imagenet-o",
            "classes": 200,
            "fingerprint": "e" * 64,
            "chosen_by": "x",
        },
        "view": None,
        "made_by": {"device": "cpu"},
        "metrics": measure_ood(INSIDE, OUTSIDE, SPACE, resamples=5),
        "n": 50,
        "n_in": 39,
        "n_out": 11,
        "base_rate": 0.22,
        "failed": 0,
        "failures": [],
        "took_part_in_selection": None,
        "trained_on_imagenet_21k": False,
        "shared_images": 0,
    }
    return {**plain, **changes}


def test_notes_speak_of_both_sides() -> None:
    failures = [{"path": "n1/x.jpg", "reason": "truncated"}]
    one = result(failed=2, failures=failures)
    one["dataset"] = {**one["dataset"], "release": {"reviewed": False}}
    told = "\n".join(results_notes([one]))
    assert "2 images of odd|set and of val have no prediction of timm/x" in told
    assert "odd|set is unreviewed: photos that do show a class lower" in told
    assert "accuracy" not in told


def test_the_table_has_a_row_a_score() -> None:
    columns, rows = detection_table([result()])
    assert columns[:5] == ["model", "dataset", "score", "among", "AUPR"]
    assert [row[2] for row in rows] == [*SCORES, "mine", "energy"]
    assert [row[3] for row in rows] == ["200 classes"] * 5 + ["1000 outputs"]
    assert all(len(row) == len(columns) for row in rows)
    assert [row[:2] for row in rows] == [["timm/x", "odd|set"]] + [["", ""]] * 5


def test_the_table_leaves_an_interval_out_where_there_is_none() -> None:
    one = result()
    one["metrics"] = measure_ood(INSIDE, predictions(1, 0.0), SPACE, resamples=5)
    header, rows = detection_table([one])
    assert {row[header.index("95% interval")] for row in rows} == {""}
    assert all(row[header.index("AUPR")].strip() for row in rows)


def test_what_must_be_said_is_said() -> None:
    (sizes,) = detection_notes(result())
    assert "11 images of something else" in sizes
    assert "base rate 22.0%" in sizes
    flagged = result(took_part_in_selection=True, trained_on_imagenet_21k=True, shared_images=2)
    flagged["in_distribution"]["other_classes"] = 7
    notes = results_notes([flagged])
    for words in ("took part in selecting odd|set: it is confident", "ImageNet-21k", "7 images of"):
        assert any(words in note for note in notes)
    assert any("2 images stand on both sides" in note for note in notes)
    assert not any("wrong there by construction" in note for note in notes)


def test_the_markdown_names_the_positive_class_and_escapes_names() -> None:
    text = results_markdown([result()])
    assert "AUPR, in-distribution positive, maximum softmax probability" in text
    assert "odd\\|set, 12 images of 3 classes, against val, 12 images of 3 classes" in text
    assert text.count("average precision, step by step") == 1, "a convention a measure"
