"""Plots: text stays text, the same bytes come each time, and nothing but Matplotlib is missed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.errors import MissingExtraError
from curate.report.drawing import INK
from curate.report.interval_plots import Dot, dots
from curate.report.plots import (
    Bars,
    Series,
    histogram,
    line_curves,
    reliability_diagram,
)
from tests.report.test_page import HOSTILE, Structure


def lines(text: str) -> str:
    return line_curves(
        [
            Series(text, [0.0, 0.5, 1.0], [1.0, 0.8, 0.6], [0.9, 0.7, 0.5], [1, 0.9, 0.7], text),
            Series("other", [0.0, 0.5, 1.0], [0.3, float("nan"), 0.1]),
        ],
        title=text,
        alt=text,
        x_label=text,
        y_label=text,
        level=(0.2, text),
    )


def diagram(text: str) -> str:
    return reliability_diagram(
        [0.1, 0.5, 0.9],
        [0.0, 0.4, 0.7],
        [3, 0, 200],
        low=[0, 0, 0.6],
        high=[0.5, 1, 0.8],
        title=text,
        alt=text,
        name=text,
    )


def bars(text: str) -> str:
    return histogram(
        [Bars(text, [1, 2]), Bars("none", [0, 0])],
        [0.0, 0.5, 1.0],
        title=text,
        alt=text,
        x_label=text,
        share=True,
        mark=(0.5, text),
    )


def values(text: str) -> str:
    rows = [
        Dot(text, 0.02, 0.01, 0.03, published=0.022),
        Dot(text * 20, None),
        Dot(text, None, published=0.01),
    ]
    return dots(rows, title=text, alt=text, x_label=text, level=(0.005, text))


PLOTS = pytest.mark.parametrize("plot", [lines, diagram, bars, values])

#: All of it at once, mathematics and a name that Matplotlib's legends leave out among it.
ALL = "_" + "".join(HOSTILE) + "$\\frac{$ 中文 العربية"


@PLOTS
def test_text_from_outside_is_text_and_nothing_else(plot: Callable[[str], str]) -> None:
    structure = Structure(plot(ALL))
    assert structure.found == Structure(plot("plain")).found
    assert {link[:1] for link in structure.links if link} <= {"#"}
    assert "\\frac" in "".join(structure.text)
    # What turns the direction of text is not let into a drawing, whose texts stand side by side.
    drawn = plot(ALL).split("<svg")[1].partition(">")[2].partition("</svg>")[0]
    assert "\u202e" not in drawn


@PLOTS
def test_a_plot_is_the_same_bytes_whatever_others_have_set(plot: Callable[[str], str]) -> None:
    import matplotlib

    first = plot("model")
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "path", "axes.grid": False}):
        assert plot("model") == first
    assert plot("other") != first


@PLOTS
def test_a_plot_scales_is_told_in_words_and_takes_the_ink_of_the_page(
    plot: Callable[[str], str],
) -> None:
    html = plot("what it shows")
    assert 'role="img" aria-label="what it shows"' in html
    (tag,) = re.findall(r'<svg [^>]*role="img"[^>]*>', html)
    assert "viewBox" in tag
    assert "width" not in tag
    assert INK not in html
    assert "currentColor" in html
    assert "<text" in html
    assert "<style" not in html, "it would hold for the whole page"
    assert "<metadata" not in html


def test_names_within_two_plots_are_not_mixed_up() -> None:
    ids = [set(re.findall(r' id="([^"]*)"', lines(text))) for text in ("one", "two")]
    assert ids[0]
    assert ids[0].isdisjoint(ids[1])


def test_twenty_lines_differ_in_colour_or_dashes_and_the_legend_shows_both() -> None:
    series = [Series(f"model {n}", [0, 1], [n / 20, n / 20]) for n in range(20)]
    html = line_curves(series, title="", alt="many", x_label="x", y_label="y")
    keys = re.findall(r'<svg class="key".*?</svg>', html)
    assert len(set(keys)) == 20


def test_a_model_looks_the_same_where_another_one_is_missing() -> None:
    both = [Series(name, [0, 1], [0, 1], number=n) for n, name in enumerate("ab")]
    told = [
        line_curves(some, title="", alt="a", x_label="x", y_label="y") for some in (both, both[1:])
    ]
    keys = [re.findall(r'<svg class="key".*?</svg>', html) for html in told]
    assert keys[0][1:] == keys[1]


@given(
    st.lists(st.floats(0, 1) | st.just(float("nan")), min_size=1, max_size=30),
    st.text(max_size=60),
)
@settings(max_examples=12, deadline=None)
def test_any_fractions_and_any_name_make_a_plot(values: list[float], name: str) -> None:
    html = line_curves(
        [Series(name, values, values)], title=name, alt=name, x_label="x", y_label="y"
    )
    assert html.count("<svg") == html.count("</svg>") == 2


def test_nothing_to_draw_is_an_error() -> None:
    told = {"title": "", "alt": ""}
    with pytest.raises(ValueError, match="no line"):
        line_curves([], x_label="", y_label="", **told)
    with pytest.raises(ValueError, match="'a' has 2 x and 1 y"):
        line_curves([Series("a", [0, 1], [0])], x_label="", y_label="", **told)
    with pytest.raises(ValueError, match="no bin"):
        reliability_diagram([0.5], [0.5], [0], **told)
    with pytest.raises(ValueError, match="no group"):
        histogram([], [0, 1], x_label="", **told)
    with pytest.raises(ValueError, match="no row"):
        dots([], x_label="", **told)


@PLOTS
def test_without_matplotlib_the_error_says_what_to_install(
    plot: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'natadv-curate\[plots\]'"):
        plot("model")
