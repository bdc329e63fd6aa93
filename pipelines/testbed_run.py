"""Run the testbed: models in settings, each pair computed once and kept, and one table of all."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from curate.errors import Interrupted, UnknownNameError, UsageError, few
from curate.files import make_folder, printable
from curate.progress import stop_on_interrupt
from curate.testbed.attacks import STEPS
from curate.testbed.known_settings import SETTINGS, Settings
from curate.testbed.setting import Part
from pipelines import testbed_ray
from pipelines.engines import check_ray
from pipelines.report_place import check_report_place
from pipelines.testbed_lot import Lot
from pipelines.testbed_models import Models
from pipelines.testbed_numbers import COLUMNS, confidence_level, grid, numbers, write_table
from pipelines.testbed_work import Run, Store

__all__ = ["COLUMNS", "grid", "list_settings", "run_testbed"]

# Names of a setting that are told one by one.
_FAMILY = 12

#: The type of models for which none is said where it is said of some.
STANDARD = "STANDARD"


def run_testbed(
    models: Sequence[str],
    settings: Sequence[tuple[str, Path]],
    *,
    store: Path,
    model_files: Sequence[Path] = (),
    setting_files: Sequence[Path] = (),
    labels: Path | None = None,
    types: Mapping[str, str] | None = None,
    limit: int | None = None,
    attack_limit: int | None = None,
    attack_steps: int = STEPS,
    seed: int = 0,
    out: Path | None = None,
    device: str = "auto",
    engine: str = "local",
    ray_address: str = "",
) -> dict[str, Any]:
    """Measure models in settings.

    Args:
        models: names as `load_classifier` takes them.
        settings: name and folder of each, see `list_settings`.
        store: a folder where what is finished is kept; a rerun goes on, and more models or settings
            compute what is missing alone.
        model_files: Python files with models of the user's (see `pipelines.testbed_models`).
        setting_files: Python files with settings of the user's (see `curate.testbed.setting`).
        labels: a file with the class of each image, for folders without class folders.
        types: model to type, for the table; others are STANDARD. None leaves types out.
        limit: how many images of each part to draw by lot; of videos, how many anchors.
        attack_limit: the same for attacks.
        attack_steps: of attacks.
        seed: of the lot, of corruptions and of attacks.
        out: a CSV file for the table that `curate robustness testbed` reads.
        device: "auto", "cpu", "cuda", "cuda:1", "mps".
        engine: "local", or "ray": an actor for each GPU of a cluster, or each core where it has
            none.
        ray_address: of the cluster to join; empty for one of this machine's own.

    Returns:
        `results`, a cell each (`model`, `setting`, `value` in percent, `low`, `high`, `measure`,
        `images`, `failed`); `models`, what makes the numbers of each; `settings`, what was read for
        each part; `notes`; `computed`, `kept`; `failed`; `forward_share`, the share of
        `measuring_seconds` in which a model was computing, None where nothing was; `seconds`.

    Raises:
        UsageError: something is unknown or does not fit together, or a folder has wrong classes.
        StorageError: the disk is full or refuses.
        MissingExtraError: Ray is not installed.
        DeviceError: a device failed, or its memory is full.
        Interrupted: stopped by the user.
    """
    from curate.models.memory import device_errors

    began = time.perf_counter()
    _check(models, model_files, settings, limit, attack_limit, attack_steps, seed)
    _check_places(store, out, settings, (*model_files, *setting_files, labels))
    if engine == "ray":
        check_ray()
        settings = [(name, root.absolute()) for name, root in settings]
        model_files = [file.absolute() for file in model_files]
    elif ray_address:
        raise UsageError("--ray-address names a cluster for Ray to join: add --engine ray")
    # Where actors compute, this process only looks at the models.
    known = Models(models, model_files, device if engine == "local" else "cpu")
    for name in types or {}:
        if name not in known.names:
            raise UnknownNameError("model", name, known.names, where="--type")
    asked = Settings(settings, labels=labels, steps=attack_steps, files=setting_files)
    opened, lot = asked.parts(), Lot(limit, attack_limit, seed)
    notes = dict.fromkeys(part.note for part in opened)
    parts = [lot.drawn(part) for part in opened]
    if out is not None:
        make_folder(out.resolve().parent)
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_interrupt())
        run = Run(parts, known, Store(store), seed, stop)
        stack.callback(run.close)
        run.take(known.names)
        whole: Generator[str, None, None] = run.finish()
        if engine == "ray":
            place = store.absolute()
            there = testbed_ray.must_be_there(parts, model_files, place)
            told = testbed_ray.Work(parts, models, model_files, place, seed, device, there)
            whole = testbed_ray.finish(run, told, ray_address, stop)
        cells: dict[str, list[dict[str, Any]]] = {}
        with device_errors(device), closing(whole):
            for name in whole:
                cells[name] = _of(run, parts, name)
                run.forget(name)
        if len(cells) < len(known.names):
            total = len(run.passed) * len(known.names)
            done = run.computed + run.kept
            raise Interrupted(
                f"stopped at {run.at}; {done} of {total} are finished and kept in "
                f"{printable(store)}: the same command goes on"
            )
    results = [{"model": name, **cell} for name in known.names for cell in cells[name]]
    summary = _summary(run, parts, results, [note for note in notes if note])
    summary["models"] = {name: run.records[name] for name in known.names}
    typed = None
    if types is not None:
        typed = {name: types.get(name, STANDARD) for name in known.names}
    if out is not None:
        write_table(out, results, typed)
    summary |= {
        "types": typed,
        "engine": engine,
        "limit": limit,
        "attack_limit": attack_limit,
        "seed": seed,
        "out": None if out is None else printable(out),
        "store": printable(store),
        "seconds": time.perf_counter() - began,
    }
    return summary


def _check_places(
    store: Path,
    out: Path | None,
    settings: Sequence[tuple[str, Path]],
    files: Sequence[Path | None],
) -> None:
    """Refuse to write among the images, or over a file that is read.

    Raises:
        UsageError: it would be.
    """
    roots = [root for _, root in settings]
    check_report_place(store, folders=roots, what="the store", option="--store")
    if out is None:
        return
    if out.is_dir():
        raise UsageError(f"--out {printable(out)} is a folder: name a file, as models.csv")
    check_report_place(out, folders=roots, what="the table", option="--out")
    for file in files:
        if file is not None and file.resolve() == out.resolve():
            raise UsageError(
                f"--out {printable(out)} would be written over a file that is read: name another"
            )


def list_settings() -> list[tuple[str, str]]:
    """Names of the settings and what they are; of a family of many the first names."""
    return [
        (name, one.about)
        for one in SETTINGS
        for name in (one.names if len(one.names) <= _FAMILY else [few(one.names, 2)])
    ]


def _of(run: Run, parts: Sequence[Part], name: str) -> list[dict[str, Any]]:
    """The cells of a model."""
    said, inside = {}, {}
    at = 0
    for place, part in enumerate(parts):
        said[place] = run.found[name, at]
        at += 1
        if part.inside is not None:
            inside[place] = run.found[name, at]
            at += 1
    return numbers(parts, said, inside)


def _summary(
    run: Run, parts: Sequence[Part], results: Sequence[dict[str, Any]], notes: Sequence[str]
) -> dict[str, Any]:
    clock = run.clock
    return {
        "results": list(results),
        "settings": [
            {
                "name": part.name,
                "folder": printable(part.layout.root.resolve().name),
                "images": len(part.layout),
                "classes": len(part.space),
                "content_sha256": run.contents[place],
            }
            for place, part in enumerate(run.passed)
        ],
        "notes": list(notes),
        "parts": len(parts),
        "computed": run.computed,
        "kept": run.kept,
        "failed": max((one["failed"] for one in results), default=0),
        "confidence_level": confidence_level(),
        "forward_passes": clock.passes,
        "forward_share": clock.running / run.seconds if run.computed else None,
        "measuring_seconds": run.seconds,
    }


def _check(
    models: Sequence[str],
    files: Sequence[Path],
    settings: Sequence[tuple[str, Path]],
    limit: int | None,
    attack_limit: int | None,
    steps: int,
    seed: int,
) -> None:
    if not models and not files:
        raise UsageError("nothing to measure: name models with --models, or --model-file FILE")
    if not settings:
        raise UsageError("nowhere to measure: name settings, as --settings val=DIR")
    for name, value in (("limit", limit), ("attack limit", attack_limit)):
        if value is not None and value < 1:
            raise UsageError(f"{name} is {value}: at least one image is needed")
    if not 1 <= steps <= 10_000:
        raise UsageError(f"attack steps are {steps}: write 1 … 10000, 100 is published")
    if not 0 <= seed < 2**32:
        raise UsageError(f"seed is {seed}: write 0 … {2**32 - 1}")
