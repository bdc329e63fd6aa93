"""Names that settings, options and functions share; light, so that the command line starts fast."""

from __future__ import annotations

from typing import Literal, get_args

#: How the ten views are cut: as in the paper, or as each classifier was trained.
Views = Literal["paper", "native"]

#: Whose confidence the rule outlier asks for.
ConfidenceOf = Literal["centre", "mean"]

#: What runs the networks where they need not be exact to the last bit.
Backend = Literal["auto", "torch", "compile", "onnx"]

#: In which numbers, where they need not be exact to the last bit.
Precision = Literal["auto", "fp32", "bf16", "fp16"]

#: Where candidates are scored.
Engine = Literal["local", "ray"]

#: The orders in which survivors take the places of their confusion and of the shortlist.
CapOrder = Literal["hash", "confidence", "arrival", "quality"]

#: What may be noted of a picture's quality.
QualityFlag = Literal["small", "uniform", "dark", "bright", "blurred", "odd-aspect"]

#: The same in the order in which they are told.
QUALITY_FLAGS: tuple[QualityFlag, ...] = get_args(QualityFlag)

#: What becomes of a picture that is nearly there already.
NearDuplicates = Literal["flag", "reject"]

#: What becomes of one picture under two labels: both stay in the filter, or the best one does.
AcrossLabels = Literal["keep", "drop"]

#: How the images of a release are named: by content, or as ImageNet-A names its files.
Naming = Literal["hash", "paper"]

#: What becomes of the metadata in the files of a release: positions, owners and serial numbers
#: go, or all but orientation and colours, or nothing.
Metadata = Literal["clean", "strip", "keep"]

#: The forms that a release is packed in: one archive, shards, Parquet files with the images inside.
PackForm = Literal["tar", "webdataset", "parquet"]

#: The same as names.
PACK_FORMS: tuple[PackForm, ...] = get_args(PackForm)

#: Why an image of a release is taken back; tombstones say no more than this.
Retraction = Literal["person-request", "licence", "copyright", "wrong-content", "privacy", "other"]

#: The same as names.
RETRACTIONS: tuple[Retraction, ...] = get_args(Retraction)

#: The funnel's stages in order.
STAGES = ("candidates", "scored", "survivors", "shortlisted", "reviewed", "accepted", "released")

#: How several answers about one candidate become a consensus; see `annotation.consensus`.
Voting = Literal["unanimous", "majority", "weighted"]
