"""Arguments that the functions of a trained model refuse, each by its name."""

import numpy as np
import pytest
import torch

from discrete_vae import RBM
from discrete_vae.config import CategoricalLikelihoodConfig, GaussianLikelihoodConfig
from discrete_vae.inference.encode import (
    denoise_rows,
    encode_rows,
    flip_bits,
    nearest_codes,
    reconstruct_rows,
)
from discrete_vae.inference.generate import PriorStates, fit_class_model, interpolate, order_of_flips
from discrete_vae.inference.impute import ImputationSettings, impute
from discrete_vae.inference.rows import RowNoise, in_batches
from discrete_vae.inference.score import p_values, roc_area
from discrete_vae.posterior import Posterior
from discrete_vae.rng import open_uniform
from tests.inference.models import small_model, some_bits
from tests.refusals import refused_argument

MODEL, X = small_model(), some_bits(3)
MACHINE = RBM(3, 2)
CODES = np.zeros((5, 2), np.uint8)


def batches(x=X, **settings):
    return in_batches(MODEL, x, lambda batch, _: {"x": batch}, **settings)


def filled(model=MODEL, x=X, **settings):
    return impute(model, x, settings=ImputationSettings(**settings))


def keyed(keys, **more):
    return MODEL.log_likelihood(X, 5, log_partition=0.0, keys=keys, **more)


def of(likelihood):
    return small_model(likelihood=likelihood)


REFUSED = [
    *[(lambda n=numbers: batches(numbers=n), "numbers") for numbers in ([1, 2], [0.5, 1, 2], 3)],
    (lambda: batches(batch_size=0), "batch_size"),
    *[(lambda x=x: batches(x), "x") for x in (some_bits(0), [[0.0]])],
    (lambda: open_uniform(torch.zeros(2), shape=(3, 3), generator=RowNoise([1, 2], 0)), "numbers"),
    (lambda: reconstruct_rows(MODEL, X, num_draws=3, statistic="mode"), "num_draws"),
    (lambda: reconstruct_rows(MODEL, X, num_draws=3, code=True), "num_draws"),
    (lambda: flip_bits(X, 0.6), "share"),
    (lambda: denoise_rows(of(GaussianLikelihoodConfig()), torch.randn(3, 6), noise=0.1), "noise"),
    (lambda: denoise_rows(MODEL, X, noise=0.0), "noise"),
    *[
        (lambda c=clamped: PriorStates(MACHINE, torch.zeros(4, 5), c, num_chains=3), "clamped")
        for clamped in ({5: 1}, {0: 2}, dict.fromkeys(range(5), 1))
    ],
    *[
        (lambda given=labels: fit_class_model(np.zeros((10, 3)), given), "labels")
        for labels in (np.zeros(9), np.zeros(10))
    ],
    (lambda: filled(of(CategoricalLikelihoodConfig()), filling="mean"), "filling"),
    (lambda: filled(of(GaussianLikelihoodConfig()), filling="mode"), "filling"),
    (lambda: filled(filling="median"), "filling"),
    (lambda: filled(method="magic"), "method"),
    (lambda: filled(num_draws=-1), "num_draws"),
    (lambda: filled(num_candidates=1), "num_candidates"),
    (lambda: filled(method="chains", truncated=True), "truncated"),
    (lambda: filled(num_samples=3, num_rounds=4), "num_rounds"),
    (lambda: filled(x=X + 0.5), "x"),
    (lambda: order_of_flips(MACHINE, torch.zeros(3), torch.ones(5)), "start"),
    (lambda: interpolate(MODEL, X[:1], X[1:2], path="curved"), "path"),
    (lambda: interpolate(MODEL, X[:1], X[1:2], num_steps=1), "num_steps"),
    (lambda: interpolate(MODEL, X[:1], X), "end"),
    (lambda: nearest_codes(np.zeros((2, 3), np.uint8), CODES, 1), "queries"),
    (lambda: nearest_codes(np.zeros((2, 2)), CODES, 1), "queries"),
    (lambda: nearest_codes(CODES, CODES[0], 1), "among"),
    (lambda: nearest_codes(CODES, CODES, 6), "num_neighbors"),
    *[
        (lambda given=scores: p_values(np.zeros(3), given), "reference")
        for scores in (np.zeros(0), np.array([np.nan]))
    ],
    (lambda: roc_area(np.zeros(3), np.zeros(0)), "strange"),
    (lambda: keyed([1, 2]), "keys"),
    (lambda: keyed([1, 2, 3], generator=torch.Generator()), "keys"),
]


@pytest.mark.parametrize(("call", "argument"), REFUSED)
def test_the_argument_is_named(call, argument):
    assert refused_argument(call) == argument


def test_a_posterior_without_bits_is_refused_by_name(monkeypatch):
    model = small_model()
    monkeypatch.setattr(type(model.posterior), "sample_discretely", Posterior.sample_discretely)
    assert refused_argument(encode_rows, model, some_bits(2)) == "model.posterior"
    assert encode_rows(model, some_bits(2), draw=True).bits.shape == (2, 5)
