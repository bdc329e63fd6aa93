from __future__ import annotations

from typing import Any

from curate.testbed.measures import MEASURES
from curate.testbed.tables import results_markdown, results_notes, results_table


def result(**changes: Any) -> dict[str, Any]:
    """A result as `pipelines.evaluate` gives it, with hostile names."""
    metric = {
        "value": 0.123456,
        "low": 0.1,
        "high": 0.2,
        "n": 7,
        "interval": "Clopper-Pearson, 95%",
        "restricted_to": "a|b.csv",
        "classes": 200,
        "convention": None,
        "note": None,
    }
    plain: dict[str, Any] = {
        "model": {"name": "lite/x", "fingerprint": "f" * 64, "fingerprint_of": "file"},
        "dataset": {
            "name": "<b>|`set\n# heading",
            "images": 9,
            "classes": 3,
            "passed_over": 0,
            "release": None,
        },
        "label_space": {
            "name": "a|b.csv",
            "classes": 200,
            "fingerprint": "e" * 64,
            "chosen_by": "--label-space",
        },
        "view": {"resize": 256, "crop": 224, "interpolation": "bicubic", "place": "centre"},
        "made_by": {"device": "cpu"},
        "metrics": {name: dict(metric) for name in MEASURES},
        "failed": 0,
        "failures": [],
        "took_part_in_selection": None,
    }
    return {**plain, **changes}


def test_values_are_percent_and_absent_ones_a_dash() -> None:
    one = result()
    one["metrics"]["aurra"] |= {"value": None, "low": None, "high": None}
    _, rows = results_table([one])
    assert rows[0][3:] == [" 12.35", "10.00 – 20.00", 7]
    assert rows[2][3:] == ["     –", "", 7]


def test_foreign_text_is_no_markup() -> None:
    text = results_markdown([result()])
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 2 + len(MEASURES)
    for line in table:
        assert line.replace("\\|", "").count("|") == 7
    assert "<b>" not in text
    assert "\n# heading" not in text
    assert "&lt;b&gt;\\|\\`set # heading" in text


def test_notes_come_once() -> None:
    one = result(
        took_part_in_selection=True,
        failed=2,
        failures=[{"path": "n1/x.jpg", "reason": "truncated"}],
    )
    one["dataset"] |= {"release": {"reviewed": False}, "passed_over": 4}
    for name in ("aurra", "aurra_published"):
        one["metrics"][name]["note"] = "one image has no spread"
    notes = results_notes([one, one])
    assert len(notes) == 6
    for part in ("took part", "unreviewed", "2 images of", "4 files", "AURRA: one image"):
        assert any(part in note for note in notes)
    assert results_notes([result(took_part_in_selection=False)]) == []
