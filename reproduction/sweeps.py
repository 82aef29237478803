"""Figures 6 and 9: the log-likelihood against one setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from discrete_vae.config import MLPDecoderConfig
from reproduction.drawings import OURS, PAPER, Series, draw_curves
from reproduction.estimates import mean_log_likelihood, paired_difference, spread
from reproduction.notes import notes_of
from reproduction.paper_values import (
    GIBBS_ITERATIONS,
    POSTERIOR_GROUPS,
    POSTERIOR_WIDTH,
    PRIOR_WIDTH_DEEP,
    PRIOR_WIDTH_LINEAR,
    RBM_UNITS,
    Curve,
)
from reproduction.planned_run import PlannedRun, Scale
from reproduction.scales import BRIEF, SMALL, TEN_LAYERS
from reproduction.table import Cell, Column, ResultTable, Value
from reproduction.wanted import Made, Reproduction, Result, Wanted

Changes = dict[str, Sequence[object]]


@dataclass(frozen=True)
class Sweep:
    """One setting at several values.

    Attributes:
        title: Of the figure.
        experiment: What is trained.
        short: What is varied, in a word or two.
        setting: The same for the axis.
        points: Its values by size; one for all sizes stands under "".
        reference: The value that all others are compared with, by size likewise.
        changes: Settings of a point.
        scale: By size, what makes all runs smaller than the experiment.
        paper: The paper's points for the decoder that the experiment has.
    """

    title: str
    experiment: str
    short: str
    setting: str
    points: Mapping[str, Sequence[int]]
    reference: Mapping[str, int]
    changes: Callable[[int], Changes]
    scale: Mapping[str, Scale]
    paper: Callable[[Wanted], Curve]

    def points_of(self, wanted: Wanted) -> Sequence[int]:
        """The values in a size."""
        return self.points.get(wanted.size, self.points.get("", ()))

    def runs(self, wanted: Wanted, point: int) -> list[PlannedRun]:
        """The runs of a point, a seed each."""
        changes, scale = self.changes(point), self.scale.get(wanted.size)
        return [wanted.run(self.experiment, seed, changes, scale) for seed in wanted.seeds]

    def plan(self, wanted: Wanted) -> list[PlannedRun]:
        """All runs, seed after seed, so that a break leaves whole seeds."""
        points = self.points_of(wanted)
        return [self.runs(wanted, point)[seed] for seed in wanted.seeds for point in points]

    def make(self, wanted: Wanted, made: Made) -> Result:
        """The table and the picture."""
        points, curve = self.points_of(wanted), self.paper(wanted)
        reference = self.reference.get(wanted.size, self.reference.get("", 0))
        base = made.of(self.runs(wanted, reference))
        ours = {point: made.of(self.runs(wanted, point)) for point in points}
        papers = dict(zip(curve.x, curve.log_likelihood, strict=True))
        anchor = papers.get(reference)
        rows: list[tuple[Cell, ...]] = []
        effects: dict[int, Value] = {}
        for point, runs in ours.items():
            effects[point] = Value(0.0) if point == reference else paired_difference(base, runs)
            known = papers.get(point)
            papers_effect = None if known is None or anchor is None else known - anchor
            rows.append(
                (str(point), mean_log_likelihood(runs), spread(runs), effects[point], known, papers_effect)
            )
        columns = (
            Column(self.short, "point"),
            Column("ours", "log_likelihood"),
            Column("spread", "spread"),
            Column("change", "effect", signed=True),
            Column("paper", "paper"),
            Column("its change", "paper_effect", signed=True),
        )
        series: list[tuple[Series, Sequence[float]]] = [
            (
                Series(
                    "ours, with standard error",
                    OURS,
                    [effect.value for effect in effects.values()],
                    [effect.std_error for effect in effects.values()],
                ),
                list(effects),
            )
        ]
        where = anchor if anchor is not None else max(curve.log_likelihood)
        series.append((Series("paper", PAPER, [y - where for y in curve.log_likelihood]), curve.x))
        less = f"at {reference}" + ("" if anchor is not None else "; the paper's less its highest")
        picture = draw_curves(
            series,
            title=f"{self.title}: {self.experiment}, {wanted.in_words}",
            xlabel=self.setting,
            ylabel=f"test log-likelihood less that\n{less} (nats)",
        )
        papers_seeds = (
            "" if wanted.num_seeds > 1 else " A single seed leaves out how far another one shifts a run."
        )
        notes = [
            f"Paper: {curve.label}, {curve.about}. Changes are from {reference}, those of ours paired by test example"
            f"{' and seed' * (wanted.num_seeds > 1)}.{papers_seeds}",
            *notes_of(
                [run for runs in ours.values() for run in runs],
                paper_scale=self.scale.get("paper"),
                varied=[setting.replace("-", "_") for setting in self.changes(reference)],
            ),
        ]
        title = f"{self.title}: test log-likelihood on {self.experiment}, nats per example"
        return Result(title, notes, ResultTable(columns, tuple(rows)), picture)

    def reproduction(self) -> Reproduction:
        """How it is made."""
        return Reproduction(self.make, self.plan)


def _decoder_is_linear(wanted: Wanted) -> bool:
    decoder = wanted.run("mnist-static", 0).config.model.decoder
    return isinstance(decoder, MLPDecoderConfig) and not decoder.hidden


_PRIOR_WIDTHS = {"": (100, 200, 400), "smoke": (25, 50, 100), "paper": (100, 300, 500)}
_POSTERIOR_WIDTHS = {"": (200, 400, 800), "smoke": (50, 100, 200), "paper": (500, 1000, 2000)}

FIGURE_6A = Sweep(
    "Figure 6a",
    "mnist-dynamic",
    "Gibbs iterations",
    "Gibbs iterations per training step",
    {"": (1, 10, 100)},
    {"": 100},
    lambda sweeps: {"training.num-sweeps": [sweeps]},
    {"short": SMALL, "paper": TEN_LAYERS},
    lambda _: GIBBS_ITERATIONS,
).reproduction()
FIGURE_6B = Sweep(
    "Figure 6b",
    "mnist-dynamic",
    "RBM units",
    "units of the RBM",
    {"": (32, 64, 128)},
    {"": 128},
    lambda units: {"model.prior.num-left": [units // 2], "model.prior.num-right": [units // 2]},
    {"short": SMALL, "paper": TEN_LAYERS},
    lambda _: RBM_UNITS,
).reproduction()
FIGURE_6C = Sweep(
    "Figure 6c",
    "mnist-dynamic",
    "groups",
    "groups of the approximating posterior",
    {"": (1, 2, 4)},
    {"": 4},
    lambda groups: {"model.posterior.groups": [groups]},
    {"short": SMALL, "paper": TEN_LAYERS},
    lambda _: POSTERIOR_GROUPS,
).reproduction()
FIGURE_9A = Sweep(
    "Figure 9a",
    "mnist-static",
    "prior width",
    "hidden units of a prior network",
    _PRIOR_WIDTHS,
    {"": 200, "smoke": 50, "paper": 300},
    lambda width: {"model.hierarchy.prior-hidden": [width]},
    {"short": BRIEF, "paper": TEN_LAYERS},
    lambda wanted: PRIOR_WIDTH_LINEAR if _decoder_is_linear(wanted) else PRIOR_WIDTH_DEEP,
).reproduction()
FIGURE_9B = Sweep(
    "Figure 9b",
    "mnist-static",
    "posterior width",
    "units of each hidden layer of the posterior networks",
    _POSTERIOR_WIDTHS,
    {"": 400, "smoke": 100, "paper": 2000},
    lambda width: {"model.posterior.hidden": [width] * 2, "model.hierarchy.posterior-hidden": [width] * 2},
    {"short": BRIEF, "paper": TEN_LAYERS},
    lambda _: POSTERIOR_WIDTH,
).reproduction()
