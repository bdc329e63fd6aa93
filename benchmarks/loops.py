"""The plain loop that a good user would write, the cascade, and what of it cannot be left out."""

from __future__ import annotations

import shutil
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, default_collate
from torchvision import transforms

from curate.filtration.cascade import VIEWS, judge_chunk
from curate.filtration.plan import prepare
from curate.filtration.terms import ChunkResult, Plan
from curate.images.views import PAPER, ViewRecipe
from curate.models.runtime import bound_threads, full_precision

CHUNK = 256
#: Chunks that are decoded ahead of the thread that judges.
AHEAD = 2

# torchvision gives the corners first and the centre last, and then the same of the mirrored photo.
_CENTRE_FIRST = [4, 0, 1, 2, 3, 9, 5, 6, 7, 8]
_CROPS_BYTES = 10 * 3 * 224 * 224 * 4


@dataclass(frozen=True)
class Limits:
    """What decoding asks of the settings, which need a further package."""

    max_pixels: int = 80_000_000


@dataclass(frozen=True)
class _Recipes:
    recipes: tuple[ViewRecipe, ...]


#: As much of a plan as decoding needs.
PAPER_VIEWS: Any = _Recipes((PAPER,))


@dataclass(frozen=True)
class Said:
    """What the plain loop says of one photo.

    Attributes:
        p: the softmax, float32 [models, 10, classes], views in the project's order.
        target: position of the label.
    """

    p: np.ndarray
    target: int

    def expected(self, order: Sequence[int], threshold: float) -> tuple[Any, ...]:
        """Outcome, reason, model and view: the first view that removes it, in the cascade's order.

        Args:
            order: the models as the cascade takes them.
            threshold: of the rule.
        """
        places = [(model, number) for number in (0, 2) for model in order]
        places += [(model, n) for model in order for n in range(10) if n not in (0, 2)]
        for model, number in places:
            if self.p[model, number].argmax() == self.target:
                return "removed", "correct", model, number
            if self.p[model, number, self.target] > threshold:
                return "removed", "threshold", model, number
        return "survivor", None, None, None

    def is_near(self, threshold: float, margin: float = 1e-4) -> bool:
        """Whether a view is so near a limit that the last bits of float32 may decide."""
        others = self.p.copy()
        others[:, :, self.target] = -1
        own = self.p[:, :, self.target]
        tie = np.abs(own - others.max(axis=2)) <= margin
        return bool((tie | (np.abs(own - threshold) <= margin)).any())


class TenCrops(Dataset[Any]):
    """Photos as ten crops in [0, 1], as torchvision's documentation would have it."""

    def __init__(self, paths: Sequence[Path], targets: Sequence[int]) -> None:
        self.paths, self.targets = paths, targets
        self.cut = transforms.Compose(
            [
                transforms.Resize(256),
                transforms.TenCrop(224),
                transforms.Lambda(_stacked),
            ]
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        return self.cut(Image.open(self.paths[index]).convert("RGB")), self.targets[index]


def _stacked(crops: Sequence[Image.Image]) -> torch.Tensor:
    return torch.stack([transforms.functional.to_tensor(crop) for crop in crops])


def _batches(photos: TenCrops, size: int, workers: int, *, pin: bool) -> Iterator[Any]:
    """DataLoader's batches; in threads where processes have no room to hand them over."""
    shared = Path("/dev/shm")
    room = shutil.disk_usage(shared).free if shared.is_dir() else 1 << 62
    workers = min(workers, room // (3 * size * _CROPS_BYTES))
    if workers:
        yield from DataLoader(
            photos, batch_size=size, num_workers=workers, pin_memory=pin, timeout=120
        )
        return
    with ThreadPoolExecutor() as pool:
        for start in range(0, len(photos), size):
            some = range(len(photos))[start : start + size]
            yield default_collate(list(pool.map(photos.__getitem__, some)))


def plain_loop(
    plan: Plan,
    photos: TenCrops,
    *,
    size: int,
    workers: int,
    seconds: float,
    tf32: bool = False,
) -> tuple[float, list[Said]]:
    """Twenty forward passes a photo, all on the device, in batches of `size` photos.

    Args:
        plan: its classifiers and columns count.
        photos: in order.
        size: photos in a batch.
        workers: processes that decode and crop.
        seconds: no further batch begins after these.
        tf32: let CUDA round the inputs of float32 convolutions, as PyTorch does by default.

    Returns:
        Photos a second, and what it says of those that were done.
    """
    device = plan.classifiers[0].device
    norms = [
        [torch.tensor(v, device=device).view(1, 3, 1, 1) for v in (one.mean, one.std)]
        for one in (classifier.preprocessing for classifier in plan.classifiers)
    ]
    columns = [torch.from_numpy(columns).to(device) for columns in plan.columns]
    said: list[Said] = []
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True
    started, first = time.perf_counter(), 0
    try:
        with torch.inference_mode():
            for crops, targets in _batches(photos, size, workers, pin=device.type == "cuda"):
                batch = crops.flatten(0, 1).to(device, non_blocking=True)
                batch = batch.to(memory_format=torch.channels_last)
                outputs = []
                for classifier, (mean, std), its in zip(
                    plan.classifiers, norms, columns, strict=True
                ):
                    logits = classifier.module(batch.sub(mean).div(std))[:, its]
                    outputs.append(logits.softmax(dim=1).unflatten(0, (-1, 10)))
                p = torch.stack(outputs, dim=1)[:, :, _CENTRE_FIRST].cpu().numpy()
                said += [Said(one, int(target)) for one, target in zip(p, targets, strict=True)]
                if len(said) == len(targets) < len(photos):
                    # Starting processes and searching for algorithms is not what is timed.
                    started, first = time.perf_counter(), len(said)
                if time.perf_counter() - started > seconds:
                    break
    finally:
        full_precision()
    return (len(said) - first) / (time.perf_counter() - started), said


def cascade(
    plan: Plan, data: Sequence[bytes], targets: Sequence[int], decoders: ThreadPoolExecutor
) -> tuple[float, list[ChunkResult]]:
    """From JPEG bytes to verdicts: decoders work ahead, one thread judges.

    Returns:
        Seconds, and the result of each chunk in order.
    """

    def judge(start: int, decoding: Sequence[Any]) -> ChunkResult:
        ready = [future.result() for future in decoding]
        keys = [str(number) for number in range(start, start + len(ready))]
        with bound_threads(1):
            return judge_chunk(ready, targets[start : start + CHUNK], plan, keys)

    results: list[ChunkResult] = []
    under_way: deque[Any] = deque()
    started = time.perf_counter()
    with ThreadPoolExecutor(1) as judging:
        for start in range(0, len(data), CHUNK):
            decoding = [
                decoders.submit(prepare, one, plan, Limits()) for one in data[start : start + CHUNK]
            ]
            under_way.append(judging.submit(judge, start, decoding))
            if len(under_way) > AHEAD:
                results.append(under_way.popleft().result())
        results += [future.result() for future in under_way]
    return time.perf_counter() - started, results


#: A pass: what computed, what it is called, how many views.
Pass = tuple[Any, str, int]


_AGAIN = "again in fp32"


@dataclass
class _Noting:
    inner: Any
    what: str
    passes: list[Pass]

    def logits(self, views: Any) -> Any:
        what = self.what
        if what == _AGAIN and len(views) == VIEWS:
            what = "exact, ten views of one photo"
        self.passes.append((self.inner, what, len(views)))
        return self.inner.logits(views)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def noting(plan: Plan) -> tuple[Plan, list[Pass]]:
    """The same plan, which notes its passes in a list."""
    passes: list[Pass] = []
    classifiers = [_Noting(one, _AGAIN, passes) for one in plan.classifiers]
    forwards = [_Noting(one, one.name, passes) for one in plan.forwards]
    return replace(plan, classifiers=classifiers, forwards=forwards), passes  # type: ignore[arg-type]


def bare(passes: Sequence[Pass], device: torch.device) -> dict[str, float]:
    """Seconds of the same passes over views that lie on the device, by what they are called."""
    most = max(size for _, _, size in passes)
    views = torch.randint(0, 256, (most, 224, 224, 3), dtype=torch.uint8, device=device)
    views = views.permute(0, 3, 1, 2)
    spent: Counter[str] = Counter()
    with bound_threads(1):
        for what in sorted({what for _, what, _ in passes}):
            its = [(one, size) for one, name, size in passes if name == what]
            its[0][0].logits(views[: its[0][1]])
            wait(device)
            started = time.perf_counter()
            for one, size in its:
                one.logits(views[:size])
            wait(device)
            spent[what] = time.perf_counter() - started
    return dict(spent)


def wait(device: torch.device) -> None:
    """Until a device has done all that it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def compared(
    results: Sequence[ChunkResult], said: Sequence[Said], order: Sequence[int], threshold: float
) -> dict[str, Any]:
    """Whether the cascade's verdicts are the plain loop's, for the photos that it has done."""
    verdicts = [verdict for result in results for verdict in result.verdicts]
    equal, near, differing = 0, 0, []
    for number, (verdict, one) in enumerate(zip(verdicts, said, strict=False)):
        told = (verdict.outcome, verdict.reason, verdict.model, verdict.view)
        expected = one.expected(order, threshold)
        same = told == expected
        if same and verdict.outcome == "survivor":
            same = verdict.predicted == int(one.p[0, 0].argmax())
        if same:
            equal += 1
        elif one.is_near(threshold):
            near += 1
        else:
            differing.append({"photo": number, "cascade": told, "plain": expected})
    return {
        "compared": min(len(verdicts), len(said)),
        "equal": equal,
        "other, within 1e-4 of a limit": near,
        "differing": len(differing),
        "first differing": differing[:3],
    }
