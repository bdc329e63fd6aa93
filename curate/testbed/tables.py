"""Results of an evaluation as tables, for people."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from curate.testbed.measures import CONFIDENCE_LEVEL, MEASURES

_COLUMNS = ["model", "dataset", "measure", "percent", f"{CONFIDENCE_LEVEL:.0%} interval", "images"]


def results_table(results: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """A row a result and measure, values and intervals in percent.

    Args:
        results: the entries of an evaluation's `results`.

    Returns:
        The header, and the rows; model and dataset stand in the first row of each result alone.
    """
    rows: list[list[Any]] = []
    for result in results:
        who = [result["model"]["name"], result["dataset"]["name"] or ""]
        for name, told in result["metrics"].items():
            rows.append(
                [
                    *who,
                    _measure(name, told),
                    _percent(told["value"]).rjust(6),
                    ""
                    if told["low"] is None
                    else f"{_percent(told['low'])} – {_percent(told['high'])}",
                    told["n"],
                ]
            )
            who = ["", ""]
    return list(_COLUMNS), rows


def results_notes(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """What must be said beside the numbers, a sentence each, without repetition."""
    notes: dict[str, None] = {}
    for result in results:
        model, dataset = result["model"]["name"], result["dataset"]["name"] or "the file"
        if result["took_part_in_selection"]:
            notes[
                f"{model} took part in selecting {dataset}: it is wrong there by construction, "
                "and its accuracy says nothing about it."
            ] = None
        if (release := result["dataset"]["release"]) and not release["reviewed"]:
            notes[f"{dataset} is unreviewed: wrong labels lower every model's accuracy."] = None
        if result["failed"]:
            first = result["failures"][0]
            notes[
                f"{result['failed']} images of {dataset} have no prediction of {model} and are "
                f"left out; the first is {first['path']!r} ({first['reason']})."
            ] = None
        if passed_over := result["dataset"]["passed_over"]:
            notes[f"{passed_over} files in the class folders of {dataset} are no images."] = None
        for name, told in result["metrics"].items():
            if told["note"]:
                notes[f"{MEASURES[name]}: {told['note']}."] = None
    return list(notes)


def results_markdown(results: Sequence[Mapping[str, Any]]) -> str:
    """The table, the notes, and what made the numbers, as Markdown; foreign text is escaped."""
    columns, rows = results_table(results)
    lines = ["# Evaluation", "", _line(columns), _line([":--", ":--", ":--", "--:", "--:", "--:"])]
    lines += [_line([_escape(cell) for cell in row]) for row in rows]
    lines += ["", *(f"- {_escape(note)}" for note in results_notes(results))]
    lines += ["", "## Conventions", ""]
    conventions: dict[str, None] = {}
    for result in results:
        for name, told in result["metrics"].items():
            parts = [part for part in (told["convention"], told["interval"]) if part]
            if parts:
                conventions[f"- {MEASURES[name]}: {_escape('; interval: '.join(parts))}"] = None
    lines += conventions
    lines += ["", "## What made them", ""]
    lines += dict.fromkeys(_provenance(result) for result in results)
    return "\n".join(lines) + "\n"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f}"


def _measure(name: str, told: Mapping[str, Any]) -> str:
    if name == "accuracy":
        return f"{MEASURES[name]}, {told['classes']} classes of {told['restricted_to']}"
    if name == "accuracy_unrestricted" and told["classes"]:
        return f"accuracy, all {told['classes']} outputs"
    return MEASURES[name]


def _provenance(result: Mapping[str, Any]) -> str:
    model, space = result["model"], result["label_space"]
    text = f"- {model['name']}: {model['fingerprint_of']} SHA-256 {model['fingerprint'][:16]}"
    if view := result["view"]:
        text += (
            f", short side {view['resize']} ({view['interpolation']}), "
            f"centre crop {view['crop']}, {result['made_by']['device']}"
        )
    dataset = result["dataset"]
    return _escape(
        f"{text}; {dataset['name'] or 'no dataset'}, {dataset['images']} images of "
        f"{dataset['classes']} classes; label space {space['name']} ({space['chosen_by']}), "
        f"fingerprint {space['fingerprint'][:16]}"
    )


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(cell: Any) -> str:
    text = "".join(sign if sign.isprintable() else " " for sign in str(cell))
    text = html.escape(text, quote=False)
    for sign in "\\|`*_[]":
        text = text.replace(sign, "\\" + sign)
    return text
