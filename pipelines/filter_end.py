"""The end of a run: its scores merged, its survivors capped, its shortlist and summary written."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, RowMapping

from curate.catalog import judging, listing, twins
from curate.catalog.tables import now
from curate.errors import BusyError, StorageError
from curate.files import (
    atomic_write,
    canonical_json,
    csv_lines,
    sha256_file,
    write_bytes,
    write_json,
)
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
from pipelines.workspace import Workspace

if TYPE_CHECKING:
    from pipelines.filter_run import FilterRun

#: The confidence of the bound on how often low precision decides otherwise than fp32.
_CONFIDENCE = 0.95

#: Candidates that are put in order, looked at or given their places at a time, and lines of a list
#: that are written at a time.
_AT_ONCE, _PAGE = 10_000, 1000


class Reopened(BusyError):
    """The run is not as it was when its end began: another command scores some of it again."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"another command scores some of run {run_id} again; start this one again to wait for "
            "it"
        )


def end_run(run: FilterRun, earlier_seconds: float, started: float) -> dict[str, Any]:
    """End a run whose candidates are all judged.

    Args:
        run: with all its parts named, or with another run's scores.
        earlier_seconds: what earlier starts took.
        started: when this start began, by `time.monotonic`.

    Returns:
        The JSON summary of the contract; where another command was faster, what that one recorded.

    Raises:
        Reopened: another command has taken back parts meanwhile.
    """
    try:
        return _end(run, earlier_seconds, started)
    except _EndedElsewhere as other:
        return other.summary
    except StorageError:
        # Who ends a run removes the parts that were to be merged here.
        with run.workspace.catalogue.read() as connection:
            row = judging.run(connection, run.id)
        if row is None or row["state"] != "finished":
            raise
        return dict(row["summary"])


class _EndedElsewhere(Exception):
    def __init__(self, summary: dict[str, Any]) -> None:
        super().__init__()
        self.summary = summary


def _end(run: FilterRun, earlier_seconds: float, started: float) -> dict[str, Any]:
    workspace = run.workspace
    with workspace.catalogue.read() as connection:
        row = judging.run(connection, run.id)
        assert row is not None
        named = judging.run_parts(connection, row["scores_run"])
        counts = judging.verdict_counts(connection, run.id)
    _check_same(row, row, named, named)
    made_by = [part["made_by"] for part in named if "from_run" not in part["made_by"]]
    if run.given is not None:
        made_by += run.given.record["made_by"]
    record = run.record | {"made_by": _distinct(made_by)}
    if row["scores_run"] == run.id:
        _merge(run, named, record)
    # All of it was decided by scores that another run has paid for.
    settled = run.given is not None and row["scores_run"] != run.id
    listed, borderline = _shortlisted(run)
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
        "borderline": borderline,
        "control": len(run.candidates.control),
        "forwards": 0 if settled else sum(part["forwards"] for part in named),
        "forwards_naive": total * len(run.job.models) * 10,
        "precision": _precision(named, row["widened"]),
        "seconds": round(earlier_seconds + time.monotonic() - started, 3),
        "scores_run": row["scores_run"],
        "scores_sha256": sha256_file(scores_path(workspace, row)),
    }
    if ended["failed"]:
        summary["failed_list"] = f"runs/{run.id}/failed.csv"
    _measure(workspace, listed)
    # Whoever writes waits for these transactions: none of them grows with the run, and files are
    # written outside of them.
    with _writing(run, row, named) as connection:
        listing.clear_places(connection, run.id)
        listing.set_controls(connection, run.id, run.candidates.control)
    for start in range(0, len(listed), _AT_ONCE):
        with _writing(run, row, named) as connection:
            some = listed[start : start + _AT_ONCE]
            listing.set_places(connection, run.id, some, start + 1)
    _write_lists(run, summary)
    write_json(run.folder / "run.json", {"run": run.id, "settings": row["settings"], **record})
    with _writing(run, row, named) as connection:
        judging.update_run(
            connection,
            run.id,
            {"state": "finished", "summary": summary, "record": record, "finished": now()},
        )
    return summary


@contextmanager
def _writing(run: FilterRun, row: RowMapping, named: Sequence[RowMapping]) -> Iterator[Connection]:
    """A writing transaction, if the run has not ended and is as it was read.

    Raises:
        _EndedElsewhere, Reopened: it is not; nothing is written.
    """
    with run.workspace.catalogue.write() as connection:
        present = judging.run(connection, run.id)
        assert present is not None
        parts = judging.run_parts(connection, row["scores_run"])
        _check_same(row, present, named, parts)
        yield connection


def _check_same(
    then: RowMapping,
    present: RowMapping,
    named: Sequence[RowMapping],
    parts: Sequence[RowMapping],
) -> None:
    # A command that was cut off from the database for longer than its lease finds another one at
    # the end of the run, or beyond it.
    if present["state"] == "finished":
        raise _EndedElsewhere(dict(present["summary"]))
    same = all(then[name] == present[name] for name in ("scores_run", "widened"))
    what = ("number", "file", "sha256")
    if not same or [[p[n] for n in what] for p in named] != [[p[n] for n in what] for p in parts]:
        raise Reopened(then["id"])


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


def _shortlisted(run: FilterRun) -> tuple[list[int], int]:
    """The ids of the shortlist's candidates in review order, and how many survivors are borderline.

    What the cap leaves off is let go of on the way.
    """
    settings = run.workspace.settings.filter
    borderline, most = 0, _AT_ONCE
    found: list[Survivor] = []

    def capped() -> list[Survivor]:
        return shortlist(found, settings.cap, settings.cap_order, settings.seed)

    with run.workspace.catalogue.read() as connection:
        for s in judging.survivors(connection, run.id):
            borderline += bool(s["borderline"])
            found.append(
                Survivor(
                    s["key"],
                    s["wnid"],
                    s["predicted_wnid"],
                    s["confidence"],
                    arrival=s["candidate_id"],
                    flagged=run.candidates.is_flagged(s["candidate_id"]),
                )
            )
            if len(found) >= most:
                found = capped()
                # So that each is put in order a few times, however many stay.
                most = 2 * len(found) + _AT_ONCE
    return [survivor.arrival for survivor in capped()], borderline


def _measure(workspace: Workspace, listed: Sequence[int]) -> None:
    """Look at what stands on the shortlist: people shall see its flags."""
    for start in range(0, len(listed), _AT_ONCE):
        with workspace.catalogue.read() as connection:
            files = twins.stored_files(connection, listed[start : start + _AT_ONCE])
        measure_some(workspace, sorted({sha256 for sha256, _ in files.values()}))


def _write_lists(run: FilterRun, summary: Mapping[str, Any]) -> None:
    """Write the shortlist, the control sample and what failed, a page at a time."""
    workspace, folder = run.workspace, run.folder
    if summary["failed"]:
        columns = ("candidate", "sha256", "wnid", "reason")
        with (
            atomic_write(folder / "failed.csv") as stream,
            workspace.catalogue.read() as connection,
        ):
            failed = judging.failures(connection, run.id)
            for line in csv_lines(columns, ([one[c] for c in columns] for one in failed)):
                stream.write(line.encode())
    else:
        (folder / "failed.csv").unlink(missing_ok=True)
    if summary["control"]:
        text = control_text(control_cells(workspace, run.id), "csv")
        write_bytes(folder / "control.csv", text.encode())
    with atomic_write(folder / "shortlist.csv") as stream:
        for after in range(0, max(1, summary["shortlisted"]), _PAGE):
            with workspace.catalogue.read() as connection:
                rows = listing.shortlist(connection, run.id, after, _PAGE)
            text = shortlist_text(rows, workspace, shortlist_flags(workspace, rows), "csv")
            header, _, rest = text.partition("\n")
            stream.write((rest if after else f"{header}\n{rest}").encode())


def _distinct(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each of the records once, in an order of its own."""
    return [value for _, value in sorted({canonical_json(r): r for r in records}.items())]
