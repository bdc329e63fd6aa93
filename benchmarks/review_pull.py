"""Pulling new answers among many tasks of a real Label Studio.

    python benchmarks/review_pull.py [--count 5000] [--new 100] [--earlier 1000] [--out FILE]

Makes a workspace of its own whose queue of --count candidates (rows, not photos: a pull looks at
none) one annotator has at a real Label Studio, which it starts. Of these --earlier have been
answered and pulled. Then --new further ones are answered, and three pulls are timed, by function
and as the command: one with these answers, one with nothing new, and one after an answer was
deleted at the server, which must be found. The first pull of all is told too. Prints one JSON line,
then one line for people.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

_BATCH = 500
_ITEM = {"to_name": "image", "type": "choices"}
_SAID = [
    {**_ITEM, "from_name": "decision", "value": {"choices": ["valid"]}},
    {**_ITEM, "from_name": "also", "value": {"choices": ["(none)"]}},
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--new", type=int, default=100)
    parser.add_argument("--earlier", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measured(Path(folder) / "workspace", asked.count, asked.earlier, asked.new)
    line = json.dumps(found, sort_keys=True)
    if asked.out:
        asked.out.write_text(line + "\n", encoding="utf-8")
    print(line)
    print(
        f"{asked.new} new answers among {asked.count} tasks: {found['new']['command_seconds']} s "
        f"(the pull alone {found['new']['seconds']} s); nothing new: "
        f"{found['nothing']['command_seconds']} s; one deleted: {found['deleted']['seconds']} s"
    )


def measured(root: Path, count: int, earlier: int, new: int) -> dict[str, Any]:
    from annotation.server import connect
    from pipelines.review_pull import pull
    from pipelines.workspace import open_workspace
    from tests.pipelines.reviewing import made_rows

    rows = made_rows(root, count, cap=count)
    curate(root, "review", "serve", "--port", str(free_port()))
    try:
        client = connect(root, rows.workspace.settings.review, os.environ)
        numbers = pushed(rows, client)
        found: dict[str, Any] = {"count": count, "earlier": earlier, "new_answers": new}

        def timed(name: str, expected: int, act: Callable[[], Any]) -> None:
            act()
            started = time.perf_counter()
            told = pull(open_workspace(root))
            seconds = time.perf_counter() - started
            assert told["problems"] == []
            assert told["pulled"] + told["deleted"] == expected, told
            found[name] = {"seconds": round(seconds, 2)}

        timed("first", earlier, lambda: answer(client, numbers[:earlier]))
        later = numbers[earlier : earlier + 2 * new]
        timed("new", new, lambda: answer(client, later[:new]))
        timed("nothing", 0, lambda: None)
        gone = client.task(numbers[0])["annotations"][0]["id"]
        timed("deleted", 1, lambda: client._to.send("DELETE", f"/api/annotations/{gone}/"))
        for name, some in (("new", later[new:]), ("nothing", ())):
            answer(client, some)
            started = time.perf_counter()
            told = json.loads(curate(root, "--json", "review", "pull"))
            found[name]["command_seconds"] = round(time.perf_counter() - started, 2)
            assert told["pulled"] == len(some)
        return found
    finally:
        rows.workspace.close()
        curate(root, "review", "serve", "--stop")


def pushed(rows: Any, client: Any) -> list[int]:
    """Make the project and its tasks as a push does; gives the tasks' numbers."""
    from annotation.interface import review_interface
    from annotation.server_accounts import OWNER
    from annotation.task_data import Shown, task

    space = rows.workspace.label_space
    rows.accounts[0] = OWNER
    page = review_interface("misclassified", space)
    project = client.create_project("benchmark", page, maximum_annotations=1)["id"]
    claimed = space.get(rows.wnids[0])
    boxes = [(0.1, 0.1, 0.8, 0.8)] * 5
    numbers: list[int] = []
    for start in range(0, len(rows.keys), _BATCH):
        some = zip(
            rows.keys[start : start + _BATCH], rows.sha256s[start : start + _BATCH], strict=True
        )
        # An answer counts where the address names the photo that was sent.
        shown = [Shown(key, f"/data/{sha}.jpg", claimed, boxes=boxes) for key, sha in some]
        numbers += client.import_tasks(project, [task(one, "review") for one in shown])
    rows.project("review", 0, project)
    rows.give(range(len(numbers)), [0], tasks=dict(enumerate(numbers)))
    return numbers


def answer(client: Any, tasks: Sequence[int]) -> None:
    for number in tasks:
        client.create_annotation(number, _SAID, str(uuid.uuid4()), lead_time=3.5)


def curate(root: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "curate", "-w", str(root), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True)
    return done.stdout


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


if __name__ == "__main__":
    main()
