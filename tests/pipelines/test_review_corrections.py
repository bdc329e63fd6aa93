"""A corrected label makes a candidate that is judged and reviewed like any other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select, update

from curate.catalog import intake
from curate.catalog.tables import candidates, images, origins
from curate.files import candidate_key
from pipelines.review_corrections import make_corrections
from pipelines.review_outcomes import reviewed
from tests.pipelines.reviewing import Rows, made_rows


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[Rows]:
    made = made_rows(tmp_path / "w", 4)
    made.give(range(4))
    yield made
    made.workspace.close()


def reject(rows: Rows, number: int, *corrected: str | None) -> None:
    for person, wnid in enumerate(corrected):
        rows.say(number, person, "wrong-label", corrected=wnid)


def made(rows: Rows) -> tuple[int, list[str]]:
    return make_corrections(rows.workspace, reviewed(rows.workspace))


def test_an_agreed_correction_is_a_new_candidate_with_the_origins_of_the_old_one(
    rows: Rows,
) -> None:
    wnid = rows.workspace.label_space.wnids[7]
    reject(rows, 2, wnid, None)
    count, notes = made(rows)
    assert (count, len(notes)) == (1, 1)
    assert "curate filter" in notes[0]
    key = candidate_key(rows.sha256s[2], wnid)
    with rows.workspace.catalogue.read() as connection:
        row = connection.execute(select(candidates).where(candidates.c.key == key)).one()
        told = list(connection.execute(select(origins).order_by(origins.c.id)).mappings())
    assert (row.sha256, row.wnid) == (rows.sha256s[2], wnid)
    apart = ("id", "key", "candidate_id")
    mine, old = (
        [{k: v for k, v in o.items() if k not in apart} for o in told if o["candidate_id"] == who]
        for who in (row.id, rows.ids[2])
    )
    assert mine == old
    assert len(mine) == 1
    assert made(rows) == (0, [])
    # What people said of the old one says nothing of it.
    assert key not in reviewed(rows.workspace).outcomes


def test_where_people_name_two_classes_or_none_or_the_label_itself_nothing_is_made(
    rows: Rows,
) -> None:
    space = rows.workspace.label_space
    reject(rows, 0, space.wnids[7], space.wnids[8])
    reject(rows, 1, None, None)
    reject(rows, 2, rows.wnids[2], rows.wnids[2])
    rows.say(3, 0, "wrong-label", corrected=space.wnids[7])
    rows.say(3, 1, "valid")
    assert made(rows) == (0, [])


def test_the_same_picture_that_is_a_candidate_of_that_class_already_is_not_made_again(
    rows: Rows,
) -> None:
    wnid = rows.workspace.label_space.wnids[7]
    looks = {"perceptual_hash": "0123456789abcdef" * 2}
    with rows.workspace.catalogue.write() as connection:
        connection.execute(update(images).values(pixel_sha256="1" * 64, **looks))
        row = {"key": "k" * 32, "sha256": rows.sha256s[0], "wnid": wnid, "near_key": None}
        intake.add_candidates(connection, [row])
    reject(rows, 2, wnid, wnid)
    assert made(rows) == (0, [])


def test_while_candidates_are_collected_corrections_wait(rows: Rows) -> None:
    wnid = rows.workspace.label_space.wnids[7]
    reject(rows, 2, wnid, wnid)
    with rows.workspace.held("collect"):
        count, notes = made(rows)
    assert (count, len(notes)) == (0, 1)
    assert "wait" in notes[0]
    assert made(rows)[0] == 1


def test_under_the_rule_outlier_nothing_is_corrected(tmp_path: Path) -> None:
    rows = made_rows(tmp_path / "w", 2, preset="imagenet-o")
    rows.give(range(2))
    for person in (0, 1):
        rows.say(0, person, "class-visible", corrected=rows.workspace.label_space.wnids[0])
    found = reviewed(rows.workspace)
    assert found.outcomes[rows.keys[0]].status == "rejected"
    assert made(rows) == (0, [])
    rows.workspace.close()
