"""What a command that uses the network needs, made from a workspace's settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Protocol, TypeVar, cast

from curate._version import __version__
from curate.catalog import hits
from curate.errors import UnknownNameError
from curate.sources.api import ApiClient
from curate.sources.download import Downloader
from curate.sources.host_rules import HostRule
from curate.sources.http import AGENT_TOKEN, Fetcher, user_agent
from curate.sources.manners import Manners
from curate.sources.placeholders import Placeholders
from curate.sources.protocol import Source
from curate.sources.robots import Robots
from pipelines.threads import usable_cores
from pipelines.workspace import Workspace

T = TypeVar("T")

#: The public sources; each is the module of this name in `curate.sources`.
PUBLIC_SOURCES = ("inaturalist", "flickr", "openverse", "wikimedia", "duckduckgo")

#: Every source whose hits are downloaded.
REMOTE_SOURCES = ("urls", *PUBLIC_SOURCES)


class SourceModule(Protocol):
    """What the module of a public source holds."""

    NAME: str
    HOSTS: tuple[HostRule, ...]
    NEEDS_CONTACT: bool

    def connect(self, client: ApiClient, url: str, environ: Mapping[str, str]) -> Source:
        """The source as the settings and the environment describe it."""


def source_module(name: str) -> SourceModule:
    """The module of a public source.

    Raises:
        UnknownNameError: there is no such source.
    """
    if name not in PUBLIC_SOURCES:
        raise UnknownNameError("source", name, PUBLIC_SOURCES)
    return cast(SourceModule, import_module(f"curate.sources.{name}"))


def _rules(used: Sequence[str]) -> list[HostRule]:
    """What all sources state for their hosts, which lists may name too.

    That the terms of an API stand in for robots.txt holds only for what the API told.
    """
    rules = []
    for name in PUBLIC_SOURCES:
        for rule in source_module(name).HOSTS:
            rules.append(rule if name in used else replace(rule, robots=True))
    return rules


class Network:
    """Connections, manners and rules of one command; close it at the end.

    Args:
        workspace: its settings hold, and its catalogue remembers hosts.
        modules: the public sources that are used: their rules hold for their hosts.
        environ: the environment variables, for keys.
        stop: asked while waiting whether the user wants to stop.

    Raises:
        UsageError: the contact, an exempt host or the list of placeholders cannot be used.
    """

    def __init__(
        self,
        workspace: Workspace,
        modules: Sequence[SourceModule],
        environ: Mapping[str, str],
        stop: Callable[[], bool],
    ) -> None:
        self._workspace = workspace
        self._settings = workspace.settings.network
        self._environ = environ
        self._stop = stop
        self._agent = user_agent(__version__, workspace.settings.collect.contact)
        self._fetcher = Fetcher(self._settings, self._agent)
        listed = workspace.settings.collect.placeholders
        self._placeholders = Placeholders.load(*([workspace.root / listed] if listed else []))
        rules = _rules([module.NAME for module in modules])
        with workspace.catalogue.read() as connection:
            remembered = hits.all_manners(connection)
        self.manners = Manners(rules, self._settings, remembered)

    def connect(self, module: SourceModule) -> Source:
        """A public source.

        Raises:
            UsageError: a key that it needs is missing.
        """
        name = module.NAME
        client = ApiClient(
            name, self._settings, self._agent, self.manners, self._fetcher.pools, stop=self._stop
        )
        return module.connect(
            client, getattr(self._workspace.settings.sources, name), self._environ
        )

    def downloader(self, process: Callable[[Path, str], T], folder: Path) -> Downloader[T]:
        """What downloads images to a folder.

        Args:
            process: what to do with each downloaded file and its SHA-256.
            folder: where files go.
        """
        robots = None
        if self._settings.robots:
            robots = Robots(self._fetcher, AGENT_TOKEN, self.manners, self._stop)
        return Downloader(
            self._fetcher,
            self.manners,
            robots,
            self._placeholders,
            folder,
            self._workspace.settings.images.max_bytes,
            self._settings,
            process,
            self._stop,
            cores=usable_cores(),
        )

    def remember(self) -> None:
        """Keep what hosts were asked and told, for the next command."""
        with self._workspace.catalogue.write() as connection:
            hits.set_manners(connection, self.manners.snapshot())

    def abort(self) -> None:
        """Hang up on everything, for good."""
        self._fetcher.pools.abort()

    def __enter__(self) -> Network:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._fetcher.pools.clear()
