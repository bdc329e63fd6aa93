"""`curate models`."""

from __future__ import annotations

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
    from curate.models.zoo import load_classifier

    record = load_classifier(name, label_space).record()
    rows = [[key, value] for key, value in record.items()]
    emit({"model": record, "label_space": label_space}, table(["", ""], rows).lstrip("\n "))
