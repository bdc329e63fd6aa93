"""What stands beside an evaluation's results: models against each other."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from curate.progress import progress
from curate.testbed.paired import comparisons
from curate.testbed.predictions import Predictions
from curate.testbed.resamples import Resamples
from pipelines.evaluated import Evaluated


def compared(
    evaluated: Sequence[Evaluated], *, resamples: int, seed: int, drawn: Resamples
) -> list[dict[str, Any]]:
    """Every two models on each dataset, on the images that both have a prediction of.

    Args:
        evaluated: all results; those of images of something else are passed over.
        resamples: of the bootstrap.
        seed: of the bootstrap.
        drawn: the measures on resamples of each of them.
    """
    groups: dict[Hashable, list[Evaluated]] = {}
    for one in evaluated:
        if one.inside is None:
            groups.setdefault(one.images, []).append(one)
    groups = {key: members for key, members in groups.items() if len(members) > 1}
    found: list[dict[str, Any]] = []
    pairs = sum(len(members) * (len(members) - 1) // 2 for members in groups.values())
    if not pairs:
        return found
    with progress("comparisons", pairs, unit="pairs") as bar:
        for members in groups.values():
            models = [(one.result["model"]["name"], _in_one_order(members, one)) for one in members]
            name = members[0].result["dataset"]["name"]
            found += comparisons(
                models, name, resamples=resamples, seed=seed, kept=drawn, done=bar.advance
            )
    return found


def _in_one_order(members: Sequence[Evaluated], one: Evaluated) -> Predictions:
    """Predictions in the order of the first member's images."""
    wanted, there = (
        list(zip(said.paths, said.wnids, strict=True))
        for said in (members[0].predictions, one.predictions)
    )
    if there == wanted:
        return one.predictions
    # A path may stand there twice, under two classes.
    places = {image: row for row, image in enumerate(there)}
    return one.predictions.take([places[image] for image in wanted])
