"""Measures of ten million scores, beside one sort of the same scores in the same run.

    python benchmarks/metrics.py [--scores 10000000] [--repeats 7]

Scores are drawn in three ways: all distinct; as single precision gives them, so that about half are
tied with another one; and in 10,000 steps, so that all are. Time is the processor's own, of one
thread, the best of the repeats; sort and measure take turns. Memory is what a call holds at most
beside its input, by tracemalloc, as a multiple of that input. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

import curate.metrics as m
from curate.metrics.blocks import blocks

#: The three ways, with what makes the scores of uniform ones.
WAYS: dict[str, Callable[[Any], Any]] = {
    "distinct": lambda scores: scores,
    "single precision": lambda scores: scores.astype(np.float32).astype(np.float64),
    "10,000 steps": lambda scores: np.floor(scores * 10_000) / 10_000,
}

#: Of these a label space has so many classes, where a measure is of classes.
CLASSES = 200


def measures(scores: Any, right: Any) -> dict[str, tuple[Callable[[], Any], int]]:
    """Each call, and the bytes of its input."""
    n = len(scores)
    cut = n - n // 6
    inside, outside = scores[:cut], scores[cut:]
    negative, signed = (-inside, -outside), (inside - 0.5, outside - 0.5)
    both = scores.nbytes + right.nbytes
    return {
        "aurra": (lambda: m.aurra(scores, right), both),
        "aurra, order of the input": (lambda: m.aurra(scores, right, "input"), both),
        "aurra, published order": (lambda: m.aurra(scores, right, "published"), both),
        "(np.argsort, which is that order)": (lambda: np.argsort(scores), both),
        "response_rate_curve": (lambda: m.response_rate_curve(scores, right), both),
        "calibration_error": (lambda: m.calibration_error(scores, right), both),
        "calibration_error, published code": (
            lambda: m.calibration_error(scores, right, convention="published", ties="input"),
            both,
        ),
        "reliability_curve, equal counts": (lambda: m.reliability_curve(scores, right), both),
        "reliability_curve, equal widths": (
            lambda: m.reliability_curve(scores, right, "width"),
            both,
        ),
        "soft_f1": (lambda: m.soft_f1(scores, right), both),
        "overconfidence": (lambda: m.overconfidence(scores, right), both),
        "auc": (lambda: m.auc(scores, right), both),
        "ood_detection, a sixth OOD": (lambda: m.ood_detection(inside, outside), scores.nbytes),
        "ood_detection, negative scores": (
            lambda: m.ood_detection(*negative),
            scores.nbytes,
        ),
        "ood_detection, scores of both signs": (
            lambda: m.ood_detection(*signed),
            scores.nbytes,
        ),
    }


def exponentials(logits: Any) -> None:
    """What a measure of the softmax does at least once."""
    for block in blocks(*logits.shape):
        np.exp(logits[block].astype(np.float64))


def of_classes(count: int) -> dict[str, tuple[Callable[[], Any], int]]:
    """Measures of as many labels, or logits."""
    random = np.random.default_rng(1)
    labels = random.integers(0, CLASSES, count)
    predicted = np.where(random.random(count) < 0.5, labels, random.integers(0, CLASSES, count))
    right = labels == predicted
    other = random.random(count) < 0.5
    logits = random.normal(size=(count // CLASSES, CLASSES)).astype(np.float32)
    truth = labels[: len(logits)]
    logits[np.arange(len(logits)), truth] += random.normal(2.0, 1.0, len(logits))
    wide = logits.nbytes + truth.nbytes
    return {
        "mcnemar": (lambda: m.mcnemar(right, other), right.nbytes + other.nbytes),
        "confusions": (lambda: m.confusions(labels, predicted), labels.nbytes + predicted.nbytes),
        "class_accuracy": (lambda: m.class_accuracy(labels, right), labels.nbytes + right.nbytes),
        "accuracy": (lambda: m.accuracy(logits, truth), wide),
        "top_k_accuracy": (lambda: m.top_k_accuracy(logits, truth), wide),
        "softmax_confidence": (lambda: m.softmax_confidence(logits), wide),
        "negative_log_likelihood": (lambda: m.negative_log_likelihood(logits, truth), wide),
        "brier_score": (lambda: m.brier_score(logits, truth), wide),
        "temperature": (lambda: m.temperature(logits, truth), wide),
        "(the logits' exponentials, once)": (lambda: exponentials(logits), wide),
    }


def seconds(call: Callable[[], Any]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def held(call: Callable[[], Any]) -> int:
    """Bytes that a call holds at most."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def row(
    call: Callable[[], Any], size: int, scores: Any, repeats: int
) -> tuple[float, float, float]:
    """Seconds of a measure and of a sort, and memory as a multiple of the input."""
    own, sort = [], []
    for _ in range(repeats):
        sort.append(seconds(lambda: np.sort(scores)))
        own.append(seconds(call))
    return min(own), min(sort), held(call) / size


def main() -> None:
    """Run and print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scores", type=int, default=10_000_000, help="how many")
    parser.add_argument("--repeats", type=int, default=7, help="the best of so many counts")
    options = parser.parse_args()
    random = np.random.default_rng(0)
    uniform = random.random(options.scores)
    right = random.random(options.scores) < uniform
    told: dict[str, list[str]] = {}
    memory: dict[str, float] = {}
    sorts = []
    for way, make in WAYS.items():
        scores = make(uniform)
        best = min(seconds(lambda s=scores: np.sort(s)) for _ in range(options.repeats))  # type: ignore[misc]
        sorts.append(f"{way}: {1000 * best:.0f} ms")
        for name, (call, size) in measures(scores, right).items():
            own, sort, more = row(call, size, scores, options.repeats)
            told.setdefault(name, []).append(f"{own / min(sort, best):.2f}")
            memory[name] = max(memory.get(name, 0.0), more)
    print(f"One sort of {options.scores:,} scores, {', '.join(sorts)}.\n")
    print(f"| measure, in sorts | {' | '.join(WAYS)} | memory, in inputs |")
    print("| --- |" + " --- |" * (len(WAYS) + 1))
    for name, cells in told.items():
        print(f"| {name} | {' | '.join(cells)} | {memory[name]:.2f} |")
    print("\n| measure of labels or logits | in sorts | memory, in inputs |\n| --- | --- | --- |")
    for name, (call, size) in of_classes(options.scores).items():
        own, sort, more = row(call, size, uniform, options.repeats)
        print(f"| {name} | {own / sort:.2f} | {more:.2f} |", flush=True)


if __name__ == "__main__":
    main()
