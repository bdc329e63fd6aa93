"""What a classifier says of pictures that are attacked first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from curate.labels.space import LabelSpace
from curate.testbed.attacks import Attack, attacked
from curate.testbed.setting import Part
from pipelines.corruption_forward import Scored

if TYPE_CHECKING:
    import torch

    from curate.models.classifier import Classifier


class Attacked(Scored):
    """What one classifier says of the pictures that an attack on it makes.

    Args:
        classifier: on its device.
        space: the label space.
        part: with the attack, and what is right.
        keys: of each picture, what its random start depends on.
    """

    def __init__(
        self, classifier: Classifier, space: LabelSpace, part: Part, keys: Sequence[str]
    ) -> None:
        from curate.models.memory import Room

        super().__init__(classifier, space, len(keys))
        # A step backwards needs several times the memory of one forwards.
        self._room = Room(f"an attack on {classifier.name}")
        assert part.attack is not None
        self._attack: Attack = part.attack
        self._keys = keys
        self._truth = [[space.position(wnid) for wnid in ids] for ids in part.right]

    def logits(self, rows: Sequence[int], batch: np.ndarray) -> np.ndarray:
        """What the classifier says of the pictures of some rows once they are attacked."""
        from curate.models.memory import in_halves

        return in_halves(
            lambda places: self._attacked([rows[place] for place in places], batch[places]),
            np.arange(len(rows)),
            self._room,
        )

    def _attacked(self, rows: Sequence[int], batch: np.ndarray) -> np.ndarray:
        import torch

        classifier = self.classifier
        shape, told = (1, 3, 1, 1), classifier.preprocessing
        mean, std = (
            torch.tensor(v, device=classifier.device).view(shape) for v in (told.mean, told.std)
        )

        def given(pixels: torch.Tensor) -> torch.Tensor:
            layout = pixels.contiguous(memory_format=torch.channels_last)
            result: torch.Tensor = classifier.module((layout - mean) / std)
            return result

        pixels = torch.from_numpy(np.ascontiguousarray(batch)).permute(0, 3, 1, 2)
        pixels = pixels.to(classifier.device).float() / 255
        moved = attacked(
            lambda some: given(some)[:, self._columns],
            pixels,
            [self._truth[row] for row in rows],
            self._attack,
            [self._keys[row] for row in rows],
        )
        with torch.no_grad():
            return given(moved).cpu().numpy()
