"""What `curate robustness testbed` writes: results, a table, plots in files, and a page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from curate.files import (
    atomic_write,
    csv_text,
    make_folder,
    write_bytes,
    write_json,
    written_together,
)
from curate.metrics.shift import LogitLine, PiecewiseLogitFit
from curate.progress import progress
from curate.report import testbed_page as shown
from curate.report.drawing import style
from curate.report.page import counted
from curate.report.shift_drawings import quadrant_drawing, shift_drawing
from curate.report.shift_figures import (
    KINDS_OF_FILES,
    grid_figure,
    quadrant_figure,
    saved,
    shift_figure,
)
from curate.report.shift_plots import (
    KINDS,
    FittedLine,
    Floats,
    Models,
    QuadrantPlot,
    ShiftPlot,
    outside,
)
from curate.testbed.known_shifts import KnownTestbed
from curate.testbed.model_table import ModelTable
from curate.testbed.shift_analysis import ShiftAnalysis
from curate.testbed.shift_records import models_rows, shift_notes


class Report:
    """The folder of a report; it is made at once, so that a wrong place is told at once.

    Args:
        folder: where it shall stand.

    Raises:
        StorageError: it cannot be made.
        MissingExtraError: Matplotlib is not installed.
    """

    def __init__(self, folder: Path) -> None:
        with style(""):
            pass
        self._folder = folder
        make_folder(folder / "plots")

    def write(
        self,
        table: ModelTable,
        analyses: Sequence[ShiftAnalysis],
        ends: Mapping[str, tuple[Floats, Floats]],
        relative: Mapping[str, Floats],
        summary: Mapping[str, Any],
        known: KnownTestbed,
        labels: Mapping[str, str],
    ) -> None:
        """Write all of it at once, the results last.

        Args:
            table: what was analysed.
            analyses: of its shifts.
            ends: of each setting, the ends of the models' intervals.
            relative: τ of each model, by shift.
            summary: what the command prints.
            known: what plots call types.
            labels: what they call settings, where not by their names.

        Raises:
            StorageError: the disk is full or refuses.
        """
        drawn = _Drawn(table, analyses, ends, relative, summary, known, labels)
        columns, rows = models_rows(summary["fit"], summary["models"])
        count = len(KINDS_OF_FILES) * (1 + sum(1 + bool(q) for _, q in drawn.plots))
        with written_together(self._folder, "results.json") as place:
            write_bytes(place / "models.csv", csv_text(columns, rows).encode())
            (place / "plots").mkdir()
            with progress("plots", count, unit="files") as bar, style("testbed"):
                for stem, figure in drawn.figures():
                    for kind in KINDS_OF_FILES:
                        write_bytes(place / "plots" / f"{stem}.{kind}", saved(figure, kind))
                        bar.advance()
            with atomic_write(place / "testbed.html") as stream:
                for piece in shown.pieces(drawn.page()):
                    stream.write(piece.encode())
            write_json(place / "results.json", summary)


class _Drawn:
    """The plots of a report."""

    def __init__(
        self,
        table: ModelTable,
        analyses: Sequence[ShiftAnalysis],
        ends: Mapping[str, tuple[Floats, Floats]],
        relative: Mapping[str, Floats],
        summary: Mapping[str, Any],
        known: KnownTestbed,
        labels: Mapping[str, str],
    ) -> None:
        self.table, self.analyses, self.summary = table, analyses, summary
        self.labels = labels
        self.kinds, self.numbers = _kinds(table, summary, known)
        self.plots = [
            (self._shift(one, ends), self._quadrants(one, relative[one.shift.name]))
            for one in analyses
        ]

    def _label(self, setting: str) -> str:
        return self.labels.get(setting, setting)

    def _shift(self, one: ShiftAnalysis, ends: Mapping[str, tuple[Floats, Floats]]) -> ShiftPlot:
        x, y = self.table.column(one.shift.x), self.table.column(one.shift.y)
        told = [
            f"({self.kinds[kind].name}): {a:.2f} → {b:.2f} %"
            + ("" if np.isnan(rho) else f", effective robustness {rho:+.2f}")
            for kind, a, b, rho in zip(self.numbers, x, y, one.effective, strict=True)
        ]
        models = Models(
            self.table.models, self.numbers, x, y, ends[one.shift.x], ends[one.shift.y], told
        )
        return ShiftPlot(
            self._label(one.shift.name),
            self._label(one.shift.x),
            self._label(one.shift.y),
            models,
            one.fitted if one.fit is not None else ~np.isnan(x + y),
            _lines(one),
            None if one.shift.pivot is None else one.shift.pivot.percent,
        )

    def _quadrants(self, one: ShiftAnalysis, tau: Floats) -> QuadrantPlot | None:
        if not (~np.isnan(tau + one.effective)).any():
            return None
        told = [
            f"({self.kinds[kind].name}): relative robustness {a:+.2f}, effective {b:+.2f}"
            for kind, a, b in zip(self.numbers, tau, one.effective, strict=True)
        ]
        models = Models(self.table.models, self.numbers, tau, one.effective, told=told)
        return QuadrantPlot(self._label(one.shift.name), models)

    def figures(self) -> Iterator[tuple[str, Any]]:
        """Each figure for files and the stem of their names."""
        kinds = [kind.name for kind in self.kinds]
        taken: set[str] = set()
        for plot, quadrants in self.plots:
            stem = _stem(plot.title, taken)
            yield stem, shift_figure(plot, kinds)
            if quadrants is not None:
                yield f"{stem}-quadrants", quadrant_figure(quadrants, kinds)
        order = self._order(self.table.column(self.analyses[0].shift.x))
        accuracy = np.array([column[order] for column in self.table.settings.values()]).T
        names = [self.table.models[row] for row in order]
        yield (
            _stem("grid", taken),
            grid_figure(names, [*map(self._label, self.table.settings)], accuracy),
        )

    def _order(self, values: Floats) -> list[int]:
        """Models by a value, the largest first, those without one last."""
        held = np.where(np.isnan(values), -np.inf, values)
        return sorted(range(len(self.table)), key=lambda row: (-held[row], self.table.models[row]))

    def page(self) -> shown.TestbedPage:
        """The page."""
        summary, first = self.summary, self.analyses[0]
        return shown.TestbedPage(
            file=summary["table"]["file"],
            models=len(self.table),
            standard=summary["standard"]["models"],
            chosen_by=summary["standard"]["chosen_by"],
            kinds=self.kinds,
            shifts=[
                self._section(one, *plots)
                for one, plots in zip(self.analyses, self.plots, strict=True)
            ],
            robustness=self._rows(
                [one.effective for one in self.analyses], self._order(first.effective)
            ),
            settings=[self._label(name) for name in self.table.settings],
            accuracies=self._rows(
                list(self.table.settings.values()), self._order(self.table.column(first.shift.x))
            ),
            correlations=self._correlations(),
            correlated=summary["correlated_models"],
            notes=shift_notes(summary),
            made_by=[
                ("Table", f"{summary['table']['file']}, SHA-256 {summary['table']['sha256']}"),
                ("Standard models", f"{summary['standard']['chosen_by'] or 'all'}"),
                ("Bands", f"{summary['resamples']:,} refits, seed {summary['seed']}"),
                ("Versions", ", ".join(f"{k} {v}" for k, v in summary["made_by"].items())),
            ],
            curate=summary["made_by"]["curate"],
        )

    def _section(
        self, one: ShiftAnalysis, plot: ShiftPlot, quadrants: QuadrantPlot | None
    ) -> shown.ShiftSection:
        lines = _line_rows(one, self._label(one.shift.name))
        drawn = int((~np.isnan(plot.models.x + plot.models.y)).sum())
        alt = f"{plot.y_label} over {plot.x_label}, in percent, of {drawn} models"
        notes = [f"r² {' and '.join(f'{line.r2:.3f}' for line in lines)}"] if lines else []
        notes += [f"no line: {one.no_fit}"] if one.no_fit else []
        if (pivot := one.shift.pivot) is not None:
            whose = "" if pivot.model is None else f", {pivot.model}"
            notes.append(f"upright line at the pivot, {pivot.percent:.2f}\u00a0%{whose}")
        beyond = outside(plot)
        empty = beyond == drawn
        if empty:
            notes.append("no plot: no model has both accuracies where it could be drawn")
        elif beyond:
            notes.append(f"{counted(beyond, 'model')} outside of the plot")
        return shown.ShiftSection(
            self._label(one.shift.name),
            "" if empty else shift_drawing(plot, alt),
            ""
            if quadrants is None
            else quadrant_drawing(quadrants, f"effective over relative robustness: {plot.title}"),
            lines,
            notes,
        )

    def _rows(self, columns: Sequence[Floats], order: Sequence[int]) -> list[shown.ModelRow]:
        values = np.array(columns).T
        return [
            shown.ModelRow(
                self.table.models[row],
                self.numbers[row],
                [None if np.isnan(value) else float(value) for value in values[row]],
            )
            for row in order
        ]

    def _correlations(self) -> list[list[tuple[float | None, int] | None]]:
        if len(self.analyses) < 2 or not self.summary["correlated_models"]:
            return []
        found: dict[tuple[str, str], tuple[float | None, int]] = {}
        for one in self.summary["correlations"]:
            found[one["first"], one["second"]] = found[one["second"], one["first"]] = (
                one["r"],
                one["n"],
            )
        names = [one.shift.name for one in self.analyses]
        return [[found.get((first, second)) for second in names] for first in names]


def _kinds(
    table: ModelTable, summary: Mapping[str, Any], known: KnownTestbed
) -> tuple[list[shown.Kind], list[int]]:
    """The types that plots tell apart, and the number of each model's."""
    types: Sequence[str] = table.types or [
        "standard" if one["standard"] else "other" for one in summary["models"]
    ]
    counts = Counter(types)
    listed = list(known.types)
    order = sorted(
        counts,
        key=lambda one: (listed.index(one) if one in listed else len(listed), -counts[one], one),
    )
    if len(order) > KINDS:
        frequent = sorted(order, key=lambda one: (-counts[one], one))[: KINDS - 1]
        order = [one for one in order if one in frequent]
    place = {one: number for number, one in enumerate(order)}
    numbers = [place.get(one, len(order)) for one in types]
    kinds = [shown.Kind(known.types.get(one, one) or "no type", counts[one]) for one in order]
    if rest := len(table) - sum(kind.count for kind in kinds):
        kinds.append(shown.Kind("other types", rest))
    return kinds, numbers


def _lines(one: ShiftAnalysis) -> list[FittedLine]:
    """The lines to draw, each on its side of a pivot, with its band."""
    found = []
    fits = [one.fit.low, one.fit.high] if isinstance(one.fit, PiecewiseLogitFit) else [one.fit]
    for fit, band in zip(fits, one.bands, strict=False):
        assert fit is not None
        x = np.asarray(band.x)
        found.append(FittedLine(x, np.asarray(fit.predict(x)), band.band.lower, band.band.upper))
    return found


def _line_rows(one: ShiftAnalysis, name: str) -> list[shown.LineRow]:
    fits: list[tuple[str, LogitLine]] = []
    if isinstance(one.fit, PiecewiseLogitFit):
        pivot = f"{one.fit.pivot:.2f}\u00a0%"
        fits = [
            (f"{name}, below {pivot}", one.fit.low),
            (f"{name}, above {pivot}", one.fit.high),
        ]
    elif one.fit is not None:
        fits = [(name, one.fit)]
    return [
        shown.LineRow(
            name,
            line.n,
            line.slope,
            band.band.slope_interval,
            line.intercept,
            band.band.intercept_interval,
            line.r2,
        )
        for (name, line), band in zip(fits, one.bands, strict=True)
    ]


def _stem(name: str, taken: set[str]) -> str:
    """A file's name from foreign text: letters and digits, and none twice."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")[:60] or "shift"
    stem, number = plain, 1
    while stem in taken:
        number += 1
        stem = f"{plain}-{number}"
    taken.add(stem)
    return stem
