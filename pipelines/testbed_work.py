"""The passes of a testbed run: each part of each setting through each model, kept when whole.

A file of the store is what one model said of the images of one part, under the hash of all that
makes it. It appears whole or not at all, so that a kill costs what was in hand, and several
commands, one a GPU, may share a store. What is right is not in it: other labels need no pass.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.corruptions import Scale, describe
from curate.files import canonical_json, make_folder, printable, remove_leftovers, sha256_bytes
from curate.progress import Bar, Stop, progress
from curate.testbed.predictions import Predictions
from curate.testbed.setting import Part
from pipelines.corruption_cache import Cache
from pipelines.corruption_forward import Clock, Job, Passes, Scored
from pipelines.corruption_models import TOGETHER
from pipelines.corruption_pictures import Pictures
from pipelines.corruption_work import Damage, Here, may_be_kept, processes
from pipelines.datasets import Dataset, dataset_of
from pipelines.provenance import made_by, numbers_by, processor
from pipelines.testbed_attacked import Attacked
from pipelines.testbed_models import Models
from pipelines.threads import usable_cores

if TYPE_CHECKING:
    from curate.images.views import ViewRecipe
    from curate.models.classifier import Classifier

# Counts up when the code computes other numbers from the same input.
_RECIPE = 2

_SCALE: Scale = "short-side"


class Store(Cache):
    """Predictions by what makes them, for several commands at a time.

    Args:
        folder: where they are; it is made.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(None)
        make_folder(folder)
        self._folder = folder
        remove_leftovers(folder, shared=True)


class Run:
    """The passes of a run.

    Args:
        parts: what is measured, each with those that it is held against.
        models: the classifiers.
        store: what is finished.
        seed: of corruptions and attacks.
        stop: asks to stop.
        cores: that this process may use; None for all that it has.

    Attributes:
        found: name of a model and place of a part among `passed` to what was said.
        passed: the parts that models pass: those of the settings, and what stands against them.
        contents: SHA-256 over the images of each, as `Pictures.content_sha256`.
        records: of each model, what makes its numbers.
        clock: of the forward passes.
        computed, kept: how many of them were computed here, and found in the store.
        at: where the run is.
        seconds: spent on pictures and passes.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        models: Models,
        store: Store,
        seed: int,
        stop: Stop,
        cores: int | None = None,
    ) -> None:
        self.passed = [one for part in parts for one in (part, part.inside) if one is not None]
        self.found: dict[tuple[str, int], Predictions] = {}
        self.contents: dict[int, str] = {}
        self.records: dict[str, dict[str, Any]] = {}
        self.clock = Clock()
        self.computed = self.kept = 0
        self.at, self.seconds = "the beginning", 0.0
        self._models, self._store, self._seed, self._stop = models, store, seed, stop
        self._cores = cores or usable_cores()
        self._recipes: dict[str, ViewRecipe] = {}
        self._device = ""
        # Many parts begin with the same images, and those may be fifty thousand.
        listed: dict[int, tuple[Dataset, str]] = {}
        for part in self.passed:
            if id(part.layout) not in listed:
                dataset = dataset_of(part.layout.root, part.layout, part.space, "the setting")
                listed[id(part.layout)] = dataset, _key(dataset)
        told = [listed[id(part.layout)] for part in self.passed]
        self._datasets = [
            replace(dataset, name=printable(part.name), space=part.space)
            for part, (dataset, _) in zip(self.passed, told, strict=True)
        ]
        self._keys = [key for _, key in told]
        self._pictures: dict[str, Pictures] = {}
        corrupted = [
            key for key, part in zip(self._keys, self.passed, strict=True) if part.corruption
        ]
        # Decoded pixels are worth their room on the disk where several corruptions begin there.
        self._several = {key for key in corrupted if corrupted.count(key) > 1}
        self._pool: Executor | None = None
        # Hash of what makes an answer to the first part that asked for it; and those that asked
        # later, by model, with that first one.
        self._begun: dict[str, int] = {}
        self._twins: list[tuple[str, int, int]] = []

    def close(self) -> None:
        """End the workers and give the disk its room back."""
        if isinstance(self._pool, ProcessPoolExecutor):
            self._pool.shutdown(wait=False, cancel_futures=True)
        for pictures in self._pictures.values():
            pictures.close()

    def take(self, names: Sequence[str]) -> None:
        """Look at models, so that what cannot work fails before the first image.

        Raises:
            UsageError: an unknown model, or one whose output lacks classes of a setting.
        """
        spaces = {part.space.fingerprint: part.space for part in self.passed}
        for name in names:
            if name in self.records:
                continue
            classifier = self._models.get(name)
            for space in spaces.values():
                classifier.columns(space)
            self._recipes[name] = classifier.preprocessing.recipe
            self._device = classifier.device.type
            made = made_by(str(classifier.device)) | numbers_by(classifier.device.type)
            self.records[name] = {"model": self._models.record(name), "made_by": made}

    def groups(self) -> list[tuple[str, ...]]:
        """The models that were taken, those together that see the same pictures, a few each."""
        by_recipe: dict[ViewRecipe, list[str]] = {}
        for name, recipe in self._recipes.items():
            by_recipe.setdefault(recipe, []).append(name)
        return [
            tuple(names[start : start + TOGETHER])
            for names in by_recipe.values()
            for start in range(0, len(names), TOGETHER)
        ]

    def finish(self) -> Generator[str, None, None]:
        """Pass everything, and tell each model that is whole; those after a stop are not."""
        for names in self.groups():
            if not self.measure(names, range(len(self.passed))):
                return
            yield from names

    def forget(self, name: str) -> None:
        """Let go of what a model said, once it is counted: a testbed has millions of answers."""
        for place in range(len(self.passed)):
            self.found.pop((name, place), None)

    def measure(self, names: Sequence[str], places: Sequence[int]) -> bool:
        """Pass some parts through models that were taken and see the same pictures.

        Returns:
            False where a stop was requested before the end.
        """
        began = time.perf_counter()
        self._begun.clear()
        recipe = self._recipes[names[0]]
        images = sum(len(self._datasets[place].paths) for place in places)
        with progress(", ".join(names), images * len(names)) as bar:
            passes = Passes(self._workers(), self._device, self.clock, self._cores)
            for job in passes.finish(self._jobs(names, places, recipe, bar), self._stop, bar):
                place, subjects = job.about
                dataset = self._datasets[place]
                for name, one in zip(subjects, job.models, strict=True):
                    said = one.predictions(dataset.paths, dataset.wnids)
                    if may_be_kept(said.failed, job.pictures.digests):
                        self._store.put(self._about(name, place, recipe), said)
                    self.found[name, place] = said
                    self.computed += 1
        for name, place, first in self._twins:
            if (name, first) in self.found:
                self.found[name, place] = self.found[name, first]
                self.kept += 1
        self._twins.clear()
        self.seconds += time.perf_counter() - began
        return all((name, place) in self.found for name in names for place in places)

    def _jobs(
        self, names: Sequence[str], places: Sequence[int], recipe: ViewRecipe, bar: Bar
    ) -> Iterator[Job]:
        for place in places:
            part = self.passed[place]
            pictures = self._read(place)
            if pictures is None:
                return
            missing = [name for name in names if self._is_missing(name, place, recipe)]
            bar.advance((len(names) - len(missing)) * len(pictures))
            if not missing:
                continue
            if part.corruption is not None and not pictures.decode(self._stop):
                return
            self.at = part.name
            scored = [self._scored(self._models.get(name), part, pictures) for name in missing]
            yield Job(pictures, self._damage(part, recipe), scored, (place, missing))

    def _scored(self, classifier: Classifier, part: Part, pictures: Pictures) -> Scored:
        if part.attack is None:
            return Scored(classifier, part.space, len(pictures))
        return Attacked(classifier, part.space, part, pictures.digests)

    def _is_missing(self, name: str, place: int, recipe: ViewRecipe) -> bool:
        """Whether nobody has computed, or does, what a model says of a part; else it is taken."""
        dataset = self._datasets[place]
        outputs = self.records[name]["model"]["output"]["classes"]
        about = self._about(name, place, recipe)
        first = self._begun.setdefault(sha256_bytes(canonical_json(about)), place)
        if first != place:
            # Two settings begin with the same images: the one may not be kept yet.
            self._twins.append((name, place, first))
            return False
        said = self._store.get(about, dataset.paths, dataset.wnids, outputs)
        if said is None:
            return True
        self.found[name, place] = said
        self.kept += 1
        return False

    def _read(self, place: int) -> Pictures | None:
        """The pictures of a part, which may be those of others as well; None where a stop came."""
        dataset, key = self._datasets[place], self._keys[place]
        if key not in self._pictures:
            pictures = Pictures(dataset, None, keep=key in self._several)
            if not pictures.read(self._stop, is_shown=False):
                pictures.close()
                return None
            self._pictures[key] = pictures
        self.contents[place] = self._pictures[key].content_sha256
        return self._pictures[key]

    def _workers(self) -> Executor:
        if self._pool is None:
            self._pool = Here() if self._device == "cpu" else processes(self._cores, ())
        return self._pool

    def _damage(self, part: Part, recipe: ViewRecipe) -> Damage:
        """What is done to each picture of a part that a model with this recipe sees."""
        name, severity = part.corruption or (None, 0)
        whole = replace(recipe, resize=recipe.crop) if part.is_cut else recipe
        return Damage(
            corruption=name,
            severity=severity,
            seed=self._seed,
            scale=_SCALE,
            frost=None,
            jpeg=False,
            before=None,
            after=whole,
            border=part.border,
        )

    def _about(self, name: str, place: int, recipe: ViewRecipe) -> dict[str, Any]:
        """Everything that makes what a model says of a part."""
        part, record = self.passed[place], self.records[name]
        about: dict[str, Any] = {
            "recipe": _RECIPE,
            "content_sha256": self.contents[place],
            "label_space": part.space.fingerprint,
            "model": record["model"],
            "made_by": record["made_by"],
            "processor": processor(),
            "view": asdict(recipe),
            "border": part.border,
            "is_cut": part.is_cut,
        }
        if part.corruption is not None:
            corruption, severity = part.corruption
            about["corruption"] = {
                "definition": describe(corruption, scale=_SCALE, frost=None),
                "severity": severity,
                "seed": self._seed,
            }
        if part.attack is not None:
            truth = sha256_bytes(canonical_json([list(ids) for ids in part.right]))
            about["attack"] = {**asdict(part.attack), "truth": truth}
        return about


def _key(dataset: Dataset) -> str:
    """The same for the same images."""
    return sha256_bytes(canonical_json([str(item.path) for item in dataset.layout]))
