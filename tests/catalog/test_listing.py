"""What is read of a run: the same on both databases, and the same as counting by hand."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete

from curate.catalog import intake, judging, listing, overview
from curate.catalog.engine import Catalogue
from curate.catalog.tables import candidates, images, now, parts, runs, verdicts

_STAGES = ("candidates", "scored", "survivors", "shortlisted")
_CLASSES = ("n1", "N2", "n_3")

VERDICTS = st.lists(
    st.tuples(
        st.sampled_from(_CLASSES),
        st.sampled_from(("survivor", "removed", "removed", "failed")),
        st.one_of(st.none(), st.sampled_from((0.0, 0.1, 0.1 + 1e-12, 0.5))),
        st.booleans(),
    ),
    max_size=12,
)


def record(catalogue: Catalogue, told: list[tuple[str, str, float | None, bool]]) -> None:
    """Make a run with these verdicts: class, outcome, p(true class), whether it is listed."""
    with catalogue.write() as connection:
        for table in (verdicts, parts, runs, candidates, images):
            connection.execute(delete(table))
        rows = [
            {
                "sha256": f"{number:064}",
                "extension": "jpg",
                "format": "JPEG",
                "mode": "RGB",
                "bytes": 1,
                "width": 1,
                "height": 1,
                "notes": [],
                "pixel_sha256": "",
                "perceptual_hash": "",
                "taken_in": now(),
            }
            for number in range(len(told))
        ]
        intake.add_images(connection, rows)
        keys = [f"{number * 7 % 13:02}" for number in range(len(told))]
        intake.add_candidates(
            connection,
            [
                {"key": key, "sha256": row["sha256"], "wnid": wnid, "near_key": None}
                for key, row, (wnid, *_) in zip(keys, rows, told, strict=True)
            ],
        )
        ids = intake.candidate_ids(connection, keys)
        begun = dict.fromkeys(("id", "scoring", "scores_run"), "r")
        begun |= {"rule": "misclassified", "state": "running"}
        judging.start_run(connection, {**begun, "settings": {}, "record": {}, "started": now()})
        part = {"run_id": "r", "number": 0, "file": "f", "sha256": "0", "rows": 0}
        part |= {"candidates": len(told), "forwards": 0, "seconds": 0.0, "made_by": {}}
        judging.add_part(
            connection,
            part,
            [
                {
                    "run_id": "r",
                    "candidate_id": ids[key],
                    "outcome": outcome,
                    "reason": None if outcome == "survivor" else outcome,
                    "model": None,
                    "view": None,
                    "predicted_wnid": "n1",
                    "confidence": 0.5,
                    "p_true": p_true,
                    "borderline": False,
                    "place": 1 if listed and outcome == "survivor" else None,
                }
                for key, (_, outcome, p_true, listed) in zip(keys, told, strict=True)
            ],
        )


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(told=VERDICTS)
def test_counts_and_nearest_misses_are_those_counted_by_hand(
    catalogue: Catalogue, told: list[tuple[str, str, float | None, bool]]
) -> None:
    record(catalogue, told)

    with catalogue.read() as connection:
        funnel = overview.funnel(connection, "r")
        missed = {count: listing.nearest_misses(connection, "r", count) for count in (0, 1, 3, 99)}
    expected: dict[str, dict[str, int]] = {}
    for wnid, outcome, _, listed in told:
        mine = expected.setdefault(wnid, dict.fromkeys(_STAGES, 0))
        mine["candidates"] += 1
        mine["scored"] += outcome != "failed"
        mine["survivors"] += outcome == "survivor"
        mine["shortlisted"] += outcome == "survivor" and listed
    got = {w: {stage: stages.get(stage, 0) for stage in _STAGES} for w, stages in funnel.items()}
    assert got == expected
    keys = [f"{number * 7 % 13:02}" for number in range(len(told))]
    removed = [
        (p_true is None, p_true or 0.0, key)
        for key, (_, outcome, p_true, _) in zip(keys, told, strict=True)
        if outcome == "removed"
    ]
    for count, rows in missed.items():
        assert [row["key"] for row in rows] == [key for _, _, key in sorted(removed)[:count]]


def test_places_are_given_and_read_in_pieces_and_taken_back(catalogue: Catalogue) -> None:
    record(catalogue, [("n1", "survivor", 0.1, True)] * 5 + [("n1", "removed", 0.5, False)])
    with catalogue.write() as connection:
        ids = [row["candidate_id"] for row in judging.survivors(connection, "r")]
        listing.clear_places(connection, "r")
        assert listing.shortlist(connection, "r") == []
        listing.set_places(connection, "r", ids[:2])
        listing.set_places(connection, "r", ids[2:4], 3)
    with catalogue.read() as connection:
        whole = listing.shortlist(connection, "r")
        pages = [listing.shortlist(connection, "r", after, 3) for after in (0, 3, 6)]
    assert [(row.place, row.candidate_id) for row in whole] == list(enumerate(ids[:4], start=1))
    assert [len(page) for page in pages] == [3, 1, 0]
    assert [row for page in pages for row in page] == whole


def test_failed_images_are_read_in_pieces_by_reason(catalogue: Catalogue) -> None:
    record(catalogue, [("n1", "failed", None, False)] * 5 + [("n1", "removed", 0.5, False)])
    with catalogue.read() as connection:
        first = judging.failed_images(connection, "r", ["failed"], 0, 3)
        last = first[-1]["candidate_id"]
        rest = judging.failed_images(connection, "r", ["failed", "missing"], last, 3)
        assert judging.failed_images(connection, "r", ["missing"], 0, 3) == []
        failed = [row["sha256"] for row in judging.failures(connection, "r")]
    assert [len(first), len(rest)] == [3, 2]
    assert sorted(row["sha256"] for row in [*first, *rest]) == sorted(failed)
