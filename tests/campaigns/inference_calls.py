"""The functions that take many examples through a model, with right arguments."""

from __future__ import annotations

import torch

import discrete_vae as dv
from discrete_vae.config import GaussianHierarchyConfig, HierarchicalPosteriorConfig, ModelConfig, RBMConfig
from tests.campaigns.machine_calls import Call, right_call, some_bits


def inference_calls() -> list[Call]:
    """All of them, on a model with gaps and layers."""
    layers = GaussianHierarchyConfig(num_layers=2, num_units=2, posterior_hidden=(5,), prior_hidden=(5,))
    config = ModelConfig(
        num_features=12,
        prior=RBMConfig(num_left=4, num_right=3),
        posterior=HierarchicalPosteriorConfig(groups=2, hidden=(5,)),
        hierarchy=layers,
        missing=True,
    )
    model, x = dv.DiscreteVAE.from_config(config).eval(), some_bits(10, 12)
    batches = {"seed": 3, "numbers": list(range(10)), "batch_size": 4}
    sizes, optional = ("seed", "batch_size"), ("numbers", "batch_size")
    return [
        right_call(
            "encode_rows",
            lambda **k: torch.from_numpy(dv.encode_rows(model, draw=True, **k).zeta),
            x=x,
            **batches,
            _gaps=("x",),
            _sizes=sizes,
            _optional=optional,
        ),
        right_call(
            "reconstruct_rows",
            lambda **k: torch.from_numpy(dv.reconstruct_rows(model, **k)),
            x=x,
            statistic="mean",
            num_draws=2,
            **batches,
            _gaps=("x",),
            _sizes=(*sizes, "num_draws"),
            _optional=optional,
        ),
        right_call(
            "denoise_rows",
            lambda **k: torch.from_numpy(dv.denoise_rows(model, **k)),
            x=x,
            noise=0.1,
            num_draws=2,
            **batches,
            _gaps=("x",),
            _sizes=(*sizes, "num_draws", "noise"),
            _optional=(*optional, "noise"),
        ),
        right_call(
            "score_rows",
            lambda **k: torch.from_numpy(dv.score_rows(model, **k).value),
            x=x,
            log_partition=5.0,
            num_samples=3,
            seed=3,
            numbers=list(range(10)),
            _gaps=("x",),
            _sizes=("seed", "num_samples", "log_partition"),
            _optional=("numbers",),
        ),
        right_call(
            "elbo_rows",
            lambda **k: torch.from_numpy(dv.elbo_rows(model, **k).value),
            x=x,
            log_partition=5.0,
            num_samples=3,
            **batches,
            _gaps=("x",),
            _sizes=(*sizes, "num_samples", "log_partition"),
            _optional=optional,
        ),
        right_call(
            "interpolate",
            lambda **k: torch.from_numpy(dv.interpolate(model, **k).mean),
            start=x[:1],
            end=x[1:2],
            path="straight",
            num_steps=4,
            _gaps=("start", "end"),
            _sizes=("num_steps",),
        ),
        right_call(
            "p_values",
            lambda **k: torch.from_numpy(dv.p_values(**k)),
            scores=[-1.0, 2.0],
            reference=[0.0, 1.0, 2.0],
            _sizes=("scores", "reference"),
        ),
    ]
