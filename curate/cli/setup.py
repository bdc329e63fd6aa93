"""`curate init`, `curate classes`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from curate.cli.common import (
    Classes,
    Debug,
    Json,
    counts,
    emit,
    label_space_option,
    root_if_any,
    table,
    workspace,
)

#: Most problems shown at a terminal.
_MOST_SHOWN = 100


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(init)
    classes = typer.Typer(help="Label spaces.", no_args_is_help=True)
    classes.command("list")(list_classes)
    classes.command("check")(check_classes)
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
    space, weak = workspace.label_space, workspace.weak_labels
    workspace.close()
    concepts = "" if weak is space else f", for candidates of the concepts of {weak.name}"
    emit(
        {"workspace": str(folder), "label_space": space.name, "classes": len(space)},
        f"made {folder} with the label space {space.name} ({len(space)} classes){concepts}\n"
        f"next: curate -w {folder} collect folder PHOTOS",
    )


_LabelSpace = Annotated[
    str | None, label_space_option("imagenet-o", "the workspace's, else imagenet-1k")
]


def list_classes(
    classes: Classes = None,
    label_space: _LabelSpace = None,
    concepts: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="List concepts for the rule outlier instead: wordnet, or a CSV file. Example: "
            "--concepts wordnet. Default: none.",
            show_default=False,
        ),
    ] = None,
    usable: Annotated[
        bool,
        typer.Option(
            "--usable",
            help="With --concepts: only those that curate classes check neither refuses nor warns "
            "of, but for those near a trained class. Example: --usable",
        ),
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the classes of a label space, or concepts.

    Example: curate classes list --label-space imagenet-a --classes dragonfly
    """
    from curate.errors import UsageError
    from curate.labels.concepts import load_concepts
    from curate.labels.space import load_label_space
    from curate.settings import load_settings
    from pipelines.classes import usable_concepts

    if usable and concepts is None:
        raise UsageError("--usable is about concepts: name them with --concepts wordnet")
    root = root_if_any()
    own = "imagenet-1k" if root is None else load_settings(root).label_space
    space = load_label_space(label_space) if label_space else load_label_space(own, root)
    known = space if concepts is None else load_concepts(concepts)
    wnids = known.select(classes or ())
    chosen = usable_concepts(known, wnids, space) if usable else [known.get(w) for w in wnids]
    emit(
        {
            "label_space" if concepts is None else "concepts": known.name,
            "classes": [{"wnid": c.wnid, "name": c.name, "names": list(c.names)} for c in chosen],
        },
        table(["wnid", "name", "names"], [[c.wnid, c.name, ", ".join(c.names)] for c in chosen]),
    )


def check_classes(
    classes: Annotated[
        list[str] | None,
        typer.Option(
            "--classes",
            help="Check only these: concepts where there are any to check, else classes of the "
            "label space. Example: --classes wheelchair,n02420828. Default: the concepts that the "
            "workspace's candidates have; all classes.",
            show_default=False,
        ),
    ] = None,
    label_space: _LabelSpace = None,
    concepts: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Concepts to check against the trained classes: a CSV file (wnid, or id with the "
            "column wordnet), wordnet for all, or names and wnids with commas between. Example: "
            "--concepts my-concepts.csv. Default: none; in a workspace of the rule outlier those "
            "of its candidates.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check a label space against itself, and concepts against what models were trained on.

    Exits with 1 where something is refused. A concept is refused if it is a class of ImageNet-1k
    or of the label space, or above or below one in WordNet, bears the name of one, or is a kind of
    person; it is warned of if it is directly a part or whole of one, shares a parent with one
    (near), is too general or no thing (abstract), or has no place in WordNet. In a label space a
    class above another is refused; shared names, look-alikes, parts and wholes are warned of.

    Example: curate classes check --concepts wheelchair,hedgehog
    """
    from curate.errors import VerificationError
    from pipelines.classes import check_classes as check

    opened = None if root_if_any() is None else workspace()
    try:
        found = check(opened, classes=classes or (), label_space=label_space, concepts=concepts)
    finally:
        if opened is not None:
            opened.close()
    emit(found, _told(found))
    if found["refused"]:
        were = "was" if found["refused"] == 1 else "were"
        raise VerificationError(f"{found['refused']:,} {were} refused")


def _told(found: Mapping[str, Any]) -> str:
    """The problems as a table, the refused ones first, and what was checked."""
    shown = found["problems"][:_MOST_SHOWN]
    rows = [[one["severity"], one["kind"], one["text"]] for one in shown]
    lines = [table(["", "kind", "what"], rows)] if rows else []
    if (more := len(found["problems"]) - len(shown)) > 0:
        lines.append(f"… and {more:,} more: --json tells all")
    checked = []
    if found["classes"] is not None:
        checked.append(f"label space {found['label_space']} ({found['classes']:,} classes)")
    if found["concepts"] is not None:
        trained = f"against {found['trained']:,} trained classes"
        checked.append(f"{found['concepts']:,} concepts {trained}")
    counted = f" ({counts(found['kinds'])})" if found["kinds"] else ""
    lines.append(f"checked {' and '.join(checked)}")
    lines.append(f"{found['refused']:,} refused, {found['warned']:,} warned{counted}")
    return "\n".join(lines)
