"""Batches that do not fit are halved; a device that fails is one line."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.errors import DeviceError
from curate.models import Classifier
from curate.models.memory import Room, device_errors, in_halves, is_out_of_memory
from tests.waiting import PATIENCE


def beyond_all_memory() -> None:
    torch.empty(1 << 62, dtype=torch.uint8)


def telling(error: type[Exception], text: str) -> Callable[[], None]:
    def fail() -> None:
        raise error(text)

    return fail


def accelerator_error() -> type[Exception]:
    return getattr(torch, "AcceleratorError", RuntimeError)


OUT_OF_MEMORY = {
    "cuda": telling(torch.cuda.OutOfMemoryError, "CUDA out of memory. Tried to allocate 20 GiB"),
    "mps": telling(RuntimeError, "MPS backend out of memory (MPS allocated: 17 GB)"),
    "cudnn": telling(RuntimeError, "cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    "cublas": telling(RuntimeError, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `x`"),
    "driver": telling(accelerator_error(), "CUDA error: out of memory\nCUDA kernel errors might"),
    "cpu": beyond_all_memory,
}


Making = Callable[..., "tuple[Classifier, Narrow]"]


class Narrow(torch.nn.Module):
    """A network that takes `fits` views at once; more of them fail as `fail` does."""

    def __init__(self, fits: int) -> None:
        super().__init__()
        self.fits, self.fail = fits, OUT_OF_MEMORY["cuda"]
        self.inner = torch.nn.Sequential(
            torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(12, 1000)
        )
        self.tried: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.tried.append(len(x))
        if len(x) > self.fits:
            self.fail()
        return self.inner(x)


@pytest.fixture
def narrow(toy: Callable[..., Classifier]) -> Making:
    def make(
        fits: int, fail: Callable[[], None] = OUT_OF_MEMORY["cuda"]
    ) -> tuple[Classifier, Narrow]:
        torch.manual_seed(0)
        network = Narrow(fits)
        return toy(module=network), network

    return make


@pytest.fixture
def some_views() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (23, 16, 16, 3), dtype=np.uint8)


def close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", OUT_OF_MEMORY)
def test_a_batch_that_does_not_fit_is_halved_and_later_ones_are_no_larger(
    kind: str,
    narrow: Making,
    some_views: np.ndarray,
    capsys: pytest.CaptureFixture[str],
) -> None:
    classifier, network = narrow(1000)
    expected = classifier.logits(some_views)
    network.fits, network.fail = 6, OUT_OF_MEMORY[kind]
    network.tried.clear()
    room = Room("toy, torch bf16")
    assert close(in_halves(classifier.logits, some_views, room), expected)
    assert network.tried == [23, 11, 5, 5, 5, 5, 3]
    assert room.most == 5
    told = capsys.readouterr().err
    assert told == (
        "toy, torch bf16: the device's memory does not hold 23 views at once; from here on "
        "batches have 11, or half as many until they fit\n"
    )

    network.tried.clear()
    assert close(in_halves(classifier.logits, some_views, room), expected)
    assert network.tried == [5, 5, 5, 5, 3]
    network.fits = 3
    assert close(in_halves(classifier.logits, some_views, room), expected)
    assert capsys.readouterr().err == ""


@settings(max_examples=20, deadline=None)
@given(count=st.integers(0, 20), fits=st.integers(1, 20), is_tensor=st.booleans())
def test_each_view_gets_its_own_logits_in_order_whatever_fits(
    count: int, fits: int, is_tensor: bool
) -> None:
    """Views carry their number, and the network gives it back."""

    def logits(views: np.ndarray | torch.Tensor) -> np.ndarray | torch.Tensor:
        if len(views) > fits:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return views[:, :1] * 1

    numbers = np.arange(count, dtype=np.uint8)[:, None]
    views = torch.from_numpy(numbers) if is_tensor else numbers
    room = Room("toy")
    output = in_halves(logits, views, room)
    assert isinstance(output, torch.Tensor) is is_tensor
    assert np.array_equal(np.asarray(output), numbers)
    assert room.most is None if count <= fits else (room.most or 0) <= fits


def test_a_batch_that_fits_is_passed_as_it_is(narrow: Making, some_views: np.ndarray) -> None:
    classifier, network = narrow(23)
    room = Room("toy")
    given_back = in_halves(classifier.logits, some_views, room)
    assert torch.equal(given_back, classifier.logits(some_views))
    assert network.tried == [23, 23]
    assert room.most is None


def test_one_view_that_does_not_fit_is_an_error_of_one_line(
    narrow: Making, some_views: np.ndarray
) -> None:
    classifier, _ = narrow(0)
    with pytest.raises(DeviceError, match="memory does not hold one view; free some") as caught:
        in_halves(classifier.logits, some_views, Room("torchvision/resnet50, torch fp32"))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("torchvision/resnet50, torch fp32: ")
    assert caught.value.exit_code == 1


def test_views_that_belong_together_are_tried_again_and_never_parted(
    narrow: Making, some_views: np.ndarray
) -> None:
    classifier, network = narrow(9)
    room = Room("toy", together=10)
    with pytest.raises(DeviceError, match="does not hold 10 views"):
        in_halves(classifier.logits, some_views[:10], room)
    assert network.tried == [10, 10]

    def passing() -> None:
        network.fits = 10
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    network.fits, network.fail = 9, passing
    assert len(in_halves(classifier.logits, some_views[:10], room)) == 10


def test_what_a_failed_pass_held_is_free_before_the_next_try(some_views: np.ndarray) -> None:
    """Otherwise halving would not help: the activations of the whole batch would still be there."""
    held: list[weakref.ref[torch.Tensor]] = []

    def logits(views: np.ndarray | torch.Tensor) -> torch.Tensor:
        gc.disable()
        try:
            assert all(ref() is None for ref in held)
            activations = torch.zeros(len(views), 100)
            held.append(weakref.ref(activations))
            if len(views) > 8:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
            return torch.zeros(len(views), 3)
        finally:
            gc.enable()

    assert len(in_halves(logits, some_views, Room("toy"))) == 23
    assert len(held) > 3


def test_other_errors_pass_unchanged(some_views: np.ndarray) -> None:
    def logits(views: np.ndarray | torch.Tensor) -> torch.Tensor:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied (1x2 and 3x4)")

    room = Room("toy")
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        in_halves(logits, some_views, room)
    assert room.most is None
    with pytest.raises(RuntimeError, match="mat1 and mat2"), device_errors("cuda:0"):
        logits(some_views)
    with pytest.raises(ValueError, match="twelve"), device_errors("cuda:0"):
        raise ValueError("twelve")


def test_threads_share_what_one_of_them_learnt(capsys: pytest.CaptureFixture[str]) -> None:
    barrier = threading.Barrier(4)
    room = Room("toy")

    def logits(views: np.ndarray | torch.Tensor) -> torch.Tensor:
        if len(views) > 4:
            barrier.wait(PATIENCE)
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return torch.zeros(len(views), 3)

    views = np.zeros((8, 1), np.uint8)
    with ThreadPoolExecutor(4) as pool:
        outputs = list(pool.map(lambda _: in_halves(logits, views, room), range(4)))
    assert [len(output) for output in outputs] == [8] * 4
    assert room.most == 4
    assert capsys.readouterr().err.count("\n") == 1


GONE = [
    (accelerator_error(), "CUDA error: unspecified launch failure\nCUDA kernel errors might be"),
    (RuntimeError, "CUDA error: device-side assert triggered"),
    (RuntimeError, "CUDA driver error: device not ready"),
    (RuntimeError, "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
    (RuntimeError, "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling cublasSgemm"),
    (RuntimeError, "No CUDA GPUs are available"),
    (RuntimeError, "HIP error: the operation cannot be performed in the present state"),
]
if hasattr(torch, "AcceleratorError"):
    GONE.append((torch.AcceleratorError, "said in words that nobody has foreseen"))


@pytest.mark.parametrize(("kind", "text"), GONE, ids=[text[:30] for _, text in GONE])
def test_a_device_that_fails_is_one_line_that_names_it(kind: type[Exception], text: str) -> None:
    with pytest.raises(DeviceError) as caught, device_errors(torch.device("cuda:1")):
        raise kind(text)
    first = text.partition("\n")[0]
    assert str(caught.value).startswith(f"cuda:1 failed ({first}); what was finished is kept")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 1
    assert isinstance(caught.value.__cause__, kind)


@pytest.mark.parametrize("kind", OUT_OF_MEMORY)
def test_memory_that_runs_out_elsewhere_is_one_line_too(kind: str) -> None:
    full = r"^the memory of cuda is full"
    with pytest.raises(DeviceError, match=full) as caught, device_errors("cuda"):
        OUT_OF_MEMORY[kind]()
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is not None
    assert is_out_of_memory(caught.value.__cause__)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with CUDA")
def test_a_gpu_that_is_really_full_is_halved_on() -> None:
    free, _ = torch.cuda.mem_get_info()

    def logits(views: np.ndarray | torch.Tensor) -> torch.Tensor:
        # Two views need more than is free.
        torch.empty(len(views) * (free // 3 * 2), dtype=torch.uint8, device="cuda")
        return torch.zeros(len(views), 3, device="cuda")

    room = Room("toy")
    assert in_halves(logits, np.zeros((4, 1), np.uint8), room).shape == (4, 3)
    assert room.most == 1
