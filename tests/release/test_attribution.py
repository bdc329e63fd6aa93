"""Text from outside in a page of Markdown is text, and every photo has its author and licence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.release.attribution import attribution, attribution_page
from curate.release.markdown import escaped, linked, one_line
from tests.release.test_manifest import ROW


def test_title_author_place_and_licence_stand_in_one_line() -> None:
    said = attribution("A\nbird", "Ann", "https://x.example/1", "CC-BY-4.0", None)
    assert said == (
        "“A bird”, by Ann, https://x.example/1, CC BY 4.0 (CC-BY-4.0) "
        "https://creativecommons.org/licenses/by/4.0/"
    )
    unknown = attribution(None, None, None, "LicenseRef-unknown", None)
    assert unknown == "untitled, author not known, LicenseRef-unknown"


def test_every_image_is_on_the_page_and_an_unreviewed_one_says_so() -> None:
    rows = [replace(ROW, path=f"n02268443/{name}.jpg", page="javascript:x") for name in "abc"]
    page = b"".join(attribution_page(rows, reviewed=True)).decode()
    assert [line.partition(":")[0] for line in page.splitlines() if line.startswith("- ")] == [
        f"- n02268443/{name}.jpg" for name in "abc"
    ]
    assert "<javascript" not in page
    assert "| CC-BY-4.0 | 3 |" in page
    assert "UNREVIEWED" in next(attribution_page(rows, reviewed=False)).decode()


@pytest.mark.parametrize(
    "text",
    ["<script>", "[a](b)", "![a](b)", "`a`", "**a**", "a|b", "&amp;", "@ann", "#1", "$x$", ":a:",
     "www.a.example", "https://a.example"],
)  # fmt: skip
def test_no_markup_survives(text: str) -> None:
    signs = [sign for sign in text if sign in "<>[]`*|&@#$:"] or ["."]
    assert all(f"\\{sign}" in escaped(text) for sign in signs)


@settings(deadline=None)
@given(st.text())
def test_any_text_becomes_one_line_that_says_the_same(text: str) -> None:
    line = escaped(text)
    assert len(line.splitlines()) <= 1
    plain = one_line(text)
    assert line.replace("\\\\", "\0").replace("\\", "").replace("\0", "\\") == plain


def test_only_web_addresses_become_links() -> None:
    assert linked("https://x.example/a?b=(1)") == "<https://x.example/a?b=(1)>"
    for text in ("javascript:alert(1)", "https://x.example/a b", "https://x<y>", "ftp://x"):
        assert not linked(text).startswith("<")
    assert linked(None) == ""
