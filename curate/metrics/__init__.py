"""Measures: pure functions on NumPy arrays, fractions unless said, `ValueError` on bad input."""

from curate.metrics.agreement import (
    cohen_kappa,
    fleiss_kappa,
    gwet_ac1,
    krippendorff_alpha,
    raw_agreement,
)
from curate.metrics.calibration import calibration_error
from curate.metrics.classification import (
    accuracy,
    grouped_accuracy,
    predict,
    restrict,
    softmax_confidence,
)
from curate.metrics.corruption import corruption_errors
from curate.metrics.intervals import bootstrap_interval, clopper_pearson
from curate.metrics.ood import ood_detection
from curate.metrics.ranking import auc
from curate.metrics.selective import aurra
from curate.metrics.shift import (
    bootstrap_band,
    effective_robustness,
    fit_logit_line,
    fit_piecewise,
    pm_k,
    relative_robustness,
)

__all__ = [
    "accuracy",
    "auc",
    "aurra",
    "bootstrap_band",
    "bootstrap_interval",
    "calibration_error",
    "clopper_pearson",
    "cohen_kappa",
    "corruption_errors",
    "effective_robustness",
    "fit_logit_line",
    "fit_piecewise",
    "fleiss_kappa",
    "grouped_accuracy",
    "gwet_ac1",
    "krippendorff_alpha",
    "ood_detection",
    "pm_k",
    "predict",
    "raw_agreement",
    "relative_robustness",
    "restrict",
    "softmax_confidence",
]
