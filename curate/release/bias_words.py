"""What was measured of a release's selection bias, in sentences: for the card and the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: What a group is called, in the order in which groups are told.
GROUP_WORDS = {
    "filter": "took part in selecting",
    "family": "of their family",
    "other": "took no part",
}

#: The most models of a group that a card lists.
MOST_ROWS = 40


def bias_columns(record: Mapping[str, Any]) -> list[str]:
    """What the columns of `bias_rows` are called."""
    columns = ["selection", "model", "standard accuracy, %", "accuracy here, %"]
    return columns if record["fit"]["no_fit"] else [*columns, "points beyond the line"]


def bias_rows(record: Mapping[str, Any], most: int | None = None) -> list[list[str]]:
    """A row a model: what it has to do with the selection, its name, standard accuracy and that on
    the release with their intervals, and where there is a line how far the model lies from it.

    Args:
        record: as `curate release bias` gives it.
        most: of a group; the others are left out.
    """
    rows: list[list[str]] = []
    for group, words in GROUP_WORDS.items():
        found = [one for one in record["models"] if one["group"] == group]
        for one in found[:most]:
            beyond = one["beyond_line"]
            row = [words, one["model"], _accuracy(one["standard"]), _accuracy(one["release"])]
            if not record["fit"]["no_fit"]:
                row.append("" if beyond is None else f"{beyond:+.2f}")
            rows.append(row)
    return rows


def left_out_rows(record: Mapping[str, Any], most: int) -> int:
    """How many models `bias_rows` leaves out."""
    counts = [record["groups"][group]["models"] for group in GROUP_WORDS]
    return sum(max(0, count - most) for count in counts)


def bias_sentences(record: Mapping[str, Any]) -> list[str]:
    """What the numbers say, a sentence or two each."""
    groups = record["groups"]
    told = [
        "Models that took part in selecting the photos are wrong on them by construction, and "
        "their relatives lean the same way: do not hold their accuracy here against others'.",
        _measured(record),
    ]
    counts = [groups[group]["models"] for group in GROUP_WORDS]
    own, near, others = (f"{count:,}" for count in counts)
    told.append(
        f"Models that took part in selecting: {own}; of their family: {near}; others: {others}."
    )
    if record["unmeasured"]:
        names = ", ".join(record["unmeasured"])
        told.append(f"Took part in selecting, and not measured: {names}.")
    fit, pivot = record["fit"], record["fit"].get("pivot")
    if fit["no_fit"]:
        told.append(
            f"No line is drawn, since {fit['no_fit']}. So nothing here says how hard these photos "
            "are for models that took no part."
        )
        return told
    told.append(_line(record))
    if pivot is not None:
        told += _pivot(record)
    if record["knee"] is not None:
        told.append(_knee(record["knee"]))
    for group in ("filter", "family"):
        beyond = groups[group]["beyond_line"]
        if beyond is not None:
            whose = "that took part in selecting"
            if group == "family":
                whose = f"of the family of those {whose}"
            told.append(f"Models {whose} lie {_points(beyond)} the line on average.")
    return told


def _measured(record: Mapping[str, Any]) -> str:
    release, table = record["release"], record["table"]
    what = ""
    if release is not None:
        split = f", split {release['split']}" if release["split"] else ""
        what = f"version {release['version']} of this dataset{split}"
    if table is not None:
        about = f" about {what}" if what else ""
        return (
            f"From the table {table['file']}{about}: {record['fit']['y']} against "
            f"{record['fit']['x']} as standard accuracy."
        )
    standard = record["standard"]
    return (
        f"Measured on {what}, {release['images']:,} photos of {release['classes']:,} classes, "
        f"against {standard['images']:,} photos of {standard['classes']:,} of these classes in "
        f"{standard['name']} for standard accuracy: the most probable class of the whole label "
        "space, on the centre crop. In brackets are the intervals of Clopper and Pearson at "
        f"{100 * record['confidence_level']:g} %."
    )


def _line(record: Mapping[str, Any]) -> str:
    fit = record["fit"]
    rule = f" ({record['line']})" if record["line"] else ""
    if fit["kind"] == "line":
        return (
            f"Through the models that took no part{rule} a line is drawn, of logit accuracy here "
            f"on logit standard accuracy: {_told(fit)}."
        )
    low, high = fit["low"], fit["high"]
    return (
        f"Through the models that took no part{rule} a line is drawn on either side of the pivot, "
        "of logit accuracy here on logit standard accuracy. Below it: "
        f"{_told(low)}. Above it: {_told(high)}."
    )


def _told(line: Mapping[str, Any]) -> str:
    ends = line["slope_interval"]
    interval = f" ({ends[0]:.2f} … {ends[1]:.2f})" if ends else ""
    return (
        f"slope {line['slope']:.2f}{interval}, intercept {line['intercept']:.2f}, r² "
        f"{line['r2']:.3f}, {line['n']:,} models"
    )


def _pivot(record: Mapping[str, Any]) -> list[str]:
    pivot, left, bends = record["fit"]["pivot"], record["left"], record["bends_at_pivot"]
    ends = record["line_range"]
    whose = f", that of {pivot['model']}," if pivot["model"] else ""
    bent = ""
    if bends is not None:
        bent = (
            " The slopes' intervals lie apart: the curve bends between them."
            if bends
            else (" The slopes' intervals overlap: no bend is shown.")
        )
    told = [
        f"The pivot is a standard accuracy of {pivot['percent']:.2f} %{whose} where the filter "
        f"leaves off.{bent}"
    ]
    if record["one_line"]:
        told.append(f"One line stands for both of its sides, since {record['one_line']}.")
    if left is None:
        told.append(
            f"It lies outside the standard accuracies of the models that the line goes through "
            f"({ends[0]:.1f} … {ends[1]:.1f} %), so nothing is told of what is left there."
        )
    else:
        which = "" if record["fit"]["kind"] == "line" else ", by the line below it,"
        text = (
            f"At that standard accuracy a model that took no part is expected{which} at "
            f"{left['expected']:.2f} % here: it loses {left['drop']:.2f} points"
        )
        if left["share"] is not None:
            text += (
                f", {left['model']} loses {left['model_drop']:.2f}. So {left['share']:.1%} of the "
                "difficulty is left for models that took no part"
            )
        told.append(f"{text}.")
    return told


def _knee(knee: Mapping[str, Any]) -> str:
    low, high = knee["interval"]
    return (
        f"By itself, wherever it may be, the curve bends best at {knee['percent']:.2f} % (95 % "
        f"interval {low:.2f} … {high:.2f}), from slope {knee['slope_below']:.2f} to "
        f"{knee['slope_above']:.2f}: r² {knee['r2']:.3f}, where a single line has "
        f"{knee['r2_line']:.3f}."
    )


def _points(distance: float) -> str:
    return f"{abs(distance):.2f} points {'below' if distance < 0.0 else 'above'}"


def _accuracy(told: Mapping[str, Any]) -> str:
    if told["value"] is None:
        return ""
    ends = "" if told["low"] is None else f" ({told['low']:.2f} … {told['high']:.2f})"
    return f"{told['value']:.2f}{ends}"
