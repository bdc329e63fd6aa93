"""The parts of an evaluation's page, one a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from curate.metrics.anomaly import SCORES
from curate.report import evaluation_page as shown
from curate.report.naming import display_names, short_names
from curate.testbed.measures import MEASURES
from curate.testbed.ood import DETECTION
from curate.testbed.tables import results_notes
from pipelines import evaluate_beside_page, evaluate_ood_plots, evaluate_plots
from pipelines.evaluate_credits import Credits
from pipelines.evaluate_failures import MODES, Pictures, class_rows, errors_by_confusion
from pipelines.evaluated import Evaluated

#: The measures of the first table of a classification; the others stand below it.
MAIN = ("accuracy", "top5", "accuracy_unrestricted", "aurra", "rms_calibration_error")

#: The same of a detection, by the score that models are compared by.
OOD_MAIN = ("aupr", "aupr_reweighted", "auroc", "fpr95")

#: How many models of a dataset are shown one by one; the tables and the results hold all.
DETAILED = 20

#: Most classes of a model in its table, the worst: of a dataset's first model, and of the others.
_CLASSES = (1000, 50)

#: Most pairs of models on the page.
_PAIRS = 200

# Photos of each failure mode: of a dataset's first model, and of the next ones.
_SHOTS = (6, 3, 3, 3, 3, 3)


class Part:
    """All models on one dataset; all but plots and pictures is gathered when it is made.

    Args:
        members: one a model, of one kind and on the same dataset.
        compared: entries of the summary's `comparisons` that no part before has taken; this one
            takes its own.

    Attributes:
        name: of the dataset.
        photos: how many are to be shown.
        credits: whose they are.
    """

    def __init__(self, members: Sequence[Evaluated], compared: list[Mapping[str, Any]]) -> None:
        self._members = members
        self._results = [one.result for one in members]
        self._outliers = self._results[0]["kind"] == "ood"
        first, told = members[0], self._results[0]
        self.name: str = told["dataset"]["name"] or told["model"]["name"]
        self._models = short_names([result["model"]["name"] for result in self._results])
        self._names = display_names(first.space)
        self._compared = self._take(compared)
        self._errors = [
            errors_by_confusion(one.predictions, outliers=self._outliers) for one in members
        ]
        self._score = evaluate_ood_plots.main_score(self._results) if self._outliers else ""
        self._plots: list[str] = []
        self._plots_of: list[list[str]] = []
        layout = None if first.dataset is None else first.dataset.layout
        self._files = None if layout is None else [item.path for item in layout]
        seen = [
            first.predictions.paths[row]
            for place, errors in enumerate(self._errors)
            for one in errors[:MODES]
            for row in one.rows[: self._shots(place)]
        ]
        self.photos = len(seen)
        self.credits = Credits(layout.root if layout else None, seen)

    def _take(self, compared: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        # Two datasets may bear one name; each pair of models stands there once for each.
        taken: dict[tuple[str, str], Mapping[str, Any]] = {}
        own = {result["model"]["name"] for result in self._results}
        for pair in [] if self._outliers else list(compared):
            key = (pair["first"], pair["second"])
            is_here = pair["dataset"] == self._results[0]["dataset"]["name"] and own >= set(key)
            if is_here and key not in taken:
                taken[key] = pair
                compared.remove(pair)
        return list(taken.values())

    def _shots(self, place: int) -> int:
        return _SHOTS[place] if self._files is not None and place < len(_SHOTS) else 0

    def draw(self) -> None:
        """Draw the plots.

        Raises:
            MissingExtraError: Matplotlib is not installed.
        """
        told = list(zip(self._results, self._models, strict=True))[:DETAILED]
        if self._outliers:
            self._plots = evaluate_ood_plots.plots_of_all(self._results, self._models)
            self._plots_of = [
                evaluate_ood_plots.plots_of_one(result, name, self._score) for result, name in told
            ]
        else:
            self._plots = evaluate_plots.plots_of_all(self._results, self._models)
            self._plots_of = [
                evaluate_plots.plots_of_one(result, name, number)
                for number, (result, name) in enumerate(told)
            ]

    def forget_plots(self) -> None:
        """Show none, rather than some."""
        self._plots, self._plots_of = [], []

    def filled(self, pictures: Pictures) -> shown.Part:
        """What the page shows of it.

        Args:
            pictures: makes them while the page is written.
        """
        full = [result["model"]["name"] for result in self._results]
        return shown.Part(
            dataset=self.name,
            outliers=self._outliers,
            facts=_facts(self._results[0], self._score),
            warnings=results_notes(self._results),
            measures=self._measures(),
            conventions=_conventions(self._results),
            plots=self._plots,
            models=[self._model(place, pictures) for place in range(len(self._members))],
            published=evaluate_beside_page.published(self._results, self._models),
            comparisons=evaluate_beside_page.comparisons(
                self._compared[:_PAIRS], dict(zip(full, self._models, strict=True))
            ),
            pairs=len(self._compared),
            detailed=DETAILED,
        )

    def _measures(self) -> list[shown.Measure]:
        names = dict.fromkeys(name for result in self._results for name in result["metrics"])
        if not self._outliers:
            # Files may lack what models have; the order is that of the tables all the same.
            names = dict.fromkeys(name for name in MEASURES if name in names)
        heads = {name: MEASURES[name] for name in MAIN}
        if self._outliers:
            heads = {f"{name}_{self._score}": DETECTION[name][0] for name in OOD_MAIN}
        found = []
        for name in names:
            told = [result["metrics"].get(name) for result in self._results]
            label = next(one.get("label") or MEASURES[name] for one in told if one is not None)
            numbers = [one and shown.Number(one["value"], one["low"], one["high"]) for one in told]
            found.append(shown.Measure(label, numbers, heads.get(name, "")))
        return found

    def _model(self, place: int, pictures: Pictures) -> shown.ModelPart:
        one, errors = self._members[place], self._errors[place]
        per_class = one.result.get("per_class", ())
        classes = class_rows(per_class, errors, self._names)[: _CLASSES[place > 0]]
        return shown.ModelPart(
            name=self._models[place],
            flags=_flags(one.result),
            plots=self._plots_of[place] if place < len(self._plots_of) else [],
            classes=classes,
            classes_total=len(per_class),
            errors=sum(group.count for group in errors),
            modes=pictures.modes(
                one.predictions,
                errors,
                self._names,
                self._files,
                self.credits,
                self._shots(place),
            ),
            modes_shown=len(errors[:MODES]),
            modes_total=len(errors),
            pictures=self._shots(place) > 0,
        )


def _flags(result: Mapping[str, Any]) -> list[str]:
    flags = {
        "took part in selection": result["took_part_in_selection"],
        "trained on ImageNet-21k": result.get("trained_on_imagenet_21k"),
        "outputs in another order?": result.get("ranks_by_chance"),
    }
    return [flag for flag, so in flags.items() if so]


def _conventions(results: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """What holds of measures and of their intervals, each once, with the measures it holds of."""
    conventions: dict[str, dict[str, None]] = {}
    intervals: dict[str, dict[str, None]] = {}
    for result in results:
        for name, told in result["metrics"].items():
            # Of a detection each measure is there for every score.
            label = DETECTION[told["measure"]][0] if "measure" in told else MEASURES[name]
            for said, of in ((told["convention"], conventions), (told["interval"], intervals)):
                if said:
                    of.setdefault(said, {})[label] = None
    found = [(", ".join(names), f"{said}.") for said, names in conventions.items()]
    for place, (said, names) in enumerate(intervals.items(), 1):
        which = f"intervals of {', '.join(names)}"
        if place == len(intervals):
            which = "all intervals" if place == 1 else "other intervals"
        found.append((which, f"{said}."))
    return found


def _facts(result: Mapping[str, Any], score: str) -> list[tuple[str, str]]:
    dataset, space = result["dataset"], result["label_space"]
    if score:
        facts = [
            ("Images of something else", f"{result['n_out']:,}"),
            ("Of the label space’s classes", f"{result['n_in']:,}"),
            ("Base rate", f"{100 * result['base_rate']:.1f} %"),
            ("Score", SCORES.get(score, score)),
            ("Positive class", "something else"),
        ]
    else:
        facts = [
            ("Images", f"{dataset['images']:,}"),
            ("Classes with images", f"{dataset['classes']:,}"),
        ]
    facts.append(("Label space", f"{space['name']}, {space['classes']:,} classes"))
    facts.append(("Chosen by", space["chosen_by"]))
    release = dataset["release"]
    if release:
        facts.append(("Release", release["version"]))
    reviewed = {None: "not known to be reviewed", True: "reviewed", False: "unreviewed"}
    facts.append(("Labels", reviewed[release and release["reviewed"]]))
    return facts
