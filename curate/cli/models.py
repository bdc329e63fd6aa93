"""`curate models`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from curate.cli.common import Debug, Json, emit, table


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    group = typer.Typer(help="Classifiers: the zoo and what is in it.", no_args_is_help=True)
    group.command("list")(list_models)
    group.command("check")(check)
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
    name: Annotated[str, typer.Argument(help="For example lite/efficientnet_lite0.")],
    label_space: Annotated[
        str,
        typer.Option(help="What its output must hold. Example: --label-space imagenet-a"),
    ] = "imagenet-1k",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Print a model's preprocessing, input size, fingerprint and fit to a label space.

    Example: curate models check lite/efficientnet_lite0
    """
    from curate.labels.space import load_label_space
    from curate.models.zoo import load_classifier

    space = load_label_space(label_space)
    classifier = load_classifier(name, space)
    record, columns = classifier.record(), classifier.columns(space)
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
        ["label space", f"{space.name}: reads {len(columns):,} of these outputs"],
    ]
    emit(
        {"model": record, "label_space": space.name, "columns": columns},
        "\n".join(f"{key:<14} {value}" for key, value in rows),
    )


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)
