"""Look-ups of names that nobody waits for longer than he wants.

The system's resolver takes no limit on time, and what it has begun cannot be ended. So each look-up
has a thread of its own that whoever asked can leave behind.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")

#: Look-ups under way at a time, those that were left behind included.
MOST_LOOKUPS = 256

# How often to look whether to give up, in seconds.
_LOOK_SECONDS = 0.05


class Lookups:
    """Runs look-ups; may be used from any number of threads.

    Args:
        most: look-ups under way at a time; whoever comes then waits for one to end.
    """

    def __init__(self, most: int = MOST_LOOKUPS) -> None:
        self._free = threading.BoundedSemaphore(most)

    def run(self, ask: Callable[[], T], seconds: float, look: Callable[[], None]) -> T:
        """What a look-up gives.

        Args:
            ask: the look-up.
            seconds: how long to wait for it.
            look: called while waiting; what it raises passes.

        Raises:
            TimeoutError: it took longer.
        """
        until = time.monotonic() + seconds

        def pause() -> float:
            look()
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            return min(left, _LOOK_SECONDS)

        while not self._free.acquire(timeout=pause()):
            pass
        answer: Future[T] = Future()
        try:
            threading.Thread(
                target=self._answer, args=(ask, answer), name="look-up", daemon=True
            ).start()
        except BaseException:
            self._free.release()
            raise
        while not wait([answer], pause()).done:
            pass
        return answer.result()

    def _answer(self, ask: Callable[[], T], answer: Future[T]) -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)
        finally:
            self._free.release()
