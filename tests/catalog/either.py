"""Catalogues of both kinds by where they are; processes that tests start import it as well."""

from __future__ import annotations

from pathlib import Path

from curate.catalog.engine import Catalogue, open_catalogue
from curate.catalog.postgres import open_database


def open_either(place: str) -> Catalogue:
    """The catalogue at a path or an address, made where it is absent."""
    if "://" in place:
        return open_database(place, create=True)
    return open_catalogue(Path(place), create=True)
