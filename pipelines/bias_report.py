"""The page and the plots of a measured selection bias."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from curate.metrics.checks import Floats
from curate.release.bias_words import GROUP_WORDS
from curate.testbed.selection_bias import OTHER, Bias
from curate.testbed.shift_records import model_records


def write_report(
    folder: Path,
    summary: Mapping[str, Any],
    bias: Bias,
    ends: Mapping[str, tuple[Floats, Floats]],
) -> None:
    """The page and the plots of the testbed, of this one shift, with groups as types."""
    from curate.testbed.known_shifts import known_testbed
    from pipelines.testbed_report import Report

    written, name = Report(folder), bias.analysis.shift.name
    words = [GROUP_WORDS[group] for group in bias.groups]
    for row in np.flatnonzero(~bias.in_line):
        words[row] += ", not in the line" if bias.groups[row] == OTHER else ""
    table = replace(bias.table, types=tuple(words))
    nothing = np.full(len(table), np.nan)
    about = summary["table"] or {
        "file": table.file,
        "sha256": summary["release"]["manifest_sha256"],
        "detected": False,
        "unit": "percent",
    }
    written.write(
        table,
        [bias.analysis],
        ends,
        {name: nothing},
        {
            "fit": {name: summary["fit"]},
            "models": model_records(
                table, bias.in_line, [bias.analysis], ends, {}, {name: nothing}
            ),
            "correlations": [],
            "correlated_models": 0,
            "standard": {
                "models": int(bias.in_line.sum()),
                "chosen_by": summary["line"] or "all that took no part",
            },
            "table": about,
            "sizes": {},
            "resamples": summary["resamples"],
            "seed": summary["seed"],
            "made_by": summary["made_by"],
            "bias": summary,
        },
        known_testbed(),
        {},
    )
