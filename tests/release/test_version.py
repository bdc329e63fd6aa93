"""Versions: one spelling, and the order of numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.errors import UsageError
from curate.release.version import Version, parse_version

PART = st.integers(0, 999_999_999)


@given(PART, PART, PART)
def test_a_version_is_read_back_from_its_text(major: int, minor: int, patch: int) -> None:
    version = Version(major, minor, patch)
    assert parse_version(str(version)) == version
    assert len(str(version)) <= 32


def test_versions_compare_by_number() -> None:
    texts = ["0.10.0", "0.9.12", "1.0.0", "0.9.2"]
    assert sorted(texts, key=parse_version) == ["0.9.2", "0.9.12", "0.10.0", "1.0.0"]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("v0.1.0", "did you mean 0.1.0?"),
        ("0.1", "did you mean 0.1.0?"),
        ("1", "did you mean 1.0.0?"),
        ("01.2.3", "did you mean 1.2.3?"),
        (" 1.2.3", "did you mean 1.2.3?"),
        ("1.2.3\n", "did you mean 1.2.3?"),
        ("", "for example 0.1.0"),
        ("1.2.3.4", "for example 0.1.0"),
        ("1.2.x", "for example 0.1.0"),
        ("-1.2.3", "for example 0.1.0"),
        ("1.2.3-rc1", "for example 0.1.0"),
        ("../1.2.3", "for example 0.1.0"),
        ("1.2.٣", "for example 0.1.0"),
        ("1.2.1000000000", "for example 0.1.0"),
    ],
)
def test_any_other_spelling_is_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_version(text)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)
