"""What a catalogue says of its disk, in one line."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from sqlalchemy import insert

from curate.catalog.engine import open_catalogue
from curate.catalog.tables import facts
from curate.errors import StorageError


@pytest.mark.parametrize("bytes_left", [0, 1000, 20_000, 40_000])
def test_a_disk_that_takes_no_more_is_named_wherever_it_ends(
    tmp_path: Path, bytes_left: int
) -> None:
    open_catalogue(tmp_path / "catalogue.sqlite", create=True).close()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # What is longer than that is refused, which SQLite takes for a disk that fails.
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_left, before[1]))
    try:
        with pytest.raises(StorageError, match="full") as caught:
            catalogue = open_catalogue(tmp_path / "catalogue.sqlite")
            with catalogue.write() as connection:
                connection.execute(insert(facts), [{"name": "long", "value": "x" * 100_000}])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "\n" not in str(caught.value)
    with open_catalogue(tmp_path / "catalogue.sqlite").write() as connection:
        connection.execute(insert(facts), [{"name": "short", "value": "x"}])
