"""Text from outside is one safe line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.files import csv_plain, csv_safe
from curate.sources.protocol import LONGEST_TEXT, clean


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("'Tis a bird", "'Tis a bird"),
        ("'=1+1", "=1+1"),
        (" two\n lines\t ", "two lines"),
        ("\x1b[31mred\x07\0", "\\x1b[31mred\\x07\\x00"),
        ("\n ", None),
        (None, None),
    ],
)
def test_text_from_outside_is_one_line(text: str | None, line: str | None) -> None:
    assert clean(text) == line


@given(st.text(max_size=50))
def test_text_from_outside_holds_no_control_character(text: str) -> None:
    line = clean(text)
    assert line is None or (line.isprintable() or not set(line) & set(map(chr, range(32))))
    assert line is None or len(line) <= LONGEST_TEXT


@given(st.text(max_size=20))
def test_what_was_made_safe_for_spreadsheets_is_read_back(cell: str) -> None:
    assert csv_plain(csv_safe(cell)) == cell
