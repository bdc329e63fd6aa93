"""Which items a bootstrap draws: those of the plain loop, in less time, and on several cores."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from curate.metrics.checks import Ints, integer

_Given = TypeVar("_Given")
_Found = TypeVar("_Found")

#: Words of the generator that are looked at together: what is made of them stays in the cache.
_BLOCK = 1 << 15

#: Below so many items a pass is too short to gain anything from blocks, or from another thread.
_FEW = 1 << 13

#: Most threads, and most items that all of them together work on.
_THREADS, _ITEMS = 4, 1 << 21


class Urn:
    """Draws n of n items with replacement, as `random.randint(0, n, n)` does, and counts them.

    RandomState takes words of 32 bits from its generator, masks them to the bits of n - 1, and
    throws away what is no item. A processor cannot foresee which those are, and where many are
    (nearly half of them for 300,000 items) this costs more than the words. So all of a block's are
    counted, and a word that is no item counts for nothing. No word is taken that `randint` would
    not take, so the generator is left in the very state.

    Args:
        n: items, at least 1.
    """

    def __init__(self, n: int) -> None:
        self._n = n
        self._span = 1 << (n - 1).bit_length()
        # Where few words are thrown away, the loop is the quickest; beyond 32 bits it takes two.
        self._plain = n < _FEW or 5 * n > 4 * self._span or n > 1 << 31
        # So many words are needed on average, and hardly ever more than a block or two beyond:
        # to make room while drawing copies all that there are, again and again.
        self._words = np.empty(0 if self._plain else self._span + 2 * _BLOCK, np.int64)

    def draw(self, random: np.random.RandomState) -> Ints:
        """How often each item is drawn, shape (n,).

        Args:
            random: where the draws come from; it is left as `randint` would leave it.

        Returns:
            Whole numbers, a byte each where that is enough: they are looked up in another order,
            which goes fastest in as little memory as can be.
        """
        n = self._n
        if self._plain:
            return _narrow(np.bincount(random.randint(0, n, n), minlength=n))
        missing, taken, mask = n, 0, np.uint32(self._span - 1)
        # Never more words than items that are missing: at most so many of them are items.
        while missing:
            count = min(missing, _BLOCK)
            if taken + count > self._words.size:
                self._words = np.append(self._words, np.empty(_BLOCK, np.int64))
            words = self._words[taken : taken + count]
            fresh = random.randint(0, 1 << 32, count, dtype=np.uint32)
            np.bitwise_and(fresh, mask, out=words)
            missing -= int(np.count_nonzero(words < n))
            taken += count
        return _narrow(np.bincount(self._words[:taken], minlength=self._span)[:n])


def _narrow(counts: Ints) -> Ints:
    return counts.astype(np.uint8) if counts.max() < 256 else counts


def draws(n: int, resamples: int, seed: int) -> Iterator[Ints]:
    """How often each of n items is drawn, resample after resample: those of `bootstrap_interval`.

    Args:
        n: items, at least 1.
        resamples: at least 1.
        seed: of `numpy.random.RandomState`, 0 … 2³² - 1.

    Raises:
        ValueError: an argument out of range.
    """
    urn, resamples = Urn(integer(n, "n", 1)), integer(resamples, "resamples", 1)
    random = np.random.RandomState(integer(seed, "seed", 0, 2**32 - 1))
    for _ in range(resamples):
        yield urn.draw(random)


def side_by_side(
    work: Callable[[_Given], _Found], given: Iterable[_Given], items: int
) -> Iterator[_Found]:
    """What `map` gives, in its order, from several threads where that helps.

    NumPy lets other threads work while it goes through long arrays. What is given is made in the
    caller's thread, and one more of it than there are threads is held at most. There are fewer
    threads where there are more items, so that memory does not grow with cores: at most 2,097,152
    items are worked on at a time, or one resample where that has more.

    Args:
        work: gives the same in any thread at any time.
        given: what it is called with.
        items: how many items each of them is about.
    """
    threads = _threads(items)
    if threads < 2:
        yield from map(work, given)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[_Found]] = deque()
        for one in given:
            waiting.append(pool.submit(work, one))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _threads(items: int) -> int:
    if items < 2 * _FEW:
        return 1
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        cores = os.cpu_count() or 1
    return max(1, min(_THREADS, cores, _ITEMS // items))
