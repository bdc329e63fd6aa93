"""Intervals of an evaluation: a resample, beside the plain loop's in the same run.

    python benchmarks/resampling.py [--images 300000] [--resamples 40] [--plain 3]

The plain loop draws images by `numpy.random.choice`, and computes every measure anew of those that
were drawn. Confidences are taken in three ways: all distinct; in single precision, so that a few
are tied; and rounded to three digits, so that all are. Time is the processor's own, all threads
together.
Memory is what the resamples hold at most beside what they are drawn from, by tracemalloc. Before it
times anything the script compares the two on the same draws. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import curate.metrics as m
from curate.metrics.ood_intervals import ood_detections_estimates
from curate.metrics.resampled import ScoredItems, measures_on_draws

#: The three ways, with what makes the confidences of uniform ones.
WAYS: dict[str, Callable[[Any], Any]] = {
    "distinct": lambda scores: scores,
    "single precision": lambda scores: scores.astype(np.float32).astype(np.float64),
    "three digits": lambda scores: scores.round(3),
}

#: How many scores a detection has, each within the label space.
SCORES = 4


def plain_measures(confidence: Any, correct: Any) -> dict[str, float]:
    """The measures of an evaluation, each by its own function."""
    error = m.calibration_error
    return {
        "accuracy": float(np.mean(correct)),
        "aurra": m.aurra(confidence, correct),
        "aurra_published": m.aurra(confidence, correct, "published"),
        "rms": error(confidence, correct),
        "mad": error(confidence, correct, "mad"),
        "max": error(confidence, correct, "max"),
        "rms_published": error(confidence, correct, convention="published"),
        "rms_published_input": error(confidence, correct, convention="published", ties="input"),
        "soft_f1": m.soft_f1(confidence, correct),
        "overconfidence": m.overconfidence(confidence, correct),
    }


def plain_loop(
    models: list[tuple[Any, Any]], resamples: int, seed: int
) -> Iterator[list[dict[str, float]]]:
    """The measures on each resample, drawn and computed anew."""
    random = np.random.RandomState(seed)
    n = len(models[0][0])
    for _ in range(resamples):
        # In order of the images, as copies of an image stand side by side.
        rows = np.sort(random.choice(n, n))
        yield [plain_measures(confidence[rows], right[rows]) for confidence, right in models]


def plain_detection(scores: list[tuple[Any, Any]], resamples: int, seed: int) -> None:
    """The measures of detection on each resample, drawn anew for each score."""
    for inside, outside in scores:
        random = np.random.RandomState(seed)
        for _ in range(resamples):
            first = random.choice(inside, len(inside))
            second = random.choice(outside, len(outside))
            m.ood_detection(first, second)
            m.ood_detection(-second, -first)
            m.aupr_at_base_rate(first, second)


def compare(
    quick: list[list[dict[str, float]]],
    plain: list[list[dict[str, float]]],
    items: list[ScoredItems],
) -> None:
    """Stop where they differ; among tied copies the plain loop has an order of the moment."""
    for mine, theirs in zip(quick, plain, strict=True):
        for own, other, model in zip(mine, theirs, items, strict=True):
            names = set(other) - ({"aurra_published"} if model.mixed else set())
            worst = max(abs(own[name] - other[name]) for name in names)
            assert worst < 1e-12, worst


def seconds(call: Callable[[], Any]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def held(call: Callable[[], Any]) -> float:
    """Megabytes that a call holds at most."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def row(
    name: str, quick: Callable[[int], Any], slow: Callable[[int], Any], many: int, few: int
) -> None:
    """Print a line of the table; what is done once, before the first resample, is left out."""
    quick(1)
    once, own = min(seconds(lambda: quick(1)) for _ in range(3)), seconds(lambda: quick(1 + many))
    plain = seconds(lambda: slow(few)) / few
    mine = (own - once) / many
    print(
        f"| {name} | {1000 * plain:.1f} ms | {1000 * mine:.1f} ms | {plain / mine:.1f} | "
        f"{held(lambda: quick(6)):.0f} MB |",
        flush=True,
    )


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=300_000, help="how many")
    parser.add_argument("--resamples", type=int, default=40, help="of the quick way")
    parser.add_argument("--plain", type=int, default=3, help="resamples of the plain loop")
    options = parser.parse_args()
    n, many, few = options.images, options.resamples, options.plain
    random = np.random.default_rng(0)
    uniform, other = random.random((2, n))
    right, other_right = random.random(n) < uniform, random.random(n) < other
    print("| a resample of | plain loop | here | times as fast | memory |")
    print("| --- | --- | --- | --- | --- |")
    for way, make in WAYS.items():
        models = [(make(uniform), right), (make(other), other_right)]
        for chosen in (models[:1], models):
            items = [ScoredItems(*model) for model in chosen]

            def quick(count: int, items: list[ScoredItems] = items) -> list[Any]:
                return list(measures_on_draws(items, count, 0))

            def slow(count: int, chosen: list[tuple[Any, Any]] = chosen) -> list[Any]:
                return list(plain_loop(chosen, count, 0))

            compare(quick(1), list(plain_loop(chosen, 1, 0)), items)
            count = "one model" if len(chosen) == 1 else "two models"
            row(f"{count}, {way}", quick, slow, many, few)
    cut = n - n // 6
    for way, make in WAYS.items():
        scores = [make(random.random(n) + np.arange(n) / n / 4) for _ in range(SCORES)]
        sides = [(one[:cut], one[cut:]) for one in scores]

        def detect(count: int, sides: list[tuple[Any, Any]] = sides) -> Any:
            return ood_detections_estimates(sides, resamples=count)

        def detect_plainly(count: int, sides: list[tuple[Any, Any]] = sides) -> None:
            plain_detection(sides, count, 0)

        row(f"detection by {SCORES} scores, {way}", detect, detect_plainly, many, few)


if __name__ == "__main__":
    main()
