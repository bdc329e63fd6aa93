"""Anomaly scores: how little logits look like those of an item of a known class."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from curate.metrics.blocks import blocks
from curate.metrics.checks import Floats, finite_array

#: The scores of `anomaly_scores`, with what people call them.
SCORES = {
    "msp": "maximum softmax probability",
    "max_logit": "maximum logit",
    "energy": "energy",
    "entropy": "entropy",
}

# exp of it is 0 in float64, and 0 times it is a number, which 0 times minus infinity is not.
_NOTHING = -800.0


def anomaly_scores(logits: ArrayLike) -> dict[str, Floats]:
    """Scores that are higher the more anomalous an item is, from its logits z_1 … z_C, in float64.

    - `msp`: -max softmax(z), in [-1, 0). Hendrycks and Gimpel, ICLR 2017; that of ImageNet-O.
    - `max_logit`: -max z. Hendrycks et al., ICML 2022.
    - `energy`: -log Σ exp z_i. Liu et al., NeurIPS 2020, at temperature 1.
    - `entropy`: -Σ p_i log p_i with p = softmax(z), in nats, in [0, log C].

    Args:
        logits: shape (n, classes), already restricted where a label space is meant.

    Returns:
        A score's name to its values, shape (n,).

    Raises:
        ValueError: NaN, infinity, nothing there, or another shape.
    """
    scores = finite_array(logits, "logits")
    if scores.ndim != 2:
        raise ValueError(f"logits must be items by classes, not shape {scores.shape}")
    found = {name: np.empty(len(scores)) for name in SCORES}
    # Finite extremes may differ by more than float64 holds.
    with np.errstate(over="ignore"):
        for block in blocks(*scores.shape):
            shifted = scores[block].astype(np.float64)
            top = shifted.max(axis=1)
            shifted -= top[:, None]
            np.maximum(shifted, _NOTHING, out=shifted)
            weights = np.exp(shifted)
            total = weights.sum(axis=1)
            log_total = np.log(total)
            found["msp"][block] = -1.0 / total
            found["max_logit"][block] = -top
            found["energy"][block] = -(top + log_total)
            spread = np.einsum("ij,ij->i", weights, shifted) / total
            found["entropy"][block] = np.maximum(log_total - spread, 0.0)
    return found
