"""The page: nothing from outside is more than text, and no number says what is not so."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import datetime
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curate.report import page as report
from curate.report.thumbnails import Thumbnail

HOSTILE = [
    "<img src=x onerror=alert(1)>.jpg",
    "</script><b>",
    "</style><script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "' autofocus onfocus='alert(1)",
    "--><svg onload=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "\u202egpj.exe",
    "&lt;b&gt; &amp;",
    "a\x00b\x0bc\r\nd",
    "\ud800 half a pair",
]


class Structure(HTMLParser):
    """The elements and attribute names of a page in order, and the addresses that it links to."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[Any, ...]] = []
        self.links: list[str | None] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, *(name for name, _ in attrs)))
        self.links += [value for name, value in attrs if name in ("href", "src")]

    def handle_endtag(self, tag: str) -> None:
        self.found.append(("/" + tag,))

    def handle_comment(self, data: str) -> None:
        self.found.append(("!--",))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def make_page(text: str = "plain", survivors: int = 1, **changes: Any) -> report.Page:
    """A page whose every text from outside is `text`."""
    credit = report.Credit(text, "", False, text, text, text, text, text, text)
    picture = Thumbnail("data:image/gif;base64,R0lGODlhAQABAAAAACw=", 1, 1)
    photo = report.Photo(
        candidate="c" * 32,
        sha256="5" * 64,
        true_name=text,
        said=report.Said("lite0", text, 0.9996),
        wrong=True,
        p_true=0.1,
        borderline=True,
        credit=credit,
        place=1,
        others=[report.Said("lite1", text, 0.3)],
        thumbnail=picture,
    )
    miss = dataclasses.replace(photo, place=None, removed=text, thumbnail=None, problem=text)
    histogram = report.Histogram(0.15)
    histogram.add(0.1, True)
    histogram.add(1.0, False)
    shown = report.Page(
        run="0123456789ab",
        label_space=text,
        classes=200,
        finished=datetime(2025, 1, 2, 3, 4, 5),
        models=[report.Model(text, "lite0", "f" * 64, 4_652_008, text)],
        rule="misclassified",
        threshold=0.15,
        margin=1e-3,
        complete=False,
        funnel=report.Funnel(
            100,
            [report.Reason(text, 2)],
            [report.Reason(text, 98 - survivors)],
            survivors,
            min(survivors, 1),
        ),
        reasons=[text],
        photos=[photo] if survivors else [],
        photos_shown=min(survivors, 1),
        borderline=min(survivors, 1),
        misses=[miss],
        misses_shown=1,
        confusions=[report.Confusion(text, text, survivors, 1)] if survivors else [],
        confusions_total=1,
        by_class=[report.ClassFunnel("n02268443", text, 100, 2, [97], survivors, 1)],
        by_class_total=1,
        histogram=histogram,
        licences=[report.LicenceCount(text, text, False, 2)],
        made_by=[("Rule", text)],
        versions=[("torch", text)],
        curate="0.1.0",
    )
    return dataclasses.replace(shown, **changes)


PLAIN = Structure(report.render(make_page())).found
# An address of the web is meant to be followed: it stands in a link, and nothing else changes.
LINKED = Structure(report.render(make_page("https://example.org"))).found


@pytest.mark.parametrize("text", HOSTILE)
def test_text_from_outside_never_becomes_markup(text: str) -> None:
    structure = Structure(report.render(make_page(text)))
    assert structure.found == PLAIN
    assert all(link and link.startswith("data:") for link in structure.links)


@given(st.text(max_size=40))
@example("HTTP://0")
@example("https:")
@settings(max_examples=60, deadline=None)
def test_no_text_at_all_changes_the_structure_of_the_page(text: str) -> None:
    # An empty title or author is left out, which is no matter of escaping.
    found = Structure(report.render(make_page(text or " "))).found
    assert found == (LINKED if report.web_address(text) else PLAIN)


def test_an_address_adds_links_alone() -> None:
    links = [("a", "href", "rel"), ("/a",)]
    assert [item for item in LINKED if item not in links] == [
        item for item in PLAIN if item not in links
    ]
    assert LINKED.count(links[0]) > PLAIN.count(links[0])


def test_hostile_text_is_still_there_to_be_read() -> None:
    text = "".join(Structure(report.render(make_page(HOSTILE[0]))).text)
    assert HOSTILE[0] in text


def test_the_page_forbids_scripts_and_the_network() -> None:
    html = report.render(make_page())
    tags = [tag for tag, *_ in PLAIN]
    assert not {"script", "link", "iframe", "object", "form", "base"} & set(tags)
    assert not any(name.startswith("on") for _, *names in PLAIN for name in names)
    policy = html.split('http-equiv="Content-Security-Policy" content="')[1].split('"')[0]
    assert policy.startswith("default-src 'none'")
    assert "script-src" not in policy
    # The policy comes before anything that it must cover.
    assert html.index("Content-Security-Policy") < html.index("<style")


@pytest.mark.parametrize(
    ("address", "followed"),
    [
        ("https://example.org/a?b=c&d=<e>", True),
        ("http://example.org", True),
        ("HTTPS://EXAMPLE.ORG", True),
        ("javascript:alert(1)", False),
        ("javascript://example.org/%0aalert(1)", False),
        ("file://example.org/share", False),
        (" javascript:alert(1)", False),
        ("java\nscript:alert(1)", False),
        ("data:text/html,<script>", False),
        ("vbscript:x", False),
        ("//example.org", False),
        ("https:", False),
        ("http://[", False),
        ("file:///etc/passwd", False),
        ("", False),
        (None, False),
    ],
)
def test_only_web_addresses_become_links(address: str | None, followed: bool) -> None:
    assert (report.web_address(address) is not None) == followed
    credit = report.Credit("CC BY 4.0", "", True, page=address)
    photo = next(iter(make_page().photos))
    html = report.render(make_page(photos=[dataclasses.replace(photo, credit=credit)]))
    assert (address in Structure(html).links) == followed


def test_photos_are_asked_for_one_at_a_time_while_the_page_is_written() -> None:
    photo = next(iter(make_page().photos))
    asked: list[int] = []

    def photos() -> Iterator[report.Photo]:
        for place in range(1, 51):
            asked.append(place)
            yield dataclasses.replace(photo, place=place)

    written = ""
    for piece in report.pieces(make_page(photos=photos(), photos_shown=50)):
        written += piece
        # Of the photos asked for, all but the one in hand are in what has been handed out.
        assert len(asked) - written.count('<span class="place">') <= 1
    assert len(asked) == written.count('<span class="place">') == 50


def test_a_run_without_survivors_says_so_and_shows_what_came_nearest() -> None:
    html = report.render(make_page(survivors=0))
    assert "None of 100 photos survived the filter" in html
    assert 'id="misses"' in html
    assert 'id="photos"' not in html
    assert 'id="confusions"' not in html


def make_outlier_page(text: str = "plain", **changes: object) -> report.Page:
    page = make_page(text)
    histogram = report.Histogram(0.9)
    histogram.add(0.3, False)
    histogram.add(0.95, True)
    photo = dataclasses.replace(next(iter(page.photos)), p_true=None)
    miss = dataclasses.replace(next(iter(page.misses)), p_true=None)
    told = {"rule": "outlier", "threshold": None, "min_confidence": 0.9, "histogram": histogram}
    return dataclasses.replace(page, photos=[photo], misses=[miss], **(told | changes))


def test_a_page_of_the_rule_outlier_speaks_of_concepts_and_confidence() -> None:
    html = report.render(make_outlier_page())
    assert "p(true)" not in html
    assert "threshold" not in html
    assert "at least 0.9 confident on its centre crop that it shows one" in html
    assert "<th>Concept</th><th>Taken for</th>" in html
    assert "Histogram of the confidence: 1 survivor of 98 scored candidates, at least 0.9" in html
    assert "of 96 that another classifier removed before it is not known" in html
    assert "Look for the class itself." in html
    assert "Labels may be wrong." not in html
    page = make_outlier_page(of_mean=True, histogram=report.Histogram(None, [1] * 40, [0] * 40))
    html = report.render(page)
    assert "confident on the mean of its ten crops" in html
    assert 'class="limit' not in html, "the limit is that of the mean, which is not drawn"


@pytest.mark.parametrize("text", HOSTILE)
def test_text_from_outside_never_becomes_markup_on_a_page_of_concepts(text: str) -> None:
    plain = Structure(report.render(make_outlier_page())).found
    assert Structure(report.render(make_outlier_page(text))).found == plain


def test_an_empty_page_still_renders() -> None:
    empty = report.Funnel(0, [], [], 0, 0)
    page = make_page(
        survivors=0,
        funnel=empty,
        misses=[],
        misses_shown=0,
        licences=[],
        by_class=[],
        by_class_total=0,
        histogram=report.Histogram(0.15),
        borderline=0,
    )
    html = report.render(page)
    assert "None of 0 photos" in html
    assert "There are no photos on it." in html
    assert "Do not publish" not in html


def test_a_page_with_photos_that_may_not_be_passed_on_says_not_to_publish_it() -> None:
    free = report.LicenceCount("CC0 1.0", "https://creativecommons.org/x", True, 3)
    closed = report.LicenceCount("unknown licence", "", False, 1)
    assert "Do not publish this page." not in report.render(make_page(licences=[free]))
    html = report.render(make_page(licences=[free, closed]))
    assert "Do not publish this page." in html
    assert "1 photo on it has no known licence" in html


def test_photos_beyond_the_limit_are_counted() -> None:
    funnel = report.Funnel(100, [], [report.Reason("x", 10)], 90, 80)
    html = report.render(make_page(funnel=funnel))
    assert "79 more photos stand on the shortlist" in html
    assert "held back by the cap" in html


def test_a_picture_that_is_missing_leaves_its_caption() -> None:
    photo = next(iter(make_page().photos))
    gone = dataclasses.replace(photo, thumbnail=None, problem="no picture: missing")
    html = report.render(make_page(photos=[gone]))
    assert "no picture: missing" in html
    assert "<img" not in html


@pytest.mark.parametrize(
    ("value", "digits", "limit", "text"),
    [
        (0.5, 2, None, "0.50"),
        (0.0, 3, None, "0.000"),
        (1.0, 2, None, "1.00"),
        (0.999, 2, None, ">0.99"),
        (0.0004, 3, None, "<0.001"),
        (0.150004, 3, 0.15, "0.150004"),
        (0.15, 3, 0.15, "0.150"),
        (0.1499, 2, 0.15, "0.15"),
        (0.156, 2, 0.15, "0.16"),
        (1 - 1e-12, 2, 0.15, ">0.99"),
        (0.0, 2, 0.0, "0.00"),
    ],
)
def test_fractions_say_what_is_so(
    value: float, digits: int, limit: float | None, text: str
) -> None:
    assert report.fraction(value, digits, limit) == text


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 4))
def test_a_fraction_never_lies_about_whether_it_reaches_a_limit(
    value: float, limit: float, digits: int
) -> None:
    text = report.fraction(value, digits, limit, reached=True)
    if text[0] not in "<>" and abs(value - limit) > 1e-8:
        assert (float(text) >= limit) == (value >= limit)


def test_a_confidence_below_the_limit_does_not_look_like_it() -> None:
    assert report.fraction(0.8999, 2, 0.9) == "0.90"
    assert report.fraction(0.8999, 2, 0.9, reached=True) == "0.8999"
    assert report.fraction(0.9, 2, 0.9, reached=True) == "0.90"


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 4))
def test_a_fraction_never_lies_about_its_side_of_a_limit(
    value: float, limit: float, digits: int
) -> None:
    text = report.fraction(value, digits, limit)
    if text[0] in "<>":
        assert (value < float(text[1:])) == (text[0] == "<")
    elif abs(value - limit) > 1e-8:
        assert (float(text) > limit) == (value > limit)


@pytest.mark.parametrize(
    ("value", "text"),
    [(100, "100 %"), (99.97, ">99.9 %"), (0, "0 %"), (0.01, "<0.1 %"), (1.69, "1.7 %")],
)
def test_percentages_are_0_or_100_only_if_they_are(value: float, text: str) -> None:
    assert report.percent(value) == text


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=200))
def test_a_histogram_loses_nobody_and_fits_its_axis(items: list[tuple[float, bool]]) -> None:
    histogram = report.Histogram(0.15)
    for p_true, survived in items:
        histogram.add(p_true, survived)
    bars = list(histogram.bars())
    assert sum(scored for _, _, scored, _ in bars) == len(items)
    assert sum(survivors for _, _, _, survivors in bars) == sum(s for _, s in items)
    for low, high, scored, survivors in bars:
        assert 0 <= low < high <= 1
        assert 0 <= histogram.height(survivors) <= histogram.height(scored) <= 100
        assert histogram.height(scored) > 1
    assert histogram.ticks[-1] <= histogram.top


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_classifiers_are_listed_as_people_write(names: list[str]) -> None:
    models = [report.Model(name, name, "f" * 64, 1, "") for name in names]
    listed = make_page(models=models).listing("and")
    assert listed == {1: "a", 2: "a and b", 3: "a, b and c"}[len(names)]
