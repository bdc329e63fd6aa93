"""`curate robustness testbed` on 338 models, with 1,000 refits of each line and all plots.

    python benchmarks/testbed.py [--table FILE] [--repeat 3]

The real command runs in a process of its own, without a report and with one. Without --table the
table is made up: the columns of the published one, models that lie about a line in each setting, a
third of the cells empty where the published one has few. Prints one JSON line: the best of several
runs, the seconds that its processors worked, and how large the report is.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from curate.files import csv_text
from curate.testbed.known_shifts import known_testbed

MODELS = 338


def made_up(path: Path) -> Path:
    """A table in the shape of the published one."""
    known, chance = known_testbed(), np.random.default_rng(0)
    types = list(known.types)
    skill = chance.normal(1.0, 0.6, MODELS)
    columns = ["model", "type", "in_table1", "standard_for_fit", *known.labels]
    accuracies = []
    for setting in known.labels:
        logits = (
            chance.uniform(0.5, 1.5) * skill
            + chance.normal(-0.5, 1)
            + chance.normal(0, 0.1, MODELS)
        )
        share = 1 / (1 + np.exp(-logits))
        images = known.sizes.get(setting, 50_000)
        cells = [f"{100 * round(one * images) / images:.6f}" for one in share]
        if setting not in known.sizes:
            cells = [cell if chance.random() < 0.6 else "" for cell in cells]
        accuracies.append(cells)
    rows = []
    for number in range(MODELS):
        standard = number < 78
        name = "resnet50" if number == 0 else f"model-{number}"
        kind = types[0] if standard else types[1 + number % (len(types) - 1)]
        flags = [int(number < 196), int(standard)]
        rows.append([name, kind, *flags, *(cells[number] for cells in accuracies)])
    path.write_text(csv_text(columns, rows), encoding="utf-8")
    return path


def timed(*arguments: str | Path) -> tuple[float, float, dict[str, Any]]:
    """Seconds on the clock and of work of one run, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "curate", "--json", "robustness", "testbed", *map(str, arguments)],
        capture_output=True,
        check=True,
    )
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    worked = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, worked, json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        table = arguments.table or made_up(folder / "table.csv")
        report = folder / "report"
        alone = [timed(table) for _ in range(arguments.repeat)]
        whole = [timed(table, "--report", report) for _ in range(arguments.repeat)]
        files = [path for path in report.rglob("*") if path.is_file()]
        summary = whole[0][2]
        print(
            json.dumps(
                {
                    "models": summary["table"]["models"],
                    "shifts": len(summary["fit"]),
                    "refits": summary["resamples"],
                    "analysis_seconds": round(min(one[0] for one in alone), 2),
                    "analysis_work_seconds": round(min(one[1] for one in alone), 2),
                    "report_seconds": round(min(one[0] for one in whole), 2),
                    "report_work_seconds": round(min(one[1] for one in whole), 2),
                    "files": len(files),
                    "report_mb": round(sum(path.stat().st_size for path in files) / 1e6, 1),
                    "page_mb": round((report / "testbed.html").stat().st_size / 1e6, 1),
                }
            )
        )


if __name__ == "__main__":
    main()
