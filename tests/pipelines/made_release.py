"""The folder of a release as far as evaluating looks at it, without a workspace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from curate.files import csv_text
from curate.labels.space import CLASS_MAP_COLUMNS, LabelSpace


def mark_as_release(root: Path, space: LabelSpace, **changes: Any) -> Path:
    """Put a release's record, class map and manifest beside class folders.

    Args:
        root: the folder of the class folders, or of the splits.
        space: the release's label space.
        changes: to the record.
    """
    root.mkdir(parents=True, exist_ok=True)
    (root / "classes.csv").write_text(csv_text(CLASS_MAP_COLUMNS, space.to_rows()))
    (root / "manifest.parquet").write_bytes(b"rows")
    record = {
        "version": "1.0.0",
        "layout": "imagenet-a",
        "reviewed": True,
        "label_space": {"name": space.name, "fingerprint": space.fingerprint},
        "counts": {},
        "models": [],
    }
    (root / "release.json").write_text(json.dumps({**record, **changes}))
    return root
