"""Fine-tuning: a network with a new output layer learns the classes of a label space.

The paper's second classifier is made so (Hendrycks et al., Natural Adversarial Examples, section
3): a ResNet-50 whose outputs are the 200 classes alone.

A step depends on the seed and its number, not on what came before it in this process: a training
that was stopped or killed goes on from the last state on the disk and ends in the same bytes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.errors import CurateError, DeviceError, Interrupted, StorageError, WeightsError
from curate.files import printable
from curate.metrics import clopper_pearson
from curate.models import finetune_state
from curate.models.determinism import deterministic
from curate.models.finetune_photos import Photos
from curate.models.finetune_recipe import Recipe
from curate.models.finetune_start import Start
from curate.models.memory import device_errors, is_out_of_memory
from curate.models.runtime import BATCH_SIZES
from curate.models.weights import refuse_nonfinite
from curate.progress import Bar, Stop, progress, say

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

_MOMENTUM = 0.9

#: Seconds of training after which its state is saved within an epoch.
SAVE_SECONDS = 600.0

# Steps between two looks at the loss of a GPU, which waits for each look.
_LOOK_EVERY = 25


class Training:
    """The fine-tuning of one network.

    Args:
        start: the network; it is trained in place, on its classifier's device.
        recipe: how.
        photos: to learn from, at least two.
        validation: to measure accuracy on after each epoch; may be empty.
        workers: threads that decode. They change nothing but the time.

    Attributes:
        step: steps done.
        history: of each finished epoch: `epoch` (from 1), `loss` (the mean over its photos), `lr`
            (of the new layer, at its last step), `correct` and `photos` of validation.
    """

    def __init__(
        self, start: Start, recipe: Recipe, photos: Photos, validation: Photos, workers: int
    ) -> None:
        import torch

        self.start, self.recipe = start, recipe
        self.photos, self.validation, self._workers = photos, validation, workers
        self.step = 0
        self.history: list[dict[str, Any]] = []
        self._classifier = start.classifier
        self._module = start.classifier.module
        self._device = start.classifier.device
        self._parts = photos.parts(recipe.batch_size)
        self._steps = len(self._parts)
        on_cuda = self._device.type == "cuda"
        # In double precision, and on a GPU without waiting for it; MPS has no such numbers.
        self._loss = torch.zeros((), dtype=torch.float64, device=self._device if on_cuda else "cpu")
        self._optimizer = self._make_optimizer()
        self._scaler = torch.amp.GradScaler(self._device.type, enabled=recipe.precision == "fp16")

    @property
    def total(self) -> int:
        """Steps of the whole training."""
        return self.recipe.epochs * self._steps

    def run(self, state: Path, run_id: str, stop: Stop) -> None:
        """Train from where the state on the disk stands to the end.

        Args:
            state: the file that keeps where the training stands; absent at the beginning.
            run_id: written into the state, and compared with that of one that is there.
            stop: asks to stop: the state is saved after the step in hand.

        Raises:
            Interrupted: stopped; the state is saved.
            CurateError: the loss is no number any more; the state is that of before.
            DeviceError: the device failed, or its memory does not hold a batch.
            StorageError: the state cannot be read or written.
        """
        if state.is_file():
            self._go_on(state, run_id)
        with ExitStack() as stack:
            stack.enter_context(self._errors())
            stack.enter_context(deterministic(self._device))
            pool = stack.enter_context(ThreadPoolExecutor(self._workers, "curate"))
            stack.callback(pool.shutdown, wait=False, cancel_futures=True)
            many, first = len(self.photos), self._within_epoch
            done = sum(map(len, self._parts[:first])) + many * len(self.history)
            bar = stack.enter_context(progress("fine-tuning", self.recipe.epochs * many, done=done))
            while len(self.history) < self.recipe.epochs:
                self._epoch(lambda: self._save(state, run_id), stop, pool, bar)

    @property
    def _within_epoch(self) -> int:
        """Steps done of the first epoch that is not in the history: all, where it waits for its
        validation alone."""
        return self.step - len(self.history) * self._steps

    def _epoch(
        self, save: Callable[[], None], stop: Stop, pool: ThreadPoolExecutor, bar: Bar
    ) -> None:
        recipe, epoch = self.recipe, len(self.history)
        saved = time.monotonic()
        self._module.train(not recipe.freeze)
        for views, targets in self.photos.training(
            epoch, recipe.batch_size, pool, self._within_epoch
        ):
            self._learn(views, targets)
            self.step += 1
            bar.advance(len(targets))
            is_end = self._within_epoch == self._steps
            is_late = stop.requested or time.monotonic() - saved >= SAVE_SECONDS
            if is_end or is_late or self.step % self._look_every == 0:
                self._refuse_nonfinite()
            if is_late and not is_end:
                save()
                saved = time.monotonic()
                self._stop_where_asked(stop)
        self._refuse_nonfinite_weights()
        correct = self._correct(stop, pool)
        if correct is None:
            save()
            self._stop_where_asked(stop)
            return
        self._end_epoch(epoch, correct)
        save()
        if len(self.history) < recipe.epochs:
            self._stop_where_asked(stop)

    def _learn(self, views: NDArray[np.uint8], targets: NDArray[np.int64]) -> None:
        import torch

        recipe = self.recipe
        factor = recipe.factor(self.step, self._steps)
        for group in self._optimizer.param_groups:
            group["lr"] = group["highest"] * factor
        # Dropout and the like draw from here: the same at this step, wherever the run began.
        torch.manual_seed((recipe.seed * 1_000_003 + self.step) % 2**63)
        pixels, wanted = torch.from_numpy(views), torch.from_numpy(targets)
        if self._device.type == "cuda":
            pixels, wanted = pixels.pin_memory(), wanted.pin_memory()
        pixels = pixels.to(self._device, non_blocking=True).permute(0, 3, 1, 2)
        wanted = wanted.to(self._device, non_blocking=True)
        pixels = self._classifier.normalised(pixels)
        with torch.autocast(
            self._device.type,
            dtype=torch.float16 if recipe.precision == "fp16" else torch.bfloat16,
            enabled=recipe.precision != "fp32",
        ):
            logits = self._module(pixels)
        loss = torch.nn.functional.cross_entropy(
            logits.float(), wanted, label_smoothing=recipe.label_smoothing
        )
        self._optimizer.zero_grad()
        self._scaler.scale(loss).backward()
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._loss += loss.detach().to(self._loss.device).double() * len(targets)

    def _end_epoch(self, epoch: int, correct: int) -> None:
        loss = self._loss.item() / len(self.photos)
        self._loss.zero_()
        self.history.append(
            {
                "epoch": epoch + 1,
                "loss": loss,
                "lr": self.recipe.rate * self.recipe.factor(self.step - 1, self._steps),
                "correct": correct,
                "photos": len(self.validation),
            }
        )
        told = f"epoch {epoch + 1} of {self.recipe.epochs}: loss {loss:.4f}"
        if self.validation.items:
            share = accuracy(correct, len(self.validation))
            told += (
                f", validation {share['value']:.1%} ({share['low']:.1%} to {share['high']:.1%}) "
                f"of {len(self.validation):,} photos"
            )
        say(told)

    def _correct(self, stop: Stop, pool: ThreadPoolExecutor) -> int | None:
        """Photos of validation whose largest output is that of their class; None if stopped."""
        import numpy as np

        self._module.eval()
        correct = 0
        for views, targets in self.validation.validation(BATCH_SIZES[self._device.type], pool):
            logits = self._classifier.logits(views).cpu().numpy()
            if stop.requested:
                return None
            # What is no number is largest to argmax, and says nothing.
            is_sound = np.isfinite(logits).all(axis=1)
            correct += int(np.count_nonzero((logits.argmax(axis=1) == targets) & is_sound))
        return correct

    def _make_optimizer(self) -> torch.optim.Optimizer:
        import torch

        recipe, groups = self.recipe, []
        named = list(self._module.named_parameters())
        for is_head in (False, True):
            if recipe.freeze and not is_head:
                continue
            for decays in (True, False):
                chosen = [
                    one
                    for name, one in named
                    if (name in self.start.head) is is_head and (one.ndim > 1) is decays
                ]
                highest = recipe.rate * (1.0 if is_head else recipe.backbone)
                decay = recipe.weight_decay if decays else 0.0
                if chosen:
                    groups.append({"params": chosen, "highest": highest, "weight_decay": decay})
        for name, one in named:
            one.requires_grad_(not recipe.freeze or name in self.start.head)
        if recipe.optimizer == "adamw":
            return torch.optim.AdamW(groups, lr=recipe.rate)
        return torch.optim.SGD(groups, lr=recipe.rate, momentum=_MOMENTUM, nesterov=True)

    @property
    def _look_every(self) -> int:
        return _LOOK_EVERY if self._device.type == "cuda" else 1

    def _refuse_nonfinite(self) -> None:
        if not math.isfinite(self._loss.item()):
            raise self._diverged("the loss is no number")

    def _refuse_nonfinite_weights(self) -> None:
        try:
            refuse_nonfinite(self._module, "the network")
        except WeightsError as error:
            raise self._diverged(str(error)) from error

    def _diverged(self, what: str) -> CurateError:
        epoch, step = divmod(self.step - 1, self._steps)
        return CurateError(
            f"{what} at step {step + 1} of epoch {epoch + 1}, in {self.recipe.precision} with "
            f"--lr {self.recipe.rate:g}: nothing was overwritten; begin anew with a lower --lr "
            "and --force"
        )

    def _save(self, state: Path, run_id: str) -> None:
        numbers = {
            "run": run_id,
            "step": self.step,
            "loss": self._loss.item(),
            "history": self.history,
            "scaler": self._scaler.state_dict(),
        }
        finetune_state.save(state, self._module, self._optimizer, numbers)

    def _go_on(self, state: Path, run_id: str) -> None:
        numbers = finetune_state.load(state, self._module, self._optimizer)
        if numbers["run"] != run_id:
            raise StorageError(
                f"{printable(state)} is of another run: delete the folder that it is in to begin "
                "anew"
            )
        self.step, self.history = numbers["step"], numbers["history"]
        self._loss.fill_(numbers["loss"])
        if numbers["scaler"]:
            self._scaler.load_state_dict(numbers["scaler"])
        if 0 < self.step < self.total:
            say(f"going on after step {self.step:,} of {self.total:,}")

    def _stop_where_asked(self, stop: Stop) -> None:
        if stop.requested:
            raise Interrupted(
                f"stopped after step {self.step:,} of {self.total:,}; the same command goes on "
                "from there"
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with device_errors(self._device):
                yield
        except DeviceError as error:
            if error.__cause__ is None or not is_out_of_memory(error.__cause__):
                raise
            side = self._classifier.preprocessing.recipe.crop
            raise DeviceError(
                f"the memory of {self._device} does not hold {len(self._parts[-1])} photos of "
                f"{side} pixels at once: give a smaller --batch-size or --image-size"
            ) from error


def accuracy(correct: int, photos: int) -> dict[str, Any]:
    """A share of photos with its exact interval.

    Args:
        correct: photos that are classified right.
        photos: all of them, at least 1.

    Returns:
        `value`, `low`, `high`, `n`, and `interval`: how low and high were found.
    """
    low, high = clopper_pearson(correct, photos, 0.95)
    return {
        "value": correct / photos,
        "low": low,
        "high": high,
        "n": photos,
        "interval": "Clopper-Pearson, 95%",
    }
