"""The results of a corruption run: a table a model, with what it rests on and may be called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from curate.errors import UsageError
from curate.files import sha256_bytes
from curate.labels.space import load_label_space
from curate.testbed.corruption_beside import table_name
from curate.testbed.corruption_errors import SEVERITIES, Table
from curate.testbed.corruption_means import CLASSES, Baseline, Conditions, means
from curate.testbed.corruption_results import table_of, table_record
from pipelines.corruption_models import Subject
from pipelines.corruption_plan import CLEAN, is_cut_as_published, is_validation
from pipelines.corruption_run import Run


def tables(run: Run, subjects: Sequence[Subject], baseline: str | None) -> list[dict[str, Any]]:
    """The results of measured subjects, in their order.

    Args:
        run: when every subject is measured.
        subjects: the baseline among them.
        baseline: its name; None without one.

    Raises:
        UsageError: no image can be used.
    """
    measured = {one: _settings(run, one) for one in subjects}
    built = {one: _table(run, one, measured[one]) for one in subjects}
    against = {one.views: _baseline(one, built[one]) for one in subjects if one.name == baseline}
    results = []
    for subject in subjects:
        record, clean = run.records[subject], run.measured.get((subject, CLEAN))
        found = means(built[subject], _conditions(run, subject), against.get(subject.views))
        results.append(
            {
                "kind": "corruptions",
                "model": record["model"],
                "views": subject.views,
                "view": {**asdict(record["recipe"]), "place": "centre"},
                "added": subject.is_added,
                "dataset": _dataset(run),
                "label_space": _space(run),
                "conditions": _told_conditions(run),
                **table_record(built[subject], found, clean, measured[subject]),
                "baseline": baseline,
                "took_part_in_selection": _took_part(run, subject),
                "made_by": record["made_by"],
            }
        )
    return results


def flat_rows(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of all tables, each with the table's name."""
    return [{"model": table_name(one), **row} for one in results for row in one["rows"]]


def _settings(run: Run, subject: Subject) -> dict[str, dict[int, dict[str, Any]]]:
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for setting in run.plan.settings:
        told = run.measured[subject, setting]
        found.setdefault(str(setting.corruption), {})[setting.severity] = told
    return found


def _table(run: Run, subject: Subject, settings: dict[str, dict[int, dict[str, Any]]]) -> Table:
    clean = run.measured.get((subject, CLEAN))
    all_of_it = [
        *([clean] if clean else []),
        *(s for row in settings.values() for s in row.values()),
    ]
    if not any(one["n"] for one in all_of_it) or (clean is not None and not clean["n"]):
        path, reason = min(run.failures)
        raise UsageError(
            f"none of the {len(run.plan.first.paths)} images of {run.plan.first.name} can be used; "
            f"the first is {path!r} ({reason})"
        )
    return table_of(clean, settings, len(run.plan.space))


def _baseline(subject: Subject, table: Table) -> Baseline:
    return Baseline(
        subject.name,
        {
            row.corruption: [1 - value for value in row.accuracies.values()]
            for row in table.rows
            if tuple(row.accuracies) == SEVERITIES
        },
        None if table.clean is None else 1 - table.clean,
        "the same images through the same pipeline",
    )


def _conditions(run: Run, subject: Subject) -> Conditions:
    plan, record = run.plan, run.records[subject]
    thousand = load_label_space("imagenet-1k")
    on_disk = plan.folder is not None
    sets = [one.dataset for one in plan.settings if one.dataset]
    sets += [plan.clean] if plan.clean else []
    counts = [one["n"] for (who, _), one in run.measured.items() if who == subject]
    failed = [one for (who, _), one in run.measured.items() if who == subject and one["failed"]]
    outputs = record["model"]["output"]["classes"]
    return Conditions(
        outputs=outputs,
        is_imagenet_1k=plan.space.wnids == thousand.wnids and outputs == CLASSES,
        images=min(counts),
        is_validation=all(map(is_validation, sets)),
        on_disk=on_disk,
        is_cut_before=plan.at == "crop" and is_cut_as_published(record["recipe"]),
        is_jpeg=plan.jpeg,
        frost=run.known.frost_kind,
        failed=len(failed),
    )


def _told_conditions(run: Run) -> dict[str, Any]:
    plan = run.plan
    contents = run.contents.get(None, "")
    if plan.folder is not None:
        pairs = [f"{one} {run.contents.get(one, '')}" for one in (None, *plan.settings)]
        contents = sha256_bytes("\n".join(pairs).encode())
    return {
        "content_sha256": contents,
        "label_space": plan.space.fingerprint,
        "at": plan.at,
        "jpeg": plan.jpeg,
        "frost": run.known.frost_kind if plan.folder is None else "on disk",
        "seed": plan.seed,
        "scale": plan.scale,
        "limit": plan.limit,
    }


def _dataset(run: Run) -> dict[str, Any]:
    dataset = run.plan.first
    release = dataset.release
    return {
        "name": run.plan.folder or dataset.name,
        "clean": run.plan.clean.name if run.plan.clean else None,
        "images": len(dataset.paths),
        "classes": len(set(dataset.wnids)),
        "release": None
        if release is None
        else {
            "version": release.version,
            "reviewed": release.reviewed,
            "manifest_sha256": release.manifest_sha256,
        },
    }


def _space(run: Run) -> dict[str, Any]:
    space = run.plan.space
    return {"name": space.name, "classes": len(space), "fingerprint": space.fingerprint}


def _took_part(run: Run, subject: Subject) -> bool | None:
    release = run.plan.clean.release if run.plan.clean else None
    if release is None:
        return None
    return run.records[subject]["model"]["fingerprint"] in release.selection


def failed_settings(run: Run) -> list[dict[str, Any]]:
    """Images that failed somewhere, why, and where.

    Returns:
        A mapping each: `path`, `reason`, `settings` (their names; empty where it is all of them).
    """
    every = [str(one) for one in run.plan.all_settings]
    return [
        {
            "path": path,
            "reason": reason,
            "settings": []
            if len(settings) == len(every)
            else [one for one in every if one in settings],
        }
        for (path, reason), settings in sorted(run.failures.items())
    ]


def definitions(run: Run) -> list[dict[str, Any]]:
    """What each corruption of the run is, see `curate.corruptions.describe`."""
    if run.plan.folder is not None:
        return []
    return [run.known.definition(name, run.plan.scale) for name in run.known.names]
