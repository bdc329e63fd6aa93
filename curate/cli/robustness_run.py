"""`curate robustness run`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from curate.cli.common import Debug, Device, Json, Strict, emit, ray_address_option, table
from curate.errors import UsageError, VerificationError


def register(group: typer.Typer) -> None:
    """Add the commands of this file."""
    group.command("run")(run_models)


def run_models(
    models: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Models of the zoo, comma-separated or repeated. Example: --models "
            "lite/efficientnet_lite0,lite/efficientnet_lite2. Default: those of --model-file.",
            show_default=False,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SETTING=DIR",
            help="A setting and its folder; repeat it. Example: --settings val=imagenet/val "
            "--settings imagenet-a=imagenet-a --settings pgd.linf.eps0.5=imagenet/val. Default: "
            "none.",
            show_default=False,
        ),
    ] = None,
    model_file: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A Python file with functions that give your own models; it is run. Repeat it. "
            "Example: --model-file mine.py. Default: none.",
            show_default=False,
        ),
    ] = None,
    setting_file: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A Python file with a setting of your own; it is run. Repeat it. Example: "
            "--setting-file nights.py. Default: none.",
            show_default=False,
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Of which class each image is, for folders without class folders. Example: "
            "--labels LOC_val_solution.csv. Default: class folders.",
            show_default=False,
        ),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="MODEL=TYPE",
            help="The type of a model in the table, where others are STANDARD; repeat it. Example: "
            "--type mine=ROBUST_INTV. Default: no types.",
            show_default=False,
        ),
    ] = None,
    store: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Where each finished model and setting is kept, so that none is computed twice. "
            "Example: --store testbed-store",
        ),
    ] = Path("testbed-store"),
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The table as CSV, for curate robustness testbed. Example: --out models.csv. "
            "Default: none.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Draw so many images of each setting by lot. Example: --limit 5000. Default: all.",
            show_default=False,
        ),
    ] = None,
    attack_limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="The same for attacks alone. Example: --attack-limit 5000. Default: all.",
            show_default=False,
        ),
    ] = None,
    attack_steps: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Steps of attacks; with fewer than the published number each is longer. "
            "Example: --attack-steps 20",
        ),
    ] = 100,
    seed: Annotated[
        int, typer.Option(help="Of the lot, of corruptions and attacks. Example: --seed 1")
    ] = 0,
    device: Device = "auto",
    engine: Annotated[
        Literal["local", "ray"],
        typer.Option(
            help="Where models run: local, or ray for all GPUs of a machine or a cluster. "
            "Example: --engine ray"
        ),
    ] = "local",
    ray_address: Annotated[str, ray_address_option("one of this machine's own")] = "",
    list_settings: Annotated[
        bool,
        typer.Option(
            "--list-settings", help="Tell which settings there are. Example: --list-settings"
        ),
    ] = False,
    strict: Strict = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure many models in many settings, and write the table that shows where each one stands.

    Example: curate robustness run --models lite/efficientnet_lite0 --settings val=photos
    """
    from pipelines import testbed_run as run

    if list_settings:
        rows = run.list_settings()
        emit({"settings": dict(rows)}, table(("setting", "what it is"), rows))
        return
    summary = run.run_testbed(
        _models(models or []),
        [_pair(one, "--settings", "SETTING=DIR, as val=imagenet/val") for one in settings or []],
        store=store,
        model_files=model_file or (),
        setting_files=setting_file or (),
        labels=labels,
        types=_types(kind),
        limit=limit,
        attack_limit=attack_limit,
        attack_steps=attack_steps,
        seed=seed,
        out=out,
        device=device,
        engine=engine,
        ray_address=ray_address,
    )
    notes = [f"note: {note}" for note in summary["notes"]]
    share = summary["forward_share"]
    if share is not None:
        notes.append(f"{share:.0%} of the time a model was computing")
    notes.append(f"{summary['computed']} computed, {summary['kept']} kept from before")
    if out is not None:
        notes.append(f"table: {summary['out']}")
        if any(one["setting"] == "val" for one in summary["results"]):
            drawn = shlex.join(["curate", "robustness", "testbed", str(out), "--x", "val"])
            notes.append(f"next: {drawn} --report testbed")
    grid = run.grid(list(summary["models"]), summary["results"])
    emit(summary, "\n".join([table(*grid), "", *notes]))
    if strict and (summary["failed"] or summary["notes"]):
        from curate.report.page import counted

        faults = []
        if failed := summary["failed"]:
            faults.append(f"{counted(failed, 'image')} failed in some setting")
        if others := len(summary["notes"]):
            faults.append(f"{counted(others, 'note')} on sets that are not the published ones")
        raise VerificationError("; ".join(faults))


def _models(named: list[str]) -> list[str]:
    """Names of models; the path of a checkpoint may hold commas."""
    found: list[str] = []
    for text in named:
        found += [text] if text.startswith("checkpoint/") else text.split(",")
    return [name.strip() for name in found if name.strip()]


def _pair(text: str, option: str, form: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if not name or not path:
        raise UsageError(f"{option} {text!r}: write {form}")
    return name, Path(path)


def _types(named: list[str] | None) -> dict[str, str] | None:
    if not named:
        return None
    found: dict[str, str] = {}
    for text in named:
        model, _, kind = text.rpartition("=")
        if not model or not kind:
            raise UsageError(f"--type {text!r}: write MODEL=TYPE, as mine=ROBUST_INTV")
        found[model] = kind
    return found
