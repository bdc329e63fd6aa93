"""Settings: an option wins over the environment, which wins over `curate.yaml`, over the defaults.

Environment variables are named `CURATE_` and the path of the setting joined by two underscores,
for example `CURATE_FILTER__THRESHOLD=0.2`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from curate.errors import SettingsError, UnknownNameError, WorkspaceError, nearest
from curate.files import printable, write_bytes

#: The settings file that makes a folder a workspace.
FILE_NAME = "curate.yaml"

#: The format of the workspace that this version reads and writes.
FORMAT = 1


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ImageLimits(_Group):
    """Limits on one image, all checked before its pixels are decoded."""

    max_bytes: int = Field(30_000_000, ge=1, description="Largest file, in bytes.")
    max_pixels: int = Field(80_000_000, ge=1, description="Most pixels, by the header.")
    min_side: int = Field(72, ge=1, description="Shortest side, in pixels.")
    max_aspect_ratio: float = Field(10.0, ge=1, description="Long side over short side, at most.")
    max_metadata_bytes: int = Field(
        16_000_000, ge=1, description="Most bytes that a metadata block may unpack to."
    )


class FilterSettings(_Group):
    """The ensemble and the rule."""

    models: tuple[str, ...] = Field(
        ("lite/efficientnet_lite0", "lite/efficientnet_lite1"),
        min_length=1,
        description="The ensemble; the first one names the confusion.",
    )
    rule: str = Field("misclassified", description="What removes a candidate.")
    threshold: float = Field(
        0.15, ge=0, le=1, description="Most probability that a view may give the true class."
    )
    cap: int = Field(15, ge=1, description="Most survivors a confusion on the shortlist.")
    cap_order: Literal["hash", "confidence", "arrival"] = Field(
        "hash", description="Which survivors of a confusion come first."
    )
    views: Literal["paper", "native"] = Field("paper", description="How the ten crops are cut.")
    seed: int = Field(0, ge=0, description="Seeds the order `hash`.")
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, mps.")


class Settings(BaseSettings):
    """Everything that `curate.yaml`, the environment and options may set."""

    model_config = SettingsConfigDict(
        env_prefix="CURATE_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        nested_model_default_partial_update=True,
    )

    format: int = Field(FORMAT, description="The workspace's format; not to be edited.")
    label_space: str = Field(
        "imagenet-1k",
        description="A preset's name, or a CSV file (a path relative to the workspace).",
    )
    images: ImageLimits = ImageLimits()
    filter: FilterSettings = FilterSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over the file, which arrives as keyword arguments."""
        return env_settings, init_settings


def load_settings(workspace: Path | None, options: Mapping[str, Any] | None = None) -> Settings:
    """Read a workspace's settings.

    Args:
        workspace: the folder that holds `curate.yaml`; None for the defaults and the environment.
        options: dotted names such as "filter.threshold" to values; None values are left out.

    Raises:
        SettingsError: a value is wrong, or a name unknown; the text names the nearest one.
        WorkspaceError: the file is absent or of a newer format.
    """
    values: dict[str, Any] = {}
    where = "the environment"
    if workspace is not None:
        path = workspace / FILE_NAME
        where = printable(path)
        values = _read_yaml(path)
        if isinstance(values.get("format"), int) and values["format"] > FORMAT:
            raise WorkspaceError(
                f"{where} has format {values['format']}, this version reads up to {FORMAT}: "
                "install a newer natadv-curate"
            )
    try:
        settings = Settings(**values)
        given = {k: v for k, v in (options or {}).items() if v is not None}
        if given:
            where = "the command line"
            settings = _with_options(settings, given)
    except ValidationError as error:
        raise SettingsError(_explain(error, where)) from error
    except ValueError as error:
        raise SettingsError(f"{where}: {error}") from error
    return settings


def _with_options(settings: Settings, options: Mapping[str, Any]) -> Settings:
    dumped = settings.model_dump()
    for name, value in options.items():
        group, _, leaf = name.rpartition(".")
        target = dumped[group] if group else dumped
        target[leaf] = value
    groups = {
        name: type(getattr(settings, name)).model_validate(dumped[name])
        for name in ("images", "filter")
    }
    return settings.model_copy(update={**dumped, **groups})


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        values = yaml.safe_load(path.read_bytes()) or {}
    except OSError as error:
        raise WorkspaceError(f"cannot read {printable(path)}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        first = str(error).splitlines()[0]
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise SettingsError(f"{printable(path)}{line}: not YAML: {first}") from error
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise SettingsError(f"{printable(path)}: expected lines of the form name: value")
    return values


def _explain(error: ValidationError, where: str) -> str:
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        model: Any = Settings
        for part in first["loc"][:-1]:
            model = model.model_fields[str(part)].annotation
        near = nearest(str(first["loc"][-1]), model.model_fields)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        return f"{where}: unknown setting {name!r}{hint}"
    return f"{where}: {name}: {first['msg'].lower()} (got {first['input']!r})"


def find_workspace(given: Path | None = None, start: Path | None = None) -> Path:
    """The workspace to work in.

    Args:
        given: what the user named with `--workspace`.
        start: where to look upwards from; the current folder by default.

    Returns:
        `given`, else `$CURATE_WORKSPACE`, else the nearest folder upwards with `curate.yaml`.

    Raises:
        WorkspaceError: there is none.
    """
    named = given or (Path(value) if (value := os.environ.get("CURATE_WORKSPACE")) else None)
    if named is not None:
        if not (named / FILE_NAME).is_file():
            raise WorkspaceError(
                f"{printable(named)} is no workspace ({FILE_NAME} is missing); "
                f"make one with: curate init {printable(named)}"
            )
        return named.resolve()
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / FILE_NAME).is_file():
            return folder
    raise WorkspaceError(
        "no workspace here or above; make one with: curate init DIR, or name one with -w DIR"
    )


def data_file(relative: str) -> Path:
    """A file that travels with the project: presets and label data.

    Args:
        relative: for example "labels/imagenet-a.csv" or "presets/imagenet-a.yaml".

    Returns:
        Its path in the installed package, or else in the checkout's `configs/`.

    Raises:
        FileNotFoundError: neither has it, which is a fault of the installation.
    """
    package = Path(str(resources.files("curate")))
    for root in (package / "configs", package.parent / "configs"):
        if (root / relative).is_file():
            return root / relative
    raise FileNotFoundError(f"{relative} is missing from the installation of natadv-curate")


def presets() -> dict[str, Path]:
    """The presets that `curate init --preset` takes: name to file."""
    folder = data_file("presets/imagenet-a.yaml").parent
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def write_settings(workspace: Path, preset: str) -> None:
    """Write a new workspace's `curate.yaml` from a preset's text.

    Args:
        workspace: an existing folder without settings.
        preset: a preset's name, or the path of a YAML file.

    Raises:
        UnknownNameError: no such preset and no such file.
        SettingsError: the preset holds a wrong setting.
    """
    known = presets()
    path = known.get(preset)
    if path is None:
        path = Path(preset)
        looks_like_path = path.suffix in {".yaml", ".yml"} or os.sep in preset
        if not path.is_file():
            if looks_like_path:
                raise SettingsError(f"cannot read preset {printable(preset)}: no such file")
            raise UnknownNameError("preset", preset, known)
    text = path.read_bytes()
    values = _read_yaml(path)
    try:
        Settings(**values)
    except ValidationError as error:
        raise SettingsError(_explain(error, printable(path))) from error
    if not re.search(rb"^format:", text, re.MULTILINE):
        text = f"format: {FORMAT}\n".encode() + text
    write_bytes(workspace / FILE_NAME, text)
