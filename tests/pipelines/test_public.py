"""Public sources end to end: from the answers of an API to candidates with licence and author."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from curate.catalog.tables import now, origins, searches
from curate.errors import AmbiguousNameError
from curate.files import sha256_bytes
from curate.licences import attribution, parse
from pipelines.collect import Collected
from pipelines.filter import run_filter
from pipelines.queries import queries_of
from pipelines.release import build_release
from pipelines.status import status
from tests.pipelines.public_apis import (
    DRAGONFLIES,
    DRAGONFLY,
    GOLDFINCH,
    GOLDFINCHES,
    SHELVES,
    WORLDS,
    World,
    commons_file,
)
from tests.pipelines.public_parts import collect, hit_rows, numbers, states, taken, workspace_for
from tests.pipelines.stored import stored_files
from tests.running import run_curate
from tests.sources.inaturalist_server import ANISOPTERA, TREES, observation, photo

MakeWorld = Callable[[str], World]


@pytest.mark.parametrize("source", WORLDS)
def test_each_source_becomes_candidates_with_licence_and_author(
    source: str, make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world(source)
    workspace = workspace_for(world, tmp_path / "w")
    begun = now()
    collected = collect(world, workspace)
    assert collected == Collected(found=10, new=10, near_duplicates=collected.near_duplicates)
    rows = taken(workspace)
    assert [row["wnid"] for row in rows] == [DRAGONFLY] * 6 + [GOLDFINCH] * 4
    bodies = [world.photos.photo(number) for number in (*DRAGONFLIES, *GOLDFINCHES)]
    assert [row["sha256"] for row in rows] == [sha256_bytes(body) for body in bodies]
    assert sorted(path.read_bytes() for _, path in stored_files(workspace)) == sorted(bodies)
    for row in rows:
        assert (row["source"], row["licence"]) == (source, world.told.licence)
        assert (row["licence_url"] or "") == world.told.licence_url
        assert bool(row["licence_text"]) == (source != "duckduckgo")
        assert bool(row["author"]) == (source != "duckduckgo")
        assert row["title"]
        assert row["page"].startswith("https://")
    licence = parse(rows[1]["licence"])
    assert licence.version == ("" if source == "duckduckgo" else licence.id[-3:])
    credit = attribution(rows[1]["title"], rows[1]["author"], rows[1]["page"], licence)
    assert credit == world.told.credit
    with workspace.catalogue.read() as connection:
        for table in (origins.c.seen, searches.c.updated):
            moments = connection.scalars(select(table)).all()
            assert all(timedelta() <= moment - begun < timedelta(minutes=1) for moment in moments)
    assert status(workspace)["sources"] == {source: {"downloaded": 10}}


@pytest.mark.parametrize("source", WORLDS)
def test_classes_are_searched_for_as_the_label_space_says(
    source: str, make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world(source)
    workspace = workspace_for(world, tmp_path / "w")
    collect(world, workspace)
    with workspace.catalogue.read() as connection:
        rows = connection.execute(select(searches).order_by(searches.c.id)).all()
    asked = [(row.wnid, row.query) for row in rows]
    if source == "inaturalist":
        assert asked == [(DRAGONFLY, "Anisoptera"), (GOLDFINCH, "Carduelis carduelis")]
        # A genus of trees has the same name as the dragonflies.
        assert [row.options["taxon_rank"] for row in rows] == ["suborder", "species"]
    else:
        assert [text for _, text in asked] == list(SHELVES)
        assert [wnid for wnid, _ in asked] == [DRAGONFLY] * 2 + [GOLDFINCH] * 3
    assert all(row.done for row in rows)
    assert queries_of(workspace.label_space.get(DRAGONFLY), source)[-1][0] == "Anisoptera"


def test_given_queries_take_the_place_of_the_label_spaces(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world("openverse")
    workspace = workspace_for(world, tmp_path / "w")
    words = ["Carduelis carduelis", "nothing"]
    collect(world, workspace, DRAGONFLY, queries=words, options={"source": "flickr"})
    assert [query["q"] for query in world.questions()] == words
    assert {query["source"] for query in world.questions()} == {"flickr"}
    assert numbers(workspace, DRAGONFLY) == [12, 13, 14]


def test_the_command_of_the_readme_goes_on_with_a_larger_limit(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world("inaturalist")
    root = tmp_path / "w"
    workspace_for(world, root).close()

    def run(limit: int) -> dict[str, object]:
        done = run_curate(
            *["collect", "inaturalist", "--classes", "dragonfly,goldfinch", "--limit", str(limit)],
            *[*world.allow_hosts(), "--json"],
            workspace=root,
            expect=0,
            **world.variables(),
        )
        return dict(json.loads(done.stdout))

    first = run(3)
    assert {"found", "new", "known", "rejected", "failed"} <= first.keys()
    assert (first["found"], first["new"], first["known"]) == (6, 6, 0)
    assert (first["rejected"], first["failed"], first["list"]) == ({}, {}, None)
    assert [query["id_above"] for query in world.questions()] == ["0", "0"]
    second = run(500)
    assert (second["found"], second["new"], second["known"]) == (10, 4, 6)
    # It goes on behind the last observation that was read, and knows the taxa.
    assert [query["id_above"] for query in world.questions()[2:]] == ["1013", "1003"]
    workspace = workspace_for(world, root)
    third = collect(world, workspace, limit=1000)
    assert (third.found, third.new, third.known) == (10, 0, 10)
    assert len(world.questions()) == 4, "what is known to have ended is not asked again"
    assert world.api.hits("/v1/taxa") == 2
    assert Counter(world.photos.numbers()) == Counter((*DRAGONFLIES, *GOLDFINCHES))
    assert numbers(workspace) == [11, 12, 13, 1, 2, 3, 14, 4, 5, 6]


@pytest.mark.parametrize("source", WORLDS)
def test_larger_limits_take_up_each_photo_once_in_the_order_of_the_search(
    source: str, make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world(source)
    workspace = workspace_for(world, tmp_path / "w")
    for limit, known in ((2, 0), (5, 2), (None, 5)):
        collected = collect(world, workspace, DRAGONFLY, limit=limit)
        assert collected.known == known
        assert numbers(workspace) == list(DRAGONFLIES[:limit])
    assert Counter(world.photos.numbers()) == Counter(DRAGONFLIES)


def test_the_limit_counts_distinct_photos(make_world: MakeWorld, tmp_path: Path) -> None:
    world = make_world("wikimedia")
    workspace = workspace_for(world, tmp_path / "w")
    assert collect(world, workspace, DRAGONFLY, limit=5).new == 5
    assert numbers(workspace) == [1, 2, 3, 4, 5], "photo 4 is found by both queries"


def test_a_file_in_two_categories_counts_once(make_world: MakeWorld, tmp_path: Path) -> None:
    world = make_world("wikimedia")
    above, below = "Category:Odonata", "Category:Anisoptera"
    world.api.subcategories = {above: [below], below: [above]}  # type: ignore[attr-defined]
    world.api.files = [  # type: ignore[attr-defined]
        commons_file(world.photos, number, categories)
        for number, categories in enumerate([(above,), (above, below), (below,), (below,)], 1)
    ]
    workspace = workspace_for(world, tmp_path / "w")
    collected = collect(world, workspace, DRAGONFLY, queries=[above], limit=3)
    assert (collected.found, collected.new) == (3, 3)
    assert numbers(workspace) == [1, 2, 3]


def mixed(world: World) -> None:
    """One observation with photos of all kinds, one whose only photo may not be used, and one
    whose photo has no word on its licence.
    """
    host = world.photos.url("").rstrip("/")
    silent = photo(3, None, host)
    del silent["license_code"]
    free = [photo(1, "cc0", host), photo(2, None, host), silent, photo(4, "cc-by-nc", host)]
    world.api.observations = [  # type: ignore[attr-defined]
        observation(2001, free),
        observation(2002, [photo(5, None, host)]),
        observation(2003, [photo(6, "cc-by", host)]),
        observation(2004, [photo(7, "gpl", host)]),
    ]


def test_photos_of_other_licences_end_in_the_state_licence(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world("inaturalist")
    mixed(world)
    workspace = workspace_for(world, tmp_path / "w")
    collected = collect(world, workspace, DRAGONFLY)
    assert (collected.new, dict(collected.rejected)) == (3, {"licence": 2})
    assert numbers(workspace) == [1, 4, 6]
    assert states(workspace)["photos/2"] == states(workspace)["photos/3"] == "licence"
    assert "all rights reserved" in hit_rows(workspace)["photos/2"]["detail"]
    assert hit_rows(workspace)["photos/3"]["detail"] == "none told"
    assert set(world.photos.numbers()) == {1, 4, 6}, "what is refused is not downloaded"
    # What is refused does not use up the limit.
    again = workspace_for(world, tmp_path / "again")
    assert collect(world, again, DRAGONFLY, limit=3).new == 3


def test_unknown_licences_are_taken_where_allowed_and_reserved_rights_are_not(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world("inaturalist")
    mixed(world)
    workspace = workspace_for(world, tmp_path / "w")
    collect(world, workspace, DRAGONFLY)
    collected = collect(world, workspace, DRAGONFLY, allow_unknown_licence=True)
    assert "photo_license" not in world.questions()[-1]
    assert (collected.new, collected.known, dict(collected.rejected)) == (2, 3, {"licence": 2})
    rows = {row["locator"]: row["licence"] for row in taken(workspace)}
    assert rows.pop("photos/3") == rows.pop("photos/7") == "LicenseRef-unknown"
    assert all(parse(licence).redistributable for licence in rows.values())
    assert Counter(world.photos.numbers()) == Counter([1, 4, 6, 3, 7])


@pytest.mark.slow
def test_a_release_leaves_out_photos_of_unknown_licence(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world("inaturalist")
    host = world.photos.url("").rstrip("/")
    silent = photo(2, None, host)
    del silent["license_code"]
    world.api.observations = [  # type: ignore[attr-defined]
        observation(2001, [photo(1, "cc-by", host), silent])
    ]
    workspace = workspace_for(
        world,
        tmp_path / "w",
        filter__models=("lite/efficientnet_lite0",),
        # All that matters here is what happens to survivors.
        filter__threshold=1.0,
    )
    assert collect(world, workspace, DRAGONFLY, allow_unknown_licence=True).new == 2
    summary = run_filter(workspace)
    assert summary["survivors"] == 2
    released = build_release(workspace, "0.1.0", unreviewed=True)
    assert (released["images"], released["withheld"], released["licence_unknown"]) == (1, 1, 0)
    assert "images left out because no licence allows passing them on: 1" in released["problems"]


def test_a_wider_allow_list_takes_up_photos_that_were_refused(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world("inaturalist")
    mixed(world)
    narrow = workspace_for(world, tmp_path / "w", collect__licences=("CC0-1.0",))
    assert collect(world, narrow, DRAGONFLY).rejected == {"licence": 3}
    assert world.questions()[-1]["photo_license"] == "cc0"
    assert numbers(narrow) == [1]
    narrow.close()
    workspace = workspace_for(world, tmp_path / "w")
    collected = collect(world, workspace, DRAGONFLY)
    assert (collected.new, collected.known, dict(collected.rejected)) == (2, 1, {"licence": 2})
    assert sorted(numbers(workspace)) == [1, 4, 6]
    at_once = workspace_for(world, tmp_path / "at once")
    collect(world, at_once, DRAGONFLY)
    assert states(workspace) == states(at_once)


def test_taxa_of_one_name_are_told_apart_by_the_rank_of_the_label_space_or_the_users(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world("inaturalist")
    workspace = workspace_for(world, tmp_path / "w")
    with pytest.raises(AmbiguousNameError, match=f"{ANISOPTERA} .*, {TREES} "):
        collect(world, workspace, DRAGONFLY, queries=["Anisoptera"])
    assert collect(world, workspace, DRAGONFLY).new == 6
    collect(world, workspace, DRAGONFLY, options={"taxon_rank": "genus"})
    assert [query["taxon_id"] for query in world.questions()] == [
        *[str(ANISOPTERA)] * 2,
        str(TREES),
    ]


@pytest.mark.parametrize("source", ["inaturalist", "flickr"])
def test_a_search_that_had_ended_is_asked_again_for_what_was_added_since(
    source: str, make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world(source)
    world.fill([1, 2, 3])
    workspace = workspace_for(world, tmp_path / "w")
    collect(world, workspace, DRAGONFLY)
    world.fill([1, 2, 3, 4, 5])
    asked = len(world.questions())
    assert collect(world, workspace, DRAGONFLY).new == 0
    assert len(world.questions()) == asked
    collected = collect(world, workspace, DRAGONFLY, refresh=True)
    assert (collected.new, collected.known) == (2, 3)
    assert sorted(world.photos.numbers()) == [1, 2, 3, 4, 5]
