"""What changed between two versions, and the step of the version that this calls for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.errors import UsageError
from curate.release.compare import Changes, changelog, check_step, compare, following
from curate.release.version import parse_version

WNIDS = ("n01440764", "n01443537", "n01484850")


def row(number: int, wnid: str = WNIDS[0], **changes: Any) -> dict[str, Any]:
    digest = f"{number:064x}"
    told = {
        "path": f"{wnid}/{digest[-16:]}.jpg",
        "wnid": wnid,
        "name": "tench",
        "sha256": digest,
        "original_sha256": digest,
        "reviewed": True,
        "licence": "CC-BY-4.0",
        "split": None,
    }
    return told | changes


BASE = [row(1), row(2), row(3)]


@pytest.mark.parametrize(
    ("after", "kind", "step"),
    [
        (BASE, "", "patch"),
        ([*BASE, row(4)], "added", "minor"),
        (BASE[:2], "removed", "major"),
        ([*BASE[:2], row(4)], "removed", "major"),
        ([*BASE[:2], row(3, WNIDS[1])], "relabelled", "major"),
        ([*BASE[:2], row(3, path=f"{WNIDS[2]}/x.jpg")], "relabelled", "major"),
        ([*BASE[:2], row(3, licence="CC0-1.0")], "changed", "major"),
        ([*BASE[:2], row(3, split="dev")], "changed", "major"),
        ([*BASE[:2], row(3, reviewed=False)], "changed", "major"),
        ([*BASE[:2], row(3, sha256="f" * 64)], "reencoded", "patch"),
        ([*BASE[:2], row(3, path=f"{WNIDS[0]}/x.jpg")], "renamed", "patch"),
        ([*BASE[:2], row(3, name="Tinca tinca", author="x")], "", "patch"),
    ],
)
def test_each_change_is_told_and_calls_for_its_step(
    after: list[dict[str, Any]], kind: str, step: str
) -> None:
    changes = compare(BASE, after)
    assert changes.step == step
    assert [name for name, count in changes.counts().items() if count and name != "added"] == (
        [kind] if kind not in ("", "added") else []
    )
    assert (kind == "added") <= (len(changes.added) == 1)


def test_a_row_that_is_not_written_yet_is_compared_by_its_folder() -> None:
    planned = [row(n, path="", sha256=None, folder=WNIDS[0]) for n in (1, 2, 3)]
    assert compare(BASE, planned) == Changes(kept=3)
    planned[0]["folder"] = WNIDS[1]
    assert len(compare(BASE, planned).relabelled) == 1


def test_an_image_under_two_labels_may_lose_one() -> None:
    both = [row(1), row(1, WNIDS[1])]
    changes = compare(both, both[:1])
    assert [gone["wnid"] for gone, _ in changes.removed] == [WNIDS[1]]
    assert (changes.kept, len(changes.relabelled)) == (1, 0)


def test_why_an_image_went_is_told() -> None:
    changes = compare(BASE, BASE[:1], {BASE[1]["original_sha256"]: "privacy"})
    assert [why for _, why in changes.removed] == ["retracted: privacy", "no longer chosen"]
    told = changelog("2.0.0", "1.0.0", changes)
    assert told.startswith("### 2.0.0, after 1.0.0\n")
    assert "- removed: 2 images (1 no longer chosen, 1 retracted: privacy)" in told
    assert "- unchanged: 1" in told


_ROWS = st.dictionaries(
    st.tuples(st.integers(0, 6), st.sampled_from(WNIDS)), st.sampled_from(("CC0-1.0", "CC-BY-4.0"))
).map(lambda found: [row(n, wnid, licence=licence) for (n, wnid), licence in found.items()])


@settings(max_examples=50)
@given(_ROWS, _ROWS)
def test_every_row_is_accounted_for_once(
    before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> None:
    changes = compare(before, after)
    counts = changes.counts()
    in_both = changes.kept + sum(
        counts[name] for name in ("relabelled", "changed", "reencoded", "renamed")
    )
    assert in_both + counts["removed"] == len(before)
    assert in_both + counts["added"] == len(after)
    assert compare(after, before).counts()["added"] == counts["removed"]
    assert compare(before, before) == Changes(kept=len(before))
    if all(one in after for one in before):
        assert changes.step == ("minor" if len(after) > len(before) else "patch")


@pytest.mark.parametrize(
    ("previous", "wanted", "after", "right"),
    [
        ("1.2.3", "1.2.4", BASE, None),
        ("1.2.3", "1.3.0", BASE, "1.2.4"),
        ("1.2.3", "2.0.0", BASE, "1.2.4"),
        ("1.2.3", "1.3.0", [*BASE, row(4)], None),
        ("1.2.3", "1.2.4", [*BASE, row(4)], "1.3.0"),
        ("1.2.3", "2.0.0", [*BASE, row(4)], "1.3.0"),
        ("1.2.3", "2.0.0", BASE[:2], None),
        ("1.2.3", "1.3.0", BASE[:2], "2.0.0"),
        ("1.2.3", "1.2.4", BASE[:2], "2.0.0"),
        ("0.1.0", "1.0.0", BASE, None),
        ("0.1.0", "0.2.0", BASE[:2], "1.0.0"),
    ],
)
def test_a_wrong_step_is_refused_and_the_right_version_named(
    previous: str, wanted: str, after: list[dict[str, Any]], right: str | None
) -> None:
    changes = compare(BASE, after)
    old, new = parse_version(previous), parse_version(wanted)
    if right is None:
        check_step(new, old, changes, old)
        return
    with pytest.raises(UsageError, match=f"build {right}$") as caught:
        check_step(new, old, changes, old)
    assert "\n" not in str(caught.value)
    assert str(following(old, changes.step)) == right
