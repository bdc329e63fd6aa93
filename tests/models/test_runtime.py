from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from curate.errors import UnknownNameError, UsageError
from curate.models import bound_threads, resolve_device, tune_allocator
from tests.waiting import PATIENCE


def in_a_new_thread() -> int:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


def test_the_bound_ends_with_the_block_even_after_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError), bound_threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise RuntimeError
    assert torch.get_num_threads() == before


def test_bounds_nest() -> None:
    with bound_threads(2):
        with bound_threads(1):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2


def test_a_worker_stays_bounded_whatever_other_threads_set() -> None:
    bounded, changed = threading.Event(), threading.Event()

    def work() -> int:
        with bound_threads(1):
            torch.ones(4).sum()
            bounded.set()
            assert changed.wait(PATIENCE)
            return torch.get_num_threads()

    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(work)
        assert bounded.wait(PATIENCE)
        with bound_threads(2):
            changed.set()
            assert seen.result() == 1


def test_new_threads_get_the_old_number_after_workers_whose_bounds_overlapped() -> None:
    before = torch.get_num_threads()
    assert in_a_new_thread() == before
    first_in, second_in, first_out = (threading.Event() for _ in range(3))

    def first() -> None:
        with bound_threads(before + 1):
            first_in.set()
            assert second_in.wait(PATIENCE)
        first_out.set()

    def second() -> None:
        assert first_in.wait(PATIENCE)
        # A new thread begins with the number that the first one set.
        with bound_threads(before + 2):
            second_in.set()
            assert first_out.wait(PATIENCE)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(first), pool.submit(second)]:
            done.result()
    assert in_a_new_thread() == before


def test_fewer_than_one_thread_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one thread"), bound_threads(0):
        pass


def test_tuning_the_allocator_takes_effect_on_glibc_alone_and_may_be_repeated() -> None:
    import platform

    glibc = sys.platform == "linux" and platform.libc_ver()[0] == "glibc"
    assert tune_allocator() is glibc
    assert tune_allocator() is glibc


def test_devices_by_name() -> None:
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type in {"cpu", "cuda", "mps"}
    with pytest.raises(UnknownNameError, match=r"unknown device 'cud'; did you mean cuda"):
        resolve_device("cud")
    with pytest.raises(UnknownNameError):
        resolve_device("cuda:first")


def test_an_absent_device_is_named() -> None:
    with pytest.raises(UsageError, match="not on this machine"):
        resolve_device("cuda:99")
