"""Catalogues of both kinds: SQLite in a folder, and a database of a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from curate.catalog.engine import Catalogue
from tests.catalog.either import open_either


@pytest.fixture
def place(make_database: Callable[[], str], tmp_path: Path) -> str:
    """Where a catalogue may be made: a path or an address."""
    return make_database() or str(tmp_path / "catalogue.sqlite")


@pytest.fixture
def catalogue(place: str) -> Iterator[Catalogue]:
    opened = open_either(place)
    yield opened
    opened.close()
