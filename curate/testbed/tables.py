"""Results of an evaluation as tables, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from curate.release.markdown import escaped
from curate.testbed.beside_tables import comparison_table, published_notes, published_table
from curate.testbed.measures import CONFIDENCE_LEVEL, MEASURES
from curate.testbed.ood import detection_notes

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
        if result.get("kind") == "ood":
            notes |= dict.fromkeys(detection_notes(result))
        elif result["took_part_in_selection"]:
            notes[
                f"{model} took part in selecting {dataset}: it is wrong there by construction, "
                "and its accuracy says nothing about it."
            ] = None
        if result.get("ranks_by_chance"):
            notes[
                f"{model} on {dataset}: the true class stands no higher among the "
                f"{result['label_space']['classes']:,} classes than any other would: are its "
                "outputs in another order than is assumed?"
            ] = None
        inside = result.get("in_distribution")
        if (release := result["dataset"]["release"]) and not release["reviewed"]:
            fault = "wrong labels lower every model's accuracy"
            if inside:
                fault = "photos that do show a class lower every model's detection"
            notes[f"{dataset} is unreviewed: {fault}."] = None
        if result["failed"]:
            first = result["failures"][0]
            where = f"{dataset} and of {inside['name'] or 'the other file'}" if inside else dataset
            notes[
                f"{result['failed']} images of {where} have no prediction of {model} and are "
                f"left out; the first is {first['path']!r} ({first['reason']})."
            ] = None
        if passed_over := result["dataset"]["passed_over"]:
            notes[f"{passed_over} files in the class folders of {dataset} are no images."] = None
        for name, told in result["metrics"].items():
            if told["note"]:
                notes[f"{measure_label(name, told)}: {told['note']}."] = None
    return [*notes, *published_notes(results)]


def results_markdown(
    results: Sequence[Mapping[str, Any]], comparisons: Sequence[Mapping[str, Any]] = ()
) -> str:
    """The tables, the notes, and what made the numbers, as Markdown; foreign text is escaped.

    Args:
        results: the entries of an evaluation's `results`.
        comparisons: as its summary holds them.
    """
    lines = ["# Evaluation", "", *_table(*results_table(results), ":::---")]
    if comparisons:
        lines += ["", "## Models compared", ""]
        lines += _table(*comparison_table(comparisons), "::::-----")
    columns, rows = published_table(results)
    if rows:
        lines += ["", "## Published", "", *_table(columns, rows, ":::--::::")]
    lines += ["", *(f"- {escaped(note)}" for note in results_notes(results))]
    lines += ["", "## Conventions", ""]
    conventions: dict[str, None] = {}
    for result in results:
        for name, told in result["metrics"].items():
            parts = [part for part in (told["convention"], told["interval"]) if part]
            if parts:
                label = told.get("measure_label") or measure_label(name, told)
                said = f"{label}: {'; interval: '.join(parts)}"
                conventions[f"- {escaped(said)}"] = None
    lines += conventions
    lines += ["", "## What made them", ""]
    lines += dict.fromkeys(_provenance(result) for result in results)
    return "\n".join(lines) + "\n"


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]], sides: str) -> list[str]:
    """A table; `sides` has a ":" for each column of text and a "-" for each one of numbers."""
    lines = [_line(columns), _line([":--" if side == ":" else "--:" for side in sides])]
    return lines + [_line([escaped(str(cell)) for cell in row]) for row in rows]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f}"


def _measure(name: str, told: Mapping[str, Any]) -> str:
    if name == "accuracy":
        return f"{MEASURES[name]}, {told['classes']} classes of {told['restricted_to']}"
    if name == "accuracy_unrestricted" and told["classes"]:
        return f"accuracy, all {told['classes']} outputs"
    return measure_label(name, told)


def measure_label(name: str, told: Mapping[str, Any]) -> str:
    """What tables call a measure.

    Args:
        name: its key in a result's `metrics`.
        told: its entry there.
    """
    return str(told.get("label") or MEASURES[name])


def _provenance(result: Mapping[str, Any]) -> str:
    model, space = result["model"], result["label_space"]
    text = f"- {model['name']}: {model['fingerprint_of']} SHA-256 {model['fingerprint'][:16]}"
    if view := result["view"]:
        text += (
            f", short side {view['resize']} ({view['interpolation']}), "
            f"centre crop {view['crop']}, {result['made_by']['device']}"
        )
    images = _images(result["dataset"])
    if inside := result.get("in_distribution"):
        images += f", against {_images(inside)}"
    return escaped(
        f"{text}; {images}; label space {space['name']} ({space['chosen_by']}), "
        f"fingerprint {space['fingerprint'][:16]}"
    )


def _images(dataset: Mapping[str, Any]) -> str:
    told = f"{dataset['name'] or 'no dataset'}, {dataset['images']} images"
    return told + (f" of {dataset['classes']} classes" if dataset["classes"] else "")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
