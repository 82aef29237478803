"""Right calls of the parts of a model: likelihoods, priors of Gaussian layers, sides of an RBM, spins."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import discrete_vae as dv
from tests.campaigns.machine_calls import Call, right_call, some_bits


def part_calls(rbm: Any) -> list[Call]:
    """All of them; the RBM has 4 + 3 units."""
    return [*_of_likelihoods(), *_of_layers(), *_of_sides(rbm)]


def _of_likelihoods() -> list[Call]:
    calls = []
    likelihoods: dict[str, tuple[Any, dict[str, Any]]] = {
        "BernoulliLikelihood": (dv.BernoulliLikelihood, {}),
        "CategoricalLikelihood": (dv.CategoricalLikelihood, {"num_categories": 3}),
        "GaussianLikelihood": (dv.GaussianLikelihood, {"min_scale": 0.01}),
        "NegativeBinomialLikelihood": (dv.NegativeBinomialLikelihood, {}),
    }
    for name, (kind, settings) in likelihoods.items():
        law = kind((12,), **settings)
        x, observed = some_bits(10, 12), torch.arange(120).reshape(10, 12) % 7 > 0
        law.initialize_(x)
        noise = torch.Generator().manual_seed(1)
        parameters = torch.randn(10, *law.parameter_shape, generator=noise)
        wide = frozenset() if name in ("BernoulliLikelihood", "CategoricalLikelihood") else {"x"}

        def make(kind: Any = kind, **k: Any) -> Tensor:
            made = kind(**k)
            return made.mean(torch.zeros(2, *made.parameter_shape))

        def initialize(x: Any, observed: Any, kind: Any = kind, settings: Any = settings) -> Tensor:
            return kind((12,), **settings).initialize_(x, observed)

        calls += [
            right_call(
                f"{name}()", make, event_shape=[3, 4], **settings, _sizes=("event_shape", "num_categories")
            ),
            right_call(
                f"{name}.log_prob",
                law.log_prob,
                parameters=parameters,
                x=x,
                observed=observed,
                _optional=("observed",),
                _real=("parameters", "x"),
                _free=("parameters",),
            ),
            right_call(
                f"{name}.check",
                law.check,
                x=x,
                observed=observed,
                _optional=("observed",),
                _gaps=("x",),
                _real=wide,
            ),
            right_call(
                f"{name}.initialize_",
                initialize,
                x=x,
                observed=observed,
                _optional=("observed",),
                _gaps=("x",),
                _real=wide,
            ),
        ]
        for method in ("mean", "mode", "sample"):
            calls.append(
                right_call(
                    f"{name}.{method}",
                    getattr(law, method),
                    parameters=parameters,
                    _free=("parameters",),
                    _real=("parameters",),
                )
            )
    return calls


def _of_layers() -> list[Call]:
    zeta = 0.5 * some_bits(10, 7)
    sizes = ("num_layers", "num_units", "num_groups", "hidden", "log_std_bound")
    calls = []
    for kind, more in ((dv.CompleteSharing, {}), (dv.GroupSharing, {"num_groups": 2}), (dv.NoSharing, {})):

        def draw(zeta: Any, kind: Any = kind, **k: Any) -> Tensor:
            return kind(**k).eval().sample(zeta)

        calls.append(
            right_call(
                kind.__name__,
                draw,
                zeta=zeta,
                num_latents=7,
                num_layers=2,
                num_units=3,
                hidden=[5],
                log_std_bound=5.0,
                **more,
                _sizes=sizes,
                _optional=("log_std_bound",),
                _free=("zeta",),
                _real=("zeta",),
            )
        )
    return calls


def _of_sides(rbm: Any) -> list[Call]:
    visible, hidden = some_bits(10, 4), some_bits(10, 3)
    edges = [[0, 1], [1, 2]]

    def group(**k: Any) -> Tensor:
        bits = some_bits(10, 7)
        return dv.kl_to_boltzmann(rbm, [dv.LatentGroup(zeta=bits / 2, bits=bits, **k)], 3.0)

    logits = torch.randn(10, 7, generator=torch.Generator().manual_seed(4))
    return [
        right_call("RBM.hidden_given_visible", rbm.hidden_given_visible, visible=visible, _free=("visible",)),
        right_call("RBM.visible_given_hidden", rbm.visible_given_hidden, hidden=hidden, _free=("hidden",)),
        right_call("RBM.sample_hidden", rbm.sample_hidden, visible=visible, _free=("visible",)),
        right_call("RBM.sample_visible", rbm.sample_visible, hidden=hidden, _free=("hidden",)),
        right_call(
            "RBM.from_ising",
            lambda **k: dv.RBM.from_ising(**k).bias,
            couplings=[[0.5, -0.1], [0.2, 0.0]],
            fields=[0.1, 0.2, 0.3, 0.4],
            _sizes=("couplings", "fields"),
        ),
        right_call(
            "GraphBoltzmann.from_ising",
            lambda **k: dv.GraphBoltzmann.from_ising(**k).bias,
            num_units=3,
            edges=edges,
            couplings=[0.5, -0.1],
            fields=[0.1, 0.2, 0.3],
            _sizes=("num_units", "edges", "couplings", "fields"),
        ),
        right_call(
            "LatentGroup",
            group,
            logits=logits,
            units=torch.arange(7),
            _optional=("units",),
            _real=("logits",),
        ),
    ]
