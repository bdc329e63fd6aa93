"""The folder of a corruption run's report: results as JSON, CSV, Markdown and LaTeX, and a page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from curate.files import atomic_write, write_bytes, write_json, written_together
from curate.report.corruption_page import pieces
from curate.testbed.corruption_tables import csv_table, latex, markdown
from pipelines.corruption_page import page_of
from pipelines.corruption_run import Run
from pipelines.corruption_samples import samples


def write_report(folder: Path, summary: Mapping[str, Any], run: Run) -> None:
    """Write everything into a folder at once, results.json last.

    Args:
        folder: it exists.
        summary: as `pipelines.corruptions.corruptions` returns it.
        run: which was measured.

    Raises:
        StorageError: the disk is full or refuses.
    """
    shown = samples(run, next(iter(run.records)))
    with written_together(folder, "results.json") as place:
        with atomic_write(place / "index.html") as stream:
            for piece in pieces(page_of(summary, shown)):
                stream.write(piece.encode("utf-8", "backslashreplace"))
        write_bytes(place / "results.csv", csv_table(summary).encode())
        write_bytes(place / "results.md", markdown(summary).encode())
        write_bytes(place / "results.tex", latex(summary).encode())
        write_json(place / "results.json", summary)
