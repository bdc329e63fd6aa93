"""Networks of the zoo with weights from the user's own file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from curate.errors import LabelSpaceError, UnknownNameError, UsageError, WeightsError, nearest
from curate.files import printable, sha256_file
from curate.labels.space import LabelSpace, load_label_space
from curate.models import lite, timm_zoo, torchvision_zoo
from curate.models.classifier import Classifier
from curate.models.entry import Built
from curate.models.told_classes import refuse_other_classes
from curate.models.weights import SUFFIXES, load_strictly, read_weights, state_dict_of

if TYPE_CHECKING:
    from curate.models.told import Told

_FORM = "checkpoint/PATH?arch=torchvision/resnet50&labels=imagenet-a"
_KEYS = ("arch", "labels", "key")
_BUILDERS = {"lite": lite.build, "torchvision": torchvision_zoo.build, "timm": timm_zoo.build}


def load(name: str) -> Classifier:
    """A network with the weights of a file.

    Args:
        name: "PATH?arch=ARCH&labels=LABELS&key=KEY". PATH ends in .safetensors, .pt, .pth or .bin
            and is relative to the current folder. ARCH is a name of the zoo, whose preprocessing
            counts too. LABELS are the classes of the outputs, in order: a preset or a CSV file
            (relative to the current folder), imagenet-1k by default. KEY is the entry of a
            checkpoint that holds several sets of weights. In these values %26 stands for "&" and
            %25 for "%". A file that `curate models finetune` wrote tells its network, its labels
            and its preprocessing: then "PATH" is enough.

    Raises:
        UsageError: the name is not of this form.
        UnknownNameError: no such network, label space or entry.
        WeightsError: the file is absent or damaged, needs pickled code, or belongs to another
            network, or to another one than it tells.
        LabelSpaceError: the weights have another number of outputs than the labels have classes,
            or the file tells other labels or another order.
    """
    path, query = _parse(name)
    told = _told(path, query, name)
    architecture = query.get("arch") or (told.architecture if told else "")
    if told is not None and _network(architecture) != _network(told.architecture):
        raise WeightsError(
            f"model 'checkpoint/{name}': the file tells arch={told.architecture}, the name says "
            f"arch={architecture}; leave it out"
        )
    output = _output(query.get("labels"), told, name)
    held = read_weights(path)
    where = printable(path)
    refuse_other_classes(held, output, where)
    state = state_dict_of(held, where, query.get("key"))
    built = build(architecture, len(output))
    load_strictly(built.module, state, f"{where} as {architecture}", output)
    try:
        fingerprint = sha256_file(path)
    except OSError as error:
        raise WeightsError(f"cannot read {where}: {error.strerror}") from error
    its = built.preprocessing
    by_architecture = replace(its, source=f"{its.source}, by the architecture")
    return Classifier(
        name=f"checkpoint/{name}",
        architecture=architecture,
        module=built.module,
        output=output,
        preprocessing=by_architecture if told is None else told.preprocessing,
        fingerprint=fingerprint,
        libraries=libraries_of(architecture),
    )


def build(architecture: str, outputs: int) -> Built:
    """A network of the zoo without trained weights.

    Args:
        architecture: a name of the zoo, "torchvision/resnet50" or "timm/resnet50.a1_in1k", whose
            preprocessing it brings.
        outputs: the number of its outputs.

    Raises:
        UnknownNameError: no such network.
        UsageError: it has a switch that no file of weights tells.
    """
    family, _, rest = architecture.partition("/")
    if family not in _BUILDERS:
        raise UnknownNameError("model", architecture, _BUILDERS)
    return _BUILDERS[family](rest, outputs)


def libraries_of(architecture: str) -> tuple[str, ...]:
    """The packages, beside PyTorch, that a network of the zoo comes from."""
    return ("torchvision" if architecture.startswith("torchvision/") else "timm",)


def _told(path: Path, query: dict[str, str], name: str) -> Told | None:
    """What the file tells of itself; only where it tells nothing must the name say it."""
    can_tell = path.suffix == ".safetensors"
    # Checked with another package, which the other families do without.
    from curate.models.told import read_told

    told = read_told(path) if can_tell and ("arch" not in query or path.is_file()) else None
    if told is None and "arch" not in query:
        raise UsageError(f"model 'checkpoint/{name}' lacks its architecture: write {_FORM}")
    return told


def _output(labels: str | None, told: Told | None, name: str) -> LabelSpace:
    if told is None:
        return load_label_space(labels or "imagenet-1k")
    if labels is None:
        return told.labels
    output = load_label_space(labels)
    if output.wnids != told.labels.wnids:
        raise LabelSpaceError(
            f"model 'checkpoint/{name}': the file tells labels={told.labels.name} "
            f"({len(told.labels)} classes), the name says other ones or another order; leave "
            "labels out"
        )
    return output


def _network(architecture: str) -> str:
    """What two names of one network share: tags of weights go."""
    family, _, rest = architecture.partition("/")
    bare = rest.partition(":" if family == "torchvision" else ".")[0]
    return f"timm/tf_{bare}" if family == "lite" else f"{family}/{bare}"


def rooted(name: str, root: Path) -> str:
    """A model's name with a checkpoint's files found from `root` instead of the current folder.

    Names of the zoo pass unchanged.
    """
    if not name.startswith("checkpoint/"):
        return name
    path, text = _split(name.removeprefix("checkpoint/"))
    if text is None:
        return f"checkpoint/{root / path}"
    parts = []
    for part in text.split("&"):
        key, equals, value = part.partition("=")
        if key == "labels" and (root / unquote(value)).is_file():
            value = quote(str(root / unquote(value)), safe="/")
        parts.append(f"{key}{equals}{value}")
    return f"checkpoint/{root / path}?{'&'.join(parts)}"


def _split(name: str) -> tuple[str, str | None]:
    """The path and what stands after its question mark; None where the name is a path alone."""
    path, mark, text = name.rpartition("?")
    is_query = mark and ("=" in text or not name.endswith(SUFFIXES))
    return (path, text) if is_query else (name, None)


def _parse(name: str) -> tuple[Path, dict[str, str]]:
    path, text = _split(name)
    if not path:
        raise UsageError(f"model 'checkpoint/{name}' lacks its architecture: write {_FORM}")
    query: dict[str, str] = {}
    for part in text.split("&") if text is not None else ():
        key, equals, value = part.partition("=")
        if key not in _KEYS:
            near = nearest(key, _KEYS, 1) or [", ".join(_KEYS)]
            raise UsageError(
                f"model 'checkpoint/{name}': unknown key {key!r}; did you mean {near[0]}?"
            )
        if not equals or not value:
            raise UsageError(f"model 'checkpoint/{name}': {key} lacks its value; write {_FORM}")
        if key in query:
            raise UsageError(f"model 'checkpoint/{name}': {key} stands there twice")
        query[key] = unquote(value)
    return Path(path), query
