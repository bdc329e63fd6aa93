"""Settings: an option wins over the environment, which wins over `curate.yaml`, over the defaults.

Environment variables are named `CURATE_` and the path of the setting joined by two underscores,
for example `CURATE_FILTER__THRESHOLD=0.2`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_origin

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError as UnreadableVariable

from curate.errors import SettingsError, UnknownNameError, WorkspaceError, nearest
from curate.files import data_file, printable
from curate.setting_groups import (
    CollectSettings,
    FilterSettings,
    Group,
    ImageLimits,
    NetworkSettings,
    QualitySettings,
    ReleaseSettings,
    ReviewSettings,
    SourceSettings,
)

__all__ = [
    "FILE_NAME",
    "FORMAT",
    "CollectSettings",
    "FilterSettings",
    "ImageLimits",
    "NetworkSettings",
    "QualitySettings",
    "ReleaseSettings",
    "ReviewSettings",
    "Settings",
    "SourceSettings",
    "data_file",
    "find_workspace",
    "load_settings",
    "parse_settings",
    "preset_text",
    "presets",
    "with_options",
]

#: The settings file that makes a folder a workspace.
FILE_NAME = "curate.yaml"

#: The format of the workspace that this version reads and writes.
FORMAT = 1


_LONGEST_YAML = 1_000_000
_ALIAS = re.compile(rb"(^|[\s\[{,:-])\*[^\s,\]}]", re.MULTILINE)


class Settings(BaseSettings):
    """Everything that `curate.yaml`, the environment and options may set."""

    model_config = SettingsConfigDict(
        env_prefix="CURATE_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        nested_model_default_partial_update=True,
        hide_input_in_errors=True,
    )

    format: int = Field(FORMAT, description="The workspace's format; not to be edited.")
    label_space: str = Field(
        "imagenet-1k",
        description="A preset's name, or a CSV file (a path relative to the workspace).",
    )
    concepts: str = Field(
        "wordnet",
        description="What candidates of the rule outlier are labelled with: wordnet, or a CSV file "
        "of your own (a path relative to the workspace).",
    )
    database: str = Field(
        "",
        repr=False,
        description="Where the catalogue is: a PostgreSQL URL (postgresql+psycopg://…); a SQLite "
        "file in the workspace where it is empty.",
    )
    store: str = Field(
        "images",
        description="Where images are: a folder relative to the workspace, or a URL (s3://…).",
    )
    images: ImageLimits = ImageLimits()
    collect: CollectSettings = CollectSettings()
    network: NetworkSettings = NetworkSettings()
    sources: SourceSettings = SourceSettings()
    quality: QualitySettings = QualitySettings()
    filter: FilterSettings = FilterSettings()
    review: ReviewSettings = ReviewSettings()
    release: ReleaseSettings = ReleaseSettings()

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
    if workspace is None:
        settings = parse_settings(b"", "the environment")
    else:
        path = workspace / FILE_NAME
        try:
            text = path.read_bytes()
        except OSError as error:
            raise WorkspaceError(f"cannot read {printable(path)}: {error.strerror}") from error
        settings = parse_settings(text, printable(path))
    return with_options(settings, options or {})


def with_options(settings: Settings, options: Mapping[str, Any]) -> Settings:
    """Settings changed by options.

    Args:
        settings: what they change.
        options: dotted names such as "filter.threshold" to values; None values are left out.

    Raises:
        SettingsError: a value is wrong.
    """
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return _changed(settings, given) if given else settings
    except ValidationError as error:
        raise SettingsError(_explain(error, "the command line")) from error


def _changed(settings: Settings, options: Mapping[str, Any]) -> Settings:
    dumped = settings.model_dump()
    for name, value in options.items():
        group, _, leaf = name.rpartition(".")
        target = dumped[group] if group else dumped
        target[leaf] = value
    groups = {
        name: type(value).model_validate(dumped[name])
        for name in Settings.model_fields
        if isinstance(value := getattr(settings, name), Group)
    }
    return settings.model_copy(update={**dumped, **groups})


def _parse_yaml(text: bytes, where: str) -> dict[str, Any]:
    import yaml

    if len(text) > _LONGEST_YAML or (b"&" in text and _ALIAS.search(text)):
        raise SettingsError(f"{where}: too long, or with YAML aliases, which settings do not need")
    try:
        values = yaml.safe_load(text) or {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise SettingsError(f"{where}{line}: not YAML: {first}") from error
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise SettingsError(f"{where}: expected lines of the form name: value")
    return values


def _explain(error: ValidationError, where: str) -> str:
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    variable = "CURATE_" + "__".join(str(part) for part in first["loc"]).upper()
    if variable in os.environ:
        where = f"the environment variable {variable}"
    if first["type"] == "extra_forbidden":
        model: Any = Settings
        for part in first["loc"][:-1]:
            model = model.model_fields[str(part)].annotation
        near = nearest(str(first["loc"][-1]), model.model_fields)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        return f"{where}: unknown setting {name!r}{hint}"
    # What stands in the place of a database's address may hold its password.
    got = "" if name == "database" else f" (got {first['input']!r})"
    return f"{where}: {name}: {first['msg'].lower()}{got}"


def _explain_variable(error: UnreadableVariable) -> str:
    """What is wrong with a variable that should hold a list and is no JSON."""
    lists = {
        f"CURATE_{group}__{name}".upper()
        for group, field in Settings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Group)
        for name, inner in field.annotation.model_fields.items()
        if get_origin(inner.annotation) is tuple
    }
    wrong = [
        name for name in sorted(lists) if name in os.environ and not _is_json(os.environ[name])
    ]
    if not wrong:
        return f"the environment: {error}"
    return f'the environment variable {wrong[0]}: write a list as JSON, for example ["a", "b"]'


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


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


def presets() -> dict[str, Path]:
    """The presets that `curate init --preset` takes: name to file."""
    folder = data_file("presets/imagenet-a.yaml").parent
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def preset_text(preset: str) -> bytes:
    """The text that a new workspace's `curate.yaml` takes from a preset.

    Args:
        preset: a preset's name, or the path of a YAML file.

    Raises:
        UnknownNameError: no such preset and no such file.
        SettingsError: the file cannot be read.
    """
    known = presets()
    path = known.get(preset, Path(preset))
    if preset not in known and not path.is_file():
        if path.suffix in {".yaml", ".yml"} or os.sep in preset:
            raise SettingsError(f"cannot read preset {printable(preset)}: no such file")
        raise UnknownNameError("preset", preset, known)
    try:
        text = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"cannot read preset {printable(preset)}: {error.strerror}") from error
    if not re.search(rb"^format:", text, re.MULTILINE):
        text = text.rstrip() + f"\n\n# The format of this file.\nformat: {FORMAT}\n".encode()
    return text


def parse_settings(text: bytes, where: str) -> Settings:
    """Settings from the text of a `curate.yaml` and the environment.

    Args:
        text: YAML.
        where: what to call it in errors.

    Raises:
        SettingsError: a value is wrong, or a name unknown; the text names the nearest one.
        WorkspaceError: it is of a newer format.
    """
    values = _parse_yaml(text, where)
    if isinstance(values.get("format"), int) and values["format"] > FORMAT:
        raise WorkspaceError(
            f"{where} has format {values['format']}, this version reads up to {FORMAT}: "
            "install a newer natadv-curate"
        )
    try:
        return Settings(**values)
    except ValidationError as error:
        raise SettingsError(_explain(error, where)) from error
    except UnreadableVariable as error:
        raise SettingsError(_explain_variable(error)) from error
    except ValueError as error:
        raise SettingsError(f"{where}: {error}") from error
