"""Public sources in trouble: quotas that end, answers of another form, wrong commands, kills."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from curate.catalog.tables import now
from curate.errors import SettingsError, SourceError, UnknownNameError, UsageError
from tests.pipelines.public_apis import (
    ACCORDION,
    DRAGONFLIES,
    DRAGONFLY,
    GOLDFINCHES,
    WORLDS,
    World,
)
from tests.pipelines.public_parts import collect, hit_rows, numbers, states, taken, workspace_for
from tests.pipelines.stored import stored_files
from tests.running import dying, killed_until_done, run_curate
from tests.sources.flickr_server import KEY, fail
from tests.sources.inaturalist_server import THROTTLED
from tests.sources.openverse_server import throttled
from tests.sources.servers import Exchange
from tests.sources.wikimedia_server import MAXLAG
from tests.waiting import PATIENCE, wait_until

MakeWorld = Callable[[str], World]


@dataclass(frozen=True)
class Trouble:
    """A source that wants no further question.

    Attributes:
        source: which one.
        number: which of its searches, from 0, meets it.
        answer: what it answers.
        says: what the error says, a regular expression.
        before: how many photos were found by then.
    """

    source: str
    number: int
    answer: Callable[[Exchange], None]
    says: str
    before: int


def _html(status: int, headers: dict[str, str]) -> Callable[[Exchange], None]:
    return lambda exchange: exchange.send(status, THROTTLED, headers, "text/html")


_AFTER = r"run the same command again after \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$"
_SOON = {"Retry-After": "1"}

TROUBLES = {
    "iNaturalist's page of HTML": Trouble("inaturalist", 1, _html(429, _SOON), _AFTER, 5),
    "Flickr's status 429": Trouble("flickr", 1, _html(429, _SOON), _AFTER, 4),
    "Openverse's throttle": Trouble(
        "openverse", 1, lambda e: e.json(throttled(1).body, 429, _SOON), "1 seconds.*" + _AFTER, 4
    ),
    "MediaWiki's lag": Trouble(
        "wikimedia", 1, lambda e: e.json(MAXLAG.body, 200, _SOON), "maxlag.*" + _AFTER, 4
    ),
    "DuckDuckGo's refusal": Trouble(
        "duckduckgo", 1, lambda e: e.send(403, b"<html>", content_type="text/html"), "later$", 4
    ),
    "Flickr's error 105": Trouble(
        "flickr", 1, lambda e: e.json(fail(105, "Service currently unavailable")), "105", 4
    ),
    "no word on when": Trouble("inaturalist", 1, _html(429, {}), "later$", 5),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_a_quota_that_ends_in_the_middle_costs_nothing(
    name: str, make_world: MakeWorld, tmp_path: Path
) -> None:
    trouble = TROUBLES[name]
    world = make_world(trouble.source)
    world.disturb(trouble.number, trouble.answer)
    workspace = workspace_for(
        world, tmp_path / "w", network__patience_seconds=0.02, network__tries=1
    )
    with pytest.raises(SourceError, match=trouble.says) as caught:
        collect(world, workspace)
    assert "\n" not in str(caught.value)
    assert len(world.questions()) == trouble.number + 1
    assert len(taken(workspace)) == trouble.before, "what was found is downloaded"
    assert set(states(workspace).values()) == {"downloaded"}
    workspace.close()
    patient = workspace_for(world, tmp_path / "w")
    collected = collect(world, patient)
    assert (collected.new, collected.known) == (10 - trouble.before, trouble.before)
    assert sorted(numbers(patient)) == sorted((*DRAGONFLIES, *GOLDFINCHES))
    assert Counter(world.photos.numbers()) == Counter((*DRAGONFLIES, *GOLDFINCHES))
    undisturbed = workspace_for(world, tmp_path / "undisturbed")
    collect(world, undisturbed)
    assert taken(patient) == taken(undisturbed)


def test_a_long_pause_is_told_with_its_end_and_outlives_the_process(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world("openverse")
    world.disturb(1, lambda exchange: exchange.json({}, 429, {"Retry-After": "7200"}))
    workspace_for(world, tmp_path / "w").close()
    command = ["collect", "openverse", "--classes", "dragonfly", *world.allow_hosts(), "--json"]
    begun = now()
    for new in (4, 0):
        done = run_curate(*command, workspace=tmp_path / "w", expect=1, **world.variables())
        summary = json.loads(done.stdout)
        assert (summary["found"], summary["new"], summary["known"]) == (4, new, 4 - new)
        (line,) = done.stderr.splitlines()
        assert line == f"curate: {summary['troubles'][0]}"
        told = re.fullmatch(
            r"curate: openverse wants a pause.*; run the same command again after (.{19}) UTC", line
        )
        assert told is not None
        until = begun.fromisoformat(told[1])
        assert timedelta(seconds=7190) < until - begun < timedelta(seconds=7200 + PATIENCE)
    assert len(world.questions()) == 2
    assert numbers(workspace_for(world, tmp_path / "w")) == [1, 2, 3, 4]


@pytest.mark.parametrize("source", ["inaturalist", "openverse", "wikimedia"])
def test_photos_of_one_page_are_downloaded_while_the_next_one_is_awaited(
    source: str, make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world(source)
    world.fill(range(1, 61))
    usual = world.answerer()
    in_time = []

    def slowly(exchange: Exchange) -> None:
        wait_until(lambda: len(world.photos.numbers()) >= 20)
        in_time.append(True)
        usual(exchange)

    # The page after the first 20 photos.
    world.disturb({"inaturalist": 5}.get(source, 1), slowly)
    workspace = workspace_for(world, tmp_path / "w")
    collect(world, workspace, DRAGONFLY)
    assert in_time == [True]
    assert len(taken(workspace)) == 60


#: Answers in which a field that a search needs has another type.
OTHER_FORMS: dict[str, dict[str, Any]] = {
    "inaturalist": {"total_results": "many", "results": []},
    "flickr": {"stat": "ok", "photos": {"total": 5, "photo": {"id": "1"}}},
    "openverse": {"result_count": [5], "page_count": 1, "results": []},
    "wikimedia": {"batchcomplete": True, "query": {"pages": "none"}},
    "duckduckgo": {"results": {"image": "x"}},
}


@pytest.mark.parametrize("source", WORLDS)
def test_an_answer_of_another_form_is_one_line_and_costs_no_photo(
    source: str, make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world(source)
    world.disturb(1, lambda exchange: exchange.json(OTHER_FORMS[source]))
    workspace = workspace_for(world, tmp_path / "w")
    with pytest.raises(SourceError, match=f"^{source}: the answer is not understood: ") as caught:
        collect(world, workspace)
    assert caught.value.exit_code == 1
    assert "\n" not in str(caught.value)
    assert 2 <= len(taken(workspace)) < 10, "other searches went on"
    collect(world, workspace)
    assert sorted(numbers(workspace)) == sorted((*DRAGONFLIES, *GOLDFINCHES))
    assert Counter(world.photos.numbers()) == Counter((*DRAGONFLIES, *GOLDFINCHES))


@pytest.mark.parametrize("source", WORLDS)
def test_a_record_of_another_form_is_malformed_and_the_others_are_taken(
    source: str, make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world(source)
    if source == "inaturalist":
        world.api.observations[1]["photos"][0]["url"] = ["not", "text"]  # type: ignore[attr-defined]
    else:
        field = {"flickr": "url_l", "openverse": "url", "duckduckgo": "image"}.get(source)
        record = world.api.shelves["dragonfly"][1]  # type: ignore[attr-defined]
        if field:
            record[field] = {"not": "text"}
        else:
            record["info"]["mime"] = 7
    workspace = workspace_for(world, tmp_path / "w")
    collected = collect(world, workspace, DRAGONFLY)
    assert (collected.new, dict(collected.rejected)) == (5, {"malformed": 1})
    assert numbers(workspace) == [1, 3, 4, 5, 6]
    (row,) = [row for row in hit_rows(workspace).values() if row["state"] == "malformed"]
    assert field_name(row["detail"]) in {"url", "url_l", "image", "imageinfo.0.mime"}
    assert collected.list is not None
    assert "malformed" in (workspace.root / collected.list).read_text()


def field_name(detail: str) -> str:
    return detail.partition(":")[0]


def test_what_all_searches_meet_is_told_once(make_world: MakeWorld, tmp_path: Path) -> None:
    world = make_world("flickr")
    for number in range(9):
        world.disturb(number, lambda exchange: exchange.json(fail(100, "Invalid API Key")))
    workspace = workspace_for(world, tmp_path / "w")
    with pytest.raises(UsageError, match="does not accept the key in FLICKR_API_KEY"):
        collect(world, workspace)
    assert len(world.questions()) <= 2, "five searches would ask the same in vain"


@pytest.mark.parametrize("source", ["inaturalist", "wikimedia", "duckduckgo"])
def test_sources_that_want_a_contact_are_not_asked_without_one(
    source: str, make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world(source)
    workspace = workspace_for(world, tmp_path / "w", collect__contact=" ")
    with pytest.raises(SettingsError, match=r"set collect\.contact .* CURATE_COLLECT__CONTACT"):
        collect(world, workspace)
    assert world.api.hits() == world.photos.hits() == 0


@pytest.mark.parametrize(
    ("arguments", "env", "says"),
    [
        ("inaturalist --classes dragonfly", {"CURATE_COLLECT__CONTACT": ""}, "collect.contact"),
        ("flickr --classes dragonfly", {"FLICKR_API_KEY": ""}, "FLICKR_API_KEY"),
        ("duckduckgo --classes dragonfly", {"CURATE_SOURCES__DUCKDUCKGO": ""}, "is off"),
        ("inaturalist --classes accordion", {}, "no taxon is known"),
        ("wikimedia --classes dragonfly,goldfinch --query x", {}, "exactly one class"),
        ("wikimedia --classes dragonfly --option widht=500", {}, "did you mean width"),
        ("wikimedia --classes dragonfly --option width", {}, "NAME=VALUE"),
        ("openverse", {}, "--classes"),
    ],
)
def test_wrong_commands_exit_with_2_in_one_line_and_ask_nobody(
    arguments: str, env: dict[str, str], says: str, make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world(arguments.split()[0])
    workspace_for(world, tmp_path / "w").close()
    done = run_curate(
        *["collect", *arguments.split(), *world.allow_hosts(), "--json"],
        workspace=tmp_path / "w",
        expect=2,
        **(world.variables() | env),
    )
    (line,) = done.stderr.splitlines()
    assert says in line
    assert done.stdout == ""
    assert world.api.hits() == world.photos.hits() == 0


def test_an_unknown_option_names_the_nearest(make_world: MakeWorld, tmp_path: Path) -> None:
    for source, option, near in [
        ("inaturalist", "qualty_grade", "quality_grade"),
        ("flickr", "min_uploaded_date", "min_upload_date"),
        ("openverse", "exclude_source", "excluded_source"),
        ("wikimedia", "widht", "width"),
    ]:
        world = make_world(source)
        workspace = workspace_for(world, tmp_path / source)
        with pytest.raises(UnknownNameError, match=f"did you mean .*{near}"):
            collect(world, workspace, options={option: "1"})
        assert world.api.hits() == 0


def test_queries_need_exactly_one_class(make_world: MakeWorld, tmp_path: Path) -> None:
    world = make_world("openverse")
    workspace = workspace_for(world, tmp_path / "w")
    with pytest.raises(UsageError, match="--query needs exactly one class"):
        collect(world, workspace, queries=["heron"])
    assert world.api.hits() == 0


def test_a_class_without_a_taxon_is_an_error_alone_and_left_out_among_others(
    make_world: MakeWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = make_world("inaturalist")
    workspace = workspace_for(world, tmp_path / "w")
    with pytest.raises(UsageError, match=rf"{ACCORDION} \(accordion\).*--query"):
        collect(world, workspace, ACCORDION)
    assert world.api.hits() == 0
    assert collect(world, workspace, ACCORDION, DRAGONFLY).new == 6
    assert f"{ACCORDION} (accordion): no taxon is known" in capsys.readouterr().err
    # Its photo may be on the page of something alive all the same.
    given = workspace_for(world, tmp_path / "given")
    collect(world, given, ACCORDION, queries=["Carduelis carduelis"])
    assert numbers(given, ACCORDION) == list(GOLDFINCHES)


def test_duckduckgo_is_off_until_asked_for(make_world: MakeWorld, tmp_path: Path) -> None:
    world = make_world("duckduckgo")
    workspace = workspace_for(world, tmp_path / "w", sources__duckduckgo="")
    with pytest.raises(UsageError, match=r"duckduckgo is off.*sources\.duckduckgo"):
        collect(world, workspace)
    on = workspace_for(world, tmp_path / "w")
    with pytest.raises(UsageError, match="--allow-unknown-licence"):
        collect(world, on, allow_unknown_licence=False)
    assert world.api.hits() == 0


def test_flickr_without_a_key_says_where_to_get_one(
    make_world: MakeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world("flickr")
    workspace = workspace_for(world, tmp_path / "w")
    monkeypatch.delenv("FLICKR_API_KEY")
    with pytest.raises(UsageError, match=r"set FLICKR_API_KEY to one from https://www\.flickr"):
        collect(world, workspace)
    assert world.api.hits() == 0


def _everything(root: Path, done: subprocess.CompletedProcess[str]) -> bytes:
    """All that a command printed and wrote."""
    files = [path.read_bytes() for path in root.rglob("*") if path.is_file()]
    return b"\n".join([done.stdout.encode(), done.stderr.encode(), *files])


@pytest.mark.parametrize("planted", [False, True])
def test_keys_are_never_printed_nor_written(
    planted: bool, make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world("flickr")
    # The server repeats the key in its answer.
    world.disturb(1, lambda e: e.json(fail(100, f"Invalid API Key ({KEY} is unknown)")))
    world.disturb(2, lambda e: e.json(fail(116, f"no such key: {KEY}"), 500))
    root = tmp_path / "w"
    workspace_for(world, root).close()
    query = ["--query", KEY] if planted else []
    done = run_curate(
        *["collect", "flickr", "--classes", "dragonfly", *query, *world.allow_hosts(), "--debug"],
        workspace=root,
        expect=None,
        **world.variables(),
    )
    assert len(world.questions()) >= 1
    assert (done.returncode == 0) == planted
    assert (KEY.encode() in _everything(root, done)) == planted


@pytest.mark.slow
@pytest.mark.parametrize(
    "source", ["inaturalist", pytest.param("flickr", marks=pytest.mark.thorough)]
)
def test_a_search_killed_again_and_again_ends_as_one_never_killed(
    source: str, make_world: MakeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(source)
    for name, value in world.variables().items():
        monkeypatch.setenv(name, value)

    def command(name: str) -> list[str | Path]:
        workspace_for(world, tmp_path / name).close()
        classes = ["--classes", "dragonfly,goldfinch", *world.allow_hosts()]
        return ["-w", tmp_path / name, "collect", source, *classes]

    moments = dying(*command("whole"), at="any:1000000")
    assert moments is not None
    kills = [f"any:{moments['any'] * part // 4}" for part in range(1, 4)]
    killed_until_done(command("killed"), [*kills, "commit:3", "replace:2", "unlink:1"])
    whole, killed = (workspace_for(world, tmp_path / name) for name in ("whole", "killed"))
    assert taken(killed) == taken(whole)
    assert states(killed) == states(whole)
    assert len(taken(killed)) == 10
    assert list((tmp_path / "killed" / "incoming").iterdir()) == []
    # The comparison sees a search whose place is written before its hits.
    faulty = command("faulty")
    assert dying("--fault", "ahead", *faulty, at="half:1") is None
    killed_until_done(faulty, [])
    assert states(workspace_for(world, tmp_path / "faulty")) != states(whole)
    assert sorted(path.read_bytes() for _, path in stored_files(killed)) == sorted(
        world.photos.photo(number) for number in (*DRAGONFLIES, *GOLDFINCHES)
    )
