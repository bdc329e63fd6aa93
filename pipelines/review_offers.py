"""The data of tasks: what a run said of candidates, where it looked, and how it is shown."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import RowMapping

from annotation.interface import Purpose
from annotation.offered import offered
from annotation.task_data import Shown, task
from curate.catalog import blind, judging
from curate.catalog import review_queues as queues
from curate.errors import StorageError
from pipelines.review_photos import Photos, boxes
from pipelines.runs import scores_path
from pipelines.workspace import Workspace

#: Accepted photos that a page shows of a class.
EXAMPLES = 3

#: Classes that a follow-up offers where models said few, so that their number tells nothing; the
#: fewest of them that no model said; and most of all.
_OFFERED, _DISTRACTORS, _MOST = 8, 4, 12


def said_of(
    workspace: Workspace,
    run: RowMapping,
    keys: Collection[str],
    *,
    view: int | None = None,
    by_model: bool = False,
) -> dict[str, tuple[str, ...]]:
    """What a run's classifiers took candidates for.

    Args:
        workspace: of the run.
        run: a finished run.
        keys: of the candidates.
        view: look at this view alone.
        by_model: give what each classifier said, in their order, instead of each class once.

    Returns:
        Ids of classes by key, the most frequent first; candidates without scores are left out.

    Raises:
        StorageError: the scores are missing or damaged.
    """
    if not keys:
        return {}
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = scores_path(workspace, run)
    name = path.relative_to(workspace.root)
    chosen = pa.array(sorted(keys), pa.string())
    columns = ["candidate", "model", "view", "predicted_wnid"]
    counts: dict[str, Counter[tuple[int, str]]] = {}
    wnids: dict[str, str] = {}
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=columns):
                mask = pc.is_in(batch["candidate"], value_set=chosen)
                if view is not None:
                    mask = pc.and_(mask, pc.equal(batch["view"], view))
                table = pa.Table.from_batches([batch.filter(mask)])
                told = table.group_by(["candidate", "model", "predicted_wnid"]).aggregate(
                    [("view", "count")]
                )
                for row in told.to_pylist():
                    # One string for each class, however many candidates are taken for it.
                    wnid = wnids.setdefault(row["predicted_wnid"], row["predicted_wnid"])
                    of = counts.setdefault(row["candidate"], Counter())
                    of[row["model"] if by_model else 0, wnid] += row["view_count"]
    except FileNotFoundError:
        raise StorageError(f"{name} is missing: restore it from a copy") from None
    except (OSError, pa.ArrowException) as error:
        raise StorageError(f"{name} is damaged: restore it from a copy") from error
    return {
        key: tuple(
            wnid for (_, wnid), _ in sorted(of.items(), key=lambda item: (-item[1], item[0]))
        )
        for key, of in counts.items()
    }


class TaskMaker:
    """Makes the data of tasks, some at a time; see `prepare`.

    Args:
        workspace: as the run was judged, see `runs.as_judged`.
        run: the finished run that is reviewed.
        photos: where photos are found.
        accepted: (label, SHA-256) of what people have accepted, in review order: the first ones of
            a label are shown as its examples.
        rows: what `prepare` shall have been called with.
        purpose: what they are for.
        votes: for adjudication who said what, by key.

    Attributes:
        refused: why some cannot be shown, by key.
    """

    def __init__(
        self,
        workspace: Workspace,
        run: RowMapping,
        photos: Photos,
        accepted: Iterable[tuple[str, str]],
        rows: Iterable[Mapping[str, Any]] = (),
        purpose: Purpose = "review",
        votes: Mapping[str, str] | None = None,
    ) -> None:
        self.workspace, self.run, self.photos = workspace, run, photos
        self.purpose: Purpose = purpose
        self.refused: dict[str, str] = {}
        self._votes = votes or {}
        self._recipe = run["record"]["recipes"][0]
        self._accepted: dict[str, list[str]] = {}
        for wnid, sha256 in accepted:
            # One more than is shown, since none is an example of itself.
            if len(some := self._accepted.setdefault(wnid, [])) <= EXAMPLES:
                some.append(sha256)
        self._examples: dict[str, str] = {}
        self._said: dict[str, tuple[str, ...]] = {}
        self.prepare(rows)

    def prepare(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Read what was said of the candidates of some rows, before their tasks are asked for.

        All scores of the run are looked through for it, so some thousands of rows at a time.
        """
        if self.purpose != "blind":
            self._said = self._scored(rows)

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any] | None]:
        """The tasks of some rows in their order; None for those that cannot be shown."""
        with self.workspace.catalogue.read() as connection:
            images = queues.images_named(connection, [row["sha256"] for row in rows])
        addresses = self.photos.addresses(images.values())
        self._find_examples({row["wnid"] for row in rows})
        self._shown: dict[int, set[str]] = defaultdict(set)
        made = [self._task(row, images, addresses) for row in rows]
        if self._shown:
            # Whoever has seen a photo as an example knows its label, in a blind test as well.
            with self.workspace.catalogue.write() as connection:
                for project_id, sha256s in self._shown.items():
                    blind.remember_examples(connection, project_id, sha256s)
        return made

    def _task(
        self,
        row: Mapping[str, Any],
        images: Mapping[str, Mapping[str, Any]],
        addresses: Mapping[str, str],
    ) -> dict[str, Any] | None:
        key, sha256, wnid = row["candidate"], row["sha256"], row["wnid"]
        space, labels = self.workspace.label_space, self.workspace.weak_labels
        if sha256 not in addresses:
            why = self.photos.refused.get(sha256)
            self.refused[key] = str(why) if why else f"missing: {sha256} is not in the catalogue"
            return None
        if wnid not in labels:
            self.refused[key] = f"no-label: {wnid} is not in {labels.name} any more"
            return None
        said = [one for one in self._said.get(key, ()) if one in space and one != wnid]
        more = max(_DISTRACTORS, _OFFERED - len(said))
        image = images[sha256]
        examples = [
            one for one in self._accepted.get(wnid, ()) if one != sha256 and one in self._examples
        ][:EXAMPLES]
        if examples:
            self._shown[row["project_id"]].update(examples)
        shown = Shown(
            candidate=key,
            image=addresses[sha256],
            claimed=labels.get(wnid),
            examples=[self._examples[one] for one in examples],
            boxes=boxes(image["width"], image["height"], self._recipe),
            offered=[space.get(one) for one in offered(said, wnid, space, key, more, _MOST)],
            votes=self._votes.get(key, ""),
        )
        return dict(task(shown, self.purpose))

    def _find_examples(self, wnids: Collection[str]) -> None:
        wanted = [
            sha256
            for wnid in wnids
            for sha256 in self._accepted.get(wnid, ())
            if sha256 not in self._examples
        ]
        if wanted and self.purpose != "blind":
            with self.workspace.catalogue.read() as connection:
                images = queues.images_named(connection, wanted)
            self._examples |= self.photos.examples(images.values())

    def _scored(self, rows: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
        """What was said of each candidate; of a gold item what was said of its photo."""
        asked = {row["candidate"]: row["sha256"] for row in rows}
        with self.workspace.catalogue.read() as connection:
            of_images = judging.keys_of_images(connection, sorted(set(asked.values())))
        keys = {key for those in of_images.values() for key in those}
        said = said_of(self.workspace, self.run, keys)
        found: dict[str, tuple[str, ...]] = {}
        for key, sha256 in asked.items():
            same = [key, *of_images[sha256]]
            if told := next((said[one] for one in same if one in said), None):
                found[key] = told
        return found
