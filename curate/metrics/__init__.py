"""Measures: pure functions on NumPy arrays, fractions unless said, `ValueError` on bad input."""

from curate.metrics.agreement import (
    cohen_kappa,
    fleiss_kappa,
    gwet_ac1,
    krippendorff_alpha,
    raw_agreement,
)
from curate.metrics.anomaly import anomaly_scores
from curate.metrics.calibration import (
    calibration_error,
    overconfidence,
    reliability_curve,
    soft_f1,
)
from curate.metrics.classification import (
    accuracy,
    grouped_accuracy,
    predict,
    restrict,
    softmax_confidence,
    top_k_accuracy,
)
from curate.metrics.confusion import class_accuracy, confusions
from curate.metrics.corruption import corruption_errors
from curate.metrics.frames import pm_k
from curate.metrics.frechet import frechet_distance, gaussian
from curate.metrics.intervals import bootstrap_interval, clopper_pearson
from curate.metrics.knee import find_knee
from curate.metrics.ood import ood_detection
from curate.metrics.ood_intervals import aupr_at_base_rate
from curate.metrics.paired import mcnemar, paired_difference
from curate.metrics.ranking import auc
from curate.metrics.selective import aurra, response_rate_curve
from curate.metrics.shift import (
    bootstrap_band,
    effective_robustness,
    fit_logit_line,
    fit_piecewise,
    relative_robustness,
)
from curate.metrics.temperature import (
    apply_temperature,
    brier_score,
    negative_log_likelihood,
    temperature,
)

__all__ = [
    "accuracy",
    "anomaly_scores",
    "apply_temperature",
    "auc",
    "aupr_at_base_rate",
    "aurra",
    "bootstrap_band",
    "bootstrap_interval",
    "brier_score",
    "calibration_error",
    "class_accuracy",
    "clopper_pearson",
    "cohen_kappa",
    "confusions",
    "corruption_errors",
    "effective_robustness",
    "find_knee",
    "fit_logit_line",
    "fit_piecewise",
    "fleiss_kappa",
    "frechet_distance",
    "gaussian",
    "grouped_accuracy",
    "gwet_ac1",
    "krippendorff_alpha",
    "mcnemar",
    "negative_log_likelihood",
    "ood_detection",
    "overconfidence",
    "paired_difference",
    "pm_k",
    "predict",
    "raw_agreement",
    "relative_robustness",
    "reliability_curve",
    "response_rate_curve",
    "restrict",
    "soft_f1",
    "softmax_confidence",
    "temperature",
    "top_k_accuracy",
]
