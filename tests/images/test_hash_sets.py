"""Hash files: what is written is read again, and what is no hash file is told in one line."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.errors import UsageError
from curate.images import hash_sets
from curate.images.hash_sets import (
    HashSet,
    HashSetBuilder,
    is_hash_file,
    read_hash_file,
    same_digests,
    write_hash_file,
)

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


def digest(text: object, digits: int = 64) -> str:
    return hashlib.sha256(str(text).encode()).hexdigest()[:digits]


def made(names: list[str], *, pixels: bool = True) -> HashSet:
    builder = HashSetBuilder()
    for start in range(0, len(names), 3):
        some = names[start : start + 3]
        numbers = range(start, start + len(some))
        builder.add(
            some,
            {
                "sha256": [digest(n) for n in numbers],
                "perceptual_hash": [digest(f"look {n}", 32) for n in numbers],
                "pixel_sha256": [digest(f"pixels {n}") for n in numbers] if pixels else None,
            },
        )
    return builder.build("set")


def rows(one: HashSet) -> list[tuple[str, str, int, int, str | None]]:
    return [
        (
            one.picture(n),
            one.sha256[n].tobytes().hex(),
            int(one.hashes.picture[n]),
            int(one.hashes.mirror[n]),
            None if one.pixels is None else one.pixels[n].tobytes().hex(),
        )
        for n in range(len(one))
    ]


@settings(max_examples=40, deadline=None)
@given(
    names=st.lists(NAMES, max_size=12), pixels=st.booleans(), ending=st.sampled_from(["csv", "pq"])
)
def test_a_written_set_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], pixels: bool, ending: str
) -> None:
    path = tmp_path_factory.mktemp("sets") / f"set.{ending}"
    one = made(names, pixels=pixels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hash_sets, "_ROWS_AT_ONCE", 5)
        write_hash_file(path, one)
        first = path.read_bytes()
        assert is_hash_file(path)
        if names:
            assert rows(read_hash_file(path)) == rows(one)
        write_hash_file(path, one)
    assert path.read_bytes() == first
    assert sorted(row[0].encode() for row in rows(one)) == [row[0].encode() for row in rows(one)]


def test_the_order_in_which_a_set_was_read_does_not_matter() -> None:
    names = [f"n{n % 4}/{n}.jpg" for n in range(12)]
    one = made(names)
    builder = HashSetBuilder()
    for n in reversed(range(12)):
        builder.add(
            [names[n]],
            {
                "sha256": [digest(n).upper()],
                "perceptual_hash": [digest(f"look {n}", 32)],
                "pixel_sha256": [digest(f"pixels {n}")],
            },
        )
    assert rows(builder.build("set")) == rows(one)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"name": ["a"], "sha256": [digest(1)]}, "column 'perceptual_hash' is missing"),
        (
            {"name": ["a"], "sha256": [digest(1)], "perceptual_hash": [7]},
            "column 'perceptual_hash' holds int64, not text",
        ),
        (
            {
                "name": ["a", "b"],
                "sha256": [digest(1), digest(2)],
                "perceptual_hash": [digest(3, 32), "g" * 32],
            },
            "row 2: perceptual_hash should be 32 hexadecimal digits, not 'ggg",
        ),
        (
            {
                "name": ["a"],
                "sha256": [" " + digest(1)[:63]],
                "perceptual_hash": [digest(3, 32)],
            },
            "row 1: sha256 should be 64",
        ),
        (
            {
                "name": ["a", "b"],
                "sha256": [digest(1), None],
                "perceptual_hash": [digest(3, 32)] * 2,
            },
            "row 2: sha256 should be 64 hexadecimal digits, not ''",
        ),
    ],
)
def test_a_hash_file_of_another_form_is_one_line(
    tmp_path: Path, columns: dict[str, list[object]], expected: str
) -> None:
    path = tmp_path / "set.parquet"
    pq.write_table(pa.table(columns), path)
    with pytest.raises(UsageError) as told:
        read_hash_file(path)
    assert expected in str(told.value)
    assert "\n" not in str(told.value)


def test_damaged_and_absent_files_are_one_line(tmp_path: Path) -> None:
    whole = tmp_path / "whole.parquet"
    write_hash_file(whole, made(["a", "b"]))
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(UsageError, match=r"cannot read .*damaged\.parquet"):
        read_hash_file(damaged)
    with pytest.raises(UsageError, match="No such file"):
        is_hash_file(tmp_path / "absent")
    table = tmp_path / "set.csv"
    table.write_text("name,sha256\na,b\n", encoding="utf-8")
    with pytest.raises(UsageError, match="column 'perceptual_hash' is missing"):
        read_hash_file(table)


def test_equal_digests_are_found_and_nearly_equal_ones_are_not() -> None:
    values = np.frombuffer(
        b"".join(hashlib.sha256(bytes([n])).digest() for n in range(8)), np.uint8
    )
    theirs = values.reshape(-1, 32)[[5, 2, 5, 7]].copy()
    almost = theirs[3].copy()
    almost[31] ^= 1
    mine = np.stack([theirs[0], theirs[1], almost, theirs[3]])
    assert same_digests(mine, theirs).tolist() == [0, 1, -1, 3]
    assert same_digests(mine, theirs[:0]).tolist() == [-1] * 4
    alike = np.zeros((20_000, 32), np.uint8)
    alike[:, 30:] = np.arange(20_000, dtype=">u2").view(np.uint8).reshape(-1, 2)
    assert (same_digests(alike[::-1], alike) == np.arange(20_000)[::-1]).all()
