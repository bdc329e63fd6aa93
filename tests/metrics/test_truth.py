"""The measures against 105 true values that were computed and cross-checked independently."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curate.metrics import (
    accuracy,
    aurra,
    bootstrap_band,
    calibration_error,
    clopper_pearson,
    corruption_errors,
    effective_robustness,
    fit_logit_line,
    fit_piecewise,
    grouped_accuracy,
    ood_detection,
    pm_k,
    relative_robustness,
    restrict,
    softmax_confidence,
)
from curate.metrics.classification import merge_groups
from curate.metrics.corruption import IMAGENET_C

IDS = """
    accuracy/0 accuracy/1 accuracy/2 accuracy/subset accuracy/all-correct accuracy/all-wrong
    accuracy/one-sample accuracy/tied-logits accuracy/nan accuracy/empty accuracy/label-outside
    aurra/random0 aurra/random1 aurra/random2 aurra/ties0 aurra/ties1 aurra/all-tied
    aurra/all-tied-permuted aurra/ties-hand aurra/all-correct aurra/all-wrong aurra/one
    aurra/worst-order aurra/nan aurra/empty calib/random0 calib/random1 calib/random2
    calib/random3 calib/random4 calib/random5 calib/ties calib/last-bin calib/one
    calib/all-correct calib/all-wrong calib/nan calib/empty calib/percent ood/random0 ood/random1
    ood/random2 ood/random3 ood/random4 ood/chance-imagenet-o ood/perfect ood/inverted
    ood/one-each ood/one-each-tied ood/one-ood ood/fpr-rules ood/no-ood ood/no-in ood/nan
    ood/msp-from-logits msp/float32-saturation mce/random0 mce/random1 mce/random2
    mce/alexnet-itself mce/perfect mce/all-wrong mce/testbed-resnet50 mce/testbed-resnet50_augmix
    mce/missing mce/four-severities mce/percent fit/random0 fit/random1 fit/random2
    effrob/imagenetv2 effrob/objectnet effrob/vid-pm0 effrob/ytbb-pm0 effrob/vid-pm10
    effrob/ytbb-pm10 effrob/sketch effrob/imagenet-a-piecewise piecewise/random0 piecewise/random1
    fit/one-model fit/same-x fit/zero-accuracy fit/nan piecewise/empty-side cp/0-7500-0.995
    cp/7500-7500-0.995 cp/6354-10000-0.995 cp/1-1-0.995 cp/0-1-0.995 cp/38065-50000-0.995
    cp/500-1109-0.995 cp/37-200-0.95 cp/n0 cp/k-above-n bootstrap/random0 bootstrap/random1
    bootstrap/imagenetv2 pmk/random0 pmk/random1 pmk/hand pmk/all-wrong pmk/empty
    subsample/merge-max subsample/none
""".split()  # noqa: SIM905 - a hundred quoted lines would hide the names

#: What the truth file calls a fault, and how the message names it.
FAULTS = {
    "NaN or infinity in input": r"is nan: NaN or infinity",
    "empty input": r"is empty|no model is above the pivot",
    "label outside the class subset": r"labels\[0\] is 2: outside the label space",
    "confidence outside [0, 1]": r"confidence\[0\] is 50.0: outside \[0, 1\]",
    "needs at least one in-distribution and one OOD item": r"scores_(in|out) is empty",
    "corruption missing: fog": r"corruption missing from errors: fog",
    "gaussian_noise: needs five severities": r"gaussian_noise.* needs five severities",
    "errors must be fractions in [0, 1]": r"is 50.0: outside \[0, 1\], a fraction",
    "needs two different x": r"needs two different x",
    "accuracy 0 or 100 has no logit": r"y\[0\] is 0.0: 0 and 100 percent have no logit",
    "n must be positive": r"n is 0: it must be at least 1",
    "k must be in 0..n": r"k is 5: it must be in 0 … 4",
    "no anchors": r"anchor_correct is empty",
    "no image of the chosen classes": r"no item is of a class in any group",
}

Case = dict[str, Any]
Values = dict[str, Any]


@pytest.fixture(scope="module")
def truth(shared_data: Path) -> Case:
    document: Case = json.loads((shared_data / "truth_open.json").read_text())
    return document


@pytest.fixture(scope="module")
def testbed(shared_data: Path) -> dict[str, dict[str, str]]:
    with (shared_data / "testbed_top1.csv").open(newline="") as file:
        return {row["model"]: row for row in csv.DictReader(file)}


def test_every_true_value_has_its_test(truth: Case) -> None:
    assert [case["id"] for case in truth["cases"]] == IDS
    assert len(IDS) == 105


@pytest.mark.parametrize("case_id", IDS)
def test_true_value(case_id: str, truth: Case, testbed: dict[str, dict[str, str]]) -> None:
    case = next(case for case in truth["cases"] if case["id"] == case_id)
    inputs = _inputs(case, truth) | {"testbed": testbed}
    compute = COMPUTE[case["metric"]]
    expected = case["expected"]
    if "error" in expected:
        assert expected["error"] == "ValueError"
        with pytest.raises(ValueError, match=FAULTS[expected["reason"]]):
            compute(inputs, case.get("params", {}))
        return
    _same(compute(inputs, case.get("params", {})), expected, case["tolerance"])


def _same(actual: Any, expected: Any, tolerance: float, where: str = "") -> None:
    """Every expected value is there; what else was computed may have no expectation."""
    if isinstance(expected, dict):
        for key, value in expected.items():
            _same(actual[key], value, tolerance, f"{where}.{key}")
    elif isinstance(expected, str):
        assert isinstance(actual, ValueError), where
    else:
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance, err_msg=where)


def _inputs(case: Case, truth: Case) -> Values:
    if "recipe" in case:
        recipe, names = truth["recipes"][case["recipe"]], truth["order15"]
        args = case["args"]
        if case["metric"] == "ood_msp":
            made = {side: _run(recipe, args[side], names) for side in ("in", "out")}
            _check_hash([made["in"]["z"], made["out"]["z"]], case)
            return made
        made = _run(recipe, args, names)
        _check_hash(_hashed(case["recipe"], made, names), case)
        return made
    return {key: _literal(value) for key, value in case["inputs"].items()}


def _run(recipe: str, args: Values, names: list[str]) -> Values:
    scope: Values = {"np": np, "names": names, **args}
    exec(recipe, scope)
    return scope


def _hashed(recipe: str, made: Values, names: list[str]) -> list[Any]:
    if recipe == "logits":
        return [made["y"], made["z"]]
    if recipe.startswith("conf"):
        return [made["conf"], made["correct"]]
    if recipe == "ood":
        return [made["score_in"], made["score_out"]]
    if recipe == "frames":
        return [made["anchor"], [frame for frames in made["neighbours"] for frame in frames]]
    if recipe == "corr":
        return [[made["err"][name] for name in names], [made["clean"]]]
    return [np.round(made["x"], 6), np.round(made["y"], 6)]


def _check_hash(arrays: list[Any], case: Case) -> None:
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays))
    assert digest.hexdigest()[:16] == case["inputs_sha256_16"], "the recipe made other inputs"


def _literal(value: Any) -> Any:
    if isinstance(value, list):
        return [_literal(item) for item in value]
    if isinstance(value, str):
        if value == "NaN":
            return float("nan")
        return eval(value, {"np": np}) if "np." in value else value
    return value


def _logits(inputs: Values) -> tuple[Any, Any]:
    if "z" in inputs:
        return inputs["z"], inputs["y"]
    logits = np.zeros(inputs["logits_shape"]) if "logits_shape" in inputs else inputs["logits"]
    return logits, inputs["labels"]


def _accuracy(inputs: Values, params: Values) -> Values:
    logits, labels = _logits(inputs)
    value = accuracy(logits, labels)
    confidence = softmax_confidence(logits)
    return {
        "accuracy": value,
        "mean_msp": confidence.mean(),
        "min_msp": confidence.min(),
        "max_msp": confidence.max(),
    }


def _class_subset(inputs: Values, params: Values) -> Values:
    logits, labels = _logits(inputs)
    subset = params["subset"]
    if "z" in inputs:
        kept = np.isin(labels, subset)
        logits, labels = logits[kept], labels[kept]
    return {
        "accuracy_restricted": accuracy(logits, labels, subset),
        "accuracy_all_classes": accuracy(logits, labels),
        "mean_msp_restricted": softmax_confidence(restrict(logits, subset)).mean(),
        "mean_msp_all_classes": softmax_confidence(logits).mean(),
        "n": len(labels),
    }


def _msp(inputs: Values, params: Values) -> Values:
    confidence = softmax_confidence(inputs["logits"])
    z = np.asarray(inputs["logits"], dtype=np.float32)
    single = np.exp(z - z.max(axis=1, keepdims=True))
    single = (single / single.sum(axis=1, keepdims=True)).max(axis=1)
    return {
        "msp": confidence,
        "distinct_float64": len(np.unique(confidence)),
        "distinct_float32": len(np.unique(single)),
    }


def _scored(inputs: Values) -> tuple[Any, Any]:
    return inputs.get("conf", inputs.get("confidence")), inputs["correct"]


def _aurra(inputs: Values, params: Values) -> Values:
    scored = _scored(inputs)
    return {"aurra": aurra(*scored), "aurra_input_order": aurra(*scored, ties="input")}


def _calibration(inputs: Values, params: Values) -> Values:
    scored, size = _scored(inputs), params.get("bin_size", 100)
    values: Values = {
        norm: calibration_error(*scored, norm=norm, bin_size=size, ties="input")
        for norm in ("rms", "mad", "max")
    }
    values["rms_tie_mean"] = calibration_error(*scored, bin_size=size)
    try:
        values["rms_published"] = calibration_error(
            *scored, bin_size=size, convention="published", ties="input"
        )
    except ValueError as error:
        values["rms_published"] = error
    return values


def _ood(inputs: Values, params: Values) -> Values:
    return vars(ood_detection(inputs["score_in"], inputs["score_out"]))


def _ood_msp(inputs: Values, params: Values) -> Values:
    scores = [-softmax_confidence(inputs[side]["z"]) for side in ("in", "out")]
    return vars(ood_detection(*scores))


def _mce(inputs: Values, params: Values) -> Values:
    if "model" in inputs:
        return _mce_of_model(inputs, params)
    made: Values = {
        "all zero": lambda: dict.fromkeys(IMAGENET_C, 0.0),
        "all one": lambda: dict.fromkeys(IMAGENET_C, 1.0),
        "0.5 for every corruption but fog, which is absent": lambda: {
            name: 0.5 for name in IMAGENET_C if name != "fog"
        },
        "four severities each": lambda: {name: [0.5] * 4 for name in IMAGENET_C},
        "50.0 everywhere (percent)": lambda: dict.fromkeys(IMAGENET_C, 50.0),
    }
    errors = inputs["err"] if isinstance(inputs["err"], dict) else made[inputs["err"]]()
    baseline: Any = params.get("alexnet_per_severity", params.get("alexnet_mean_error", ALEXNET))
    result = corruption_errors(
        errors, baseline, inputs.get("clean"), params.get("alexnet_clean_error")
    )
    return vars(result)


def _mce_of_model(inputs: Values, params: Values) -> Values:
    def errors(model: str) -> dict[str, float]:
        row = inputs["testbed"][model]
        return {c: 1 - float(row[f"imagenet-c.{c}.mean5_on-disk"]) / 100 for c in IMAGENET_C}

    def clean(model: str) -> float:
        return 1 - float(inputs["testbed"][model]["val"]) / 100

    model = inputs["model"]
    beside = corruption_errors(errors(model), errors("alexnet"), clean(model), clean("alexnet"))
    return {
        "mce_published_alexnet": corruption_errors(errors(model), params["alexnet_mean_error"]).mce,
        "mce_testbed_alexnet": beside.mce,
        "relative_mce_testbed_alexnet": beside.relative_mce,
    }


#: Mean errors of the published AlexNet, for cases that bring no baseline.
ALEXNET = dict(
    zip(
        IMAGENET_C,
        (
            *(0.886428, 0.894468, 0.92264, 0.81988, 0.826268),
            *(0.785948, 0.79836, 0.866816, 0.826572, 0.819324),
            *(0.564592, 0.853204, 0.646056, 0.71784, 0.6065),
        ),
        strict=True,
    )
)


def _fit(inputs: Values, params: Values) -> Values:
    x, y = inputs["x"], inputs["y"]
    line = fit_logit_line(x, y)
    rho = effective_robustness(x, y, line)
    return vars(line) | {
        "rho_first5": rho[:5],
        "rho_max": rho.max(),
        "beta_at_60_75_90": line.predict([60, 75, 90]),
    }


def _columns(inputs: Values) -> tuple[dict[str, tuple[float, float]], list[str]]:
    """All models with both accuracies, and the names of the standard ones among them."""
    both = {
        name: (float(row[inputs["x"]]), float(row[inputs["y"]]))
        for name, row in inputs["testbed"].items()
        if row[inputs["x"]] and row[inputs["y"]]
    }
    standard = [
        name
        for name, row in inputs["testbed"].items()
        if name in both and row["in_table1"] == "1" and row["standard_for_fit"] == "1"
    ]
    return both, standard


def _effective(inputs: Values, params: Values) -> Values:
    both, standard = _columns(inputs)
    line = fit_logit_line(*zip(*(both[name] for name in standard), strict=True))
    base = both["resnet50"][1]
    return vars(line) | {
        "rho": {name: effective_robustness(x, y, line) for name, (x, y) in both.items()},
        "tau_vs_resnet50": {name: relative_robustness(y, base) for name, (_, y) in both.items()},
    }


def _effective_piecewise(inputs: Values, params: Values) -> Values:
    both, standard = _columns(inputs)
    x, y = zip(*(both[name] for name in standard), strict=True)
    fit = fit_piecewise(x, y, params["pivot"])
    return {
        "low": vars(fit.low),
        "high": vars(fit.high),
        "beta_low_at_pivot": fit.low.predict(params["pivot"]),
        "beta_high_at_pivot": fit.high.predict(params["pivot"]),
        "rho": {name: effective_robustness(x, y, fit) for name, (x, y) in both.items()},
    }


def _piecewise(inputs: Values, params: Values) -> Values:
    x, y = inputs["x"], inputs["y"]
    fit = fit_piecewise(x, y, params["pivot"])
    return {
        "low": vars(fit.low),
        "high": vars(fit.high),
        "rho_first5": effective_robustness(x[:5], y[:5], fit),
    }


def _clopper_pearson(inputs: Values, params: Values) -> Values:
    low, high = clopper_pearson(**{k: v for k, v in inputs.items() if k != "testbed"})
    return {"low": low, "high": high}


def _band(inputs: Values, params: Values) -> Values:
    if "file" in inputs:
        both, standard = _columns(inputs)
        x, y = zip(*(both[name] for name in standard), strict=True)
    else:
        x, y = inputs["x"], inputs["y"]
    band = bootstrap_band(x, y, params["grid"], resamples=params["B"], seed=params["seed"])
    return vars(band) | {
        "slope_ci": band.slope_interval,
        "intercept_ci": band.intercept_interval,
    }


def _pm_k(inputs: Values, params: Values) -> Values:
    result = pm_k(inputs["anchor"], inputs["neighbours"])
    return vars(result) | {"total_neighbours": result.neighbours}


def _grouped(inputs: Values, params: Values) -> Values:
    logits, labels = _logits(inputs)
    value = grouped_accuracy(logits, labels, params["groups"])
    return {"accuracy": value, "n": len(merge_groups(logits, labels, params["groups"])[1])}


COMPUTE: dict[str, Callable[[Values, Values], Values]] = {
    "accuracy": _accuracy,
    "accuracy_class_subset": _class_subset,
    "msp": _msp,
    "aurra": _aurra,
    "calibration_error": _calibration,
    "ood": _ood,
    "ood_msp": _ood_msp,
    "mce": _mce,
    "logit_fit": _fit,
    "effective_robustness": _effective,
    "effective_robustness_piecewise": _effective_piecewise,
    "piecewise_fit": _piecewise,
    "clopper_pearson": _clopper_pearson,
    "bootstrap_band": _band,
    "pmk": _pm_k,
    "class_subsampled_accuracy": _grouped,
}
