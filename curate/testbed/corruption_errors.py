"""The error table under corruptions: every row, what it means, and nothing hidden in a mean.

Pure: it takes accuracies, or any model and corruptions as functions, and knows no images. Errors
are relative to the model's own clean error, so that how fragile a model is stands apart from how
good it is; the ratio to another model's errors (mCE) is in `corruption_means`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from curate.metrics import clopper_pearson
from curate.testbed.measures import CONFIDENCE_LEVEL

#: The severities of a whole row.
SEVERITIES = (1, 2, 3, 4, 5)

#: How accuracy falls with severity.
Shape = Literal["steady", "slope", "cliff"]

# Shares of the room between clean accuracy and chance: what a steady row loses at most, and what
# a cliff loses at least in one step.
_STEADY, _CLIFF = 1 / 8, 1 / 4


@dataclass(frozen=True)
class Row:
    """One corruption.

    Attributes:
        corruption: its name.
        accuracies: by severity, fractions; the severities that were measured, rising.
        mean_error: over them.
        relative: mean error divided by the model's own clean error; None where that is 0 or not
            known.
        near_chance: the severities whose accuracy cannot be told from guessing, see `is_chance`.
        shape: see `shape_of`; None where it cannot be told.
        cliff_after: the last severity before the cliff; None without one.
    """

    corruption: str
    accuracies: Mapping[int, float]
    mean_error: float
    relative: float | None
    near_chance: tuple[int, ...] = ()
    shape: Shape | None = None
    cliff_after: int | None = None

    @property
    def floor_from(self) -> int | None:
        """The severity from which on all are near chance; None where the last one is not."""
        found: int | None = None
        for severity in reversed(tuple(self.accuracies)):
            if severity not in self.near_chance:
                break
            found = severity
        return found

    @property
    def told(self) -> str:
        """The shape in words, "cliff after s3", "slope, floor from s4"."""
        if self.shape is None:
            return "–"
        words = f"cliff after s{self.cliff_after}" if self.shape == "cliff" else self.shape
        return words if self.floor_from is None else f"{words}, floor from s{self.floor_from}"


@dataclass(frozen=True)
class Table:
    """A model's clean accuracy and its row for each corruption.

    Attributes:
        clean: accuracy on uncorrupted images; None where it was not measured.
        rows: in the order given.
        classes: how many there are to choose from.
    """

    clean: float | None
    rows: tuple[Row, ...]
    classes: int

    @property
    def mean_relative(self) -> float | None:
        """Mean of the rows' relative errors; it hides the rows, so never show it alone."""
        relative = [row.relative for row in self.rows if row.relative is not None]
        return float(np.mean(relative)) if relative and len(relative) == len(self.rows) else None

    @property
    def mean_error(self) -> float | None:
        """Mean of the rows' mean errors."""
        return float(np.mean([row.mean_error for row in self.rows])) if self.rows else None


def error_table(
    clean: float | None,
    accuracies: Mapping[str, Mapping[int, float]],
    classes: int,
    counts: Mapping[str, Mapping[int, int]] | None = None,
    clean_count: int | None = None,
) -> Table:
    """The table of accuracies that were measured somewhere.

    Args:
        clean: accuracy on uncorrupted images, a fraction; None where it is not known.
        accuracies: corruption → severity → accuracy, fractions.
        classes: how many there are to choose from; chance is 1 / classes.
        counts: corruption → severity → how many images an accuracy is of, where known.
        clean_count: how many images `clean` is of, where known.

    Raises:
        ValueError: fewer than two classes, a row without a severity, a severity outside 1 … 5, or
            an accuracy that is no fraction.
    """
    if classes < 2:
        raise ValueError(f"a table needs at least two classes, not {classes}")
    if clean is not None:
        _fraction(clean, "clean")
    rows = []
    for name, by_severity in accuracies.items():
        if not by_severity:
            raise ValueError(f"{name!r} has no severity")
        for severity, accuracy in by_severity.items():
            if severity not in SEVERITIES:
                raise ValueError(f"{name!r} has severity {severity}: there are 1 … 5")
            _fraction(accuracy, f"{name!r} at severity {severity}")
        ordered = {severity: float(by_severity[severity]) for severity in sorted(by_severity)}
        n = {} if counts is None else counts[name]
        near = tuple(s for s, value in ordered.items() if is_chance(value, classes, n.get(s)))
        error = 1 - float(np.mean(list(ordered.values())))
        shape, edge = None, None
        if clean is not None and not is_chance(clean, classes, clean_count):
            shape, edge = shape_of(clean, ordered, classes)
        own = None if clean is None else 1 - clean
        relative = error / own if own else None
        rows.append(Row(name, ordered, error, relative, near, shape, edge))
    return Table(clean, tuple(rows), classes)


def try_corruptions(
    model: Callable[[Any], ArrayLike],
    images: Any,
    labels: ArrayLike,
    corruptions: Mapping[str, Callable[[Any, int], Any]],
    *,
    classes: int,
    severities: Sequence[int] = SEVERITIES,
) -> Table:
    """The table of any model under any corruptions, both given as functions.

    Corruptions are called one after the other in their order, each with its severities in theirs,
    so that one that draws from a generator of its own always draws the same.

    Args:
        model: takes images, gives the number of the predicted class of each.
        images: whatever the functions take.
        labels: the number of the true class of each image.
        corruptions: name → function of images and severity that gives images.
        classes: how many there are to choose from.
        severities: which to try.

    Raises:
        ValueError: no label, as many predictions as labels are not given, or as `error_table`.
    """
    true = np.asarray(labels)
    if true.ndim != 1 or not len(true):
        raise ValueError(f"labels must be a list with at least one item, not {true.shape}")

    def accuracy(changed: Any) -> float:
        predicted = np.asarray(model(changed))
        if predicted.shape != true.shape:
            raise ValueError(f"the model gives {predicted.shape} predictions for {true.shape}")
        return float(np.mean(predicted == true))

    clean = accuracy(images)
    found = {
        name: {severity: accuracy(corrupt(images, severity)) for severity in severities}
        for name, corrupt in corruptions.items()
    }
    n = {name: dict.fromkeys(severities, len(true)) for name in corruptions}
    return error_table(clean, found, classes, n, len(true))


def is_chance(accuracy: float, classes: int, count: int | None = None) -> bool:
    """Whether an accuracy cannot be told from guessing.

    It can where the Clopper-Pearson interval lies above 1 / classes, or without a count where the
    accuracy itself does.

    Args:
        accuracy: a fraction.
        classes: how many there are to choose from.
        count: of how many images it is.
    """
    if accuracy <= 1 / classes:
        return True
    if not count:
        return False
    low, _ = clopper_pearson(round(accuracy * count), count, CONFIDENCE_LEVEL)
    return low <= 1 / classes


def shape_of(
    clean: float, accuracies: Mapping[int, float], classes: int
) -> tuple[Shape | None, int | None]:
    """How accuracy falls with severity: steady, down a slope, or off a cliff.

    Corruption is not monotone, and one lucky or unlucky severity is no evidence: the least-squares
    falling line of steps through the five accuracies counts. What it has lost at severity s is
    l(s) = (clean - step(s)) / (clean - 1/classes), at least 0: the share of what can be lost.

    - steady: l(5) is at most 1/8.
    - cliff: between some s ≥ 2 and s + 1 at least 1/4 is lost, and all that was lost before is at
      most half of that. There is a range where the model works, and s is its edge.
    - slope: everything else; there is no such range.

    Args:
        clean: accuracy on uncorrupted images, above 1 / classes.
        accuracies: by severity.
        classes: how many there are to choose from.

    Returns:
        The shape, and s for a cliff; (None, None) unless all five severities are there and `clean`
        is above chance.
    """
    from scipy.optimize import isotonic_regression

    room = clean - 1 / classes
    if tuple(accuracies) != SEVERITIES or room <= 0:
        return None, None
    steps = isotonic_regression(list(accuracies.values()), increasing=False).x
    lost = np.maximum(0.0, (clean - steps) / room)
    if lost[-1] <= _STEADY:
        return "steady", None
    for severity in SEVERITIES[1:-1]:
        before, after = lost[severity - 1], lost[severity]
        if after - before >= _CLIFF and before <= (after - before) / 2:
            return "cliff", severity
    return "slope", None


def _fraction(value: float, where: str) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"accuracy of {where} is {value}: a fraction from 0 to 1 is needed")
