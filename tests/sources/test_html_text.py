"""Text from HTML: what a reader sees, and the first link."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.sources.html_text import html_text


@pytest.mark.parametrize(
    ("html", "text", "link"),
    [
        ("plain", "plain", None),
        ('<a href="//wiki.example.org/U">Ann</a>', "Ann", "https://wiki.example.org/U"),
        ("Ann &amp; Bob<br>Zo&euml;", "Ann & Bob Zoë", None),
        ("<b>not closed", "not closed", None),
        ("&lt;b&gt; stays", "<b> stays", None),
        ("a<script>alert(1)</script>b<style>p {}</style>", "ab", None),
        ("<td>one</td><td>two</td>", "one two", None),
        (
            '<a href="javascript:x">y</a> <a href="http://z.example">q</a>',
            "y q",
            "http://z.example",
        ),
        ('<a href="https://z.example"><img src="x"></a>', None, "https://z.example"),
        ("", None, None),
    ],
)
def test_html_becomes_what_a_reader_sees(html: str, text: str | None, link: str | None) -> None:
    assert html_text(html) == (text, link)


def test_endless_html_is_cut() -> None:
    text, _ = html_text("<b>a</b> " * 1_000_000)
    assert text is not None
    assert len(text) <= 2000


@given(st.text(alphabet=st.sampled_from("<>/&;#! -a\"'=\n\0\ud800"), max_size=60))
def test_any_text_is_read_in_one_printable_line(html: str) -> None:
    text, link = html_text(html)
    for told in (text, link):
        if told is not None:
            assert told.encode()
            assert "\0" not in told
            assert "\n" not in told
