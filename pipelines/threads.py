"""Threads of this machine: how many cores there are, and work on chunks in threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from curate.progress import Stop

Item = TypeVar("Item")
Result = TypeVar("Result")


def usable_cores() -> int:
    """The cores that this process may use, by its affinity and its control group."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as stream:  # noqa: PTH123
            quota, period = stream.read().split()
        if quota != "max":
            cores = min(cores, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass
    return cores


def run_here(
    chunks: Iterable[Item],
    work: Callable[[Item], Result],
    workers: int,
    stop: Stop | None = None,
) -> Iterator[tuple[Item, Result]]:
    """Work on chunks in threads, and hand out each with its result as soon as it is there.

    At most `workers + 1` chunks are under way at a time, whatever the number of chunks. When a
    stop is requested no further chunk starts; those at work end and are handed out.

    Args:
        chunks: what to work on; taken lazily.
        work: called in a worker thread.
        workers: the number of threads.
        stop: asks to stop.

    Raises:
        whatever `work` raises, at once: chunks at work are left to end by themselves.
    """
    waiting = iter(chunks)
    under_way: dict[Future[Result | None], Item] = {}

    def worked(chunk: Item) -> Result | None:
        return None if stop and stop.requested else work(chunk)

    pool = ThreadPoolExecutor(workers, thread_name_prefix="curate")
    try:
        while True:
            while len(under_way) <= workers and not (stop and stop.requested):
                try:
                    chunk = next(waiting)
                except StopIteration:
                    break
                under_way[pool.submit(worked, chunk)] = chunk
            if not under_way:
                return
            done, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                chunk, result = under_way.pop(future), future.result()
                if result is not None:
                    yield chunk, result
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
