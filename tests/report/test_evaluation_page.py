"""The page of an evaluation: foreign text is text, pictures come one at a time, no number lies."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from curate.report import evaluation_page as report
from curate.report.page import hundredths
from curate.report.thumbnails import Thumbnail
from tests.report.test_page import HOSTILE, Structure

PICTURE = Thumbnail("data:image/gif;base64,R0lGODlhAQABAAAAACw=", 1, 1)


def make_part(text: str = "plain", **changes: Any) -> report.Part:
    """A part whose every text from outside is `text`."""
    shots = [
        report.Shot(text, 0.9996, text, PICTURE),
        report.Shot(text, 0.2, problem=text),
    ]
    model = report.ModelPart(
        name=text,
        flags=[text],
        plots=["<figure></figure>"],
        classes=[report.ClassRow("n02268443", text, 10, 0, 0.0, 0.3, text)],
        classes_total=3,
        errors=10,
        modes=[report.FailureMode(text, text, 7, shots), report.FailureMode(None, text, 1, [])],
        modes_shown=2,
        modes_total=3,
        pictures=True,
    )
    numbers = [report.Number(0.021739, 0.01, 0.0349), None]
    part = report.Part(
        dataset=text,
        outliers=False,
        facts=[(text, text)],
        warnings=[text],
        measures=[
            report.Measure("accuracy", numbers, "accuracy"),
            report.Measure("AURRA", [report.Number(None), None]),
        ],
        conventions=[(text, text)],
        plots=["<figure></figure>"],
        models=[model, dataclasses.replace(model, modes=[], modes_total=0, classes=[])],
        published=[report.Published(text, text, 0.0217, text, text)],
        comparisons=[report.Comparison(text, text, [(text, text)])],
    )
    return dataclasses.replace(part, **changes)


def render(*parts: report.Part, **changes: Any) -> str:
    page = report.EvaluationPage(
        parts=parts,
        datasets=[part.dataset for part in parts],
        models=2,
        withheld=False,
        no_plots="",
        makers=[report.Maker(parts[0].dataset, "f" * 64, "file", parts[0].dataset)],
        made_by=[(parts[0].dataset, parts[0].dataset)],
        curate="0.1.0",
    )
    return "".join(report.pieces(dataclasses.replace(page, **changes)))


PLAIN = Structure(render(make_part())).found


@pytest.mark.parametrize("text", [*HOSTILE, "long " * 2000])
def test_text_from_outside_never_becomes_markup(text: str) -> None:
    structure = Structure(render(make_part(text)))
    assert structure.found == PLAIN
    assert all(link and link.startswith("data:") for link in structure.links)


def test_the_page_forbids_scripts_and_the_network() -> None:
    html = render(make_part())
    assert not {"script", "link", "iframe", "object", "form", "base"} & {tag for tag, *_ in PLAIN}
    policy = html.split('http-equiv="Content-Security-Policy" content="')[1].split('"')[0]
    assert policy.startswith("default-src 'none'")
    assert "script-src" not in policy
    assert html.index("Content-Security-Policy") < html.index("<style")


def test_numbers_stand_with_their_intervals_and_their_absence_shows() -> None:
    html = render(make_part())
    assert "2.17<small>1.00 – 3.49</small>" in html
    assert html.count('<td class="num"><span class="muted">–</span></td>') == 4


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0.0, "0.00"),
        (1.0, "100.00"),
        (0.00001, "<0.01"),
        (0.99999, ">99.99"),
        (0.0217, "2.17"),
        (-0.015, "−1.50"),
        (-0.00001, "0.00"),
    ],
)
def test_a_percentage_is_none_or_all_only_if_it_is(value: float, told: str) -> None:
    assert hundredths(value) == told


def test_pictures_are_asked_for_while_the_page_is_written() -> None:
    asked = 0

    def modes() -> Iterator[report.FailureMode]:
        nonlocal asked
        for _ in range(40):
            asked += 1
            yield report.FailureMode("true", "wrong", 1, [report.Shot("path", 0.5, "", PICTURE)])

    part = make_part()
    model = dataclasses.replace(part.models[0], modes=modes(), modes_shown=40, modes_total=40)
    part = dataclasses.replace(part, models=[model])
    page = report.EvaluationPage([part], ["set"], 1, False, "", [], [], "0.1.0")
    written = ""
    for piece in report.pieces(page):
        written += piece
        assert asked - written.count("<img") <= 1
    assert asked == written.count("<img") == 40


def test_what_limits_the_page_is_said_at_its_head() -> None:
    html = render(make_part(), withheld=True, no_plots="Matplotlib <is> absent.")
    assert "Do not publish this page." in html
    assert "Matplotlib &lt;is&gt; absent." in html
    assert "Do not publish" not in render(make_part())
    assert "No plots" not in render(make_part())


def test_a_page_of_many_models_and_pairs_says_what_it_leaves_to_the_results() -> None:
    part = make_part()
    model = dataclasses.replace(part.models[1])
    numbers = [report.Measure("accuracy", [None] * 5, "accuracy")]
    few = make_part(models=[model] * 3, measures=numbers, detailed=3, pairs=1)
    assert "in <code>results.json</code>." not in render(few)
    many = make_part(models=[model] * 5, measures=numbers, detailed=3, pairs=7)
    html = render(many)
    assert html.count('<details class="model"') == 3
    assert "2 more models in the tables above and in <code>results.json</code>." in html
    assert "6 more pairs in <code>results.json</code>." in html
