"""What a file of weights tells of itself: its network, its classes and its preprocessing.

It stands in the metadata of a safetensors file under one key, as JSON: the format keeps several
keys in no fixed order, and the file shall have the same bytes each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from curate.errors import LabelSpaceError, WeightsError
from curate.files import canonical_json, printable
from curate.images.views import ViewRecipe
from curate.labels.classes import MAX_CLASSES
from curate.labels.space import PRESETS, LabelClass, LabelSpace, load_label_space
from curate.models.classifier import Preprocessing

_KEY = "curate"
_FORMAT = 1


@dataclass(frozen=True)
class Told:
    """What a fine-tuned file tells.

    Attributes:
        architecture: the network without weights, "torchvision/resnet50".
        labels: the classes of the outputs, in order.
        preprocessing: what the network was tuned with.
        run: the id of the run that made it.
    """

    architecture: str
    labels: LabelSpace
    preprocessing: Preprocessing
    run: str

    def metadata(self) -> dict[str, str]:
        """The metadata of the file."""
        told = {
            "format": _FORMAT,
            "architecture": self.architecture,
            "labels": {"name": self.labels.name, "classes": self.labels.to_rows()},
            "preprocessing": self.preprocessing.to_dict(),
            "run": self.run,
        }
        return {_KEY: canonical_json(told).decode()}

    def check(self) -> None:
        """Refuse now what `read_told` would refuse later.

        Raises:
            WeightsError, LabelSpaceError: as `read_told`.
        """
        _understood(self.metadata()[_KEY], self.labels.name)


_Line = Annotated[str, Field(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")]
_Side = Annotated[int, Field(ge=1, le=10_000)]
_Deviation = Annotated[FiniteFloat, Field(gt=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Class(_Strict):
    wnid: _Line
    name: _Line
    column: int | None


class _Labels(_Strict):
    name: _Line
    classes: list[_Class] = Field(min_length=1, max_length=MAX_CLASSES)


class _Preprocessing(_Strict):
    resize: _Side
    crop: _Side
    interpolation: _Line
    mean: tuple[FiniteFloat, FiniteFloat, FiniteFloat]
    std: tuple[_Deviation, _Deviation, _Deviation]
    source: _Line
    notes: list[_Line] = Field(max_length=20)


class _Record(_Strict):
    format: Literal[1]
    architecture: _Line
    labels: _Labels
    preprocessing: _Preprocessing
    run: _Line


def read_told(path: Path) -> Told | None:
    """What a safetensors file tells of itself.

    Args:
        path: the file; nothing that it holds is run, and none of its values is read.

    Returns:
        None where it tells nothing, as the files of other programs do.

    Raises:
        WeightsError: the file is absent or damaged, or what it tells is not understood.
        LabelSpaceError: its classes make no label space, or are not those of the preset that it
            names.
    """
    from safetensors import safe_open

    where = printable(path)
    if not path.is_file():
        raise WeightsError(f"{where}: no such file of weights")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    # Hostile bytes make the reader raise whatever its code runs into.
    except Exception as error:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise WeightsError(f"{where} is damaged or no file of weights: {reason}") from error
    if _KEY not in metadata:
        return None
    return _understood(metadata[_KEY], where)


def _understood(text: str, where: str) -> Told:
    try:
        record = _Record.model_validate_json(text)
        its = record.preprocessing
        recipe = ViewRecipe(its.resize, its.crop, its.interpolation)
    except ValueError as error:
        raise WeightsError(
            f"{where}: what it tells of itself is not understood: {_first(error)}"
        ) from error
    return Told(
        record.architecture,
        _labels(record.labels, where),
        Preprocessing(recipe, its.mean, its.std, its.source, tuple(its.notes)),
        record.run,
    )


def _labels(told: _Labels, where: str) -> LabelSpace:
    try:
        space = LabelSpace(told.name, [_class(item) for item in told.classes])
    except LabelSpaceError as error:
        raise LabelSpaceError(f"{where}: {error}") from error
    if told.name not in PRESETS:
        return space
    preset = load_label_space(told.name)
    if preset.fingerprint != space.fingerprint:
        raise LabelSpaceError(f"{where}: its {len(space)} classes are not those of {told.name}")
    return preset


def _class(told: _Class) -> LabelClass:
    return LabelClass(told.wnid, told.name, column=told.column)


def _first(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    fault: Any = error.errors()[0]
    place = ".".join(str(part) for part in fault["loc"])
    return f"{place}: {fault['msg'].lower()}" if place else fault["msg"].lower()
