"""Records print the shapes of their tensors, modules their sizes."""

import dataclasses
import importlib
import math
import pkgutil
import re
from dataclasses import dataclass, field

import torch

import discrete_vae
from discrete_vae import (
    RBM,
    BlockGibbs,
    FactorialBernoulli,
    GraphBoltzmann,
    SpikeExponential,
    TrainingResult,
    exact_log_partition,
    load_dataset,
)
from discrete_vae.nets.mlp import L1BatchNorm
from discrete_vae.presets import load_experiment
from discrete_vae.records import ShowsShapes, ShowsTable, with_error
from discrete_vae.runs.load import LoadedRun
from tests.models import small_model


@dataclass(repr=False)
class Draw(ShowsShapes):
    z: torch.Tensor
    parts: dict
    step: int
    long: str
    hidden: int = field(default=0, repr=False)


def test_a_record_shows_shapes_in_place_of_tensors_and_long_values():
    found = Draw(torch.zeros(2, 3), {"a": torch.zeros(4, dtype=torch.uint8)}, 3, "x" * 200)
    assert repr(found) == "Draw(z=<float32 (2, 3)>, parts={'a': <uint8 (4,)>}, step=3, long=<str>)"


def test_an_error_is_never_rounded_to_nothing():
    assert with_error(0.0042, 0.0013, 2) == "0.004 ± 0.001"
    assert with_error(1.5, 0.004, 2) == "1.500 ± 0.004"
    assert [with_error(1.5, error, 2) for error in (0.01, 0.0, math.nan)] == [
        "1.50 ± 0.01",
        "1.50 ± 0.00",
        "1.50",
    ]


def test_records_fit_on_a_line():
    model, x = small_model(6), torch.zeros(3, 6)
    for record in (
        model.elbo(x, negative_phase=torch.ones(2, 4)),
        model.sample(5, num_sweeps=1),
        model.encode(x),
        model.log_likelihood(x, 2),
        load_dataset("digits"),
        LoadedRun(load_experiment("digits"), model, BlockGibbs(model.prior, 3), 5),
    ):
        assert repr(record).startswith(f"{type(record).__name__}(")
        assert "\n" not in repr(record)
        assert "tensor(" not in repr(record)


def test_every_record_with_tensors_shows_shapes_and_compares_by_identity():
    """The generated comparison of two tensors has no truth value."""
    others, found = ("discrete_vae.testing", "discrete_vae.figures", "discrete_vae.__main__"), set()
    for module in pkgutil.walk_packages(discrete_vae.__path__, "discrete_vae."):
        if not module.name.startswith(others):
            values = vars(importlib.import_module(module.name)).values()
            found |= {each for each in values if isinstance(each, type) and each.__module__ == module.name}
    kinds = {}
    for record in filter(dataclasses.is_dataclass, found):
        types = [str(field.type) for field in dataclasses.fields(record)]
        if any(re.search("Tensor|ndarray", each) and "Callable" not in each for each in types):
            kinds[record.__name__] = record
            if record.__dataclass_params__.frozen:  # pyright: ignore[reportAttributeAccessIssue]
                assert record.__eq__ is object.__eq__, record
            if {"Tensor", "Tensor | None"} & set(types):
                assert issubclass(record, ShowsShapes), record
                assert "__repr__" not in vars(record), record
    assert {"DataSplits", "Moments", "Checkpoint", "SweepCall", "Elbo"} <= kinds.keys()


def test_modules_show_sizes():
    for module, text in (
        (RBM(3, 2), "RBM(num_left=3, num_right=2)"),
        (GraphBoltzmann(3, [[0, 1]]), "GraphBoltzmann(num_units=3, num_edges=1)"),
        (FactorialBernoulli(3), "FactorialBernoulli(num_units=3)"),
        (SpikeExponential(beta=2.5), "SpikeExponential(beta=2.5, trainable=True)"),
        (SpikeExponential(trainable=False).to("meta"), "SpikeExponential(beta=unknown, trainable=False)"),
        (L1BatchNorm(4, bounded=True), "L1BatchNorm(4, bounded=True)"),
        (BlockGibbs(RBM(3, 2), 7), "BlockGibbs(7 chains of 5 units after 0 sweeps)"),
    ):
        assert repr(module) == text


@dataclass(frozen=True)
class Inner(ShowsTable):
    value: float
    std_error: float


@dataclass(frozen=True)
class Outer(ShowsTable):
    elbo: float
    elbo_std_error: float
    exact: Inner
    missing: float | None
    draws: torch.Tensor
    name: str


def test_a_notebook_shows_values_with_their_errors():
    found = Outer(-90.1234, 0.7, Inner(2.5, 0.0), None, torch.zeros(3, 2), "<b>")
    rows = re.findall(r"<tr><th[^>]*>(.*?)</th><td[^>]*>(.*?)</td></tr>", found._repr_html_())
    assert rows == [
        ("elbo", "-90.12 ± 0.70"),
        ("exact.value", "2.5 (exact)"),
        ("draws", "&lt;float32 (3, 2)&gt;"),
        ("name", "&#x27;&lt;b&gt;&#x27;"),
    ]

    assert "±" not in Inner(1.0, float("nan"))._repr_html_()
    exact = exact_log_partition(RBM(2, 2))
    assert f"{exact.value:.6g} (exact)" in exact._repr_html_()
    result = TrainingResult(num_steps=10, step=10, best_step=None, best_elbo=None, seconds=1.5)
    assert "best_elbo" not in result._repr_html_()
    assert ">10<" in result._repr_html_()
