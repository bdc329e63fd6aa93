"""Which models are relatives of those that selected, and which the line is fitted to."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from curate.errors import UnknownNameError, UsageError
from curate.files import printable
from curate.metrics.checks import Bools
from curate.testbed.cells import Cells
from curate.testbed.model_table import ModelTable, of_models
from curate.testbed.shift_analysis import RESAMPLES, SEED
from pipelines.testbed import listed_models

#: What a line is fitted to unless something else is said: models whose name does not say that they
#: saw more photos than ImageNet-1k's.
IMAGENET_1K = "imagenet-1k"

_RULES = "there are imagenet-1k, all, @FILE, and with --table a column of 1 and 0"


@dataclass(frozen=True)
class BiasOptions:
    """What both ways of measuring take.

    Attributes:
        family: which models are relatives of those that selected: a regular expression, or "@" and
            a file with a name a line; None goes by their architectures (see
            `curate.models.families`).
        line: which of the others the line is fitted to: "imagenet-1k" (those whose name does not
            say that they saw other photos), "all", "@" and a file with a name a line, or a table's
            column of 1 and 0.
        pivot: a model, or percent of standard accuracy; by default the most accurate model that
            selected.
        report: a folder for results, plots and a page.
        resamples: refits of bands.
        seed: of what they draw.
    """

    family: str | None = None
    line: str = IMAGENET_1K
    pivot: str | None = None
    report: Path | None = None
    resamples: int = RESAMPLES
    seed: int = SEED


def check_names(options: BiasOptions, models: Sequence[str]) -> None:
    """Refuse a rule or a pivot that no model can meet, before any is run.

    Args:
        options: what was asked for.
        models: the models, whose names may stand without the weights that they have by default.
    """
    if options.line.startswith("@"):
        listed_models(Path(options.line[1:]))
    elif options.line not in (IMAGENET_1K, "all"):
        raise UnknownNameError("rule for --line", options.line, [IMAGENET_1K, "all"], note=_RULES)
    if options.pivot is None or options.pivot.startswith((*models, "checkpoint/")):
        return
    try:
        float(options.pivot)
    except ValueError:
        raise UnknownNameError("model as --pivot", options.pivot, models) from None


def relatives_of(named: str | None, own: Sequence[str]) -> Callable[[str, str], bool]:
    """Whether a name and an architecture are of the family of a model that selected."""
    if named is None:
        families = {family_of_name(one) for one in own}
        return lambda _, architecture: bool(families) and family_of_name(architecture) in families
    if named.startswith("@"):
        listed = frozenset(listed_models(Path(named[1:])))
        return lambda name, _: name in listed
    try:
        pattern = re.compile(named)
    except re.error as error:
        raise UsageError(f"--family {named!r} is no regular expression: {error}") from error
    return lambda name, _: pattern.search(name) is not None


def family_of_name(architecture: str) -> str:
    """See `curate.models.families`."""
    from curate.models.families import family_of

    return family_of(architecture)


def left_out_of(table: ModelTable, cells: Cells | None, line: str) -> tuple[Bools, str]:
    """The models that no line is fitted to, and the rule in words."""
    if line == "all":
        return np.zeros(len(table), np.bool_), ""
    if line.startswith("@"):
        return ~table.chosen(listed_models(Path(line[1:]))), f"those listed in {printable(line)}"
    if cells is not None and line in cells.columns:
        flags = of_models(cells, table, line, cells.flags(line))
        return ~np.array(flags, np.bool_), f"those of the column {line!r}"
    if line != IMAGENET_1K:
        columns = () if cells is None else cells.columns
        raise UnknownNameError("rule for --line", line, [IMAGENET_1K, "all", *columns], note=_RULES)
    from curate.models.training_sets import trained_on_imagenet_1k_alone

    alone = [trained_on_imagenet_1k_alone(name) for name in table.models]
    return (
        np.array([one is False for one in alone], np.bool_),
        "those whose names do not say that they saw other photos than ImageNet-1k's",
    )
