"""A corruption run as text, CSV, Markdown and LaTeX, with what must be said beside its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from curate.files import csv_text
from curate.release.markdown import escaped, one_line
from curate.testbed.corruption_beside import table_name, text_comparison
from curate.testbed.corruption_results import table_from_record
from curate.testbed.corruption_text import CHANCE, text_table
from curate.testbed.table_forms import minus, tex

# Images below which a row's shape and marks are mostly chance.
_FEW = 100

_CSV = (
    "model",
    "views",
    "corruption",
    "severity",
    "n",
    "failed",
    "accuracy",
    "low",
    "high",
    "error",
    "near_chance",
    "rms_calibration_error",
    "mean_confidence",
    "overconfidence",
    "mean_error",
    "relative_error",
    "ce_percent",
    "relative_ce_percent",
    "shape",
)

_HEAD = ("corruption", "s1", "s2", "s3", "s4", "s5")
_AFTER = ("mean error", "relative", "CE", "RMS calib.", "overconf.", "shape")

_PLACES = {
    "camera": "corrupted at full size, then resized and cut",
    "crop": "the crop corrupted",
    "disk": "corrupted images from the disk",
}


def where(summary: Mapping[str, Any]) -> str:
    """What was corrupted and how, in words."""
    first = summary["results"][0]
    conditions, dataset = first["conditions"], first["dataset"]
    told = f"{dataset['images']:,} images of {dataset['name']}, {_PLACES[conditions['at']]}"
    if conditions["at"] != "disk":
        told += ", through JPEG" if conditions["jpeg"] else ", in memory"
        told += f", seed {conditions['seed']}"
    return told


def means_line(result: Mapping[str, Any]) -> str:
    """The mean corruption error with its name, or why there is none."""
    means = result["means"]
    if means["mean"] is None:
        return f"no mCE: {means['note']}"
    relative = "" if means["relative"] is None else f", relative {means['relative']:.1f}"
    return f"{means['called']}: {means['mean']:.1f}{relative} ({means['note']})"


def text_summary(summary: Mapping[str, Any]) -> str:
    """Every table, its means and calibration, the comparisons, and the notes."""
    parts = [where(summary)]
    for result in summary["results"]:
        ce = {row["corruption"]: row["ce"] for row in result["rows"] if row["ce"] is not None}
        lines = [_title(result), *text_table(table_from_record(result), ce=ce)]
        lines += [_calibration(result), means_line(result)]
        parts.append("\n".join(lines))
    parts += ["\n".join(text_comparison(one)) for one in summary["comparisons"]]
    parts.append("\n".join(f"note: {note}" for note in notes(summary)))
    return "\n\n".join(part for part in parts if part)


def notes(summary: Mapping[str, Any]) -> list[str]:
    """What must be said beside the numbers, a sentence each, without repetition."""
    told: dict[str, None] = {}
    for result in summary["results"]:
        name, dataset = table_name(result), result["dataset"]
        if result["took_part_in_selection"]:
            told[
                f"{name} took part in selecting {dataset['name']}: its clean error, and what is "
                "relative to it, say nothing about it."
            ] = None
        if (release := dataset["release"]) and not release["reviewed"]:
            told[f"{dataset['name']} is unreviewed: wrong labels count as errors."] = None
        if dataset["images"] < _FEW:
            told[
                f"{dataset['images']} images are few: intervals are wide, and the shape of a row "
                "may be chance."
            ] = None
        conditions = result["conditions"]
        if conditions["frost"] == "procedural" and any(
            row["corruption"] == "frost" for row in result["rows"]
        ):
            told["Frost is drawn, not made of the published pictures (--frost)."] = None
        if conditions["scale"] == "short-side":
            told[
                "The published constants are pixels of a 224 crop; here lengths are scaled with "
                "the photo's short side, as results.json says of each corruption."
            ] = None
    if missing := summary["missing"]:
        told[
            f"{len(missing)} settings are missing from the folder: {', '.join(missing[:8])}"
            f"{' …' if len(missing) > 8 else ''}."
        ] = None
    if unlike := summary["unlike"]:
        told[
            f"{len(unlike)} settings hold other photos than the first: {', '.join(unlike[:8])}"
            f"{' …' if len(unlike) > 8 else ''}; what stands beside each other is not of the same "
            "ones."
        ] = None
    if failures := summary["failures"]:
        first = failures[0]
        place = first["settings"][0] if first["settings"] else "every setting"
        told[
            f"{summary['failed']} images failed somewhere and are left out there alone; the first "
            f"is {first['path']!r} in {place} ({first['reason']})."
        ] = None
    return list(told)


def csv_table(summary: Mapping[str, Any]) -> str:
    """A row a model, corruption and severity, clean images first; fractions."""
    rows: list[list[Any]] = []
    for result in summary["results"]:
        who = [result["model"]["name"], result["views"]]
        if result["clean"] is not None:
            rows.append([*who, "clean", 0, *_setting(result["clean"]), *[None] * 5])
        for row in result["rows"]:
            whole = [row["mean_error"], row["relative_error"], row["ce"], row["relative_ce"]]
            whole.append(row["told"])
            for one in row["severities"]:
                rows.append([*who, row["corruption"], one["severity"], *_setting(one), *whole])
    return csv_text(_CSV, rows)


def _setting(one: Mapping[str, Any]) -> list[Any]:
    accuracy = one["accuracy"]
    return [
        one["n"],
        one["failed"],
        accuracy["value"],
        accuracy["low"],
        accuracy["high"],
        one["error"],
        one.get("near_chance"),
        one["rms_calibration_error"],
        one["mean_confidence"],
        one["overconfidence"],
    ]


def markdown(summary: Mapping[str, Any]) -> str:
    """The tables, the comparisons, the notes and what made them; foreign text is escaped."""
    lines = ["# Corruptions", "", escaped(where(summary)), ""]
    for result in summary["results"]:
        lines += [f"## {escaped(_title(result))}", ""]
        if result["clean"] is not None:
            lines += [escaped(_clean(result["clean"])), ""]
        lines += [_line([*_HEAD, *_AFTER]), _line([":--", *["--:"] * 10, ":--"])]
        lines += [_line([escaped(cell) for cell in cells(row)]) for row in result["rows"]]
        lines += ["", escaped(f"{CHANCE} {_chance(result)}; {means_line(result)}"), ""]
    for one in summary["comparisons"]:
        lines += [f"## {escaped(one['first'])} beside {escaped(one['second'])}", ""]
        lines += ["```", *(_fenced(line) for line in text_comparison(one)), "```", ""]
    lines += [f"- {escaped(note)}" for note in notes(summary)]
    lines += ["", "## What made them", ""]
    lines += [f"- {escaped(provenance(result))}" for result in summary["results"]]
    return "\n".join(lines) + "\n"


def latex(summary: Mapping[str, Any]) -> str:
    """A table a model for the package booktabs; foreign text is escaped."""
    lines: list[str] = []
    for result in summary["results"]:
        lines += [
            f"% {tex(where(summary))}",
            "\\begin{tabular}{l*{10}{r}l}",
            "\\toprule",
            " & ".join(tex(cell) for cell in (*_HEAD, *_AFTER)) + " \\\\",
            "\\midrule",
            f"\\multicolumn{{12}}{{l}}{{{tex(_title(result))}}} \\\\",
        ]
        if result["clean"] is not None:
            lines.append(f"\\multicolumn{{12}}{{l}}{{{tex(_clean(result['clean']))}}} \\\\")
        lines += [" & ".join(_tex_cells(row)) + " \\\\" for row in result["rows"]]
        lines += ["\\bottomrule", "\\end{tabular}", f"% {tex(means_line(result))}", ""]
    return "\n".join(lines)


def _tex_cells(row: Mapping[str, Any]) -> list[str]:
    name, *numbers, shape = map(tex, cells(row))
    return [name, *map(minus, numbers), shape]


def cells(row: Mapping[str, Any]) -> list[str]:
    """A row for people: accuracies in percent, errors as fractions."""
    by_severity = {one["severity"]: one for one in row["severities"]}
    accuracies = []
    for severity in range(1, 6):
        one = by_severity.get(severity)
        mark = CHANCE if severity in row["near_chance"] else ""
        accuracies.append("–" if one is None else f"{100 * one['accuracy']['value']:.1f}{mark}")
    return [
        row["corruption"],
        *accuracies,
        f"{row['mean_error']:.3f}",
        "–" if row["relative_error"] is None else f"{row['relative_error']:.1f}x",
        "–" if row["ce"] is None else f"{row['ce']:.1f}",
        f"{row['mean_rms_calibration_error']:.3f}",
        f"{row['mean_overconfidence']:+.3f}",
        row["told"],
    ]


def provenance(result: Mapping[str, Any]) -> str:
    """What made a table, in one line."""
    model, view, made = result["model"], result["view"], result["made_by"]
    space = result["label_space"]
    return (
        f"{table_name(result)}: {model['fingerprint_of']} SHA-256 {model['fingerprint'][:16]}, "
        f"short side {view['resize']} ({view['interpolation']}), centre crop {view['crop']}, "
        f"{made['device']}; {space['name']}, {space['classes']:,} classes; numpy {made['numpy']}, "
        f"scipy {made['scipy']}, pillow {made['pillow']}, torch {made['torch']}, "
        f"curate {made['curate']}"
    )


def _title(result: Mapping[str, Any]) -> str:
    return table_name(result) + (" (baseline)" if result["added"] else "")


def _chance(result: Mapping[str, Any]) -> str:
    return f"cannot be told from guessing among {result['classes']:,} classes"


def _clean(clean: Mapping[str, Any]) -> str:
    accuracy = clean["accuracy"]
    return (
        f"clean: {100 * accuracy['value']:.1f} % ({100 * accuracy['low']:.1f} to "
        f"{100 * accuracy['high']:.1f}, {accuracy['interval']}), RMS calibration error "
        f"{clean['rms_calibration_error']:.3f}, overconfidence {clean['overconfidence']:+.3f}"
    )


def _calibration(result: Mapping[str, Any]) -> str:
    """How confidence fares: the clean images, and the worst setting."""
    settings = [(one["overconfidence"], row, one) for row in result["rows"] for one in _known(row)]
    if not settings:
        return "calibration: nothing was measured"
    over, row, worst = max(settings, key=lambda found: found[0])
    clean = result["clean"]
    before = "" if clean is None else f"clean {clean['overconfidence']:+.3f}, "
    return (
        f"confidence minus accuracy: {before}most under {row['corruption']} at severity "
        f"{worst['severity']} {over:+.3f} (confident {worst['mean_confidence']:.3f}, right "
        f"{worst['accuracy']['value']:.3f})"
    )


def _known(row: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [one for one in row["severities"] if one["n"]]


def _line(found: Sequence[str]) -> str:
    return f"| {' | '.join(found)} |"


def _fenced(text: str) -> str:
    return one_line(text).replace("`", "'")
