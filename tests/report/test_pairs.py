"""The pairs page: text from outside stays text, and it stands on its own in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from curate.report.page import Credit
from curate.report.pairs import Group, PairsPage, Picture, Twin, pieces
from curate.report.thumbnails import make_thumbnail
from tests.browser import PICTURES, browser_page
from tests.report.test_page import HOSTILE, Structure


def make_page(text: str = "plain", photo: Path | None = None, **changes: Any) -> PairsPage:
    """A page whose every text from outside is `text`."""
    thumbnail = make_thumbnail(photo.read_bytes()) if photo else None
    credit = Credit(text, text, False, text, text, text, text, text, text)
    picture = Picture(
        text, "300 × 200, 14 kB", "0" * 32, credit, thumbnail, "no picture: it is gone"
    )
    twins = [
        Twin(picture, exact=False, distance=4, other_label=False, dropped=True),
        Twin(picture, exact=False, distance=1, other_label=True, dropped=False),
        Twin(picture, exact=True, distance=0, other_label=False, dropped=True),
    ]
    item = Picture(text, problem="the picture is not at hand")
    told: dict[str, Any] = {
        "groups": [Group(picture, None, twins), Group(item, text, twins[:1])],
        "shown": 4,
        "total": 4,
        "exact": 1,
        "near": 3,
        "against": 1,
        "across_labels": 1,
        "dropped": 3,
        "withheld": 1,
        "curate": "1.2.3",
    }
    return PairsPage(**{**told, **changes})


def shown(page: PairsPage) -> tuple[str, str]:
    html = "".join(pieces(page))
    return html, " ".join(" ".join(Structure(html).text).split())


@pytest.mark.parametrize("text", HOSTILE)
def test_text_from_outside_changes_nothing_but_text(text: str) -> None:
    html = "".join(pieces(make_page(text)))
    assert Structure(html).found == Structure("".join(pieces(make_page()))).found
    assert not [link for link in Structure(html).links if link]


def test_the_comparison_of_structures_sees_text_that_is_not_escaped() -> None:
    html = "".join(pieces(make_page("plain"))).replace("plain", HOSTILE[0])
    assert Structure(html).found != Structure("".join(pieces(make_page()))).found


def test_the_page_says_what_was_found_and_what_became_of_it() -> None:
    _, text = shown(make_page())
    assert "4 candidates show a picture that is there already" in text
    assert "3 nearly, 1 exactly. 1 was found in another set." in text
    for told in ("4 bits of 64 apart", "1 bit of 64 apart", "same bytes or pixels"):
        assert told in text
    assert text.count("stays in the filter") == 1
    assert text.count("dropped") == 3
    assert "another label" in text
    assert "All of them" in text
    assert "Do not publish this page." in text


def test_what_is_left_out_is_counted() -> None:
    _, text = shown(make_page(total=1204, withheld=0))
    assert "The 4 most doubtful ones" in text
    assert "1,200 surer ones are not shown" in text
    assert "Do not publish" not in text


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_stands_on_its_own_in_a_browser(
    width: int, tmp_path: Path, browser_path: str, package_photos: list[tuple[Path, int]]
) -> None:
    path = tmp_path / "page.html"
    page = make_page("<img src=x onerror=alert(1)>" + "w" * 80, package_photos[0][0])
    path.write_bytes("".join(pieces(page)).encode())
    asked: list[str] = []
    told: list[str] = []
    with browser_page(browser_path, width) as tab:
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("dialog", lambda dialog: (told.append(dialog.message), dialog.dismiss()))
        tab.on("console", lambda message: told.append(message.text))
        tab.goto(path.as_uri())
        tab.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        wide = tab.evaluate("document.documentElement.scrollWidth")
        pictures = tab.evaluate(PICTURES)
    assert [url for url in asked if not url.startswith("data:")] == [path.as_uri()]
    assert told == []
    assert wide <= width
    assert len(pictures) == 5
    assert all(pictures)
