"""An ensemble: classifiers in an order that means something."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from curate.errors import UsageError
from curate.labels.space import LabelSpace, load_label_space
from curate.models.classifier import Classifier
from curate.models.zoo import load_classifier

if TYPE_CHECKING:
    import torch


class Ensemble:
    """Classifiers that judge together; the first one names the confusion.

    Args:
        members: names as `load_classifier` takes them, or classifiers.
        label_space: what named members are checked to fit, see `load_classifier`.
        device: where named members compute.

    Raises:
        UsageError: there is no member, or two have the same weights and preprocessing.
    """

    def __init__(
        self,
        members: Sequence[str | Classifier],
        label_space: str | LabelSpace = "imagenet-1k",
        *,
        device: str = "cpu",
    ) -> None:
        if isinstance(members, str) or not members:
            raise UsageError("an ensemble is a list of one model or more; name them with --model")
        #: What named members fit, and what `curate.filter_images` runs softmax over by default.
        self.label_space = (
            load_label_space(label_space) if isinstance(label_space, str) else label_space
        )
        self.classifiers = tuple(
            member
            if isinstance(member, Classifier)
            else load_classifier(member, label_space, device=device)
            for member in members
        )
        seen: dict[Any, Classifier] = {}
        for one in self.classifiers:
            its = one.preprocessing
            other = seen.setdefault((one.fingerprint, its.recipe, its.mean, its.std), one)
            if other is not one or self.classifiers.count(one) > 1:
                raise UsageError(
                    f"the ensemble holds the same classifier twice ({other.name} and {one.name}, "
                    f"weights {one.fingerprint[:8]}): leave one out"
                )

    def __iter__(self) -> Iterator[Classifier]:
        return iter(self.classifiers)

    def __len__(self) -> int:
        return len(self.classifiers)

    def __getitem__(self, position: int) -> Classifier:
        return self.classifiers[position]

    def __repr__(self) -> str:
        return f"Ensemble([{', '.join(repr(one.name) for one in self)}])"

    def check(self, space: LabelSpace, side: int | None = None) -> list[list[int]]:
        """Refuse, before the first image, what cannot work with any.

        Args:
            space: the label space that softmax will run over.
            side: the side of the views that all classifiers will see, in pixels; each one's native
                side by default.

        Returns:
            For each classifier the columns of its output that the label space reads.

        Raises:
            LabelSpaceError: a classifier's output does not fit the label space.
            WeightsError: a classifier does not take such views, or gives no finite numbers.
        """
        columns = [one.columns(space) for one in self]
        for one in self:
            one.check(side)
        return columns

    def to(self, device: str | torch.device) -> Ensemble:
        """Move all networks to a device and return this ensemble."""
        for one in self:
            one.to(device)
        return self

    def record(self) -> list[dict[str, Any]]:
        """Each classifier's record, in order."""
        return [one.record() for one in self]
