"""`curate models`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from curate.choices import Precision
from curate.cli.common import Debug, Device, Json, Strict, bounded_workers, counts, emit, table
from curate.errors import VerificationError


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    group = typer.Typer(help="Classifiers: the zoo and what is in it.", no_args_is_help=True)
    group.command("list")(list_models)
    group.command("check")(check)
    group.command("finetune")(finetune)
    app.add_typer(group, name="models")


def list_models(as_json: Json = False, debug: Debug = False) -> None:
    """List the models by name.

    Example: curate models list
    """
    from curate.models.zoo import available_models

    rows = available_models()
    emit(
        {"models": [asdict(row) for row in rows]},
        table(
            ["name", "side", "weights"],
            [[row.name, row.side, "here" if row.present else row.source] for row in rows],
        ),
    )


def check(
    name: Annotated[
        str,
        typer.Argument(help="For example lite/efficientnet_lite0, or checkpoint/my.safetensors."),
    ],
    label_space: Annotated[
        str | None,
        typer.Option(
            help="What its output must hold: a preset or a CSV file. "
            "Example: --label-space imagenet-a. Default: all classes of its output.",
            show_default=False,
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Measure its accuracy on these class folders, named by wnid or name. "
            "Example: --folder val/. Default: none.",
            show_default=False,
        ),
    ] = None,
    device: Device = "auto",
    strict: Strict = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Print a model's preprocessing, input size, fingerprint, fit to a label space, and accuracy.

    Example: curate models check lite/efficientnet_lite0 --folder val/
    """
    from pipelines.checking import check_model

    summary = check_model(name, label_space=label_space, folder=folder, device=device)
    record, columns = summary["model"], summary["columns"]
    its = record["preprocessing"]
    rows = [
        ["model", record["name"]],
        ["architecture", record["architecture"]],
        ["parameters", f"{record['parameters']:,}"],
        ["fingerprint", record["fingerprint"]],
        ["preprocessing", its["source"]],
        [
            "native view",
            f"short side to {its['resize']}, {its['interpolation']}, {its['crop']} crop",
        ],
        ["mean, std", f"{_numbers(its['mean'])}; {_numbers(its['std'])}"],
        ["output", f"{record['output']['classes']:,} classes, {record['output']['name']}"],
        ["label space", f"{summary['label_space']}: reads {len(columns):,} of these outputs"],
    ]
    for view, found in summary.get("accuracy", {}).items():
        rows.append(["accuracy", f"{_share(found)}, {view} view"])
    if passed_over := summary.get("passed_over"):
        told = f"{len(passed_over):,} folders outside the label space"
        rows.append(["passed over", f"{told} ({sum(passed_over.values()):,} files)"])
    if summary.get("failed"):
        rows.append(["failed", f"{summary['failed']:,} photos (listed with --json)"])
    emit(summary, "\n".join(f"{key:<14} {value}" for key, value in rows))
    if strict and summary.get("failed"):
        raise VerificationError(f"{summary['failed']} photos could not be used")


def finetune(
    folder: Annotated[
        Path, typer.Argument(help="Class folders, named by wnid or name, such as train/.")
    ],
    label_space: Annotated[
        str,
        typer.Option(
            help="The classes to learn: a preset or a CSV file. Example: --label-space imagenet-a"
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Where the weights go; a record and, while it runs, a folder stand beside. "
            "Example: --output my.safetensors",
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            help="What to begin with: a model of the zoo, or a checkpoint. "
            "Example: --model lite/efficientnet_lite0"
        ),
    ] = "torchvision/resnet50",
    init: Annotated[
        Literal["pretrained", "none"],
        typer.Option(help="none: begin with random weights. Example: --init none"),
    ] = "pretrained",
    epochs: Annotated[
        int, typer.Option(min=1, help="Passes over the photos. Example: --epochs 30")
    ] = 10,
    batch_size: Annotated[
        int, typer.Option(min=2, help="Photos a step. Example: --batch-size 256")
    ] = 64,
    optimizer: Annotated[
        Literal["sgd", "adamw"],
        typer.Option(
            help="sgd (with Nesterov momentum) or adamw, which transformers like better. "
            "Example: --optimizer adamw"
        ),
    ] = "sgd",
    lr: Annotated[
        float | None,
        typer.Option(
            help="Highest learning rate of the new output layer. Example: --lr 0.1. "
            "Default: 0.05 for sgd, 0.001 for adamw.",
            show_default=False,
        ),
    ] = None,
    backbone: Annotated[
        float,
        typer.Option(
            help="The other layers' learning rate as a share of it. Example: --backbone 1"
        ),
    ] = 0.1,
    weight_decay: Annotated[
        float, typer.Option(help="Of weights, not of biases. Example: --weight-decay 0.05")
    ] = 1e-4,
    warmup: Annotated[
        float,
        typer.Option(
            help="Epochs over which learning rates rise; then they fall as a cosine. "
            "Example: --warmup 0"
        ),
    ] = 1.0,
    label_smoothing: Annotated[
        float,
        typer.Option(
            help="Share of the target that all classes have alike. Example: --label-smoothing 0"
        ),
    ] = 0.1,
    smallest_crop: Annotated[
        float,
        typer.Option(
            help="Least share of a photo that a random crop shows. Example: --smallest-crop 0.08"
        ),
    ] = 0.25,
    freeze: Annotated[
        bool,
        typer.Option("--freeze", help="Train the new output layer alone. Example: --freeze"),
    ] = False,
    image_size: Annotated[
        int | None,
        typer.Option(
            min=16,
            max=4096,
            help="Side of the views, in pixels. Example: --image-size 160. "
            "Default: the network's own.",
            show_default=False,
        ),
    ] = None,
    val: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Class folders to measure accuracy on. Example: --val val/. "
            "Default: a share of FOLDER.",
            show_default=False,
        ),
    ] = None,
    val_share: Annotated[
        float,
        typer.Option(
            help="Share of each class's photos to measure on, where no --val is given. "
            "Example: --val-share 0.2"
        ),
    ] = 0.1,
    allow_missing: Annotated[
        bool,
        typer.Option(
            "--allow-missing",
            help="Go on where classes of the label space have no photo. Example: --allow-missing",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="Of everything that is random. Example: --seed 1")] = 0,
    device: Device = "auto",
    precision: Annotated[
        Precision,
        typer.Option(help="auto: bf16 or fp16 on a GPU, fp32 elsewhere. Example: --precision fp32"),
    ] = "auto",
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Threads that decode photos; no result depends on it. Example: --workers 8. "
            "Default: one a core for a GPU, else one.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Overwrite what another run left under this name. Example: --force",
        ),
    ] = False,
    strict: Strict = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Teach a model the classes of a label space: the paper's other classifier.

    Stopped or killed, the same command goes on. The file holds its labels and preprocessing.

    Example: curate models finetune train/ --label-space imagenet-a --output my.safetensors
    """
    from pipelines.finetune import finetune as run

    summary = run(
        folder,
        output,
        label_space=label_space,
        model=model,
        init=init,
        epochs=epochs,
        batch_size=batch_size,
        optimizer=optimizer,
        lr=lr,
        backbone=backbone,
        weight_decay=weight_decay,
        warmup=warmup,
        label_smoothing=label_smoothing,
        smallest_crop=smallest_crop,
        freeze=freeze,
        image_size=image_size,
        val=val,
        val_share=val_share,
        allow_missing=allow_missing,
        seed=seed,
        device=device,
        precision=precision,
        workers=bounded_workers(workers),
        force=force,
    )
    emit(summary, _finetuned(summary))
    if strict and summary["refused"]:
        raise VerificationError(f"{sum(summary['refused'].values())} photos could not be used")


def _finetuned(summary: Mapping[str, Any]) -> str:
    settings, learned = summary["settings"], summary["learned_from"]
    rows = [
        ["run", summary["run"]],
        ["begun with", f"{settings['model']}, weights {settings['fingerprint'][:12]}"],
        ["classes", f"{len(learned):,} of {settings['label_space']}"],
        ["learned from", f"{sum(learned.values()):,} photos, {len(summary['history'])} epochs"],
    ]
    if summary["accuracy"]:
        rows.append(["validation", f"{_share(summary['accuracy'])}, native view"])
    if summary["without_photos"]:
        rows.append(["no photos of", f"{len(summary['without_photos']):,} classes"])
    if summary["passed_over"]:
        rows.append(
            ["passed over", f"{len(summary['passed_over']):,} folders outside the label space"]
        )
    if summary["refused"]:
        total = sum(summary["refused"].values())
        rows.append(
            ["refused", f"{total:,} ({counts(summary['refused'])}; see {summary['record']})"]
        )
    rows += [
        ["weights", f"{summary['output']} ({summary['fingerprint'][:12]})"],
        ["record", summary["record"]],
        ["use it as", f"--model '{summary['model']}'"],
        ["or in full", f"--model '{summary['model_in_full']}'"],
    ]
    return "\n".join(f"{key:<14} {value}" for key, value in rows)


def _share(found: Mapping[str, Any]) -> str:
    if found["value"] is None:
        return f"none ({found['note']})"
    return (
        f"{found['value']:.2%} ({found['low']:.2%} to {found['high']:.2%}) of {found['n']:,} photos"
    )


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)
