"""The corruption table as plain text."""

from __future__ import annotations

from collections.abc import Mapping

from curate.testbed.corruption_errors import Row, Table

#: Stands behind an accuracy that cannot be told from guessing.
CHANCE = "*"

_NAME = 16


def text_table(
    table: Table, *, marked: bool = True, ce: Mapping[str, float] | None = None
) -> list[str]:
    """The lines of a table: clean accuracy, then a row each with all severities, then the mean.

    Args:
        table: what was measured.
        marked: whether accuracies near chance bear a star, and rows tell their shape.
        ce: corruption → errors in percent of a baseline's; no column where there are none.
    """
    severities = sorted({severity for row in table.rows for severity in row.accuracies})
    width = max([_NAME, *(len(row.corruption) for row in table.rows)])
    head = f"{'corruption':<{width}} " + " ".join(f"{f's{s}':>6}" for s in severities)
    lines = []
    if table.clean is not None:
        lines.append(f"clean accuracy {table.clean:.3f}  (error {1 - table.clean:.3f})")
    head += f" {'mean err':>9} {'relative':>9}"
    head += f" {'CE':>6}" if ce else ""
    lines.append(head + ("  shape" if marked else ""))
    lines += [_row(row, severities, width, marked, ce or {}) for row in table.rows]
    if (mean := table.mean_relative) is not None:
        lines.append(f"mean relative corruption error: {mean:.1f}x the clean error")
    if marked and any(row.near_chance for row in table.rows):
        lines.append(
            f"{CHANCE} cannot be told from guessing among {table.classes:,} classes "
            f"(chance {1 / table.classes:.3g})"
        )
    return lines


def _row(row: Row, severities: list[int], width: int, marked: bool, ce: Mapping[str, float]) -> str:
    cells = []
    for severity in severities:
        value = row.accuracies.get(severity)
        text = "–" if value is None else f"{value:.3f}"
        if marked and severity in row.near_chance:
            text += CHANCE
        cells.append(f"{text:>6}")
    relative = "–" if row.relative is None else f"{row.relative:.1f}x"
    line = f"{row.corruption:<{width}} {' '.join(cells)} {row.mean_error:>9.3f} {relative:>9}"
    if ce:
        line += f" {ce[row.corruption]:>6.1f}" if row.corruption in ce else f" {'–':>6}"
    return f"{line}  {row.told}" if marked else line
