"""The corruptions of ImageNet-C (Hendrycks and Dietterich, ICLR 2019), for images of any size.

Pure functions on arrays. `corrupt` applies one; `describe` says what a report has to record of it;
`register` and `load_file` add the user's own.
"""

from curate.corruptions.apply import SCALES, Scale, corrupt, describe, seed_of
from curate.corruptions.catalogue import EXTRA_NAMES, FURTHER_NAMES, NAMES, SEVERITIES
from curate.corruptions.frost import FrostPictures
from curate.corruptions.registry import load_file, names, register

__all__ = [
    "EXTRA_NAMES",
    "FURTHER_NAMES",
    "NAMES",
    "SCALES",
    "SEVERITIES",
    "FrostPictures",
    "Scale",
    "corrupt",
    "describe",
    "load_file",
    "names",
    "register",
    "seed_of",
]
