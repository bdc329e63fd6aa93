"""The example source of CONTRIBUTING is a source: it runs against a server that answers like it."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from curate.sources.protocol import Query, Source
from tests.running import ROOT
from tests.sources.answering import AnsweringServer, Reply, client_for, found_in_two_goes
from tests.sources.servers import Request


class ExampleServer(AnsweringServer):
    def answer(self, asked: Request) -> Reply:
        page = int(asked.query["page"])
        photos = [
            {
                "id": number,
                "image": f"https://images.example.org/{number}.jpg",
                "page": f"https://example.org/{number}",
                "author": "Ann",
                "license_url": "https://creativecommons.org/licenses/by/4.0/",
            }
            for number in range(3 * page, 3 * page + 3)
        ]
        return Reply({"photos": [*photos, {"id": "none"}] if page < 4 else []})


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[ExampleServer], Source]:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"<!-- test: source -->\n```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "example_source.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "example_source", raising=False)
    module = importlib.import_module("example_source")
    return lambda server: module.connect(client_for(server), server.url(), {})


def test_the_example_source_finds_photos_with_licence_and_author(
    example: Callable[[ExampleServer], Source],
) -> None:
    with ExampleServer() as server:
        hits = list(example(server).search(Query("n02268443", "dragonfly")))
    assert [hit.refusal is None for hit in hits] == [True, True, True, False] * 3
    first = hits[0]
    assert (first.locator, first.label, first.author) == ("photos/3", "n02268443", "Ann")
    assert first.licence == "https://creativecommons.org/licenses/by/4.0/"


def test_the_example_source_goes_on_where_it_stopped(
    example: Callable[[ExampleServer], Source],
) -> None:
    with ExampleServer() as server:
        everything = {h.locator for h in example(server).search(Query("n02268443", "x"))}
        for stop in range(1, 12):
            query = Query("n02268443", "x")
            found = found_in_two_goes(example(server), example(server), query, stop)
            assert found == everything
