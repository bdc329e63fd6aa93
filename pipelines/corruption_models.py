"""The models of a corruption run: a few in memory at a time, each with the ways its view is cut."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from curate.labels.space import LabelSpace

if TYPE_CHECKING:
    from curate.images.views import ViewRecipe
    from curate.models.classifier import Classifier

#: Models in memory at a time; those of one kind of input share what is corrupted for them.
TOGETHER = 3


@dataclass(frozen=True)
class Subject:
    """A model, and how its view of a photo is cut.

    Attributes:
        name: as `load_classifier` takes it.
        views: "native" or "paper".
        is_added: whether it is there as the baseline alone.
    """

    name: str
    views: str
    is_added: bool = False


class Models:
    """Classifiers by name, a few in memory at a time.

    Args:
        space: the label space that they are restricted to.
        device: where they run.
    """

    def __init__(self, space: LabelSpace, device: str) -> None:
        self._space, self._device = space, device
        self._loaded: OrderedDict[str, Classifier] = OrderedDict()

    def get(self, name: str) -> Classifier:
        """A classifier; the one that was not wanted for longest makes room.

        Raises:
            UsageError: an unknown model, or weights that do not fit the label space.
        """
        from curate.models.runtime import tune_allocator
        from curate.models.zoo import load_classifier

        if name not in self._loaded:
            while len(self._loaded) >= TOGETHER:
                self._loaded.popitem(last=False)
            tune_allocator()
            self._loaded[name] = load_classifier(name, self._space, device=self._device)
        self._loaded.move_to_end(name)
        return self._loaded[name]

    def recipe(self, subject: Subject) -> ViewRecipe:
        """How a subject's view of a clean photo is cut."""
        from curate.images.views import PAPER

        classifier = self.get(subject.name)
        if subject.views == "native":
            return classifier.preprocessing.recipe
        classifier.check(PAPER.crop)
        return PAPER
