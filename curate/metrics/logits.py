"""Percentages as logits, in which accuracies under shift lie along lines, and back."""

from __future__ import annotations

import numpy as np

from curate.metrics.checks import Floats


def logit(percent: Floats) -> Floats:
    """log(p / (100 - p)), natural logarithm.

    Args:
        percent: strictly between 0 and 100, of any shape.
    """
    values: Floats = np.log(percent / (100.0 - percent))
    return values


def percent(logits: Floats) -> Floats:
    """100 / (1 + exp(-z)): what has these logits.

    Args:
        logits: of any shape.
    """
    from scipy.special import expit

    values: Floats = 100.0 * expit(logits)
    return values
