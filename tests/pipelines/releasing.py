"""A workspace of real photos whose run and answers are rows: for tests of what is released."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from curate.catalog import judging
from curate.catalog.listing import set_places
from curate.catalog.tables import candidates, now
from curate.filtration.scores import write_table
from pipelines.collect import collect_folder
from pipelines.workspace import Workspace, create_workspace
from tests.pipelines.reviewing import RUN, Rows

MODELS = [
    {"name": "lite/efficientnet_lite0", "fingerprint": "57934424", "libraries": {}},
    {"name": "lite/efficientnet_lite2", "fingerprint": "0badcafe", "libraries": {}},
]
PREDICTED = "n01614925"


def photo_rows(
    root: Path,
    photos: Sequence[tuple[Path, str, str | None]],
    *,
    survivors: int | None = None,
    review: dict[str, Any] | None = None,
) -> Rows:
    """Collect photos, and say of them what a run would.

    Args:
        root: the workspace.
        photos: (file, label, author) each, all of other bytes.
        survivors: the first so many survived; all by default.
        review: settings of the group `review`.
    """
    folder = root.with_name(f"{root.name} photos")
    folder.mkdir()
    with (folder / "labels.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["path", "label", "licence", "author", "title", "page"])
        for number, (path, wnid, author) in enumerate(photos):
            shutil.copyfile(path, folder / f"{number}{path.suffix}")
            page = f"https://example.org/{number}"
            writer.writerow(
                [f"{number}{path.suffix}", wnid, "CC BY 4.0", author, "*a* title", page]
            )
    workspace = create_workspace(root, "imagenet-a")
    workspace = workspace.changed({f"review.{k}": v for k, v in (review or {}).items()})
    collect_folder(workspace, folder, folder / "labels.csv")
    rows = _rows(workspace)
    count = len(rows.keys) if survivors is None else survivors
    _add_run(workspace, rows, count)
    return rows


def accept(rows: Rows, numbers: Sequence[int]) -> None:
    """Let two people accept candidates."""
    rows.give(numbers)
    for number in numbers:
        for person in (0, 1):
            rows.say(number, person, "valid")


def _rows(workspace: Workspace) -> Rows:
    with workspace.catalogue.read() as connection:
        found = [row._mapping for row in connection.execute(candidates.select())]
    found.sort(key=lambda row: row["id"])
    return Rows(
        workspace,
        [row["key"] for row in found],
        [row["sha256"] for row in found],
        [row["wnid"] for row in found],
        [row["id"] for row in found],
    )


def _add_run(workspace: Workspace, rows: Rows, survivors: int) -> None:
    space = workspace.label_space
    record = {
        "models": MODELS,
        "label_space": {
            "name": space.name,
            "classes": len(space),
            "fingerprint": space.fingerprint,
        },
        "rule": "misclassified",
        "threshold": 0.15,
        "views": "paper",
        "cap": 15,
        "made_by": {},
    }
    settings = {
        "label_space": workspace.settings.label_space,
        "filter": {"cap": 15, "cap_order": "hash", "seed": 0},
        "quality": {},
    }
    names = ("candidates", "removed", "survivors", "shortlisted", "capped", "failed")
    run = {"id": RUN, "scoring": RUN, "scores_run": RUN, "rule": "misclassified"}
    run |= {"state": "finished", "settings": settings, "record": record}
    run |= {"summary": dict.fromkeys(names, 0), "started": now(), "finished": now()}
    verdicts = [
        {
            "run_id": RUN,
            "candidate_id": number,
            "outcome": "survivor" if place < survivors else "removed",
            "reason": None if place < survivors else "correct",
            "predicted_wnid": PREDICTED,
            "confidence": 0.5,
            "p_true": 0.01,
            "borderline": False,
        }
        for place, number in enumerate(rows.ids)
    ]
    with workspace.catalogue.write() as connection:
        judging.start_run(connection, run)
        judging.add_verdicts(connection, verdicts)
        set_places(connection, RUN, rows.ids[:survivors])
    table = [(key, m, view) for key in sorted(rows.keys) for m in (0, 1) for view in range(10)]
    workspace.run_folder(RUN).mkdir(parents=True)
    write_table(
        workspace.run_folder(RUN) / "scores.parquet",
        pa.table(
            {
                "candidate": pa.array([key for key, _, _ in table], pa.string()),
                "model": pa.array([model for _, model, _ in table], pa.int8()),
                "view": pa.array([view for _, _, view in table], pa.int8()),
                "p_true": pa.array([view / 1000 for _, _, view in table], pa.float64()),
                "predicted_wnid": pa.array([PREDICTED] * len(table), pa.string()),
                "confidence": pa.array([0.5] * len(table), pa.float64()),
            }
        ),
    )
