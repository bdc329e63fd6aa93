"""What predictions on both sides amount to: how well a model tells images of something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.labels.space import LabelSpace
from curate.metrics.anomaly import SCORES
from curate.metrics.ood_intervals import (
    PUBLISHED_BASE_RATE,
    Estimate,
    ood_detections_estimates,
)
from curate.testbed.measures import CONFIDENCE_LEVEL
from curate.testbed.predictions import Predictions
from curate.testbed.resamples import evenly

#: The positive class of a measure.
OUTSIDE, INSIDE = "out-of-distribution", "in-distribution"

#: The measures of each score, in the order of tables: what tables call them, the positive class,
#: the convention.
DETECTION = {
    "aupr": (
        "AUPR",
        OUTSIDE,
        "average precision, step by step; equal scores pass together; chance is the base rate",
    ),
    "aupr_reweighted": (
        "AUPR at base rate 1/6",
        OUTSIDE,
        "average precision with in-distribution images weighted so that the base rate is the "
        "published 1/6, which is chance",
    ),
    "aupr_in": (
        "AUPR, in-distribution positive",
        INSIDE,
        "average precision of the reversed score; chance is 1 less the base rate",
    ),
    "auroc": ("AUROC", OUTSIDE, "equal scores count half; chance is 50 %"),
    "fpr95": (
        "FPR at 95 % recall",
        OUTSIDE,
        "the smallest false-positive rate with a recall of at least 95 %; lower is better",
    ),
    "fpr95_published": (
        "FPR at 95 % recall, published code",
        OUTSIDE,
        "at the recall nearest to 95 %, on either side; lower is better",
    ),
}

#: What the names of measures over all outputs end in.
UNRESTRICTED = "_unrestricted"


def scores_of(inside: Predictions, outside: Predictions) -> list[tuple[str, bool]]:
    """The scores that both sides have, each with whether it is over all outputs; known ones first.

    Args:
        inside: of images of the label space's classes.
        outside: of images of something else.
    """
    found = []
    for everywhere in (False, True):
        first, second = _scores(inside, everywhere), _scores(outside, everywhere)
        names = [name for name in first if name in second]
        order = [name for name in SCORES if name in names]
        found += [(name, everywhere) for name in order + [n for n in names if n not in order]]
    return found


def measure_ood(
    inside: Predictions,
    outside: Predictions,
    space: LabelSpace,
    *,
    resamples: int = 1000,
    seed: int = 0,
    done: Callable[[], None] = lambda: None,
) -> dict[str, dict[str, Any]]:
    """All measures of `DETECTION` for every score that both sides have.

    Their names are MEASURE_SCORE, as `aupr_msp`, and MEASURE_SCORE_unrestricted over all outputs.
    Each is a mapping as `measures.measure` gives it, with besides: label (what tables call it),
    measure and score (the parts of its name), measure_label, positive (the positive class),
    base_rate (the share of the OOD images), n_in, n_out.

    Args:
        inside: of images of the label space's classes; those without a prediction are left out.
        outside: of images of something else; likewise.
        space: the label space that they are restricted to.
        resamples: of the bootstrap, at least 1.
        seed: of the bootstrap, 0 … 2³² - 1.
        done: called once for each score, evenly while it works.

    Raises:
        ValueError: a side without a prediction, or resamples or seed out of range.
    """
    scores = scores_of(inside, outside)
    sides = [
        (
            _scores(inside, everywhere)[score][inside.sound],
            _scores(outside, everywhere)[score][outside.sound],
        )
        for score, everywhere in scores
    ]
    tell = evenly(done, len(scores), resamples)
    estimates = ood_detections_estimates(
        sides, resamples=resamples, confidence=CONFIDENCE_LEVEL, seed=seed, done=tell
    )
    tell(resamples - 1)
    found: dict[str, dict[str, Any]] = {}
    n_in, n_out = (int(np.count_nonzero(side.sound)) for side in (inside, outside))
    how = (
        f"bootstrap over the images of each side, {CONFIDENCE_LEVEL:.0%}: percentiles of "
        f"{resamples} resamples less the bootstrap's bias, seed {seed}"
    )
    for (score, everywhere), told in zip(scores, estimates, strict=True):
        end = UNRESTRICTED if everywhere else ""
        for name, (label, positive, convention) in DETECTION.items():
            found[f"{name}_{score}{end}"] = {
                **_told(told[name], how),
                "n": n_in + n_out,
                "restricted_to": None if everywhere else space.name,
                "classes": _outputs(inside, outside) if everywhere else len(space),
                "convention": convention,
                "label": f"{label}, {SCORES.get(score, score)}"
                + (", all outputs" if everywhere else ""),
                "measure": name,
                "measure_label": label,
                "score": score,
                "positive": positive,
                "base_rate": n_out / (n_in + n_out),
                "n_in": n_in,
                "n_out": n_out,
            }
    return found


def _scores(predictions: Predictions, everywhere: bool) -> Mapping[str, NDArray[np.float64]]:
    return predictions.anomaly_unrestricted if everywhere else predictions.anomaly


def _outputs(inside: Predictions, outside: Predictions) -> int | None:
    return inside.outputs if inside.outputs == outside.outputs else None


def _told(estimate: Estimate, how: str) -> dict[str, Any]:
    low, high = estimate.interval or (None, None)
    note = None
    if estimate.interval is None:
        note = "one image on a side has no spread, so no interval"
    elif low == high:
        note = "every resample gives this value; that is no certainty"
    return {
        "value": estimate.value,
        "low": low,
        "high": high,
        "interval": None if estimate.interval is None else how,
        "note": note,
    }


#: The columns of `detection_table` behind model, dataset, score and outputs.
_COLUMNS = ("aupr", "aupr_reweighted", "aupr_in", "auroc", "fpr95")


def detection_table(results: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """A row a score and a column a measure, in percent with the interval of AUPR.

    Args:
        results: the entries of an evaluation's `results` whose kind is "ood".

    Returns:
        The header, and the rows; model and dataset stand in the first row of each result alone.
    """
    header = ["model", "dataset", "score", "among", "AUPR", f"{CONFIDENCE_LEVEL:.0%} interval"]
    header += ["at 1/6", "in pos.", "AUROC", "FPR95"]
    rows: list[list[Any]] = []
    for result in results:
        who = [result["model"]["name"], result["dataset"]["name"] or ""]
        metrics = result["metrics"]
        for name, first in metrics.items():
            if first["measure"] != "aupr":
                continue
            told = [metrics[f"{column}{name.removeprefix('aupr')}"] for column in _COLUMNS]
            ends = [first[end] for end in ("low", "high")]
            rows.append(
                [
                    *who,
                    first["score"],
                    f"{first['classes'] or 'all'} "
                    + ("classes" if first["restricted_to"] else "outputs"),
                    _percent(first["value"]),
                    "" if None in ends else " – ".join(map(_percent, ends)),
                    *(_percent(one["value"]) for one in told[1:]),
                ]
            )
            who = ["", ""]
    return header, rows


def _percent(value: float) -> str:
    return f"{100 * value:.2f}".rjust(6)


def detection_notes(result: Mapping[str, Any]) -> list[str]:
    """What must be said beside the numbers of one result of kind "ood", a sentence each.

    Args:
        result: the entry of an evaluation's `results`.
    """
    model, dataset = result["model"]["name"], result["dataset"]["name"] or "the file"
    inside = result["in_distribution"]
    notes = [
        f"{dataset}: {result['n_out']} images of something else are the positive class against "
        f"{result['n_in']} of the label space's classes"
        + (f" ({inside['name']})" if inside["name"] else "")
        + f", base rate {result['base_rate']:.1%}; chance AUPR is that, and at the published base "
        f"rate {PUBLISHED_BASE_RATE:.1%}."
    ]
    if result["took_part_in_selection"]:
        notes.append(
            f"{model} took part in selecting {dataset}: it is confident there by construction, "
            "and its detection says nothing about it."
        )
    if result["trained_on_imagenet_21k"]:
        notes.append(
            f"{model} was trained on ImageNet-21k, which holds the concepts that such sets are "
            "made of: they are nothing new to it, and its numbers do not compare."
        )
    if inside["other_classes"]:
        notes.append(
            f"{inside['other_classes']} images of {inside['name'] or 'the in-distribution file'} "
            f"are of classes outside {result['label_space']['name']} and were passed over."
        )
    if result["shared_images"]:
        notes.append(
            f"{result['shared_images']} images stand on both sides, byte for byte: no score can "
            "tell them apart."
        )
    return notes
