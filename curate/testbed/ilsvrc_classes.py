"""ILSVRC's own numbers of the classes, from the table that its development kit brings.

SciPy's reader of MATLAB files may end the whole process on a damaged one, so a process of its own
reads it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from curate.errors import UsageError
from curate.files import printable
from curate.labels.space import load_label_space

#: What ILSVRC's development kit calls the table of its classes.
ILSVRC_MAP = "meta.mat"

_LARGEST = 64_000_000
_SECONDS = 120

_READ = """
import json, sys
from scipy.io import loadmat
rows = loadmat(sys.argv[1], squeeze_me=True)["synsets"]
leaves = [row for row in rows if int(row["num_children"]) == 0]
print(json.dumps({int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in leaves}))
"""


def ilsvrc_classes(labels: Path) -> dict[int, str]:
    """From ILSVRC's number of each class, 1 … 1000, to its id.

    Args:
        labels: a file with such numbers; the table lies beside it.

    Raises:
        UsageError: it does not, cannot be read, or is another table.
    """
    path = labels.parent / ILSVRC_MAP
    if not path.is_file():
        raise UsageError(
            f"{printable(labels)} holds ILSVRC's own numbers of the classes, which are in an order "
            f"of their own: put {ILSVRC_MAP} of the development kit beside it, or write lines "
            "'FILE ID'"
        )
    name = printable(path)
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError("it is too large")
        # -P: no module of the folder where somebody happens to work.
        read = subprocess.run(
            [sys.executable, "-P", "-c", _READ, path.absolute()],
            capture_output=True,
            timeout=_SECONDS,
            check=True,
        )
        table = {int(number): str(wnid) for number, wnid in json.loads(read.stdout).items()}
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise UsageError(f"cannot read {name}: it is no table of ILSVRC's classes") from error
    if sorted(table.values()) != sorted(load_label_space("imagenet-1k").wnids):
        raise UsageError(f"{name} does not number the 1,000 classes of imagenet-1k")
    return table
