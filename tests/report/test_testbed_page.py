"""The testbed's plots and page: points in their place, names as text, filters without a script."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.report.drawing import style
from curate.report.shift_drawings import quadrant_drawing, shift_drawing
from curate.report.shift_figures import grid_figure, saved, shift_figure
from curate.report.shift_plots import (
    FittedLine,
    Models,
    QuadrantPlot,
    ShiftPlot,
    axis_ticks,
    outside,
    paint_quadrants,
    paint_shift,
)
from curate.report.testbed_page import Kind, LineRow, ModelRow, ShiftSection, TestbedPage, pieces
from tests.browser import browser_page
from tests.report.test_page import HOSTILE, Structure

#: What a table's names may hold: all but what cannot be printed, which is refused.
PRINTABLE = [text for text in HOSTILE if text.isprintable()]


def make_plot(text: str = "plain", **changes: Any) -> ShiftPlot:
    x, y = np.array([60.0, 70, 80, 90, np.nan]), np.array([40.0, 50, 60, 70, 80])
    models = Models(
        [f"{text} {n}" for n in range(5)],
        [0, 0, 1, 1, 1],
        x,
        y,
        (x - 1, x + 1),
        (y - 1, np.full(5, np.nan)),
        [text] * 5,
    )
    grid = np.linspace(50, 95, 9)
    lines = [FittedLine(grid, grid - 20, grid - 22, grid - 18)]
    told = {"models": models, "near": ~np.isnan(x), "lines": lines, "pivot": 75.0}
    return ShiftPlot(text, text, text, **{**told, **changes})


def make_page(text: str = "plain") -> TestbedPage:
    plot = make_plot(text)
    tau = np.array([np.nan, 3.0, -2.0, 1.0, np.nan])
    rho = np.array([1.0, -2.0, 0.5, -0.01, np.nan])
    quadrants = QuadrantPlot(text, Models(plot.models.names, plot.models.kinds, tau, rho))
    line = LineRow(text, 4, 1.0, (0.9, 1.1), -1.0, (-1.2, -0.8), 0.98)
    shift = ShiftSection(
        text, shift_drawing(plot, text), quadrant_drawing(quadrants, text), [line], [text]
    )
    rows = [ModelRow(f"{text} {n}", n % 2, [50.0, None, -0.01]) for n in range(5)]
    return TestbedPage(
        file=text,
        models=5,
        standard=2,
        chosen_by=text,
        kinds=[Kind(text, 2), Kind(text, 3)],
        shifts=[shift, shift],
        robustness=rows,
        settings=[text, text, text],
        accuracies=[ModelRow(row.name, row.kind, [50.0, None, 0.0]) for row in rows],
        correlations=[[None, (0.5, 3)], [(None, 2), None]],
        correlated=3,
        notes=[text],
        made_by=[("Table", text)],
        curate="0.1.0",
    )


def test_a_page_without_standard_models_or_plots_says_so_and_shows_no_empty_axes() -> None:
    nothing = ShiftSection("s", "", "", [], ["no line"])
    page = "".join(pieces(replace(make_page(), standard=0, shifts=[nothing])))
    assert "fitted to 0 standard models" not in page
    assert "there is no line" in page
    for lines_alone in ('id="lines"', 'id="robustness"', "Red is the fit"):
        assert lines_alone not in page
        assert lines_alone in "".join(pieces(make_page()))
    assert "<figure" in page
    assert 'role="img"' not in page


@pytest.mark.parametrize(
    ("chosen_by", "whose"), [("the table", "2 standard models"), (None, "all models")]
)
def test_the_head_claims_no_model_for_a_line_that_lacks_an_accuracy(
    chosen_by: str | None, whose: str
) -> None:
    page = "".join(pieces(replace(make_page(), chosen_by=chosen_by)))
    assert f"fitted to those of {whose} that have both accuracies" in page


@pytest.fixture(scope="module")
def plain() -> str:
    return "".join(pieces(make_page()))


@pytest.mark.parametrize("text", PRINTABLE)
def test_text_from_outside_never_becomes_markup(text: str, plain: str) -> None:
    assert Structure("".join(pieces(make_page(text)))).found == Structure(plain).found


def test_the_page_forbids_scripts_and_links_to_itself_alone(plain: str) -> None:
    structure = Structure(plain)
    assert not {"script", "link", "iframe", "object", "form", "base"} & {
        t for t, *_ in structure.found
    }
    assert {link for link in structure.links if link} == {"#kind0", "#kind1"}
    assert "default-src 'none'" in plain
    assert ">0.0<" in plain
    assert "-0.0<" not in plain


def test_points_stand_where_the_axes_say() -> None:
    svg = shift_drawing(make_plot(), "alt")
    marks = re.findall(
        r'<g class="at kind\d"><title>([^<]*)</title>.*?x="([\d.]+)" y="([\d.]+)"', svg
    )
    assert [name for name, *_ in marks] == [f"plain {n} plain" for n in (2, 3, 0, 1)]
    at = {name[6]: (float(x), float(y)) for name, x, y in marks}
    logit = {n: np.log(p / (100 - p)) for n, p in zip("0123", (60, 70, 80, 90), strict=True)}
    shares = [(at[n][0] - at["0"][0]) / (at["3"][0] - at["0"][0]) for n in "12"]
    expected = [(logit[n] - logit["0"]) / (logit["3"] - logit["0"]) for n in "12"]
    np.testing.assert_allclose(shares, expected, atol=1e-3)
    heights = [at[n][1] for n in "0123"]
    assert heights == sorted(heights, reverse=True)
    # An interval along x alone, as there is none along y.
    assert svg.count("<path d=") >= 4
    assert not re.search(r'<g class="at kind\d"><title>[^<]*</title><path d="[^"]*V', svg)


def test_axes_hold_the_line_with_its_band_the_pivot_and_where_both_are_equal() -> None:
    from matplotlib.figure import Figure

    plot = make_plot()
    (line,) = plot.lines
    with style(""):
        axes = Figure().subplots()
        paint_shift(axes, plot)
    drawn = {one.get_label(): np.asarray(one.get_xydata()) for one in axes.lines}
    np.testing.assert_allclose(drawn["fit of the standard models"].T, [line.x, line.y])
    np.testing.assert_allclose(*drawn["y = x"].T)
    np.testing.assert_allclose(drawn["pivot"][:, 0], 75.0)
    (band,) = axes.collections
    around = band.get_paths()[0].vertices
    for edge in (line.lower, line.upper):
        for point in zip(line.x, edge, strict=True):
            assert np.isclose(around, point).all(axis=1).any()
    assert (axes.get_xscale(), axes.get_yscale()) == ("function", "function")


def test_quadrants_are_named_by_what_is_above_nothing() -> None:
    from matplotlib.figure import Figure

    with style(""):
        axes = Figure().subplots()
        x = np.array([1.0, -2.0])
        paint_quadrants(axes, QuadrantPlot("title", Models(["a", "b"], [0, 0], x, x)))
    assert axes.get_xlabel().startswith("relative")
    assert axes.get_ylabel().startswith("effective")
    places = {one.get_text(): tuple(np.round(one.get_position())) for one in axes.texts}
    assert places == {
        "both": (1, 1),
        "effective alone": (0, 1),
        "relative alone": (1, 0),
        "neither": (0, 0),
    }


def test_models_far_below_are_left_out_and_counted() -> None:
    x = np.array([60.0, 70, 80, 90, 1.0])
    models = Models(["a", "b", "c", "d", "far"], [0] * 5, x, x - 0.5)
    plot = make_plot(models=models, near=x > 50)
    assert outside(plot) == 1
    svg = shift_drawing(plot, "alt")
    assert "<title>d</title>" in svg
    assert "<title>far</title>" not in svg


@settings(max_examples=60, deadline=None)
@given(low=st.floats(0.01, 99.8), span=st.floats(0.01, 99))
def test_an_axis_has_round_numbers_within_it_and_none_too_near(low: float, span: float) -> None:
    high = min(low + span, 99.99)
    ticks = axis_ticks(low, high)
    assert ticks == sorted(set(ticks))
    assert all(low <= tick <= high for tick in ticks)
    at = np.log(np.array(ticks) / (100 - np.array(ticks)))
    whole = np.log(high / (100 - high)) - np.log(low / (100 - low))
    assert (np.diff(at) >= whole / 7 - 1e-9).all()
    assert len(ticks) >= 2, "one number is no scale"


def test_a_model_alone_stands_on_axes_that_have_a_scale() -> None:
    for x, y in ((95.238, 11.111), (33.333, 0.0123), (99.98, 50.0)):
        there = np.array([True])
        models = Models(["one"], [0], np.array([x]), np.array([y]))
        with style("salt"):
            figure = shift_figure(make_plot(models=models, near=there, lines=[]), ["first"])
        (axes,) = figure.axes
        for axis in (axes.xaxis, axes.yaxis):
            texts = [tick.get_text() for tick in axis.get_ticklabels()]
            assert len(texts) >= 2
            assert len(set(texts)) == len(texts)


def test_files_have_only_the_types_that_are_seen_and_the_same_bytes() -> None:
    def made() -> list[bytes]:
        with style("salt"):
            figure = shift_figure(make_plot("$\\alpha$ <b>"), ["first", "second", "third"])
            return [saved(figure, kind) for kind in ("svg", "pdf", "png")]

    first, second = made(), made()
    assert first == second
    text = first[0].decode()
    assert "second" in text
    assert "third" not in text
    assert "$\\alpha$ &lt;b&gt;" in text


def test_a_grid_has_every_model_and_setting() -> None:
    accuracy = np.array([[50.0, np.nan], [1.0, 99.0], [0.0, 100.0]])
    with style("salt"):
        svg = saved(grid_figure(["one", "two", "three"], ["val", "v2"], accuracy), "svg").decode()
    for name in ("one", "two", "three", "val", "v2", "accuracy, %"):
        assert f">{name}<" in svg


@pytest.mark.slow
def test_pointing_names_a_model_and_boxes_leave_types_out(
    tmp_path: Path, browser_path: str, plain: str
) -> None:
    (tmp_path / "testbed.html").write_text(plain)
    asked, said = [], []
    with browser_page(browser_path, 390, 800, java_script_enabled=True) as page:
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.goto((tmp_path / "testbed.html").as_uri())
        fits = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        assert page.evaluate(fits)
        point = page.locator("#shifts g.at").first
        point.scroll_into_view_if_needed()
        box = point.locator("use").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        # What is under the pointer is a point with a name, which the browser shows.
        under = "([x, y]) => document.elementFromPoint(x, y).closest('g.at').firstChild.textContent"
        place = [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2]
        assert page.evaluate(under, place) == "plain 2 plain"
        count = "kind => [...document.querySelectorAll(`section .kind${kind}`)]"
        shown = count + ".filter(one => one.getBoundingClientRect().width > 0).length"
        before = [page.evaluate(shown, kind) for kind in (0, 1)]
        assert min(before) > 0
        page.get_by_role("checkbox").nth(1).uncheck()
        assert [page.evaluate(shown, kind) for kind in (0, 1)] == [before[0], 0]
        # The box itself stays, with its name and shape, so that the type can come back.
        assert page.locator("label").nth(1).is_visible()
        assert page.locator("label svg").nth(1).is_visible()
        page.get_by_role("checkbox").nth(1).check()
        assert [page.evaluate(shown, kind) for kind in (0, 1)] == before
    assert asked == [(tmp_path / "testbed.html").as_uri()]
    assert said == []
