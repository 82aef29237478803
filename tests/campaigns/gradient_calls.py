"""Right calls of the estimators of the gradient and of their baselines."""

from __future__ import annotations

from typing import Any

from torch import Tensor

import discrete_vae as dv
from discrete_vae.config import HierarchicalPosteriorConfig, ModelConfig, RBMConfig
from tests.campaigns.machine_calls import Call, right_call, some_bits

_SETTINGS: dict[str, dict[str, Any]] = {
    "NoBaseline": {},
    "RunningMean": {"decay": 0.9},
    "LearnedBaseline": {"hidden": [5], "decay": 0.9},
}


def gradient_calls() -> list[Call]:
    """All of them, on one small model."""
    config = ModelConfig(
        num_features=12,
        prior=RBMConfig(num_left=4, num_right=3),
        posterior=HierarchicalPosteriorConfig(groups=2, hidden=(5,)),
        missing=True,
    )
    model = dv.DiscreteVAE.from_config(config).eval()
    x, z, observed = some_bits(10, 12), some_bits(10, 7), some_bits(10, 12) > 0

    def loss(kind: Any, settings: dict[str, Any], **given: Any) -> Tensor:
        return model.estimate_gradient(kind.of(model, **settings), **given).loss

    def learn(kind: Any, **settings: Any) -> Tensor:
        sizes = {"group_of_unit": model.posterior.group_of_unit, "num_features": model.posterior.num_features}
        return loss(dv.Reinforce, {"baseline": kind(**settings, **sizes)}, x=x, negative_phase=z)

    calls = [
        right_call(
            kind.__name__,
            lambda kind=kind, **given: loss(kind, {}, **given),
            x=x,
            negative_phase=z,
            log_partition=5.0,
            observed=observed,
            discrete=0.5,
            continuous=0.5,
            _optional=("negative_phase", "log_partition", "observed"),
            _gaps=("x",),
            _sizes=("discrete", "continuous"),
        )
        for kind in (dv.Reparameterized, dv.Reinforce, dv.LeaveOneOut, dv.DisARM, dv.NaiveKL)
    ]
    for name, settings in _SETTINGS.items():
        kind = getattr(dv, name)
        calls.append(
            right_call(name, lambda kind=kind, **k: learn(kind, **k), **settings, _sizes=tuple(settings))
        )
    calls.append(
        right_call(
            "LeaveOneOut()",
            lambda **settings: loss(dv.LeaveOneOut, settings, x=x, negative_phase=z),
            num_samples=3,
            _sizes=("num_samples",),
        )
    )
    return calls
