"""The review page: text from outside stays text, and it stands on its own in a browser."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from curate.report.page import Credit
from curate.report.review_page import (
    Blind,
    ClassCounts,
    Disputed,
    Measure,
    Mistaken,
    Person,
    ReviewPage,
    Share,
    Unread,
    Vote,
    hours,
    measured,
    pieces,
)
from curate.report.thumbnails import make_thumbnail
from tests.browser import PICTURES, browser_page
from tests.report.test_page import HOSTILE, Structure


def make_page(text: str = "plain", photos: list[Path] | None = None, **changes: Any) -> ReviewPage:
    """A page whose every text from outside is `text`."""
    credit = Credit(text, text, False, text, text, text, text, text, text)
    votes = [
        Vote("annotator-1", "valid", [f"also there: {text}"]),
        Vote("annotator-2", "wrong label", ["tiny or far away", f"it is: {text}"], text),
    ]
    disputed = [
        Disputed(
            f"{number:032}",
            f"{number:064}",
            text,
            votes,
            credit,
            make_thumbnail(path.read_bytes()) if path else None,
            "no picture: the stored file is bad",
        )
        for number, path in enumerate(photos or [None])  # type: ignore[list-item]
    ]
    share = Share(46, 50, 80.8, 97.8)
    told: dict[str, Any] = {
        "label_space": text,
        "run": "0123456789ab",
        "newest": datetime(2026, 1, 2, 3, 4, 5),
        "accepted": 20,
        "rejected": [("wrong label", 9), ("unclear", 2)],
        "waiting": 8,
        "disputed": disputed,
        "disputed_shown": len(disputed),
        "disputed_total": len(disputed),
        "disputed_controls": 0,
        "control": Share(3, 4, None, None),
        "measures": [
            Measure("Raw agreement", 0.875, 0.8, 0.9501, 32),
            Measure("Cohen's kappa", -0.001, -0.2, 0.5, 32),
            Measure("Krippendorff's alpha", None, None, None, 32),
        ],
        "people": [
            Person("annotator-1", 8, 50, 1, 6.25, share, share, 0.5, [f"accepts {text}"]),
            Person("annotator-2", 0, 0, 0, None, Share(0, 0, None, None), share, None),
        ],
        "hours": 12.34,
        "by_class": [ClassCounts("n01498041", text, 8, 32, 20, 11, 1)],
        "by_class_total": 1,
        "unread": [Unread(text, 12, 34, text)],
        "unread_total": 1,
        "blind": [Blind("Accepted", share, 3, 5), Blind("Controls", share, 0, 0)],
        "mistaken": [Mistaken(text, text, 2)],
        "withheld": 1,
        "outlier": False,
        "curate": "1.2.3",
    }
    return ReviewPage(**{**told, **changes})


def shown(page: ReviewPage) -> tuple[str, str]:
    html = "".join(pieces(page))
    return html, " ".join(" ".join(Structure(html).text).split())


@pytest.mark.parametrize("text", HOSTILE)
def test_text_from_outside_changes_nothing_but_text(text: str) -> None:
    html = "".join(pieces(make_page(text)))
    assert Structure(html).found == Structure("".join(pieces(make_page()))).found
    assert [link for link in Structure(html).links if link] == ["#unread"]


def test_the_comparison_of_structures_sees_text_that_is_not_escaped() -> None:
    html = "".join(pieces(make_page("plain"))).replace("plain", HOSTILE[0])
    assert Structure(html).found != Structure("".join(pieces(make_page()))).found


def test_the_page_says_how_far_people_are_and_who_said_what() -> None:
    _, text = shown(make_page())
    for told in (
        "32 of 40 candidates reviewed",
        "20 accepted, 11 rejected, 1 disputed; 8 wait for answers.",
        "what is open takes people 12.3 h in all",
        "annotator-1 accepts plain .",
        "1 answer cannot be read; it is listed below",
        "annotator-2 wrong label tiny or far away it is: plain plain",
        "92.0 % (46 of 50; 80.8 % to 97.8 %)",
        "Cohen's kappa 0.00 -0.20 0.50 32",
        "Krippendorff's alpha – – – 32",
        "Do not publish this page.",
        "Of the control sample, drawn before the filter, people accepted 75.0 % (3 of 4)",
    ):
        assert told.replace(" .", ".") in text.replace(" .", "."), text


def test_what_is_not_there_has_no_section() -> None:
    lists = ("measures", "people", "by_class", "unread", "blind", "mistaken", "disputed")
    nothing: dict[str, Any] = dict.fromkeys(lists, ())
    nothing |= dict.fromkeys(
        ("accepted", "waiting", "disputed_total", "unread_total", "disputed_controls"), 0
    )
    nothing |= {"rejected": [], "withheld": 0, "control": None, "newest": None, "run": None}
    html, text = shown(make_page(**nothing))
    assert "Nothing has been given out for review yet" in text
    assert "<section" not in html
    assert "notice" not in html.split("</style>")[1]


def test_what_is_left_out_is_counted() -> None:
    _, text = shown(make_page(disputed_total=1204, by_class_total=3, unread_total=5))
    assert "1,203 more are not shown" in text
    assert "2 more classes not shown" in text
    assert "4 more answers not shown" in text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (-0.001, "0.00"), (0.999, "1.00"), (-0.25, "-0.25")]
)
def test_measures_have_two_digits_and_no_negative_nought(value: float | None, text: str) -> None:
    assert measured(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0 min"),
        (0.001, "<1 min"),
        (0.25, "15 min"),
        (0.999, "1.0 h"),
        (1234.56, "1,234.6 h"),
    ],
)
def test_times_are_told_in_minutes_and_hours(value: float | None, text: str) -> None:
    assert hours(value) == text


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1400, "light")])
def test_the_page_stands_on_its_own_in_a_browser(
    width: int,
    scheme: Any,
    tmp_path: Path,
    browser_path: str,
    package_photos: list[tuple[Path, int]],
) -> None:
    path = tmp_path / "page.html"
    photos = [photo for photo, _ in package_photos[:5]]
    page = make_page("<img src=x onerror=alert(1)>" + "w" * 80, photos)
    path.write_bytes("".join(pieces(page)).encode())
    asked: list[str] = []
    told: list[str] = []
    with browser_page(browser_path, width, color_scheme=scheme) as tab:
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("dialog", lambda dialog: (told.append(dialog.message), dialog.dismiss()))
        tab.on("console", lambda message: told.append(message.text))
        tab.goto(path.as_uri())
        tab.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        wide = tab.evaluate("document.documentElement.scrollWidth")
        pictures = tab.evaluate(PICTURES)
        ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert [url for url in asked if not url.startswith("data:")] == [path.as_uri()]
    assert told == []
    assert wide <= width
    assert len(pictures) == 5
    assert all(pictures)
    assert ground == ("rgb(20, 21, 23)" if scheme == "dark" else "rgb(250, 249, 247)")
