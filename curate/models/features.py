"""A classifier's features: what its last layer reads, for comparing pictures."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from curate.errors import WeightsError
from curate.images.views import PAPER, resize_short_side, view

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from PIL import Image

    from curate.models.classifier import Classifier

_CENTRE, _CENTRE_MIRRORED = 0, 5


class FeatureReader:
    """Reads the input of a classifier's last layer; several threads may.

    Args:
        classifier: a network whose last layer is fully connected.

    Raises:
        WeightsError: the last layer is of another kind.
    """

    def __init__(self, classifier: Classifier) -> None:
        import torch

        layers = [part for part in classifier.module.modules() if isinstance(part, torch.nn.Linear)]
        if not layers or layers[-1].out_features != len(classifier.output):
            raise WeightsError(
                f"{classifier.name} has no features to compare: its last layer is not fully "
                "connected"
            )
        self.classifier = classifier
        self._seen = threading.local()
        layers[-1].register_forward_pre_hook(self._look)

    def _look(self, _layer: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        self._seen.features = inputs[0]

    def features(self, views: NDArray[np.uint8] | torch.Tensor) -> torch.Tensor:
        """What the last layer reads for a batch of views.

        Args:
            views: as `Classifier.logits` takes them.

        Returns:
            float32 [B, D] on the classifier's device.
        """
        self.classifier.logits(views)
        seen: torch.Tensor = self._seen.features
        return seen.float()

    def of_picture(self, image: Image.Image) -> NDArray[np.float32]:
        """What the classifier sees in a picture, the same for its mirror image.

        The two centre crops of the paper's ten views, one mirrored, go through the network as one
        batch, so that the values do not depend on other pictures.

        Args:
            image: of mode RGB.

        Returns:
            The mean of the two crops' features, of length 1: the inner product of two pictures'
            features is the cosine of the angle between them.
        """
        import numpy as np
        import torch

        resized = resize_short_side(image, PAPER)
        views = np.stack([view(resized, n, PAPER.crop) for n in (_CENTRE, _CENTRE_MIRRORED)])
        mean = self.features(views).mean(dim=0)
        unit: NDArray[np.float32] = torch.nn.functional.normalize(mean, dim=0).cpu().numpy()
        return unit
