"""Whether a model's outputs can stand in the order that is assumed of them.

Logits of another order of classes are numbers as good as any: nothing fails, and a model that does
well gets nothing right. On an adversarial set that is no surprise, so accuracy cannot tell. But
even a model that gets nothing right there ranks the true class far above most others, and in a
wrong order it stands anywhere.
"""

from __future__ import annotations

import math

import numpy as np

from curate.labels.space import LabelSpace
from curate.testbed.predictions import Predictions

#: With fewer classes among the images chance alone may place them anywhere.
LEAST_CLASSES = 20

# Standard errors by which the mean place must lie before that of chance.
_CLEARLY = 2.0


def ranks_by_chance(predictions: Predictions, space: LabelSpace) -> bool | None:
    """Whether true classes stand no higher among a model's outputs than any class would.

    In an order that has nothing to do with the right one the place of the true class is uniform on
    0 … C - 1, with mean (C - 1)/2 and variance (C² - 1)/12. Images of one class share its wrong
    place, so classes are counted, not images: the mean over m classes of their mean places is
    held against (C - 1)/2 less two standard errors, √((C² - 1)/12m).

    Args:
        predictions: with ranks, or nothing can be said.
        space: the label space that they are restricted to, of C classes.

    Returns:
        None without ranks, or with fewer than `LEAST_CLASSES` classes among the images.
    """
    if predictions.rank is None:
        return None
    ranks: dict[str, list[int]] = {}
    for row in np.flatnonzero(predictions.sound).tolist():
        ranks.setdefault(predictions.wnids[row], []).append(int(predictions.rank[row]))
    if len(ranks) < LEAST_CLASSES:
        return None
    mean = math.fsum(math.fsum(own) / len(own) for own in ranks.values()) / len(ranks)
    chance = (len(space) - 1) / 2
    error = math.sqrt((len(space) ** 2 - 1) / (12 * len(ranks)))
    return mean > chance - _CLEARLY * error
