"""A corruption run: every setting of every model, each computed once and kept when it is whole."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from curate.progress import Bar, Stop, progress
from curate.testbed.corruption_results import measure_setting
from curate.testbed.predictions import Predictions
from pipelines.corruption_cache import Cache
from pipelines.corruption_forward import Clock, Job, Passes, Scored
from pipelines.corruption_models import TOGETHER, Models, Subject
from pipelines.corruption_names import Corruptions
from pipelines.corruption_pictures import Pictures
from pipelines.corruption_plan import CLEAN, Plan, Setting
from pipelines.corruption_work import Damage, Here, may_be_kept, processes
from pipelines.provenance import made_by, numbers_by, processor
from pipelines.threads import usable_cores

if TYPE_CHECKING:
    from curate.images.views import ViewRecipe


class Run:
    """The measurements of a run.

    Args:
        plan: what is measured.
        known: the corruptions.
        models: the classifiers.
        cache: finished settings.
        workers: processes that corrupt images; None for what suits the run.
        stop: asks to stop.

    Attributes:
        clock: of the forward passes.
        measured: subject and setting to what `measure_setting` gives.
        failures: (path, reason) of an image to the settings in which it failed.
        records: subject to `Classifier.record`, its recipe, and what computed its numbers.
        contents: what was read, as `Pictures.content_sha256`: the clean images (None), and those
            of each setting of an ImageNet-C folder.
        finished: settings of a model that are whole, kept ones among them.
        at: where the run is.
        seconds: spent on corrupting and on passes.
    """

    def __init__(
        self,
        plan: Plan,
        known: Corruptions,
        models: Models,
        cache: Cache,
        workers: int | None,
        stop: Stop,
    ) -> None:
        self.plan, self.known = plan, known
        self.clock = Clock()
        self.measured: dict[tuple[Subject, Setting], dict[str, Any]] = {}
        self.failures: dict[tuple[str, str], dict[str, None]] = {}
        self.records: dict[Subject, dict[str, Any]] = {}
        self.contents: dict[Setting | None, str] = {}
        self.finished, self.at, self.seconds = 0, "the beginning", 0.0
        self._models, self._cache, self._stop = models, cache, stop
        self._wanted = workers
        self._pool: Executor | None = None
        self._pictures: dict[ViewRecipe | None, Pictures] = {}

    def close(self) -> None:
        """End the workers and give the disk its room back."""
        if isinstance(self._pool, ProcessPoolExecutor):
            self._pool.shutdown(wait=False, cancel_futures=True)
        for pictures in self._pictures.values():
            pictures.close()

    def add(self, subject: Subject) -> ViewRecipe:
        """Take a subject, so that what cannot work fails before the first image."""
        classifier, recipe = self._models.get(subject.name), self._models.recipe(subject)
        self.records[subject] = {
            "model": classifier.record(),
            "recipe": recipe,
            "made_by": made_by(str(classifier.device)) | numbers_by(classifier.device.type),
        }
        return recipe

    def groups(self) -> list[list[Subject]]:
        """The subjects, those together that see the same pictures and fit into memory."""
        by_recipe: dict[ViewRecipe, list[Subject]] = {}
        for subject, record in self.records.items():
            by_recipe.setdefault(record["recipe"], []).append(subject)
        return [
            members[start : start + TOGETHER]
            for members in by_recipe.values()
            for start in range(0, len(members), TOGETHER)
        ]

    def measure(self, members: Sequence[Subject]) -> bool:
        """Measure subjects of one recipe in every setting.

        Returns:
            False where a stop was requested before the end.
        """
        recipe = self.records[members[0]]["recipe"]
        settings = list(self.plan.all_settings)
        base = None
        if self.plan.folder is None:
            base = self._base(recipe)
            if not base.content_sha256 and not base.read(self._stop):
                return False
            settings = [s for s in settings if self._missing(members, s, base, recipe)]
            if settings and not base.decode(self._stop):
                return False
        images = len(self.plan.first.paths)
        names = ", ".join(dict.fromkeys(subject.name for subject in members))
        began = time.perf_counter()
        with progress(names, len(settings) * images * len(members), unit="images") as bar:
            device = self._models.get(members[0].name).device.type
            passes = Passes(self._workers(device), device, self.clock)
            jobs = self._jobs(members, settings, base, recipe, bar)
            for job in passes.finish(jobs, self._stop, bar):
                self._keep(job, recipe)
        self.seconds += time.perf_counter() - began
        return all((who, one) in self.measured for who in members for one in settings)

    def _jobs(
        self,
        members: Sequence[Subject],
        settings: Sequence[Setting],
        base: Pictures | None,
        recipe: ViewRecipe,
        bar: Bar,
    ) -> Iterator[Job]:
        for setting in settings:
            pictures = base
            if pictures is None:
                dataset = setting.dataset or self.plan.clean
                assert dataset is not None
                pictures = Pictures(dataset, self._disk_recipe(setting, recipe), keep=False)
                if not pictures.read(self._stop, is_shown=False):
                    return
            missing = self._missing(members, setting, pictures, recipe)
            bar.advance((len(members) - len(missing)) * len(pictures))
            if missing:
                scored = [
                    Scored(self._models.get(subject.name), self.plan.space, len(pictures))
                    for subject in missing
                ]
                self.at = str(setting)
                about = setting, missing
                yield Job(pictures, self.damage(setting, recipe), scored, about)

    def _keep(self, job: Job, recipe: ViewRecipe) -> None:
        setting, subjects = job.about
        dataset = job.pictures.dataset
        for subject, one in zip(subjects, job.models, strict=True):
            predictions = one.predictions(dataset.paths, dataset.wnids)
            if may_be_kept(predictions.failed, job.pictures.digests):
                self._cache.put(self._about(subject, setting, job.pictures, recipe), predictions)
            self._take(subject, setting, predictions)

    def base(self, subject: Subject) -> Pictures:
        """The pictures that a subject's settings corrupt."""
        return self._base(self.records[subject]["recipe"])

    def _base(self, recipe: ViewRecipe) -> Pictures:
        before = recipe if self.plan.at == "crop" else None
        if before not in self._pictures:
            assert self.plan.clean is not None
            self._pictures[before] = Pictures(self.plan.clean, before)
        return self._pictures[before]

    def _missing(
        self,
        members: Sequence[Subject],
        setting: Setting,
        pictures: Pictures,
        recipe: ViewRecipe,
    ) -> list[Subject]:
        """The subjects for which a setting is not kept; what is kept is taken."""
        missing = []
        dataset = pictures.dataset
        place = None if setting.dataset is None else setting
        self.contents[place] = pictures.content_sha256
        for subject in members:
            if (subject, setting) in self.measured:
                continue
            about = self._about(subject, setting, pictures, recipe)
            outputs = self.records[subject]["model"]["output"]["classes"]
            kept = self._cache.get(about, dataset.paths, dataset.wnids, outputs)
            if kept is None:
                missing.append(subject)
            else:
                self._take(subject, setting, kept)
        return missing

    def _take(self, subject: Subject, setting: Setting, predictions: Predictions) -> None:
        self.measured[subject, setting] = measure_setting(predictions)
        self.finished += 1
        for row, reason in predictions.failed.items():
            self.failures.setdefault((predictions.paths[row], reason), {})[str(setting)] = None

    def _workers(self, device: str) -> Executor:
        if self._pool is None:
            wanted = self._wanted
            if wanted is None:
                # The threads that compute on a CPU corrupt as well: no core is idle, and nothing
                # travels. A GPU would wait for them.
                wanted = 0 if device == "cpu" else usable_cores()
            self._pool = processes(wanted, self.known.files) if wanted else Here()
        return self._pool

    def _disk_recipe(self, setting: Setting, recipe: ViewRecipe) -> ViewRecipe:
        """How a picture on the disk is cut: ImageNet-C's are crops already, and are shown whole."""
        return recipe if setting.dataset is None else replace(recipe, resize=recipe.crop)

    def damage(self, setting: Setting, recipe: ViewRecipe) -> Damage:
        """What a setting does to each picture that a model with this recipe sees."""
        is_here = setting.dataset is None and setting.corruption is not None
        whole = self.plan.at == "camera"
        return Damage(
            corruption=setting.corruption if is_here else None,
            severity=setting.severity if is_here else 0,
            seed=self.plan.seed,
            scale=self.plan.scale,
            frost=self.known.frost,
            jpeg=self.plan.jpeg,
            before=None if whole else self._disk_recipe(setting, recipe),
            after=recipe if whole else None,
        )

    def _about(
        self, subject: Subject, setting: Setting, pictures: Pictures, recipe: ViewRecipe
    ) -> dict[str, Any]:
        """Everything that makes the numbers of a setting."""
        record, plan = self.records[subject], self.plan
        about = {
            "content_sha256": pictures.content_sha256,
            "label_space": plan.space.fingerprint,
            "model": {key: value for key, value in record["model"].items() if key != "name"},
            "view": asdict(recipe),
            "made_by": record["made_by"],
            "processor": processor(),
            "on_disk": setting.dataset is not None,
        }
        if setting is CLEAN or setting.dataset is not None:
            return about
        return {
            **about,
            "corruption": setting.corruption,
            "definition": self.known.definition(str(setting.corruption), plan.scale),
            "severity": setting.severity,
            "seed": plan.seed,
            "at": plan.at,
            "jpeg": plan.jpeg,
            "scale": plan.scale,
        }
