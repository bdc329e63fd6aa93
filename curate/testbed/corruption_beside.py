"""Two corruption tables side by side: what a change gains on one row it may lose on another."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curate.errors import UsageError
from curate.files import printable
from curate.testbed.corruption_results import table_from_record

# A report of a hundred models is a hundredth of this.
_LARGEST = 64_000_000

#: What two tables should have in common, as results.json calls it, and in words.
CONDITIONS = {
    "content_sha256": "images",
    "label_space": "label space",
    "at": "place of the corruption (--at)",
    "jpeg": "JPEG (--jpeg)",
    "frost": "frost",
    "seed": "seed",
    "scale": "scale of the constants",
}


def table_name(result: Mapping[str, Any]) -> str:
    """What a table is called: the model, and how its view is cut where that is not its own way."""
    name = str(result["model"]["name"])
    return name if result.get("views") in (None, "native") else f"{name} ({result['views']} views)"


def compare(
    first: Mapping[str, Any], second: Mapping[str, Any], *, origin: str = ""
) -> dict[str, Any]:
    """Two entries of results.json, row by row.

    Args:
        first: the table before the change.
        second: the one after it.
        origin: where the first one comes from, "in before"; empty if from this run.

    Returns:
        `first`, `second` (names), `clean` and `rows`: each with both values and their difference,
        second less first (for rows: mean errors, relative errors and the accuracies by severity,
        over the severities that both have); `better`, `worse`, `equal` (rows by mean error);
        `only_one` (corruptions that one of them lacks), `differs` (conditions that are not alike).
    """
    before, after = (table_from_record(one) for one in (first, second))
    others = {row.corruption: row for row in after.rows}
    rows: list[dict[str, Any]] = []
    for row in before.rows:
        other = others.get(row.corruption)
        if other is None:
            continue
        common = [s for s in row.accuracies if s in other.accuracies]
        if not common:
            continue
        errors = [1 - sum(one.accuracies[s] for s in common) / len(common) for one in (row, other)]
        relative = [
            error / (1 - table.clean) if table.clean is not None and table.clean < 1 else None
            for table, error in zip((before, after), errors, strict=True)
        ]
        rows.append(
            {
                "corruption": row.corruption,
                "mean_error": _both(*errors),
                "relative_error": _both(*relative),
                "shape": {"first": row.told, "second": other.told},
                "severities": [
                    {"severity": s, **_both(row.accuracies[s], other.accuracies[s])} for s in common
                ],
            }
        )
    differences = [row["mean_error"]["difference"] for row in rows]
    names = [{row.corruption for row in table.rows} for table in (before, after)]
    return {
        "first": f"{table_name(first)} {origin}" if origin else table_name(first),
        "second": table_name(second),
        "clean": _both(before.clean, after.clean),
        "rows": rows,
        "better": sum(value < 0 for value in differences),
        "worse": sum(value > 0 for value in differences),
        "equal": sum(value == 0 for value in differences),
        "only_one": sorted(names[0] ^ names[1]),
        "differs": [
            words
            for key, words in CONDITIONS.items()
            if _condition(first, key) != _condition(second, key)
        ],
    }


def _condition(result: Mapping[str, Any], key: str) -> Any:
    return result.get("conditions", {}).get(key)


def _both(first: float | None, second: float | None) -> dict[str, float | None]:
    difference = None if first is None or second is None else second - first
    return {"first": first, "second": second, "difference": difference}


def read_results(path: Path) -> list[dict[str, Any]]:
    """The tables of an earlier report's results.json.

    Args:
        path: the file, or the report's folder.

    Raises:
        UsageError: it cannot be read, or holds no corruption table.
    """
    if path.is_dir():
        path = path / "results.json"
    where = printable(path)
    try:
        if path.stat().st_size > _LARGEST:
            raise UsageError(f"{where} has more than {_LARGEST:,} bytes: it is no results.json")
        found = json.loads(path.read_bytes())
        results = [dict(one) for one in found["results"]]
        for result in results:
            table_from_record(result)
            str(result["model"]["name"])
            result["conditions"] = dict(result.get("conditions", {}))
    except OSError as error:
        raise UsageError(f"cannot read {where}: {error.strerror}") from error
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        ArithmeticError,  # a whole number beyond all floats
        RecursionError,
    ) as error:
        raise UsageError(
            f"{where} is no results.json of curate robustness corruptions: name one that "
            "--report has written"
        ) from error
    if not results:
        raise UsageError(f"{where} holds no table")
    return results


def text_comparison(comparison: Mapping[str, Any]) -> list[str]:
    """The lines of a comparison, for people."""
    rows: Sequence[Mapping[str, Any]] = comparison["rows"]
    width = max([16, *(len(row["corruption"]) for row in rows)])
    lines = [f"{comparison['first']}  →  {comparison['second']}"]
    lines.append(
        f"{'mean error':<{width}} {'before':>9} {'after':>9} {'change':>9} {'relative':>14}"
    )
    clean = comparison["clean"]
    if clean["difference"] is not None:
        before, after = 1 - clean["first"], 1 - clean["second"]
        lines.append(f"{'clean':<{width}} {before:>9.3f} {after:>9.3f} {after - before:>+9.3f}")
    for row in rows:
        told, relative = row["mean_error"], row["relative_error"]
        ratio = ""
        if relative["difference"] is not None:
            ratio = f"{relative['first']:.1f}x → {relative['second']:.1f}x"
        lines.append(
            f"{row['corruption']:<{width}} {told['first']:>9.3f} {told['second']:>9.3f} "
            f"{told['difference']:>+9.3f} {ratio:>14}".rstrip()
        )
    lines.append(
        f"{comparison['better']} rows are better, {comparison['worse']} worse, "
        f"{comparison['equal']} equal"
    )
    if comparison["differs"]:
        lines.append(f"not measured alike: {', '.join(comparison['differs'])}")
    if comparison["only_one"]:
        lines.append(f"in one of them alone: {', '.join(comparison['only_one'])}")
    return lines
