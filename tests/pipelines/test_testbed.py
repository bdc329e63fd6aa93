"""`curate robustness testbed`: the published numbers, tables of all shapes, and what is written."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curate.cli.robustness_testbed import place_models
from curate.errors import UnknownNameError, UsageError
from pipelines import testbed_report
from pipelines.testbed import analyse_testbed, best_table, fits_table, shift_notes
from tests.running import ROOT, run_curate

PLAIN = """model,type,val,shifted,other,baseline
a,STANDARD,60,40,50,
b,STANDARD,70,52,61,
c,STANDARD,80,64,71,
d,STANDARD,75,58,,
e,ROBUST,70,60,66,b
f,ROBUST,65,50,58,b
g,ROBUST,0,0,0,b
h,MORE,85,80,90,
"""


def write(folder: Path, text: str = PLAIN, name: str = "mine.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def analyse(folder: Path, text: str = PLAIN, **options: Any) -> dict[str, Any]:
    return analyse_testbed(write(folder, text), **{"resamples": 20, **options})


@pytest.fixture(scope="module")
def published(shared_data: Path) -> dict[str, Any]:
    return analyse_testbed(shared_data / "testbed_top1.csv", resamples=50)


def rho(summary: dict[str, Any], shift: str) -> dict[str, float]:
    return {one["model"]: one["effective_robustness"][shift] for one in summary["models"]}


def test_effective_robustness_is_that_of_the_published_table(
    published: dict[str, Any], shared_data: Path
) -> None:
    found = rho(published, "ImageNetV2")
    with (shared_data / "table1.csv").open(newline="") as stream:
        printed = {row["model"]: row["imagenetv2_eff_robust"] for row in csv.DictReader(stream)}
    away = [abs(found[model] - float(value)) for model, value in printed.items()]
    assert len(away) == 196
    assert np.mean(away) <= 0.004
    assert max(away) <= 0.05
    assert sum(one <= 0.005 for one in away) == 185


def test_the_lines_are_those_of_the_paper(published: dict[str, Any]) -> None:
    fits = published["fit"]
    # Printed in the paper's section 4.1.
    for shift, r2 in (
        ("ImageNetV2", 1.00),
        ("ObjectNet", 0.95),
        ("ImageNet-Vid-Robust anchors", 0.95),
        ("YTBB-Robust anchors", 0.83),
    ):
        assert round(fits[shift]["r2"], 2) == r2
    # Of the published table by other code.
    for shift, slope, intercept, r2, n in (
        ("ImageNetV2", 0.921696, -0.494671, 0.9965, 78),
        ("ObjectNet", 0.969772, -1.911236, 0.9534, 78),
        ("ImageNet-Vid-Robust anchors", 0.530934, -1.452544, 0.9491, 78),
        ("YTBB-Robust anchors", 0.334655, -1.092091, 0.8254, 77),
        ("ImageNet-Vid-Robust", 1.087886, -0.797607, 0.9697, 78),
        ("YTBB-Robust", 1.282802, -0.703243, 0.9167, 78),
    ):
        line = fits[shift]
        assert [line["slope"], line["intercept"]] == pytest.approx([slope, intercept], abs=2e-6)
        assert (round(line["r2"], 4), line["n"]) == (r2, n)
    knee = fits["ImageNet-A"]
    assert knee["pivot"] == {
        "model": "resnet50",
        "percent": pytest.approx(91.86),
        "at_pivot": ["resnet50"],
    }
    assert (knee["low"]["n"], knee["high"]["n"]) == (29, 48)
    assert knee["low"]["slope"] == pytest.approx(0.571010, abs=2e-6)
    assert knee["high"]["slope"] == pytest.approx(2.984184, abs=2e-6)
    assert knee["excluded"] == [
        {"model": "resnet50", "reason": "0 % on imagenet-a", "standard": True}
    ]


def test_the_docs_tell_these_numbers(published: dict[str, Any], shared_data: Path) -> None:
    text = (ROOT / "docs" / "testbed.md").read_text(encoding="utf-8")
    table = text.partition("<!-- test: published -->\n")[2].partition("\n\n")[0]
    told = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()[2:]]
    knee = published["fit"]["ImageNet-A"]
    lines = {**published["fit"], told[6][0]: knee["low"], told[7][0]: knee["high"]}
    for name, printed, *numbers in told:
        line = lines[name]
        found = [f"{line[key]:.4f}" for key in ("r2", "slope", "intercept")]
        assert numbers == [*found, str(line["n"])], name
        assert printed in ("–", f"{line['r2']:.2f}")
    found, away = rho(published, "ImageNetV2"), []
    with (shared_data / "table1.csv").open(newline="") as stream:
        for row in csv.DictReader(stream):
            away.append(abs(found[row["model"]] - float(row["imagenetv2_eff_robust"])))
    assert f"{np.mean(away):.4f} points away on\naverage, {max(away):.4f} at most" in text


def test_robustness_of_single_models_is_what_the_paper_tells(published: dict[str, Any]) -> None:
    for shift, model, points in (
        ("ImageNetV2", "resnet152-imagenet11k", 2.1),
        ("ImageNetV2", "efficientnet-l2-noisystudent", 1.1),
        ("ImageNetV2", "google_resnet101_jft-300M", -0.2),
        ("YTBB-Robust anchors", "resnet50_with_greyscale_aws", 6.5),
    ):
        assert rho(published, shift)[model] == pytest.approx(points, abs=0.06)
    tau = {
        one["model"]: one["relative_robustness"]["YTBB-Robust anchors"]
        for one in published["models"]
        if "baseline" in one
    }
    assert round(tau["resnet50_with_greyscale_aws"], 1) == 1.8
    assert round(tau["resnet50_with_pixelate_aws"], 1) == 2.0
    assert round(tau["resnet50_with_jpeg_compression_aws"], 1) == 6.3


def test_correlations_are_those_of_the_paper_over_its_models_that_are_not_standard(
    published: dict[str, Any],
) -> None:
    found = {(one["first"], one["second"]): one for one in published["correlations"]}
    for shift, r, n in (("Corruptions", 0.24, 115), ("Lp attacks", -0.05, 105)):
        one = found["ImageNetV2", shift]
        assert (round(one["r"], 2), one["n"]) == (r, n)


def test_standard_types_and_fitted_models_take_no_part_in_correlations(tmp_path: Path) -> None:
    # "d" is of a type that is fitted, "e" of another; both stand outside of the fit.
    text = PLAIN.replace("d,STANDARD,75,58,,", "d,STANDARD,75,58,60,")
    (tmp_path / "names").write_text("a\nb\nc\n")
    summary = analyse(tmp_path, text, x="val", standard=f"@{tmp_path / 'names'}")
    assert summary["correlated_models"] == 4
    (one,) = summary["correlations"]
    assert one["n"] == 3, "g has no logit in standard accuracy"


def test_accuracies_have_intervals_where_the_number_of_images_is_known(
    published: dict[str, Any],
) -> None:
    (resnet,) = [one for one in published["models"] if one["model"] == "resnet50"]
    value = resnet["accuracy"]["val"]
    assert value["value"] == pytest.approx(76.13)
    assert [value["low"], value["high"]] == pytest.approx([75.5910, 76.6632], abs=1e-4)
    assert resnet["accuracy"]["imagenet-a"]["high"] == pytest.approx(0.0798543, abs=1e-6)
    assert resnet["accuracy"]["avg_pgd"]["low"] is None


def test_a_plain_table_needs_the_standard_setting_alone(tmp_path: Path) -> None:
    found = analyse(tmp_path, x="val")
    assert list(found["fit"]) == ["shifted", "other"]
    assert found["fit"]["shifted"]["n"] == 4
    assert found["fit"]["other"]["n"] == 3
    assert found["fit"]["other"]["missing"] == 1
    assert found["standard"] == {"models": 4, "chosen_by": "column 'type'"}
    by_name = {one["model"]: one for one in found["models"]}
    assert by_name["e"]["relative_robustness"] == {"shifted": 8, "other": 5}
    assert by_name["g"]["effective_robustness"] == {"shifted": None, "other": None}
    assert by_name["e"]["effective_robustness"]["shifted"] > 5
    (correlation,) = found["correlations"]
    assert correlation["n"] == 3
    notes = " ".join(shift_notes(found))
    for said in (
        "mine.csv is taken to be in percent",
        "shifted: an accuracy without a logit takes no part in a line: g (0 % on val and 0 % on",
        "models without both accuracies are left out: other 1",
        "no intervals without the number of images (--size SETTING=IMAGES): val, shifted, other",
    ):
        assert said in notes
    assert fits_table(found["fit"])[1][0][:2] == ["shifted", 4]
    assert best_table(found["fit"], found["models"])[1][0][1] == "e"


@pytest.mark.parametrize("form", ["wide", "long", "parquet"])
def test_every_shape_gives_the_same_numbers(tmp_path: Path, form: str) -> None:
    expected = analyse(tmp_path, x="val", y=["shifted"], standard="all")
    rows = list(csv.DictReader(PLAIN.splitlines()))
    path = tmp_path / "other.csv"
    if form == "wide":
        columns = ["shifted", "model", "val"]
        lines = [",".join(columns), *(",".join(row[c] for c in columns) for row in rows[::-1])]
        path.write_text("\n".join(lines) + "\n")
    elif form == "long":
        cells = [f"{row['model']},{c},{row[c]}" for c in ("shifted", "val") for row in rows]
        path.write_text("\n".join(["model,setting,accuracy", *cells]) + "\n")
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = tmp_path / "other.parquet"
        table = {c: [float(row[c]) / 100 for row in rows] for c in ("val", "shifted")}
        pq.write_table(pa.table({"model": [row["model"] for row in rows], **table}), path)
    found = analyse_testbed(path, x="val", standard="all", resamples=20)
    one, other = found["fit"]["shifted"], expected["fit"]["shifted"]
    assert one["slope"] == pytest.approx(other["slope"], rel=1e-12)
    assert one["slope_interval"] == pytest.approx(other["slope_interval"], rel=1e-12)
    if form != "parquet":
        assert one == other
    assert found["table"]["unit"] == ("fraction" if form == "parquet" else "percent")


def test_standard_models_can_be_named_in_every_way(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("a\n\nb\nc\n")
    flagged = "model,mine,val,shifted\na,1,60,40\nb,1,70,52\nc,1,80,64\nd,0,75,70\n"
    for text, standard, n in (
        (PLAIN, f"@{tmp_path / 'names.txt'}", 3),
        (PLAIN, "all", 7),
        (flagged, "mine", 3),
        (flagged.replace("mine", "standard"), None, 3),
    ):
        found = analyse(tmp_path, text, x="val", y=["shifted"], standard=standard)
        assert found["fit"]["shifted"]["n"] == n
    unsaid = analyse(tmp_path, flagged, x="val", y=["shifted"])
    assert unsaid["standard"]["chosen_by"] is None
    assert any("fitted to all of them" in note for note in shift_notes(unsaid))


def test_models_are_paired_by_a_column_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("model,baseline\nh,a\n")
    found = analyse(tmp_path, x="val", y=["shifted"], pairs=f"@{tmp_path / 'pairs.csv'}")
    paired = {
        one["model"]: one["relative_robustness"] for one in found["models"] if "baseline" in one
    }
    assert paired == {"h": {"shifted": 40.0}}
    text = PLAIN.replace("baseline", "made_from")
    found = analyse(tmp_path, text, x="val", y=["shifted"], pairs="made_from")
    assert sum("baseline" in one for one in found["models"]) == 3


def test_sizes_that_are_given_make_intervals(tmp_path: Path) -> None:
    found = analyse(tmp_path, x="val", y=["shifted"], sizes={"shifted": 1000})
    accuracy = found["models"][0]["accuracy"]
    assert accuracy["shifted"]["low"] < 40 < accuracy["shifted"]["high"]
    assert accuracy["val"]["low"] is None


def test_names_of_settings_alone_make_no_sizes(tmp_path: Path) -> None:
    text = PLAIN.replace(",val,shifted", ",val,imagenetv2-matched-frequency-format-val")
    found = analyse(tmp_path, text)
    assert list(found["fit"]) == ["ImageNetV2"]
    assert set(found["sizes"].values()) == {None}


def test_the_published_pivot_stands_in_where_its_model_is_absent(tmp_path: Path) -> None:
    text = "model,standard,val-on-imagenet-a-classes,imagenet-a\n" + "".join(
        f"m{x},1,{x},{y}\n"
        for x, y in ((80, 1), (85, 2), (90, 3), (92, 5), (95, 20), (97, 50), (98, 60))
    )
    found = analyse(tmp_path, text)["fit"]["ImageNet-A"]
    assert found["pivot"] == {"model": None, "percent": 91.86, "at_pivot": []}
    assert (found["low"]["n"], found["high"]["n"]) == (3, 4)
    few = "\n".join(text.splitlines()[:5]) + "\n"
    assert "above the pivot" in analyse(tmp_path, few)["fit"]["ImageNet-A"]["no_fit"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "rows",
    [
        "a,0,0\nb,0,1",
        "a,50,40",
        "a,50,40\nb,50,41\nc,50,42",
        "a,100,100\nb,0,1e-9\nc,1e-320,99.9999",
    ],
    ids=["nothing", "one", "same", "ends"],
)
@pytest.mark.filterwarnings("error")
def test_awkward_accuracies_make_a_report_all_the_same(tmp_path: Path, rows: str) -> None:
    text = f"model,val,shifted\n{rows}\n"
    found = analyse(tmp_path, text, x="val", unit="percent", report=tmp_path / "report")
    assert found["fit"]["shifted"]["no_fit"]
    assert (tmp_path / "report" / "testbed.html").is_file()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "name the setting of standard accuracy with --x, and those under shift with --y"),
        ({"y": ["shifted"]}, "name the setting to compare 'shifted' with: --x SETTING"),
        ({"x": "vla"}, "unknown setting 'vla'; did you mean val?"),
        ({"x": "val", "y": ["shfted"]}, "unknown setting 'shfted'; did you mean shifted?"),
        ({"x": "val", "y": ["val"]}, "no setting is left to compare 'val' with"),
        ({"x": "val", "standard": "typ"}, "unknown column 'typ'; did you mean type?"),
        ({"x": "val", "standard": "type"}, "column 'type': 'STANDARD' is neither 1 nor 0"),
        ({"x": "val", "standard": "@/nowhere"}, "cannot read /nowhere"),
        ({"x": "val", "pivot": "99"}, "the pivot 99 % is outside the data"),
        ({"x": "val", "pivot": "nobody"}, "unknown model 'nobody'"),
        ({"x": "val", "pairs": "type"}, "column 'type' of 'a': unknown model 'STANDARD'"),
        ({"x": "val", "sizes": {"shifted": 0}}, "'shifted' has 0 images: at least 1 is needed"),
        ({"x": "val", "sizes": {"nothing": 5}}, "unknown setting 'nothing'"),
        ({"x": "val", "unit": "fraction"}, "60 is outside 0 … 1"),
        ({"x": "val", "kind": "kind"}, "unknown column 'kind'"),
        ({"x": "val", "model": ["name"]}, "unknown column 'name'"),
        ({"x": "val", "resamples": 0}, "resamples is 0"),
        ({"x": "val", "seed": -1}, "seed is -1"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(
    tmp_path: Path, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError) as error:
        analyse(tmp_path, **options)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_pair_of_models_that_are_not_there_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("model,baseline\nh,aa\n")
    with pytest.raises(UnknownNameError, match=r"pairs.csv, line 2: unknown model 'aa'"):
        analyse(tmp_path, x="val", pairs=f"@{tmp_path / 'pairs.csv'}")


def test_names_of_several_columns_are_joined(tmp_path: Path) -> None:
    text = "name,size,val,shifted\na,1,60,40\na,2,70,52\nb,1,80,64\n"
    with pytest.raises(UsageError, match="line 3, column 'model': model 'a' was in line 2"):
        analyse(tmp_path, text, x="val", y=["shifted"], model=["name"])
    found = analyse(tmp_path, text, x="val", y=["shifted"], model=["name", "size"])
    assert [one["model"] for one in found["models"]] == ["a 1", "a 2", "b 1"]
    found = analyse(tmp_path, text, x="val", model=["name", "size"])
    assert list(found["fit"]) == ["shifted"]


@pytest.mark.slow
def test_more_shifts_than_anyone_reads_must_be_named(tmp_path: Path) -> None:
    names = [f"c{n}" for n in range(1002)]
    text = f"model,{','.join(names)}\na,{','.join('50' for _ in names)}\n"
    with pytest.raises(
        UsageError, match=r"1,001 settings under shift; name at most 1,000 with --y"
    ):
        analyse(tmp_path, text, x="c0")
    assert list(analyse(tmp_path, text, x="c0", y=["c1001"])["fit"]) == ["c1001"]


def test_a_report_is_whole_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    written = []
    for name in ("one", "two"):
        folder = tmp_path / name
        analyse(tmp_path, x="val", y=["shifted"], sizes={"val": 500}, report=folder)
        files = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
        written.append({str(path): file.read_bytes() for path, file in files.items()})
    first, second = written
    plots = [
        f"plots/{stem}.{kind}"
        for stem in ("shifted", "shifted-quadrants", "grid")
        for kind in ("png", "svg", "pdf")
    ]
    assert sorted(first) == sorted([*plots, "models.csv", "results.json", "testbed.html"])
    results = [json.loads(files.pop("results.json")) for files in written]
    assert [one.pop("report") for one in results] == [str(tmp_path / "one"), str(tmp_path / "two")]
    assert results[0] == results[1]
    assert first == second
    rows = list(csv.DictReader(first["models.csv"].decode().splitlines()))
    assert len(rows) == 8
    # "g" has 0 % on both.
    assert b"1 model outside of the plot" in first["testbed.html"]
    assert float(rows[4]["relative robustness: shifted"]) == 8
    assert first["plots/shifted.png"].startswith(b"\x89PNG")
    assert first["plots/shifted.pdf"].startswith(b"%PDF")
    assert b"fit of the standard models" in first["plots/shifted.svg"]
    # "val" is ImageNet's in the published table alone.
    assert b">val, %<" in first["plots/shifted.svg"]


def test_what_is_drawn_is_what_the_results_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: dict[str, Any] = {}
    for name in ("shift_drawing", "quadrant_drawing"):
        draw = getattr(testbed_report, name)

        def kept(plot: Any, alt: str, name: str = name, draw: Any = draw) -> str:
            drawn[name] = plot
            return str(draw(plot, alt))

        monkeypatch.setattr(testbed_report, name, kept)
    rows = [f"s{n},STANDARD,{50 + 4 * n},{20 + 2 * n + (n > 4) * 3 * (n - 4)}," for n in range(10)]
    summary = analyse(
        tmp_path,
        "\n".join(["model,type,val,shifted,baseline", *rows, "mine,ROBUST,60,50,s9"]) + "\n",
        x="val",
        y=["shifted"],
        pivot="s4",
        sizes={"val": 1000, "shifted": 50},
        report=tmp_path / "report",
    )
    mine = summary["models"][-1]
    quadrants = drawn["quadrant_drawing"].models
    assert quadrants.x[-1] == pytest.approx(mine["relative_robustness"]["shifted"])
    assert quadrants.y[-1] == pytest.approx(mine["effective_robustness"]["shifted"])
    assert quadrants.x[-1] != pytest.approx(quadrants.y[-1])
    plot = drawn["shift_drawing"]
    for axis, setting in (("x", "val"), ("y", "shifted")):
        told = mine["accuracy"][setting]
        assert getattr(plot.models, axis)[-1] == told["value"]
        ends = [side[-1] for side in getattr(plot.models, f"{axis}_ends")]
        assert ends == [told["low"], told["high"]]
    assert plot.pivot == summary["fit"]["shifted"]["pivot"]["percent"] == 66
    for line, side in zip(plot.lines, ("low", "high"), strict=True):
        fit = summary["fit"]["shifted"][side]
        logits = np.log(np.array([line.x, line.y]) / (100 - np.array([line.x, line.y])))
        np.testing.assert_allclose(logits[1], fit["slope"] * logits[0] + fit["intercept"])
        assert np.all(line.lower <= line.upper)
    assert plot.lines[0].x.max() == pytest.approx(66) == plot.lines[1].x.min()
    page = (tmp_path / "report" / "testbed.html").read_text()
    assert "upright line at the pivot, 66.00\u00a0%, s4" in page


def test_a_report_says_that_no_model_can_be_drawn_instead_of_showing_empty_axes(
    tmp_path: Path,
) -> None:
    text = "model,val,shifted,other\na,60,0,40\nb,70,0,52\nc,80,0,64\n"
    analyse(tmp_path, text, x="val", report=tmp_path / "report")
    page = (tmp_path / "report" / "testbed.html").read_text()
    shifted, other = page.split("<figure")[1:3]
    assert "no plot" in shifted
    assert "<svg" not in shifted
    assert "no plot" not in other
    assert "<svg" in other


def test_a_report_without_a_line_says_why(tmp_path: Path) -> None:
    text = "model,standard,val,shifted\na,1,60,40\nb,1,70,52\nc,0,80,64\n"
    analyse(tmp_path, text, x="val", y=["shifted"], report=tmp_path / "report")
    page = (tmp_path / "report" / "testbed.html").read_text()
    assert "no line: 2 standard models have both accuracies" in page


def test_a_report_of_standard_models_alone_has_names_and_no_empty_correlations(
    tmp_path: Path,
) -> None:
    header = "model,val,imagenet-c.fog.mean5_in-memory,pgd.linf.eps2.steps10\n"
    text = f"{header}a,60,40,2\nb,70,52,5\nc,80,64,9\n"
    summary = analyse(tmp_path, text, x="val", report=tmp_path / "report")
    assert "imagenet-c.fog.mean5_in-memory" in summary["fit"]
    page = (tmp_path / "report" / "testbed.html").read_text()
    assert "Fog, in memory" in page
    assert "PGD, l∞, 2/255, 10 steps" in page
    assert "Does robustness carry over?" not in page


def test_the_command_prints_lines_models_and_notes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place_models(write(tmp_path), x="val", size=["val=50"], resamples=20)
    printed = capsys.readouterr().out
    assert printed.startswith("shift    standard models   slope  intercept      r²\nshifted")
    assert "note: mine.csv is taken to be in percent." in printed
    with pytest.raises(UsageError, match="--size 'val': write SETTING=IMAGES, as imagenet-a=7500"):
        place_models(write(tmp_path), x="val", size=["val"])


@pytest.mark.slow
def test_the_summary_is_one_object(tmp_path: Path) -> None:
    asked = ("robustness", "testbed", write(tmp_path), "--x", "val", "--size", "val=50")
    found = json.loads(run_curate("--json", *asked, "--resamples", "20").stdout)
    assert {"fit", "models"} <= set(found)
    assert found["sizes"]["val"] == 50
