"""Table 2: the sizes of the four models, of the configs alone."""

from __future__ import annotations

from discrete_vae.config import ExperimentConfig, GaussianHierarchyConfig, GroupSharingConfig
from discrete_vae.presets import load_experiment
from reproduction.paper_values import ARCHITECTURES, TABLE_2, Architecture
from reproduction.table import Cell, Column, ResultTable
from reproduction.wanted import Made, Reproduction, Result, Wanted

_COLUMNS = (
    Column("data set", "data_set"),
    Column("whose", "whose"),
    Column("layers", "num_layers"),
    Column("units", "num_units"),
    Column("prior hidden", "prior_hidden"),
    Column("sharing", "sharing"),
)


def architecture_of(config: ExperimentConfig) -> Architecture:
    """What table 2 says of a model with Gaussian layers whose prior networks have one hidden layer."""
    layers = config.model.hierarchy
    assert isinstance(layers, GaussianHierarchyConfig)
    (hidden,) = layers.prior_hidden
    groups = layers.sharing.num_groups if isinstance(layers.sharing, GroupSharingConfig) else None
    return Architecture(layers.num_layers, layers.num_units, hidden, layers.sharing.kind, groups)


def _make(wanted: Wanted, made: Made) -> Result:
    rows: list[tuple[Cell, ...]] = []
    same = True
    for name, paper in ARCHITECTURES.items():
        sized = {"size paper": architecture_of(load_experiment(name, "paper"))}
        if wanted.size != "paper":
            sized[f"size {wanted.size}"] = architecture_of(load_experiment(name, wanted.size))
        same &= sized["size paper"] == paper
        rows += [_row(name, whose, each) for whose, each in [("paper", paper), *sized.items()]]
    verdict = "is the paper's" if same else "is not the paper's"
    notes = [
        f"The paper's rows are {TABLE_2}. Every number of size paper {verdict}. Nothing is trained for it."
    ]
    return Result("Table 2: sizes of the four models", notes, ResultTable(_COLUMNS, tuple(rows)))


def _row(name: str, whose: str, found: Architecture) -> tuple[Cell, ...]:
    sharing = found.sharing if found.num_groups is None else f"{found.num_groups} groups"
    return name, whose, found.num_layers, found.num_units, found.prior_hidden, sharing


TABLE_2_REPRODUCTION = Reproduction(_make)
