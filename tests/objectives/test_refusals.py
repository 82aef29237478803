"""Refusals of the bound, its weights, its importance samples, the KL and the estimators of its gradient."""

from functools import partial

import pytest
import torch

from discrete_vae import (
    RBM,
    DisARM,
    LatentGroup,
    LeaveOneOut,
    NaiveKL,
    Reinforce,
    Reparameterized,
    RunningMean,
    kl_to_boltzmann,
)
from discrete_vae.hierarchy.base import NoHierarchy
from discrete_vae.objectives.importance import relaxed_bound
from discrete_vae.posterior import PosteriorSample
from tests.models import LAYERS, small_model
from tests.refusals import refused_argument

X = torch.ones(4, 5)
BELOW, RAMPS = {"hierarchy": LAYERS}, {"smoothing": {"kind": "ramps"}}
PLAIN = {"log_partition": 0.0, "negative_phase": torch.zeros(4, 4)}
SIZES = {"group_of_unit": torch.tensor([0, 1]), "num_features": 4}


def gradient(kind, model=None, *, settings=None, **more):
    model = small_model() if model is None else model
    return model.estimate_gradient(kind.of(model, **(settings or {})), X, **PLAIN, **more)


def group_of(width, units=None):
    zeros = torch.zeros(2, width)
    return LatentGroup(logits=zeros, zeta=zeros, bits=zeros, units=units)


def layers_that_draw_one_sample():
    hierarchy = NoHierarchy(num_latents=4, num_features=5)
    hierarchy.num_layers = 1
    return hierarchy


def without_paths():
    model = small_model(**RAMPS)
    drawn = model.posterior.rsample(X, num_samples=2)
    told = PosteriorSample(drawn.z, drawn.zeta, drawn.logits, drawn.bits, drawn.group_of_unit)
    return relaxed_bound(model.prior, model.smoothing, told, lambda zeta: zeta.sum(-1))


NUMBER = "num_importance_samples"
THREE = {NUMBER: 3}


def three_samples(parts):
    return small_model(**parts).elbo(X, **PLAIN, **THREE)


PAIR, OTHER = torch.tensor([0, 1]), torch.tensor([1, 2])
# (the argument that the error names, a call)
REFUSED = [
    (NUMBER, lambda: small_model(**BELOW).elbo(X, num_importance_samples=0)),
    (NUMBER, lambda: small_model().elbo(X, num_importance_samples=2)),  # a spike, and no layers
    (NUMBER, lambda: layers_that_draw_one_sample().prior_at(torch.zeros(1, 4), torch.zeros(1, 1, 1))),
    (NUMBER, without_paths),
    *((NUMBER, partial(gradient, kind, **THREE)) for kind in (Reinforce, LeaveOneOut, DisARM, NaiveKL)),
    ("continuous", lambda: three_samples(BELOW).weighted_loss(continuous=0.5)),
    ("continuous", lambda: gradient(Reparameterized, small_model(**BELOW), continuous=0.5, **THREE)),
    ("discrete", lambda: three_samples(RAMPS).weighted_loss(discrete=0.5)),
    ("discrete", lambda: gradient(DisARM, discrete=float("nan"))),
    ("num_samples", lambda: gradient(LeaveOneOut, settings={"num_samples": 1})),
    (  # a number has no gradient of log Z
        "negative_phase",
        lambda: small_model().estimate_gradient(LeaveOneOut.of(small_model()), X, log_partition=0.0),
    ),
    ("estimator", lambda: small_model().estimate_gradient(DisARM.of(small_model(groups=2)), X, **PLAIN)),
    ("decay", lambda: RunningMean(-0.1, **SIZES)),
    ("decay", lambda: RunningMean(float("nan"), **SIZES)),
    ("1 - decay", lambda: RunningMean(1.0, **SIZES)),
    ("groups", lambda: kl_to_boltzmann(RBM(1, 1), [], 0.0)),
    ("groups", lambda: kl_to_boltzmann(RBM(2, 2), [group_of(3)], 0.0)),
    ("groups", lambda: kl_to_boltzmann(RBM(2, 2), [group_of(2, PAIR), group_of(2, OTHER)], 0.0)),
    ("groups", lambda: kl_to_boltzmann(RBM(2, 2), [group_of(2, PAIR), group_of(2)], 0.0)),
    ("bits", lambda: kl_to_boltzmann(RBM(3, 2), [LatentGroup(logits=X, zeta=X, bits=X + 2)], 0.0)),
    ("kl_of_zeta", lambda: LatentGroup(logits=X, zeta=X, bits=X, kl_of_zeta=torch.zeros(1, 5))),
]


@pytest.mark.parametrize(("argument", "call"), REFUSED)
def test_what_breaks_a_rule_is_named(argument, call):
    assert refused_argument(call) == argument


def test_a_weight_of_a_kl_that_no_importance_weight_holds_is_free():
    of_layers, of_zeta = three_samples(BELOW), three_samples(RAMPS)
    of_ramps = three_samples(BELOW | RAMPS)
    assert not of_ramps.weighs_binary_latents
    for loss in (
        of_layers.weighted_loss(discrete=0.5),
        of_ramps.weighted_loss(discrete=0.5),
        of_zeta.weighted_loss(continuous=0.5),  # there are none
        of_zeta.loss,
    ):
        assert bool(loss.isfinite())
