"""The states of hits: names that scripts filter on."""

from __future__ import annotations

import pytest

from curate.errors import REASONS
from curate.sources.states import FAILED, STATES, is_failure, is_state, state_of


@pytest.mark.parametrize(
    "reason",
    ["symlink", "not-a-file", "unreadable", "missing", "outside", "altered", "nan-logits"],
)
def test_what_befalls_only_files_and_scores_is_no_state_of_a_hit(reason: str) -> None:
    assert reason in REASONS
    assert not is_state(state_of(reason))


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("too-many-bytes", "too_large"),
        ("unsupported-format", "not_an_image"),
        ("not-an-image", "not_an_image"),
        ("empty-file", "truncated"),
        ("truncated", "truncated"),
        ("duplicate-near", "duplicate"),
        ("malformed-record", "malformed"),
        ("metadata-bomb", "metadata_bomb"),
        ("no-label", "no_label"),
        ("in-distribution", "in_distribution"),
        ("licence", "licence"),
        ("placeholder", "placeholder"),
    ],
)
def test_what_refuses_an_image_has_its_state(reason: str, state: str) -> None:
    assert state_of(reason) == state
    assert STATES[state]


def test_failures_are_states_and_so_are_the_numbers_of_answers() -> None:
    assert all(
        is_state(state) and is_failure(state)
        for state in (*FAILED, "http_404", "http_503", "http_999")
    )
    assert not any(map(is_state, ("http_099", "http_20", "http404", "")))
    assert not any(map(is_failure, ("downloaded", "waiting", "robots", "not_an_image")))
