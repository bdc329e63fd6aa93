"""The page of an evaluation: what models make of datasets, in numbers, plots and pictures.

Like the report page it is one file, runs no script and asks for nothing over the network. Its
measures stand beside what limits them: their intervals, whether a model took part in choosing the
images, whether anybody has confirmed the labels. Below them is what no measure tells, the photos
that a model gets wrong, by what it takes them for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from curate.report.page import counted, environment
from curate.report.thumbnails import Thumbnail


@dataclass(frozen=True)
class Number:
    """A measure of one model, a fraction.

    Attributes:
        value: None where there is none.
        low, high: its interval; None where there is none.
    """

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Measure:
    """A measure of all models of a part.

    Attributes:
        name: in words.
        numbers: one a model, in their order; None where a model has none.
        head: its name in the first table; empty where it does not stand there.
    """

    name: str
    numbers: Sequence[Number | None]
    head: str = ""


@dataclass(frozen=True)
class ClassRow:
    """One class under one model; `taken_for` is its most frequent wrong prediction, or empty."""

    wnid: str
    name: str
    images: int
    right: int
    low: float
    high: float
    taken_for: str = ""


@dataclass(frozen=True)
class Shot:
    """A photo that a model gets wrong.

    Attributes:
        path: within its dataset; untrusted.
        confidence: of the wrong prediction.
        credit: author and licence as its dataset tells them; empty where it does not.
        thumbnail: the picture; None where the file is of no use.
        problem: why there is no picture.
    """

    path: str
    confidence: float
    credit: str = ""
    thumbnail: Thumbnail | None = None
    problem: str = ""


@dataclass(frozen=True)
class FailureMode:
    """Photos that a model takes for the same thing.

    Attributes:
        true_name: their class; None for photos of no class of the label space.
        predicted_name: what they are taken for.
        count: how many there are.
        shots: the most confident ones.
    """

    true_name: str | None
    predicted_name: str
    count: int
    shots: Sequence[Shot]


@dataclass(frozen=True)
class ModelPart:
    """One model on one dataset.

    Attributes:
        name: of the model; untrusted.
        flags: what must be said beside its numbers, in few words each.
        plots: of this model alone, HTML that `curate.report.plots` made.
        classes: those that it is worst at, the worst first; empty where there are none.
        classes_total: how many there are.
        errors: how many photos it gets wrong.
        modes: of its failures the largest, taken once, after everything before them.
        modes_shown: how many `modes` holds.
        modes_total: how many there are.
        pictures: whether any pictures are to be shown.
    """

    name: str
    flags: Sequence[str]
    plots: Sequence[str]
    classes: Sequence[ClassRow]
    classes_total: int
    errors: int
    modes: Iterable[FailureMode]
    modes_shown: int
    modes_total: int
    pictures: bool


@dataclass(frozen=True)
class Comparison:
    """Two models on the same images: how the second differs from the first, as (what, told)."""

    first: str
    second: str
    said: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Published:
    """A number from the literature.

    Attributes:
        model, measure, value: as its source has them, the value as a fraction.
        beside: which models of the page it is to be held against, and why.
        source: who published it, and under which settings.
    """

    model: str
    measure: str
    value: float
    beside: str
    source: str


@dataclass(frozen=True)
class Part:
    """All models on one dataset.

    Attributes:
        dataset: its name; untrusted.
        outliers: whether its photos show no class of the label space.
        facts: what the dataset is, as (name, value).
        warnings: what limits every number, a sentence each.
        measures: in their order.
        conventions: of measures and of their intervals, as (which ones, what).
        plots: of all models, HTML that `curate.report.plots` made.
        models: in their order.
        published: numbers from the literature.
        comparisons: of models on the same images.
        pairs: how many there are.
        detailed: how many models are shown one by one.
    """

    dataset: str
    outliers: bool
    facts: Sequence[tuple[str, str]]
    warnings: Sequence[str]
    measures: Sequence[Measure]
    conventions: Sequence[tuple[str, str]]
    plots: Sequence[str]
    models: Sequence[ModelPart]
    published: Sequence[Published] = ()
    comparisons: Sequence[Comparison] = ()
    pairs: int = 0
    detailed: int = 20

    @property
    def main(self) -> list[Measure]:
        """The measures of the first table."""
        return [measure for measure in self.measures if measure.head]


@dataclass(frozen=True)
class Maker:
    """What computed one model's numbers."""

    model: str
    fingerprint: str
    fingerprint_of: str
    said: str


@dataclass(frozen=True)
class EvaluationPage:
    """Everything that the page shows.

    Attributes:
        parts: one a dataset; taken once.
        datasets: their names.
        models: how many models there are.
        withheld: whether nothing is known of the licence of some of them.
        no_plots: what to say where there are no plots; empty where there are.
        makers: what computed the numbers.
        made_by: further settings and versions, as (name, value).
        curate: the version of this software.
    """

    parts: Iterable[Part]
    datasets: Sequence[str]
    models: int
    withheld: bool
    no_plots: str
    makers: Sequence[Maker]
    made_by: Sequence[tuple[str, str]]
    curate: str

    @property
    def headline(self) -> str:
        """What was evaluated, in few words; the datasets' names follow it."""
        return f"{counted(self.models, 'model')} on "


def pieces(page: EvaluationPage) -> Iterator[str]:
    """The page in pieces, so that its pictures need not be held in memory."""
    env = environment()
    return env.get_template("evaluation.html.j2").generate(page=page)
