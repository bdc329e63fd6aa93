"""The end of a run: its scores merged, its survivors capped, its shortlist and summary written."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import RowMapping

from curate.catalog import judging, listing, twins
from curate.catalog.tables import now
from curate.files import canonical_json, csv_text, sha256_file, write_bytes, write_json
from curate.filtration.caps import Survivor, shortlist
from curate.metrics.intervals import clopper_pearson
from pipelines.quality import measure_some
from pipelines.runs import (
    control_cells,
    control_text,
    scores_path,
    shortlist_flags,
    shortlist_text,
)

if TYPE_CHECKING:
    from pipelines.filter_run import FilterRun

#: The confidence of the bound on how often low precision decides otherwise than fp32.
_CONFIDENCE = 0.95


def end_run(run: FilterRun, earlier_seconds: float, started: float) -> dict[str, Any]:
    """End a run whose candidates are all judged.

    Args:
        run: with all its parts named, or with another run's scores.
        earlier_seconds: what earlier starts took.
        started: when this start began, by `time.monotonic`.

    Returns:
        The JSON summary of the contract.
    """
    workspace = run.workspace
    with workspace.catalogue.read() as connection:
        row = judging.run(connection, run.id)
        assert row is not None
        named = judging.run_parts(connection, row["scores_run"])
        survivors = judging.survivors(connection, run.id)
        counts = judging.verdict_counts(connection, run.id)
        failed = judging.failures(connection, run.id)
    made_by = [part["made_by"] for part in named if "from_run" not in part["made_by"]]
    if run.given is not None:
        made_by += run.given.record["made_by"]
    record = run.record | {"made_by": _distinct(made_by)}
    if row["scores_run"] == run.id:
        _merge(run, named, record)
    # All of it was decided by scores that another run has paid for.
    settled = run.given is not None and row["scores_run"] != run.id
    listed = _shortlisted(run, survivors)
    ended = {o: sum(c for p, _, c in counts if p == o) for o in ("survivor", "failed")}
    total = len(run.candidates.ids)
    summary = {
        "run": run.id,
        "candidates": total,
        "set_aside": run.candidates.set_aside,
        "removed": {r: c for o, r, c in counts if o == "removed" and r},
        "survivors": ended["survivor"],
        "shortlisted": len(listed),
        "capped": ended["survivor"] - len(listed),
        "failed": ended["failed"],
        "borderline": sum(bool(s["borderline"]) for s in survivors),
        "control": len(run.candidates.control),
        "forwards": 0 if settled else sum(part["forwards"] for part in named),
        "forwards_naive": total * len(run.job.models) * 10,
        "precision": _precision(named, row["widened"]),
        "seconds": round(earlier_seconds + time.monotonic() - started, 3),
        "scores_run": row["scores_run"],
        "scores_sha256": sha256_file(scores_path(workspace, row)),
    }
    if failed:
        columns = ("candidate", "sha256", "wnid", "reason")
        cells = [[f["key"], *(f[c] for c in columns[1:])] for f in failed]
        write_bytes(run.folder / "failed.csv", csv_text(columns, cells).encode())
        summary["failed_list"] = f"runs/{run.id}/failed.csv"
    else:
        (run.folder / "failed.csv").unlink(missing_ok=True)
    places = [survivor.arrival for survivor in listed]
    with workspace.catalogue.read() as connection:
        files = twins.stored_files(connection, places)
    # People shall see the flags of what stands on the shortlist.
    measure_some(workspace, sorted({sha256 for sha256, _ in files.values()}))
    if run.candidates.control:
        with workspace.catalogue.write() as connection:
            listing.set_controls(connection, run.id, run.candidates.control)
        text = control_text(control_cells(workspace, run.id), "csv")
        write_bytes(run.folder / "control.csv", text.encode())
    with workspace.catalogue.write() as connection:
        listing.set_places(connection, run.id, places)
        rows = listing.shortlist(connection, run.id)
        flags = shortlist_flags(workspace, rows)
        text = shortlist_text(rows, workspace, flags, "csv")
        write_bytes(run.folder / "shortlist.csv", text.encode())
        write_json(run.folder / "run.json", {"run": run.id, "settings": row["settings"], **record})
        judging.update_run(
            connection,
            run.id,
            {"state": "finished", "summary": summary, "record": record, "finished": now()},
        )
    return summary


def _precision(named: Sequence[RowMapping], widened: int) -> dict[str, Any] | None:
    """What low precision did, in views; None where all was exact.

    `flip_rate_below` is the upper end of the Clopper-Pearson interval on how often a decision of
    low precision would be another one in fp32, from those repeated.
    """
    told = [part["counts"] for part in named if part["counts"]]
    if not told:
        return None
    counts = {name: sum(one[name] for one in told) for name in told[0]}
    repeated = counts["repeated"]
    below = clopper_pearson(counts["flips"], repeated, _CONFIDENCE)[1] if repeated else 1.0
    return counts | {"flip_rate_below": below, "confidence": _CONFIDENCE, "widened": widened}


def _merge(run: FilterRun, named: Sequence[RowMapping], record: Mapping[str, Any]) -> None:
    from curate.filtration.scores import merge_parts

    # What made the scores: caps have no part in it, so that runs may share them.
    apart = ("cap", "cap_order", "seed", "without", "set_aside", "control")
    told = {key: value for key, value in record.items() if key not in apart}
    about = {"curate": canonical_json({"scoring": run.scoring, **told}).decode()}
    paths = [run.parts_folder / part["file"] for part in named]
    merge_parts(paths, run.folder / "scores.parquet", about)


def _shortlisted(run: FilterRun, survivors: Sequence[RowMapping]) -> list[Survivor]:
    found = [
        Survivor(
            s["key"],
            s["wnid"],
            s["predicted_wnid"],
            s["confidence"],
            arrival=s["candidate_id"],
            flagged=run.candidates.is_flagged(s["candidate_id"]),
        )
        for s in survivors
    ]
    settings = run.workspace.settings.filter
    return shortlist(found, settings.cap, settings.cap_order, settings.seed)


def _distinct(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each of the records once, in an order of its own."""
    return [value for _, value in sorted({canonical_json(r): r for r in records}.items())]
