from __future__ import annotations

import csv
import io
import re
from itertools import pairwise
from typing import Any

import pytest

from curate.testbed.beside_tables import comparison_table, p_value, points, published_table
from curate.testbed.measures import MEASURES
from curate.testbed.table_forms import comparisons_csv, results_csv, results_latex, tex
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
        "kind": "classification",
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
    assert rows[list(MEASURES).index("aurra")][3:] == ["     –", "", 7]


def test_foreign_text_is_no_markup() -> None:
    text = results_markdown([result()])
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 2 + len(MEASURES)
    for line in table:
        assert line.replace("\\|", "").count("|") == 7
    assert "<b>" not in text
    assert "\n# heading" not in text
    assert "\\<b\\>\\|\\`set \\# heading" in text


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


def published() -> dict[str, Any]:
    return {
        "dataset": "ImageNet-A",
        "agreement": "layout and counts agree",
        "evidence": ["7,500 images"],
        "rows": [
            {
                "model": "ResNet-50",
                "measure": "accuracy",
                "value": 0.0217,
                "source": "somebody & others, 2021",
                "settings": "",
                "note": "trained anew",
                "relation": "reference",
            }
        ],
    }


def comparison() -> dict[str, Any]:
    told = {"value": -0.0125, "low": -0.03, "high": 0.0, "n": 9, "interval": "i", "note": None}
    return {
        "first": "=lite/x",
        "second": "lite_y",
        "dataset": "set",
        "n": 9,
        "difference": "second less first",
        "metrics": {"accuracy": told, "aurra": {**told, "value": 0.02, "low": None, "high": None}},
        "mcnemar": {
            "both": 3,
            "first_only": 2,
            "second_only": 1,
            "neither": 3,
            "p_value": 0.000001,
        },
    }


def test_csv_holds_fractions_in_full_and_disarms_formulas() -> None:
    one = result(published=published())
    one["model"]["name"] = "=HYPERLINK(1)"
    rows = list(csv.DictReader(io.StringIO(results_csv([one]))))
    assert [row["measure"] for row in rows] == [*MEASURES, "accuracy"]
    assert rows[0]["value"] == "0.123456"
    assert rows[0]["model"] == "'=HYPERLINK(1)"
    assert rows[0]["source"] == "measured"
    assert rows[0]["positive"] == ""
    assert (rows[-1]["value"], rows[-1]["source"]) == ("0.0217", "somebody & others, 2021")
    (first, second) = csv.DictReader(io.StringIO(comparisons_csv([comparison()])))
    assert (first["first"], first["second_less_first"]) == ("'=lite/x", "-0.0125")
    assert (second["measure"], second["low"], second["p_mcnemar"]) == ("aurra", "", "1e-06")


def unescaped(text: str) -> list[str]:
    """Signs that LaTeX would act upon, outside of what we write ourselves."""
    return re.findall(r"(?<!\\)[&%$#_{}~^]", text)


def test_latex_escapes_every_sign_that_means_something() -> None:
    hostile = '\\input{/etc/passwd} 50% & $x_1^2$ #1 ~ {a} <b> |c| "d" \n\\end{tabular}'
    told = tex(hostile)
    assert "\n" not in told
    for command in (r"\textbackslash{}", r"\textasciitilde{}", r"\textasciicircum{}"):
        assert command in told
        told = told.replace(command, "")
    told = re.sub(r"\\text[a-z]+\{\}", "", told)
    assert unescaped(told) == []
    assert tex("plain name-1.5 é") == "plain name-1.5 é"
    assert '"' not in tex('"a"'), "LaTeX's own encoding has no straight quotes"


@pytest.mark.parametrize("name", ["[1ex] model", "*model"])
def test_no_name_becomes_part_of_the_row_s_end_before_it(name: str) -> None:
    one = result()
    one["model"]["name"] = name
    lines = results_latex([one], [{**comparison(), "second": name}]).splitlines()
    ended = [after for line, after in pairwise(lines) if line.endswith((r"\\", "rule"))]
    assert any(name in after for after in ended)
    assert not any(after.lstrip().startswith(("[", "*")) for after in ended)


def test_latex_has_a_table_a_dataset_and_a_column_a_model() -> None:
    one, two = result(published=published()), result()
    two["model"]["name"] = "lite_y"
    one["metrics"]["overconfidence"] |= {"value": -0.05, "low": -0.1, "high": 0.0}
    two["metrics"]["aurra"] |= {"value": None, "low": None, "high": None}
    text = results_latex([one, two], [comparison()])
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 3
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 3
    assert r"measure & lite/x & lite\_y \\" in text
    assert r"12.35 {\footnotesize [10.00, 20.00]}" in text
    assert r"confidence less accuracy & $-$5.00 {\footnotesize [$-$10.00, 0.00]}" in text
    assert "AURRA & 12.35 {\\footnotesize [10.00, 20.00]} & -- \\\\" in text
    assert r"accuracy & $-$1.25 & $-$3.00 \dots{} 0.00 & 9 & 1 / 2" in text
    assert r"somebody \& others, 2021" in text
    blocks = re.findall(r"\\begin\{tabular\}\{(l[lr]+)\}(.*?)\\end", text, re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        for line in block[1].splitlines():
            if line.endswith(r"\\"):
                assert len(re.findall(r"(?<!\\)&", line)) == len(block[0]) - 1
    for line in text.splitlines():
        assert line.count("{") == line.count("}")


def test_markdown_shows_comparisons_and_published_numbers_apart_from_the_measured() -> None:
    text = results_markdown([result(published=published())], [comparison()])
    assert "| lite\\_y | =lite/x | set | accuracy | -1.25 | -3.00 … 0.00 | 9 | 1 / 2 |" in text
    assert "| lite/x | ImageNet-A | accuracy | 12.35 | 2.17 | ResNet-50 | reference |" in text
    assert "layout and counts agree (7,500 images)" in text
    plain = results_markdown([result()])
    assert "## Published" not in plain
    assert "## Models compared" not in plain


def test_a_label_from_a_file_is_no_markup() -> None:
    one = result(kind="ood")
    one["metrics"] = {
        "aupr_x": {**one["metrics"]["aurra"], "label": "AUPR, <i>|x", "convention": "c"}
    }
    one |= {"n_in": 1, "n_out": 1, "base_rate": 0.5, "shared_images": 0}
    one |= {"trained_on_imagenet_21k": None}
    one["in_distribution"] = {**one["dataset"], "name": "val", "other_classes": 0}
    text = results_markdown([one])
    assert "<i>" not in text
    assert "- AUPR, \\<i\\>\\|x\\: c" in text


def test_differences_are_points_with_a_sign_and_small_p_values_are_bounds() -> None:
    _, rows = comparison_table([comparison()])
    assert rows[0] == [
        "lite_y",
        "=lite/x",
        "set",
        "accuracy",
        "-1.25",
        "-3.00 … 0.00",
        9,
        "1 / 2",
        "< 0.0001",
    ]
    assert rows[1] == ["", "", "", "AURRA", "+2.00", "", 9, "", ""]
    assert (points(-0.000001), points(0.5)) == ("0.00", "+50.00")
    assert p_value(0.04321) == "0.0432"
    assert published_table([result(), result(published=None)])[1] == []
