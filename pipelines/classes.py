"""Classes: what speaks against a label space and against concepts, and what may be collected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from curate.catalog import overview
from curate.errors import UsageError
from curate.labels.classes import LabelClass
from curate.labels.concepts import WORDNET, load_concepts
from curate.labels.overlaps import Problem, Trained, space_problems
from curate.labels.space import LabelSpace, load_label_space
from curate.labels.wordnet import wordnet
from pipelines.workspace import OUTLIER, Workspace

#: What every classifier of the zoo was trained on.
_THOUSAND = "imagenet-1k"


def trained_classes(spaces: Iterable[LabelSpace]) -> Trained:
    """The classes that concepts must be outside of: ImageNet-1k's and those of some label spaces.

    Args:
        spaces: the label space of the workspace, and those of its classifiers' outputs where they
            are known.
    """
    return Trained([load_label_space(_THOUSAND), *spaces])


def overlaps(
    workspace: Workspace, wnids: Iterable[str], outputs: Iterable[LabelSpace] = ()
) -> list[Problem]:
    """Which concepts of candidates are not outside what classifiers were trained on, and why.

    Args:
        workspace: whose label space counts as trained on.
        wnids: ids of concepts; those that the workspace's list lacks are judged by id alone.
        outputs: what the classifiers' outputs stand for, besides ImageNet-1k.
    """
    trained = trained_classes([workspace.label_space, *outputs])
    found = (trained.overlap(_concept(workspace.weak_labels, wnid)) for wnid in wnids)
    return [problem for problem in found if problem is not None]


def selected(workspace: Workspace, arguments: Sequence[str] | None) -> tuple[str, ...]:
    """The candidates' classes or concepts that `--classes` names; none named means all.

    Raises:
        AmbiguousNameError, UnknownNameError, UsageError: as `LabelSpace.select`; under the rule
            outlier also where a named concept is not outside what was trained.
    """
    wnids = workspace.weak_labels.select(arguments or ())
    if arguments and workspace.settings.filter.rule == OUTLIER:
        refuse_overlaps(overlaps(workspace, wnids))
    return wnids


def refuse_overlaps(found: Sequence[Problem]) -> None:
    """Refuse concepts that the rule outlier forbids.

    Raises:
        UsageError: there is one; the text names the first.
    """
    if found:
        more = f", and {len(found) - 1} more like it" if len(found) > 1 else ""
        raise UsageError(
            f"{found[0].text}{more}: no concept for the rule outlier; see curate classes check"
        )


def usable_concepts(known: LabelSpace, wnids: Iterable[str], space: LabelSpace) -> list[LabelClass]:
    """The concepts that nothing speaks against, but that they may be near a trained class.

    Args:
        known: a list of concepts; of WordNet's those that ImageNet-21k has are usable.
        wnids: ids to choose from; the order stays.
        space: a label space that counts as trained on, besides ImageNet-1k.
    """
    trained, only_imagenet = trained_classes([space]), known.name == WORDNET
    return [
        known.get(wnid)
        for wnid in wnids
        if not (only_imagenet and not wordnet()[wnid].in_imagenet)
        and all(problem.kind == "near" for problem in trained.problems(known.get(wnid)))
    ]


def check_classes(
    workspace: Workspace | None,
    *,
    classes: Sequence[str] = (),
    label_space: str | None = None,
    concepts: str | None = None,
) -> dict[str, Any]:
    """What speaks against a label space by itself, and against concepts.

    Args:
        workspace: whose label space is checked where none is named, and under the rule outlier the
            concepts that its candidates have; None outside one.
        classes: concepts to check, or the classes of the label space where no concepts are.
        label_space: a preset or a CSV file instead of the workspace's. Where concepts are named
            and it is not, only the concepts are checked.
        concepts: "wordnet", a CSV file, or names and ids of concepts with commas between.

    Returns:
        `label_space`; `classes` and `concepts`, how many were checked, None for none of their
        kind; `trained`, with how many classes concepts are compared; `problems`, an object each
        with `wnid`, `name`, `kind`, `severity`, `other`, `other_name`, `text`, those that are
        refused first; `refused` and `warned`, how many there are; `kinds`, how many of each kind.

    Raises:
        UsageError: a label space, a class or a file is unknown or unusable.
    """
    space = _space(workspace, label_space)
    known, chosen = _concepts(workspace, concepts, classes)
    checked: LabelSpace | None = space
    if known is None and classes:
        wnids = space.select(classes)
        checked = LabelSpace(space.name, [space.get(wnid) for wnid in wnids])
    elif concepts is not None and label_space is None:
        checked = None
    found = [] if checked is None else space_problems(checked)
    trained = trained_classes([space])
    if known is not None:
        found += [p for wnid in chosen for p in trained.problems(_concept(known, wnid))]
    found.sort(key=lambda problem: problem.severity)
    severities = Counter(problem.severity for problem in found)
    return {
        "label_space": space.name,
        "classes": None if checked is None else len(checked),
        "concepts": None if known is None else len(chosen),
        "trained": len(trained),
        "problems": [asdict(problem) for problem in found],
        "refused": severities["refused"],
        "warned": severities["warned"],
        "kinds": dict(sorted(Counter(problem.kind for problem in found).items())),
    }


def _space(workspace: Workspace | None, named: str | None) -> LabelSpace:
    if named is not None:
        return load_label_space(named)
    return load_label_space(_THOUSAND) if workspace is None else workspace.label_space


def _concepts(
    workspace: Workspace | None, named: str | None, classes: Sequence[str]
) -> tuple[LabelSpace | None, Sequence[str]]:
    """The list of concepts and the ids of those to check; None where there are none to check."""
    known: LabelSpace
    if named is not None:
        if named == WORDNET or named.casefold().endswith(".csv") or Path(named).is_file():
            known = load_concepts(named)
            return known, known.select(classes)
        known = load_concepts(WORDNET)
        if workspace is not None and workspace.settings.filter.rule == OUTLIER:
            known = workspace.weak_labels
        return known, known.select([named, *classes])
    if workspace is None or workspace.settings.filter.rule != OUTLIER:
        return None, ()
    known = workspace.weak_labels
    if classes:
        return known, known.select(classes)
    with workspace.catalogue.read() as connection:
        return known, overview.labels(connection)


def _concept(known: LabelSpace, wnid: str) -> LabelClass:
    return known.get(wnid) if wnid in known else LabelClass(wnid, wnid)
