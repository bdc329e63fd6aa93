"""Results of an evaluation as CSV, for programs, and as LaTeX, for papers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from curate.files import csv_text
from curate.testbed.beside_tables import comparison_table, published_table
from curate.testbed.tables import measure_label

#: The columns of `results_csv`; all numbers are fractions.
CSV_COLUMNS = (
    "model",
    "dataset",
    "kind",
    "measure",
    "label",
    "value",
    "low",
    "high",
    "n",
    "restricted_to",
    "classes",
    "positive",
    "base_rate",
    "n_in",
    "n_out",
    "interval",
    "convention",
    "note",
    "source",
)

_COMPARISON_COLUMNS = (
    *("first", "second", "dataset", "measure", "second_less_first", "low", "high", "n"),
    *("both", "first_only", "second_only", "neither", "p_mcnemar", "interval", "note"),
)

_TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # LaTeX's own encoding has no straight one.
    '"': "''",
    "–": "--",
    "…": r"\dots{}",
    "−": "$-$",
    "→": r"$\rightarrow$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}
_TEX_SIGN = re.compile("|".join(map(re.escape, _TEX)))


def results_csv(results: Sequence[Mapping[str, Any]]) -> str:
    """A line a result and measure, then one a published number; `source` tells which is which.

    Args:
        results: the entries of an evaluation's `results`.
    """
    return csv_text(CSV_COLUMNS, _csv_rows(results))


def _csv_rows(results: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for result in results:
        empty = dict.fromkeys(CSV_COLUMNS)
        dataset = result["dataset"]["name"]
        for name, told in result["metrics"].items():
            yield {
                **empty,
                **{column: told[column] for column in CSV_COLUMNS if column in told},
                "model": result["model"]["name"],
                "dataset": dataset,
                "kind": result["kind"],
                "measure": name,
                "label": measure_label(name, told),
                "source": "measured",
            }
        for row in (result.get("published") or {"rows": ()})["rows"]:
            yield {
                **empty,
                "model": row["model"],
                "dataset": dataset,
                "kind": result["kind"],
                "measure": row["measure"],
                "value": row["value"],
                "note": "; ".join(filter(None, (row["relation"], row["settings"], row["note"]))),
                "source": row["source"],
            }


def comparisons_csv(comparisons: Sequence[Mapping[str, Any]]) -> str:
    """A line a pair of models and measure.

    Args:
        comparisons: as an evaluation's summary holds them.
    """
    rows = (
        {
            "first": one["first"],
            "second": one["second"],
            "dataset": one["dataset"],
            "measure": name,
            "second_less_first": told["value"],
            **{column: told[column] for column in ("low", "high", "n", "interval", "note")},
            **{key: value for key, value in one["mcnemar"].items() if key != "p_value"},
            "p_mcnemar": one["mcnemar"]["p_value"],
        }
        for one in comparisons
        for name, told in one["metrics"].items()
    )
    return csv_text(_COMPARISON_COLUMNS, rows)


def results_latex(
    results: Sequence[Mapping[str, Any]], comparisons: Sequence[Mapping[str, Any]] = ()
) -> str:
    """Tables for `\\input`: one a dataset, a row a measure and a column a model, in percent.

    They need the package booktabs; foreign text is escaped.

    Args:
        results: the entries of an evaluation's `results`.
        comparisons: as the summary holds them.
    """
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for result in results:
        space = result["label_space"]["name"]
        key = result["kind"], result["dataset"]["name"] or result["model"]["name"], space
        groups.setdefault(key, []).append(result)
    parts = [r"% \usepackage{booktabs}"]
    for (_, dataset, space), members in groups.items():
        names = dict.fromkeys(name for result in members for name in result["metrics"])
        header = ["measure", *(result["model"]["name"] for result in members)]
        rows = []
        for name in names:
            told = [result["metrics"].get(name) for result in members]
            label = next(measure_label(name, one) for one in told if one is not None)
            rows.append([tex(label), *map(_cell, told)])
        about = f"{dataset}, label space {space}, percent with 95 % intervals"
        parts.append(_tabular(about, header, rows, "l" + "r" * len(members)))
    if comparisons:
        header, plain = comparison_table(comparisons)
        rows = [[*row[:4], *map(minus, row[4:])] for row in _escaped(plain)]
        parts.append(_tabular("models compared", header, rows, "llllrrrrr"))
    header, plain = published_table(results)
    if plain:
        # The last column is too wide for a page.
        rows = _escaped(row[:-1] for row in plain)
        parts.append(_tabular("published numbers", header[:-1], rows, "lllrrlll"))
    return "\n\n".join(parts) + "\n"


def _escaped(rows: Any) -> list[list[str]]:
    return [[tex(cell) for cell in row] for row in rows]


def _cell(told: Mapping[str, Any] | None) -> str:
    if told is None or told["value"] is None:
        return "--"
    text = _percent(told["value"])
    if told["low"] is None:
        return text
    return f"{text} {{\\footnotesize [{_percent(told['low'])}, {_percent(told['high'])}]}}"


def _percent(value: float) -> str:
    return minus(f"{round(100 * value, 2) + 0.0:.2f}")


def minus(numbers: str) -> str:
    """Numbers as LaTeX shows them, with a minus where text has a hyphen.

    Args:
        numbers: trusted.
    """
    return re.sub(r"-(?=\d)", "$-$", numbers)


def _tabular(about: str, header: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> str:
    lines = [f"% {tex(about)}", rf"\begin{{tabular}}{{{align}}}", r"\toprule"]
    lines += [" & ".join(map(tex, header)) + r" \\", r"\midrule"]
    lines += [" & ".join(row) + r" \\" for row in rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def tex(cell: Any) -> str:
    """Text as LaTeX shows it: every sign that means something there is escaped.

    Args:
        cell: untrusted text, or a number.
    """
    text = "".join(sign if sign.isprintable() else " " for sign in str(cell))
    told = _TEX_SIGN.sub(lambda found: _TEX[found.group()], text)
    # Behind the end of a row, or a rule, these two would belong to it.
    return "{}" + told if told.startswith(("[", "*")) else told
