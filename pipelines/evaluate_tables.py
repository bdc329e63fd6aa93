"""The tables of an evaluation's report, as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curate.files import write_bytes
from curate.testbed.table_forms import comparisons_csv, results_csv, results_latex
from curate.testbed.tables import results_markdown
from pipelines.evaluated import Evaluated


def write_tables(folder: Path, summary: Mapping[str, Any], evaluated: Sequence[Evaluated]) -> None:
    """results.md, results.csv and results.tex; comparisons.csv where models are compared.

    Args:
        folder: of the report.
        summary: of the evaluation.
        evaluated: what its results are made from.

    Raises:
        StorageError: the disk is full or refuses.
    """
    results, comparisons = summary["results"], summary["comparisons"]
    told = {
        "results.md": results_markdown(results, comparisons),
        "results.csv": results_csv(results),
        "results.tex": results_latex(results, comparisons),
    }
    if comparisons:
        told["comparisons.csv"] = comparisons_csv(comparisons)
    for name, text in told.items():
        write_bytes(folder / name, text.encode("utf-8", "backslashreplace"))
