from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from curate.errors import MissingExtraError, UnknownNameError, UsageError
from curate.images.decode import decode_trusted
from curate.images.views import PAPER, resize_short_side, ten_views
from curate.models import Classifier, bound_threads, forwards, load_classifier
from curate.models.forwards import Forward, choose, make_forward, make_forwards

Toy = Callable[..., Classifier]

CPU, CUDA, MPS = torch.device("cpu"), torch.device("cuda"), torch.device("mps")
ROOT = Path(__file__).resolve().parents[2]

#: Every way but torch.compile, whose tests take long, with the most that it may move a log-odds of
#: the embedded networks. Measured on 1,063 photos: onnx 1e-5, bf16 0.6.
WAYS = [("torch", "fp32", 0.0), ("onnx", "fp32", 1e-4), ("torch", "bf16", 1.5)]
EACH_WAY = pytest.mark.parametrize(
    ("backend", "precision", "most"), WAYS, ids=[f"{b} {p}" for b, p, _ in WAYS]
)


@pytest.fixture(scope="module")
def lite0() -> Classifier:
    return load_classifier("lite/efficientnet_lite0")


def as_array(logits: np.ndarray | torch.Tensor) -> np.ndarray:
    return logits if isinstance(logits, np.ndarray) else logits.cpu().numpy()


def most_moved(forward: Forward, classifier: Classifier, views: np.ndarray) -> float:
    """The most that any log-odds between classes of any view differs from the classifier's."""
    wanted, found = [], []
    for start in range(0, len(views), forward.batch_size):
        batch = views[start : start + forward.batch_size]
        wanted.append(as_array(classifier.logits(batch)))
        found.append(as_array(forward.logits(batch)))
    off = np.concatenate(found).astype(np.float64) - np.concatenate(wanted)
    return float((off.max(axis=1) - off.min(axis=1)).max())


@EACH_WAY
@pytest.mark.usefixtures("one_thread")
def test_a_forward_gives_nearly_the_classifiers_log_odds(
    backend: str, precision: str, most: float, lite0: Classifier, views: np.ndarray
) -> None:
    forward = make_forward(lite0, backend, precision)
    assert (forward.backend, forward.precision) == (backend, precision)
    assert forward.name == f"{backend} {precision}"
    off = most_moved(forward, lite0, views)
    assert off <= most
    # Low precision that moves nothing would not be low.
    assert precision == "fp32" or off > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["efficientnet_lite0", "efficientnet_lite1"])
@pytest.mark.usefixtures("one_thread")
def test_so_it_does_on_all_ten_views_of_real_photos(
    name: str, package_photos: list[tuple[Path, int]]
) -> None:
    classifier = load_classifier(f"lite/{name}")
    ways = [(make_forward(classifier, b, p, PAPER.crop), most) for b, p, most in WAYS[1:]]
    # A processor without instructions for bf16 takes half a second a view.
    for path, _ in package_photos[::10]:
        photo = resize_short_side(decode_trusted(path.read_bytes(), None), PAPER)
        views = np.stack(ten_views(photo, PAPER.crop))
        wanted = as_array(classifier.logits(views)).astype(np.float64)
        for forward, most in ways:
            off = as_array(forward.logits(views)) - wanted
            assert (off.max(axis=1) - off.min(axis=1)).max() <= most


@EACH_WAY
@pytest.mark.usefixtures("one_thread")
def test_the_same_batch_gives_the_same_bits(
    backend: str, precision: str, most: float, lite0: Classifier, views: np.ndarray
) -> None:
    forward = make_forward(lite0, backend, precision)
    once, again = as_array(forward.logits(views[:8])), as_array(forward.logits(views[:8]))
    assert once.dtype == np.float32
    assert once.tobytes() == again.tobytes()


def test_in_onnx_runtime_bits_depend_on_neither_batch_nor_threads(
    lite0: Classifier, views: np.ndarray
) -> None:
    forward = make_forward(lite0, "onnx", "fp32")

    def run(some: np.ndarray, threads: int) -> np.ndarray:
        with bound_threads(threads):
            return as_array(forward.logits(some))

    whole = run(views, 1)
    assert np.array_equal(whole, run(views, 2))
    assert np.array_equal(whole[::-1], run(views[::-1], 3))
    for size in (1, 3, 8):
        parts = [views[start : start + size] for start in range(0, len(views), size)]
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(run, parts, [1] * len(parts)))
        assert np.array_equal(whole, np.concatenate(found))


@EACH_WAY
def test_views_may_be_mirrored_read_only_or_a_tensor(
    backend: str, precision: str, most: float, toy: Toy, views: np.ndarray
) -> None:
    forward = make_forward(toy(), backend, precision)
    mirrored = views[:3, :, ::-1]
    wanted = as_array(forward.logits(np.ascontiguousarray(mirrored)))
    frozen = mirrored.copy()
    frozen.flags.writeable = False
    tensor = torch.from_numpy(mirrored.copy()).permute(0, 3, 1, 2)
    for given in (mirrored, frozen, tensor):
        assert np.array_equal(wanted, as_array(forward.logits(given)))


@EACH_WAY
def test_no_views_give_no_logits_and_other_arrays_are_refused(
    backend: str, precision: str, most: float, toy: Toy, views: np.ndarray
) -> None:
    forward = make_forward(toy(), backend, precision)
    assert forward.logits(views[:0]).shape == (0, 1000)
    with pytest.raises(ValueError, match="uint8"):
        forward.logits(views.astype(np.float32))
    with pytest.raises(ValueError, match="uint8"):
        forward.logits(views[0])


class Contrast(torch.nn.Module):
    """Takes the root of a number that is below zero where a view is all one colour."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 1000)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        contrast = (pixels.amax((2, 3)) - pixels.amin((2, 3))).sum(1, keepdim=True)
        output: torch.Tensor = torch.relu(self.linear(pixels.mean((2, 3)))) * torch.sqrt(
            contrast - 1e-3
        )
        return output


@EACH_WAY
def test_what_is_no_number_passes_as_that(
    backend: str, precision: str, most: float, toy: Toy, views: np.ndarray
) -> None:
    forward = make_forward(toy(module=Contrast()), backend, precision)
    batch = views[:3].copy()
    batch[1] = 127
    assert np.isnan(as_array(forward.logits(batch))).all(axis=1).tolist() == [False, True, False]


@EACH_WAY
def test_a_record_tells_backend_precision_and_versions(
    backend: str, precision: str, most: float, toy: Toy
) -> None:
    record = make_forward(toy(), backend, precision).record()
    assert (record["backend"], record["precision"]) == (backend, precision)
    assert record["device"] == "cpu"
    assert record["libraries"]["torch"] == torch.__version__.partition("+")[0] or (
        record["libraries"]["torch"] == torch.__version__
    )
    assert record["batch_size"] >= 1
    json.dumps(record, allow_nan=False)


@pytest.mark.parametrize(
    ("asked", "device", "chosen"),
    [
        (("auto", "auto"), CPU, ("onnx", "fp32")),
        (("auto", "fp32"), CPU, ("onnx", "fp32")),
        (("auto", "bf16"), CPU, ("torch", "bf16")),
        (("torch", "auto"), CPU, ("torch", "fp32")),
        (("onnx", "auto"), CPU, ("onnx", "fp32")),
        (("compile", "auto"), CPU, ("compile", "fp32")),
        (("auto", "fp32"), CUDA, ("torch", "fp32")),
        (("auto", "fp16"), CUDA, ("torch", "fp16")),
        (("auto", "auto"), MPS, ("torch", "fp32")),
    ],
)
def test_auto_means_the_fastest_that_is_there(
    asked: tuple[str, str], device: torch.device, chosen: tuple[str, str]
) -> None:
    assert choose(*asked, device) == chosen


def test_auto_means_half_precision_on_cuda() -> None:
    assert choose("auto", "auto", CUDA) in [("torch", "bf16"), ("torch", "fp16")]


def test_auto_does_without_packages_that_are_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwards, "find_spec", lambda name: None)
    assert choose("auto", "auto", CPU) == ("torch", "fp32")
    with pytest.raises(MissingExtraError, match=r"backend onnx needs .*natadv-curate\[onnx\]"):
        choose("onnx", "auto", CPU)


@pytest.mark.parametrize(
    ("asked", "device", "told"),
    [
        (("onnx", "bf16"), CPU, "fp32, not in bf16; use torch"),
        (("onnx", "auto"), CUDA, "on the CPU, not on cuda; use torch"),
    ],
)
def test_what_does_not_go_together_is_refused(
    asked: tuple[str, str], device: torch.device, told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        choose(*asked, device)


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="backend 'onx'; did you mean onnx"):
        choose("onx", "auto", CPU)
    with pytest.raises(UnknownNameError, match="precision 'fp23'; did you mean fp32"):
        choose("auto", "fp23", CPU)


class Untraceable(torch.nn.Module):
    """Leaves PyTorch on its way, so that a trace takes its output for a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 1000)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        means = pixels.mean((2, 3))
        elsewhere = torch.from_numpy(np.abs(means.detach().numpy()))
        output: torch.Tensor = self.linear(means + elsewhere)
        return output


def test_a_network_that_onnx_runtime_does_not_run_alike_runs_in_pytorch(
    toy: Toy, views: np.ndarray, capfd: pytest.CaptureFixture[str]
) -> None:
    odd, plain = toy(module=Untraceable(), name="odd"), toy()
    made = make_forwards([odd, plain], "auto", "auto")
    assert [forward.name for forward in made] == ["torch fp32", "onnx fp32"]
    assert np.array_equal(as_array(made[0].logits(views)), as_array(odd.logits(views)))
    told = capfd.readouterr()
    assert told.out == ""
    assert told.err.startswith("odd does not run in ONNX Runtime: its logits differ")
    assert told.err.endswith("; it runs in PyTorch\n")
    assert told.err.count("\n") == 1


def test_asked_for_by_name_it_is_refused(toy: Toy) -> None:
    with pytest.raises(UsageError, match="odd does not run in ONNX Runtime: its logits differ"):
        make_forwards([toy(module=Untraceable(), name="odd")], "onnx", "auto")


class Unknown(torch.nn.Module):
    """Uses what no exporter knows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 1000)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.linear(torch.linalg.eigvals(pixels[:, :, :3, :3]).real[:, 0])
        return output


@pytest.mark.slow
def test_a_network_that_cannot_be_exported_runs_in_pytorch(
    toy: Toy, capfd: pytest.CaptureFixture[str]
) -> None:
    odd = toy(module=Unknown(), name="odd")
    assert make_forwards([odd], "auto", "auto")[0].name == "torch fp32"
    told = capfd.readouterr()
    assert told.out == ""
    assert told.err.startswith("odd cannot be exported to ONNX: ")
    assert told.err.count("\n") == 1


class Mixed(torch.nn.Module):
    """Puts what autocast computes in half the bits among float32."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        product = pixels[:, 0] @ pixels[:, 1]
        rows = torch.zeros(len(pixels), 224)
        return rows.scatter_(1, torch.zeros(len(pixels), 1, dtype=torch.long), product[:, 0])


def test_a_network_that_does_not_run_in_low_precision_is_refused(toy: Toy) -> None:
    odd = toy(module=Mixed(), name="odd")
    with pytest.raises(UsageError, match="odd does not run with precision bf16 on cpu: "):
        make_forward(odd, "torch", "bf16")


def test_float16_runs_as_well(toy: Toy, views: np.ndarray) -> None:
    classifier = toy()
    assert 0 < most_moved(make_forward(classifier, "torch", "fp16"), classifier, views) < 0.1


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_on_the_best_device_here_low_precision_is_near_the_classifier(
    precision: str, toy: Toy, views: np.ndarray
) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    classifier = toy().to(device)
    forward = make_forward(classifier, "torch", precision)
    logits = forward.logits(torch.from_numpy(views).permute(0, 3, 1, 2).to(device))
    assert isinstance(logits, torch.Tensor)
    assert (logits.dtype, logits.device.type) == (torch.float32, device)
    assert most_moved(forward, classifier, views) < 0.2


COMPILED = """
import sys
import numpy as np
import torch
from curate.images.views import PAPER
from curate.labels.space import load_label_space
from curate.models import Classifier, Preprocessing, bound_threads
from curate.models.forwards import make_forward
from torch._dynamo.utils import counters

torch.manual_seed(0)
module = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3, stride=4), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 1000),
)
half = (0.5, 0.5, 0.5)
classifier = Classifier(
    name="toy", architecture="toy", module=module, output=load_label_space("imagenet-1k"),
    preprocessing=Preprocessing(PAPER, half, half, "by hand"),
)
views = np.random.default_rng(0).integers(0, 256, (9, 224, 224, 3), np.uint8)
exact = classifier.logits(views)
for precision in sys.argv[1:]:
    counters.clear()
    forward = make_forward(classifier, "compile", precision)
    with bound_threads(1):
        for count in (8, 3, 1, 9):
            logits = forward.logits(views[:count])
            assert logits.shape == (count, 1000) and logits.dtype == torch.float32
            assert torch.equal(logits, forward.logits(views[:count]))
            assert (logits - exact[:count]).abs().max() < (1e-4 if precision == "fp32" else 0.1)
    print(forward.name, counters["stats"]["unique_graphs"])
"""


def compiled(*precisions: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", COMPILED, *precisions],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder), **environ},
    )


@pytest.mark.thorough
@pytest.mark.slow
def test_compiled_networks_take_batches_of_any_size(tmp_path: Path) -> None:
    # In one process: the headers of C++ take longer than the networks.
    done = compiled("fp32", "bf16", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    # Once, whatever the size.
    assert done.stdout == "compile fp32 1\ncompile bf16 1\n"


@pytest.mark.slow
def test_where_nothing_compiles_the_network_runs_without_and_says_so(tmp_path: Path) -> None:
    done = compiled("fp32", folder=tmp_path, CXX="/nowhere/c++")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("torch fp32 ")
    told = [line for line in done.stderr.splitlines() if line.startswith("toy is not compiled")]
    assert len(told) == 1
    assert told[0].endswith("; it runs without")


def test_forwards_of_an_ensemble_have_each_its_own_size(views: np.ndarray, toy: Toy) -> None:
    sides: Sequence[int | None] = [None, 64]
    made = make_forwards([toy(), toy(seed=1)], "onnx", "fp32", sides)
    assert [list(forward.record()["graphs"]) for forward in made] == [["224"], ["64"]]
    # Another size than was told costs an export and nothing else.
    assert as_array(made[1].logits(views)).shape == (20, 1000)
    assert list(made[1].record()["graphs"]) == ["64", "224"]
