"""What a referee is worth: does it put genuine survivors of the filter before mislabelled ones?

    python benchmarks/referee.py [--photos DIR] [--outliers DIR --concepts FILE]
                                 [--referee NAME]… [--out FILE]

A filter concentrates wrong labels, and whoever reviews its survivors wants genuine ones first. Two
kinds of survivors are told apart by the probability that the referee gives their claimed class:

- those of DIR, class folders named by ImageNet-A's wnids. Each was looked at; `survivors.csv` says
  what it is. "genuine" is compared with "wrong label" and "not a photo"; "ambiguous" and "several
  classes" are left out and counted;
- 200 photos of DIR under another class than their own, in a seeded draw, where they survive the
  same filter. No class is drawn that is related to the photo's own: part or whole of it, in the
  table of look-alikes, or below a common synset of WordNet that holds less than a fifth of all
  classes. They are wrong by construction.

The preset's ensemble leaves few survivors. Two weaker filters, one model each that removes only
what a crop of it gets right, leave more. A referee is every model on this machine that took no
part in the filter, and each that is named.

With --outliers, class folders named by the concepts of FILE, the same is asked of the survivors of
ImageNet-O's preset: `outliers.csv` says what they are, and "class visible" (a class of the label
space is in the photo) counts as "wrong label" does.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filter import filled

from annotation.order import referee_order
from curate.catalog.judging import Candidate
from curate.files import sha256_file
from curate.labels.overlaps import space_problems
from curate.labels.space import LabelSpace, load_label_space
from curate.labels.wordnet import wordnet
from curate.metrics.ranking import Auc, auc
from curate.models.zoo import available_models
from curate.settings import preset_text
from pipelines.collect import collect_folder
from pipelines.filter import run_filter
from pipelines.referee import referee_probabilities
from pipelines.runs import read_shortlist
from pipelines.workspace import Workspace, create_workspace

HERE = Path(__file__).resolve().parent
SURVIVORS, OUTLIERS = HERE / "survivors.csv", HERE / "outliers.csv"

#: What a judgement makes of a survivor; what is neither is left out.
GENUINE, OTHERS = "genuine", {"wrong label", "not a photo", "class visible"}

SWAPS = 200

#: Classes below a common synset that holds fewer than this share of all are relatives.
RELATIVES = 0.2

LITE = "lite/efficientnet_lite"

#: Ensembles with their thresholds: the preset's, and two that let more through.
FILTERS: tuple[tuple[tuple[str, ...], float], ...] = (
    ((LITE + "0", LITE + "1"), 0.15),
    ((LITE + "0",), 1.0),
    ((LITE + "1",), 1.0),
)


@dataclass(frozen=True)
class Item:
    """A survivor, and whether it is genuine."""

    candidate: Candidate
    is_genuine: bool
    is_swap: bool


def judgements(table: Path) -> dict[tuple[str, str], str]:
    """What was seen of each survivor, by image and class."""
    with table.open(encoding="utf-8", newline="") as stream:
        return {(row["sha256"], row["wnid"]): row["judgement"] for row in csv.DictReader(stream)}


def judged(candidates: Sequence[Candidate], table: Path) -> tuple[list[Item], dict[str, int]]:
    """The survivors that are one thing or the other, and how many there are of each kind."""
    said = judgements(table)
    unseen = [one.sha256 for one in candidates if (one.sha256, one.wnid) not in said]
    if unseen:
        sys.exit(f"look at {', '.join(unseen)} and write what they are into {table.name}")
    told = [(one, said[one.sha256, one.wnid]) for one in candidates]
    items = [Item(one, kind == GENUINE, False) for one, kind in told if kind in {GENUINE} | OTHERS]
    return items, dict(sorted(Counter(kind for _, kind in told).items()))


def unrelated(space: LabelSpace) -> dict[str, list[str]]:
    """The classes that no photo of a class is likely to show, by class."""
    net = wordnet()
    kinds = {wnid: net.ancestors(wnid) | {wnid} for wnid in space.wnids}
    held = Counter(kind for of_one in kinds.values() for kind in of_one)
    few = {kind for kind, count in held.items() if count < RELATIVES * len(space)}
    alike = {frozenset((one.wnid, one.other)) for one in space_problems(space)}
    return {
        wnid: [
            other
            for other in space.wnids
            if not kinds[wnid] & kinds[other] & few and frozenset((wnid, other)) not in alike
        ]
        for wnid in space.wnids
    }


def swapped(
    items: Sequence[tuple[Path, str]], looked_at: set[str], space: LabelSpace, seed: int
) -> list[tuple[Path, str]]:
    """Photos under a class that is not theirs; none of those that were judged."""
    by_content = {sha256_file(path): (path, wnid) for path, wnid in items}
    draw = random.Random(seed)
    chosen = draw.sample(sorted(by_content.keys() - looked_at), SWAPS)
    others = unrelated(space)
    return [(by_content[c][0], draw.choice(others[by_content[c][1]])) for c in chosen]


def survivors(workspace: Workspace, options: dict[str, Any]) -> tuple[str, list[Candidate]]:
    """A run of a filter, and what it leaves without a cap."""
    run = run_filter(workspace.changed({**options, "filter.cap": 1_000_000}))["run"]
    rows = read_shortlist(workspace, run)[1]
    return run, [
        Candidate(row.candidate_id, row.candidate, row.sha256, row.extension, row.wnid)
        for row in rows
    ]


def in_front(items: Sequence[Item], order: Sequence[int]) -> int:
    """The genuine ones in the first quarter of a queue."""
    return sum(items[i].is_genuine for i in order[: len(items) // 4])


def worth(items: Sequence[Item], p: Sequence[float], seed: int) -> dict[str, Any]:
    """How well a referee orders a queue."""
    hashes = [hashlib.sha256(f"{seed}:{i.candidate.key}".encode()).hexdigest() for i in items]
    by_hash = sorted(range(len(items)), key=hashes.__getitem__)
    found: Auc = auc(p, [item.is_genuine for item in items])
    return {
        "auc": found.value,
        "low": found.low,
        "high": found.high,
        "genuine": found.genuine,
        "others": found.others,
        "quarter": len(items) // 4,
        "genuine_in_front": in_front(items, referee_order(p, hashes, 0)),
        "genuine_in_front_with_tenth": in_front(items, referee_order(p, hashes)),
        "genuine_in_front_by_hash": in_front(items, by_hash),
        "genuine_in_front_by_chance": found.genuine * (len(items) // 4) / len(items),
    }


def measured(
    real: Workspace,
    swaps: Workspace,
    filtering: tuple[tuple[str, ...], float],
    referees: Sequence[str],
    seed: int,
) -> list[dict[str, Any]]:
    """One filter's survivors under each referee."""
    how = {"filter.models": filtering[0], "filter.threshold": filtering[1]}
    run, left = survivors(real, how)
    swaps_run, left_swaps = survivors(swaps, how)
    items, told = judged(left, SURVIVORS)
    items += [Item(one, False, True) for one in left_swaps]
    results = []
    for name in referees:
        p: dict[tuple[str, bool], float] = {}
        for workspace, its_run, is_swap in ((real, run, False), (swaps, swaps_run, True)):
            some = [item.candidate for item in items if item.is_swap == is_swap]
            said = referee_probabilities(workspace, name, some, run=its_run)
            p |= {(key, is_swap): word for key, word in said.p.items()}
        words = [p[item.candidate.key, item.is_swap] for item in items]
        alone = [n for n, item in enumerate(items) if not item.is_swap]
        odd = sorted((n for n, i in enumerate(items) if i.is_swap), key=lambda n: -words[n])[:20]
        results.append(
            {
                "filter": list(filtering[0]),
                "threshold": filtering[1],
                "referee": name,
                "fingerprint": said.fingerprint,
                "survivors": len(left),
                "judgements": told,
                "swaps": sum(item.is_swap for item in items),
                "with_swaps": worth(items, words, seed),
                "alone": worth([items[n] for n in alone], [words[n] for n in alone], seed),
                "median_genuine": float(
                    np.median([w for w, i in zip(words, items, strict=True) if i.is_genuine])
                ),
                "likeliest_swaps": [
                    [items[n].candidate.sha256, items[n].candidate.wnid, words[n]] for n in odd
                ],
            }
        )
    return results


def measured_outliers(
    folder: Path, photos: Path, concepts: Path, referees: Sequence[str], seed: int
) -> list[dict[str, Any]]:
    """The survivors of ImageNet-O's preset under each referee that took no part."""
    preset = folder / "outliers.yaml"
    text = preset_text("imagenet-o").decode()
    preset.write_text(text.replace("concepts: wordnet", "concepts: concepts.csv"), encoding="utf-8")
    root = folder / "outliers"
    root.mkdir()
    shutil.copy(concepts, root / "concepts.csv")
    workspace = create_workspace(root, str(preset))
    collect_folder(workspace, photos)
    run, left = survivors(workspace, {})
    items, told = judged(left, OUTLIERS)
    models = workspace.settings.filter.models
    results = []
    for name in referees:
        if name in models:
            continue
        said = referee_probabilities(workspace, name, [item.candidate for item in items], run=run)
        results.append(
            {
                "filter": list(models),
                "threshold": workspace.settings.filter.min_confidence,
                "referee": name,
                "fingerprint": said.fingerprint,
                "survivors": len(left),
                "judgements": told,
                "outliers": worth(items, said.ordering(i.candidate.key for i in items), seed),
            }
        )
    workspace.close()
    return results


def line(result: dict[str, Any], part: str) -> str:
    """One row of the printed table."""
    one = result[part]
    ensemble = "+".join(name.removeprefix(LITE) for name in result["filter"])
    return (
        f"{ensemble:>6} {result['threshold']:>5}  {result['referee'].removeprefix('lite/'):<20} "
        f"{part:<10} {one['genuine']:>3} {one['others']:>4}   {one['auc']:.3f} "
        f"({one['low']:.3f} to {one['high']:.3f})   {one['genuine_in_front']:>3} / "
        f"{one['genuine_in_front_with_tenth']} / {one['genuine_in_front_by_hash']} / "
        f"{one['genuine_in_front_by_chance']:.1f} of {one['quarter']}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--photos",
        type=Path,
        default=Path(os.environ.get("CURATE_PHOTOS", "photos")),
        help="class folders named by ImageNet-A's wnids; $CURATE_PHOTOS by default",
    )
    parser.add_argument("--outliers", type=Path, help="class folders named by concepts")
    parser.add_argument("--concepts", type=Path, help="the table of these concepts")
    parser.add_argument("--referee", action="append", default=[], help="a further model")
    parser.add_argument("--seed", type=int, default=0, help="of swaps and hash order")
    parser.add_argument("--out", type=Path, help="write the figures there, as JSON")
    options = parser.parse_args()
    if not options.photos.is_dir():
        sys.exit(f"{options.photos} is absent; name class folders with --photos")
    if (options.outliers is None) != (options.concepts is None):
        sys.exit("--outliers and --concepts belong together")
    items = sorted((p, p.parent.name) for p in options.photos.glob("*/*") if p.is_file())
    looked_at = {sha256 for sha256, _ in judgements(SURVIVORS)}
    swaps = swapped(items, looked_at, load_label_space("imagenet-a"), options.seed)
    here = [entry.name for entry in available_models() if entry.present] + options.referee
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        real = filled(Path(folder) / "real", items)
        wrong = filled(Path(folder) / "swaps", swaps)
        for filtering in FILTERS:
            referees = [name for name in here if name not in filtering[0]]
            results += measured(real, wrong, filtering, referees, options.seed)
        if options.outliers:
            results += measured_outliers(
                Path(folder), options.outliers, options.concepts, here, options.seed
            )
        real.close()
        wrong.close()
    print(
        "filter, threshold, referee, survivors, genuine, others, AUC (95 %), genuine in the first"
    )
    print("quarter by the referee / with every tenth by hash / by hash / expected by hash")
    for result in results:
        for part in ("with_swaps", "alone", "outliers"):
            if part in result:
                print(line(result, part))
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
