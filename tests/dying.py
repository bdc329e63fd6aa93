"""Run `curate` and die by SIGKILL at the N-th moment that matters to what is on the disk.

    python -m tests.dying KIND:N [--signal NAME] [--fault FAULT] COMMAND …

KIND is "any", or one of: "fsync" (before and after each sync of a file or folder), "replace"
(before and after each rename), "commit" (before each commit), "unlink" (before and after each file
is removed), "put" (before and after each upload to an object store), "send" (before and after each
request that changes something at a Label Studio), "chunk" (as a chunk of a filter is about to be
scored), "part" (after its part is named), "half" (see below). A run that
comes to its end says how many moments of each kind there were. With `--signal` the process sends
itself another one, INT or STOP, at that moment: who looks from outside comes too late on a busy
machine. The planted fault "direct" writes
files in place and in two halves instead of atomically, with a moment of the kind "half" between;
"ahead" records where a search stands before its hits, with such a moment between; "early" names
images in a transaction before they are uploaded; "forgetful" sends tasks again without looking them
up; "hasty" records that answers were pulled before they are, with a moment "half" between, and does
not count them; "parted" takes an image back in one transaction and its tasks in a later one, with a
moment "half" between: the tests that kill must find what they leave.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


def main() -> None:
    kind, number = sys.argv[1].split(":")
    arguments = sys.argv[2:]
    options = {"--signal": "KILL", "--fault": ""}
    while arguments[0] in options:
        options[arguments[0]], arguments = arguments[1], arguments[2:]
    sent, fault = signal.Signals[f"SIG{options['--signal']}"], options["--fault"]
    moments: Counter[str] = Counter()

    def moment(name: str) -> None:
        moments.update([name, "any"])
        if kind in (name, "any") and moments[kind] == int(number):
            os.kill(os.getpid(), sent)

    def around(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            moment(name)
            result = function(*args, **kwargs)
            moment(name)
            return result

        return called

    os.fsync = around("fsync", os.fsync)
    os.replace = around("replace", os.replace)
    os.unlink = around("unlink", os.unlink)
    from sqlalchemy import Engine, event

    event.listen(Engine, "commit", lambda _: moment("commit"))
    from curate.catalog.remote_store import RemoteStore

    RemoteStore._write = around("put", RemoteStore._write)  # type: ignore[method-assign]
    from annotation.client_http import Connection

    Connection.send = around("send", Connection.send)  # type: ignore[method-assign]
    if kind in ("chunk", "part"):
        plant_moments_of_a_filter(moment)
    if fault == "early":
        plant_early_names()
    elif fault == "direct":
        plant_direct_writes(lambda: moment("half"))
    elif fault == "ahead":
        plant_search_ahead(lambda: moment("half"))
    elif fault == "forgetful":
        from pipelines.review_sending import _Sending

        _Sending._adopt = lambda *_: set()  # type: ignore[method-assign,assignment]
    elif fault == "hasty":
        plant_hasty_pulls(lambda: moment("half"))
    elif fault == "parted":
        plant_parted_retractions(lambda: moment("half"))
    atexit.register(lambda: sys.stderr.write(f"\nmoments {json.dumps(moments)}\n"))
    sys.argv = ["curate", *arguments]
    from curate.cli.main import main as curate

    curate()


def plant_moments_of_a_filter(moment: Callable[[str], None]) -> None:
    from pipelines.filter_run import FilterRun

    chunk, name_part = FilterRun.chunk, FilterRun._name_part

    def handed_out(self: Any, number: int) -> Any:
        moment("chunk")
        return chunk(self, number)

    def named(self: Any, *about: Any) -> bool:
        result = name_part(self, *about)
        moment("part")
        return result

    FilterRun.chunk, FilterRun._name_part = handed_out, named  # type: ignore[method-assign]


def plant_direct_writes(between: Callable[[], None]) -> None:
    import io

    import curate.catalog.store
    import curate.files
    import curate.filtration.scores

    @contextmanager
    def direct(path: Path, *, sync_parent: bool = True) -> Iterator[IO[bytes]]:
        held = io.BytesIO()
        held.close = lambda: None  # type: ignore[method-assign]
        yield held
        data = held.getvalue()
        with path.open("wb") as stream:
            stream.write(data[: len(data) // 2])
            stream.flush()
            between()
            stream.write(data[len(data) // 2 :])

    for module in (curate.files, curate.catalog.store, curate.filtration.scores):
        module.atomic_write = direct


def plant_early_names() -> None:
    import time

    from curate.catalog.remote_store import RemoteStore

    upload = RemoteStore._upload

    def late(self: RemoteStore, data: bytes, sha256: str, extension: str) -> None:
        time.sleep(2)
        upload(self, data, sha256, extension)

    RemoteStore._upload = late  # type: ignore[method-assign]
    RemoteStore.sync = lambda self: None  # type: ignore[method-assign]


def plant_search_ahead(between: Callable[[], None]) -> None:
    from curate.catalog import hits
    from pipelines.searching import Searches, Step

    record = Searches.record

    def ahead(self: Searches, step: Step) -> bool:
        with self._workspace.catalogue.write() as connection:
            # A list that is done is read again, and so would lose nothing.
            done = step.done and bool(step.ask.text)
            hits.set_search(connection, step.search_id, step.hits[-1].cursor, done=done)
        between()
        return record(self, step)

    Searches.record = ahead  # type: ignore[method-assign]


def plant_hasty_pulls(between: Callable[[], None]) -> None:
    from datetime import timedelta

    from curate.catalog import review_queues
    from pipelines.review_pull import OVERLAP, _Pull

    work = _Pull.work

    def hasty(self: _Pull) -> str | None:
        pulled = self._clock().replace(tzinfo=None) + OVERLAP + timedelta(seconds=1)
        with self.workspace.catalogue.write() as connection:
            review_queues.update_project(connection, self.row["id"], {"pulled": pulled})
        between()
        return work(self)

    _Pull.work = hasty  # type: ignore[method-assign]
    _Pull._count = lambda *_: None  # type: ignore[method-assign]


def plant_parted_retractions(between: Callable[[], None]) -> None:
    from pipelines import retractions
    from pipelines.barred import Barred

    whole, withdraw = retractions.retract, retractions.withdraw

    def parted(workspace: Any, image: str, reason: str) -> dict[str, Any]:
        told = whole(workspace, image, reason)
        between()
        with workspace.catalogue.write() as connection:
            withdraw(connection, Barred.here(connection))
        return told

    retractions.withdraw = lambda *_: 0
    retractions.retract = parted


if __name__ == "__main__":
    main()
