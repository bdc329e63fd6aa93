"""What the families of the zoo share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from curate.models.classifier import Preprocessing

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ModelEntry:
    """One line of `curate models list`.

    Args:
        name: as `load_classifier` takes it.
        side: side of its native view, in pixels.
        present: whether its weights are on this machine.
        source: where its weights come from: a command, or a URL.
    """

    name: str
    side: int
    present: bool
    source: str

    @property
    def family(self) -> str:
        """The part of the name before the first slash."""
        return self.name.partition("/")[0]


@dataclass(frozen=True)
class Built:
    """A network without trained weights, and the preprocessing of its architecture."""

    module: torch.nn.Module
    preprocessing: Preprocessing


@contextmanager
def own_random_state(seed: int = 0) -> Iterator[None]:
    """Initialise a network from a seed and leave the caller's random numbers as they were."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
