"""Networks of the zoo with weights from the user's own file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, unquote

from curate.errors import UnknownNameError, UsageError, WeightsError, nearest
from curate.files import printable, sha256_file
from curate.labels.space import load_label_space
from curate.models import lite, timm_zoo, torchvision_zoo
from curate.models.classifier import Classifier
from curate.models.weights import load_strictly, read_weights, state_dict_of

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
            %25 for "%".

    Raises:
        UsageError: the name is not of this form.
        UnknownNameError: no such network, label space or entry.
        WeightsError: the file is absent or damaged, needs pickled code, or belongs to another
            network.
        LabelSpaceError: the weights have another number of outputs than the labels have classes.
    """
    path, query = _parse(name)
    architecture = query["arch"]
    output = load_label_space(query.get("labels", "imagenet-1k"))
    family, _, rest = architecture.partition("/")
    if family not in _BUILDERS:
        raise UnknownNameError("model", architecture, _BUILDERS)
    held = read_weights(path)
    where = printable(path)
    state = state_dict_of(held, where, query.get("key"))
    built = _BUILDERS[family](rest, len(output))
    load_strictly(built.module, state, f"{where} as {architecture}", output)
    try:
        fingerprint = sha256_file(path)
    except OSError as error:
        raise WeightsError(f"cannot read {where}: {error.strerror}") from error
    its = built.preprocessing
    return Classifier(
        name=f"checkpoint/{name}",
        architecture=architecture,
        module=built.module,
        output=output,
        preprocessing=replace(its, source=f"{its.source}, by the architecture"),
        fingerprint=fingerprint,
        libraries=("torchvision" if family == "torchvision" else "timm",),
    )


def rooted(name: str, root: Path) -> str:
    """A model's name with a checkpoint's files found from `root` instead of the current folder.

    Names of the zoo pass unchanged.
    """
    if not name.startswith("checkpoint/"):
        return name
    path, mark, text = name.removeprefix("checkpoint/").rpartition("?")
    parts = []
    for part in text.split("&"):
        key, equals, value = part.partition("=")
        if key == "labels" and (root / unquote(value)).is_file():
            value = quote(str(root / unquote(value)), safe="/")
        parts.append(f"{key}{equals}{value}")
    return f"checkpoint/{root / path}{mark}{'&'.join(parts)}" if mark else name


def _parse(name: str) -> tuple[Path, dict[str, str]]:
    path, mark, text = name.rpartition("?")
    if not mark or not path:
        raise UsageError(f"model 'checkpoint/{name}' lacks its architecture: write {_FORM}")
    query: dict[str, str] = {}
    for part in text.split("&"):
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
    if "arch" not in query:
        raise UsageError(f"model 'checkpoint/{name}' lacks its architecture: write {_FORM}")
    return Path(path), query
