"""Classifiers: networks with their preprocessing, fingerprints and classes.

The public names are handed on here; PyTorch is imported only when one is used.
"""

from curate.models.classifier import Classifier, Preprocessing
from curate.models.ensemble import Ensemble
from curate.models.entry import ModelEntry
from curate.models.runtime import bound_threads, resolve_device, tune_allocator
from curate.models.zoo import available_models, load_classifier, model_names

__all__ = [
    "Classifier",
    "Ensemble",
    "ModelEntry",
    "Preprocessing",
    "available_models",
    "bound_threads",
    "load_classifier",
    "model_names",
    "resolve_device",
    "tune_allocator",
]
