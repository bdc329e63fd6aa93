"""A workspace with a finished run and answers of people, as rows: for tests of what reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import insert, select

from curate.catalog import intake, judging, listing, reviews
from curate.catalog.review_tables import answers, gold, review_projects, review_tasks
from curate.catalog.tables import now
from curate.files import candidate_key, sha256_bytes
from pipelines.review_projects import server_of
from pipelines.workspace import Workspace, create_workspace

START = datetime(2026, 1, 2, 3, 4, 5)
RUN = "0123456789ab"


@dataclass
class Rows:
    """A workspace whose candidates, run and answers are rows that nothing has computed.

    Its candidates are numbered; all are survivors of one run but for those from `survivors` on.
    """

    workspace: Workspace
    keys: list[str]
    sha256s: list[str]
    wnids: list[str]
    ids: list[int]
    accounts: list[str] = field(default_factory=lambda: ["ann@example.org", "bob@example.org"])
    answered: int = 0

    def project(
        self, purpose: str = "review", person: int | None = 0, number: int | None = None
    ) -> int:
        """The row number of somebody's project, made where it is absent."""
        with self.workspace.catalogue.write() as connection:
            whose = None
            if person is not None:
                whose = reviews.annotator(connection, self.account(person))["id"]
            mine = (review_projects.c.purpose == purpose, review_projects.c.annotator_id == whose)
            found = connection.scalar(select(review_projects.c.id).where(*mine))
            if found is not None:
                return int(found)
            row = {
                "title": f"{purpose} {person}",
                "server": server_of(self.workspace),
                "purpose": purpose,
                "annotator_id": whose,
                "number": number,
                "page": None,
                "state": "open",
                "pulled": None,
                "record": {},
                "made": now(),
            }
            made = connection.execute(insert(review_projects).values(row))
            return int(made.inserted_primary_key[0])

    def account(self, person: int) -> str:
        """The mail address of a person by number."""
        while len(self.accounts) <= person:
            self.accounts.append(f"person{len(self.accounts)}@example.org")
        return self.accounts[person]

    def give(
        self,
        numbers: Sequence[int],
        people: Sequence[int | None] = (0, 1),
        purpose: str = "review",
        tasks: dict[int, int] | None = None,
        **more: Any,
    ) -> None:
        """Give candidates to people."""
        for person in people:
            project = self.project(purpose, person)
            rows = [
                {
                    "project_id": project,
                    "candidate": self.keys[number],
                    "sha256": self.sha256s[number],
                    "wnid": self.wnids[number],
                    "place": place,
                    "gold": False,
                    "state": "open",
                    "until": None,
                    "sent": True,
                    "number": (tasks or {}).get(number, 1000 * (project + 1) + number),
                    **more,
                }
                for place, number in enumerate(numbers)
            ]
            with self.workspace.catalogue.write() as connection:
                connection.execute(insert(review_tasks), rows)

    def say(
        self,
        number: int,
        person: int,
        decision: str,
        *,
        purpose: str = "review",
        entry: str | None = None,
        event: str = "answered",
        at: int | None = None,
        **more: Any,
    ) -> str:
        """Record what somebody says of a candidate; gives the entry."""
        self.answered += 1
        project = self.project(purpose, None if purpose == "adjudication" else person)
        entry = entry or f"entry {self.answered:05}"
        row = {
            "key": sha256_bytes(str(self.answered).encode()),
            "entry": entry,
            "project_id": project,
            "task": 1000 * (project + 1) + number,
            "annotation": self.answered,
            "candidate": self.keys[number],
            "purpose": purpose,
            "event": event,
            "decision": decision,
            "reasons": [],
            "corrected": None,
            "also": [],
            "picked": None,
            "note": "",
            "seconds": 5.0,
            "made": START + timedelta(seconds=self.answered if at is None else at),
            "pulled": now(),
            **more,
        }
        with self.workspace.catalogue.write() as connection:
            row["annotator_id"] = reviews.annotator(connection, self.account(person))["id"]
            connection.execute(insert(answers).values(row))
        return entry

    def set_gold(self, number: int, decision: str) -> None:
        """Make a candidate a gold item."""
        row = {"candidate": self.keys[number], "sha256": self.sha256s[number]}
        row |= {"wnid": self.wnids[number], "decision": decision, "origin": "table"}
        with self.workspace.catalogue.write() as connection:
            connection.execute(insert(gold).values(row | {"added": now()}))

    def set_controls(self, numbers: Sequence[int]) -> None:
        """Make candidates the control sample of the run."""
        with self.workspace.catalogue.write() as connection:
            listing.set_controls(connection, RUN, [self.ids[number] for number in numbers])


def made_rows(
    root: Path,
    count: int,
    survivors: int | None = None,
    *,
    labels: Sequence[str] = (),
    predicted: str = "n02123045",
    cap: int = 15,
    preset: str = "imagenet-a",
    review: dict[str, Any] | None = None,
) -> Rows:
    """Make a workspace with so many candidates, the first `survivors` of which survived a run.

    Args:
        root: where.
        count: of candidates.
        survivors: all by default.
        labels: their labels in turn; one class by default.
        predicted: what the first classifier takes all of them for.
        cap: of the run.
        preset: of the workspace.
        review: settings of the group `review`.
    """
    workspace = create_workspace(root, preset)
    workspace = workspace.changed({f"review.{k}": v for k, v in (review or {}).items()})
    known = list(labels) or [workspace.weak_labels.wnids[0]]
    sha256s = [sha256_bytes(f"photo {number}".encode()) for number in range(count)]
    wnids = [known[number % len(known)] for number in range(count)]
    keys = [candidate_key(*both) for both in zip(sha256s, wnids, strict=True)]
    image = {"extension": "jpg", "format": "JPEG", "mode": "RGB", "bytes": 1, "width": 1}
    image |= {"height": 1, "notes": [], "pixel_sha256": "", "perceptual_hash": ""}
    settings = {"filter": {"cap": cap, "cap_order": "hash", "seed": 0}, "quality": {}}
    run = {"id": RUN, "scoring": RUN, "scores_run": RUN, "rule": workspace.settings.filter.rule}
    run |= {"state": "finished", "settings": settings, "record": {}, "summary": {}}
    with workspace.catalogue.write() as connection:
        intake.add_images(
            connection, [{"sha256": each, "taken_in": now(), **image} for each in sha256s]
        )
        intake.add_candidates(
            connection,
            [
                {"key": key, "sha256": sha256, "wnid": wnid, "near_key": None}
                for key, sha256, wnid in zip(keys, sha256s, wnids, strict=True)
            ],
        )
        found = intake.candidate_ids(connection, keys)
        ids = [found[key] for key in keys]
        intake.set_origins(
            connection,
            [
                {
                    "candidate_id": number,
                    "source": "folder",
                    "locator": f"photos/{place}.jpg",
                    "collection": None,
                    "page": None,
                    "title": None,
                    "author": "somebody",
                    "licence": "CC0-1.0",
                    "licence_url": "https://creativecommons.org/publicdomain/zero/1.0/",
                    "licence_text": "CC0",
                    "seen": now(),
                }
                for place, number in enumerate(ids)
            ],
        )
        judging.start_run(connection, run | {"started": now(), "finished": now()})
        judging.add_verdicts(
            connection,
            [
                {
                    "run_id": RUN,
                    "candidate_id": number,
                    "outcome": "survivor" if place < (survivors or count) else "removed",
                    "reason": None if place < (survivors or count) else "correct",
                    "predicted_wnid": predicted,
                    "confidence": 0.5,
                    "p_true": 0.01,
                    "borderline": False,
                }
                for place, number in enumerate(ids)
            ],
        )
    return Rows(workspace, keys, sha256s, wnids, ids)
