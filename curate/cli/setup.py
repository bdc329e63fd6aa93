"""`curate init`, `curate classes`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from curate.cli.common import Classes, Debug, Json, emit, shared, table


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(init)
    classes = typer.Typer(help="Label spaces.", no_args_is_help=True)
    classes.command("list")(list_classes)
    app.add_typer(classes, name="classes")


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to make.")],
    preset: Annotated[
        str,
        typer.Option(
            "--preset",
            help="imagenet-1k, imagenet-a, imagenet-o, or a YAML file of your own. "
            "Example: --preset imagenet-a",
        ),
    ] = "imagenet-a",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Make a workspace.

    Example: curate init dragonflies --preset imagenet-a
    """
    from pipelines.workspace import create_workspace

    workspace = create_workspace(folder, preset)
    space = workspace.label_space
    workspace.close()
    emit(
        {"workspace": str(folder), "label_space": space.name, "classes": len(space)},
        f"made {folder} with the label space {space.name} ({len(space)} classes)\n"
        f"next: curate -w {folder} collect folder PHOTOS",
    )


def list_classes(
    classes: Classes = None,
    label_space: Annotated[
        str | None,
        typer.Option(
            "--label-space",
            help="A preset or a CSV file. Example: --label-space imagenet-o. Default: the "
            "workspace's, else imagenet-1k.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the classes of a label space.

    Example: curate classes list --label-space imagenet-a --classes dragonfly
    """
    from curate.errors import WorkspaceError
    from curate.labels.space import load_label_space
    from curate.settings import find_workspace, load_settings

    root = Path.cwd()
    if label_space is None:
        try:
            root = find_workspace(shared.workspace)
            label_space = load_settings(root).label_space
        except WorkspaceError:
            if shared.workspace is not None:
                raise
            label_space = "imagenet-1k"
    space = load_label_space(label_space, root)
    chosen = [space.classes[space.position(wnid)] for wnid in space.select(classes or [], root)]
    emit(
        {
            "label_space": space.name,
            "classes": [{"wnid": c.wnid, "name": c.name, "names": list(c.names)} for c in chosen],
        },
        table(["wnid", "name", "names"], [[c.wnid, c.name, ", ".join(c.names)] for c in chosen]),
    )
