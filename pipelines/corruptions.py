"""Corruptions: how models do on damaged images, every row of it, and what that may be called."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from curate.errors import Interrupted, UnknownNameError, UsageError
from curate.files import hold, make_folder, printable
from curate.progress import stop_on_interrupt
from curate.testbed.corruption_beside import compare, read_results
from curate.testbed.measures import CONFIDENCE_LEVEL
from pipelines.corruption_cache import FOLDER, Cache
from pipelines.corruption_models import Models, Subject
from pipelines.corruption_names import Corruptions
from pipelines.corruption_plan import plan_run, unlike
from pipelines.corruption_report import write_report
from pipelines.corruption_run import Run
from pipelines.corruption_tables import definitions, failed_settings, flat_rows, tables
from pipelines.report_place import check_report_place

__all__ = ["corruptions"]

VIEWS_MODES = ("native", "paper")


def corruptions(
    dataset: Path | None,
    models: Sequence[str],
    *,
    names: Sequence[str] = (),
    severities: Sequence[int] = (),
    at: str = "camera",
    jpeg: bool | None = None,
    baseline: str | None = None,
    folder: Path | None = None,
    limit: int | None = None,
    seed: int = 0,
    views: Sequence[str] = ("native",),
    frost: Path | None = None,
    beside: Path | None = None,
    label_space: str | None = None,
    labels: Path | None = None,
    report: Path | None = None,
    device: str = "auto",
    workers: int | None = None,
) -> dict[str, Any]:
    """Measure models under corruptions.

    Args:
        dataset: class folders with the clean images; None where `folder` alone is measured.
        models: names as `load_classifier` takes them.
        names: of corruptions, of groups of them ("imagenet-c", "extra", "all"), or Python files
            with a user's own; by default the fifteen of ImageNet-C.
        severities: some of 1 … 5; all by default. Fewer than five give no mean.
        at: "camera" (the whole photo is corrupted, then resized and cut) or "crop" (what the
            classifier sees is corrupted, as ImageNet-C did).
        jpeg: whether the corrupted image goes through JPEG; by default at the crop alone.
        baseline: a model that goes through the same; the means are against its errors.
        folder: an ImageNet-C folder, whose images are corrupted already.
        limit: how many images to draw by lot.
        seed: of the lot and of everything random in corruptions.
        views: "native", "paper" or both, which gives two tables of each model.
        frost: a folder with ImageNet-C's pictures of frost; without it frost is drawn.
        beside: results.json of an earlier report, to compare the first table with.
        label_space: a preset or a CSV file; by default as `open_dataset` chooses.
        labels: a file that says of which class each clean image is, for folders without class
            folders (see `curate.testbed.image_labels.read_image_labels`).
        report: a folder for the report; what is finished is kept in it, and a rerun goes on.
        device: "auto", "cpu", "cuda", "cuda:1", "mps".
        workers: processes that corrupt images; by default one a core, or none for a small run.

    Returns:
        `results`, one a model and way of cutting (see `curate.testbed.corruption_results`);
        `rows`, all of theirs with `model`; `mce`, `relative_mce` and `note` of the first;
        `comparisons`; `missing`; `unlike` (settings that hold other photos); `failed`,
        `failures`; `forward_share`, the share of `measuring_seconds` in which a model was
        computing; `seconds`; `report`.

    Raises:
        UsageError: something is unknown or does not fit together, or no image can be used.
        StorageError: the disk is full or refuses.
        BusyError: another command writes the same report.
        Interrupted: stopped by the user.
    """
    began = time.perf_counter()
    check_report_place(
        report,
        folders=(dataset, folder, frost),
        files=(labels, *(Path(name) for name in names if name.endswith(".py"))),
        writes=("index.html", "results.*"),
    )
    subjects = _subjects(models, views, baseline)
    known = Corruptions(names, frost, folder)
    earlier = [] if beside is None else read_results(beside)
    plan = plan_run(
        dataset,
        known.names,
        severities,
        at=at,
        jpeg=jpeg,
        folder=folder,
        limit=limit,
        seed=seed,
        label_space=label_space,
        labels=labels,
    )
    with ExitStack() as stack:
        if report is not None:
            make_folder(report / FOLDER)
            held = f"the report {printable(report)}"
            stack.enter_context(hold(report / FOLDER / "in-use", "a corruption run", held))
        stop = stack.enter_context(stop_on_interrupt())
        run = Run(plan, known, Models(plan.space, device), Cache(report), workers, stop)
        stack.callback(run.close)
        for subject in subjects:
            run.add(subject)
        for members in run.groups():
            if not run.measure(members):
                raise Interrupted(f"stopped at {run.at}; {_kept(report, run.finished)}")
        results = tables(run, subjects, baseline)
        comparisons = [compare(results[0], one) for one in results[1:] if not one["added"]]
        if beside is not None:
            # By the folder's name: where it lies on this machine says nothing elsewhere.
            place = beside.resolve() if beside.is_dir() else beside.resolve().parent
            origin = f"in {printable(place.name)}"
            comparisons += [compare(one, results[0], origin=origin) for one in earlier]
        summary = _summary(run, results, comparisons)
        summary["seconds"] = time.perf_counter() - began
        summary["report"] = None if report is None else printable(report)
        if report is not None:
            write_report(report, summary, run)
    return summary


def _subjects(models: Sequence[str], views: Sequence[str], baseline: str | None) -> list[Subject]:
    if not models:
        raise UsageError("nothing to measure: name a model with --model")
    for mode in views:
        if mode not in VIEWS_MODES:
            raise UnknownNameError("way to cut views", mode, VIEWS_MODES)
    named = list(dict.fromkeys(models))
    ways = list(dict.fromkeys(views)) or ["native"]
    subjects = [Subject(name, mode) for name in named for mode in ways]
    if baseline is not None and baseline not in named:
        subjects += [Subject(baseline, mode, is_added=True) for mode in ways]
    return subjects


def _kept(report: Path | None, finished: int) -> str:
    """What an interrupted run leaves."""
    if report is None or not finished:
        return "start the command again (with --report finished settings are kept)"
    return f"{finished} finished settings are kept in the report; the same command goes on"


def _summary(
    run: Run, results: Sequence[dict[str, Any]], comparisons: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    first, clock = results[0], run.clock
    return {
        "results": list(results),
        "rows": flat_rows(results),
        "mce": first["mce"],
        "relative_mce": first["relative_mce"],
        "note": first["note"],
        "comparisons": list(comparisons),
        "corruptions": definitions(run),
        "missing": list(run.plan.missing),
        "unlike": unlike(run.plan),
        "failed": len({path for path, _ in run.failures}),
        "failures": failed_settings(run),
        "confidence_level": CONFIDENCE_LEVEL,
        "forward_passes": clock.passes,
        "forward_seconds": clock.seconds,
        "measuring_seconds": run.seconds,
        "forward_share": clock.running / run.seconds if run.seconds else None,
    }
