"""Configs of the estimators of the bound's gradient, and of the baselines of those by the score function."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from discrete_vae.config.base import ComponentConfig
from discrete_vae.config.numbers import Count

_DECAY = "Decay per step of the running averages of the signal."


class NoBaselineConfig(ComponentConfig):
    """The signal as it is."""

    target: ClassVar[str] = "discrete_vae.objectives.gradients.no_baseline:NoBaseline"
    kind: Literal["none"] = "none"


class RunningMeanConfig(ComponentConfig):
    """The signal less its running mean."""

    target: ClassVar[str] = "discrete_vae.objectives.gradients.running_mean:RunningMean"
    kind: Literal["running-mean"] = "running-mean"
    decay: float = Field(default=0.9, ge=0.0, lt=1.0, description=_DECAY)


class LearnedBaselineConfig(ComponentConfig):
    """The signal less what networks of x and the earlier groups expect (paper eq. REINFORCE-equation)."""

    target: ClassVar[str] = "discrete_vae.objectives.gradients.learned_baseline:LearnedBaseline"
    references: ClassVar[tuple[str, ...]] = ("mnih2014",)
    kind: Literal["learned"] = "learned"
    hidden: tuple[Count, ...] = Field(
        default=(100,), description="Widths of the hidden layers of each group's baseline network."
    )
    decay: float = Field(default=0.9, ge=0.0, lt=1.0, description=_DECAY)


BaselineConfig = Annotated[
    NoBaselineConfig | RunningMeanConfig | LearnedBaselineConfig, Field(discriminator="kind")
]


class ReparameterizedConfig(ComponentConfig):
    """Through zeta, as the smoothing makes it possible (paper eqs. discrete-VAE-approx-zeta, J-term-gradient)."""

    target: ClassVar[str] = "discrete_vae.objectives.gradients.reparameterized:Reparameterized"
    kind: Literal["reparameterized"] = "reparameterized"


class ReinforceConfig(ComponentConfig):
    """The score function with a baseline (paper eq. REINFORCE-equation)."""

    target: ClassVar[str] = "discrete_vae.objectives.gradients.reinforce:Reinforce"
    references: ClassVar[tuple[str, ...]] = ("williams1992",)
    kind: Literal["reinforce"] = "reinforce"
    baseline: BaselineConfig = Field(
        default=RunningMeanConfig(), description="What is taken away from REINFORCE's signal."
    )


class LeaveOneOutConfig(ComponentConfig):
    """The score function of several draws, each with the others' mean as baseline."""

    target: ClassVar[str] = "discrete_vae.objectives.gradients.leave_one_out:LeaveOneOut"
    references: ClassVar[tuple[str, ...]] = ("salimans2014", "kool2019")
    kind: Literal["leave-one-out"] = "leave-one-out"
    num_samples: Count = Field(default=2, ge=2, description="Draws per example of a leave-one-out estimate.")


class DisARMConfig(ComponentConfig):
    """Antithetic draws, a pair for each group of the posterior."""

    target: ClassVar[str] = "discrete_vae.objectives.gradients.disarm:DisARM"
    references: ClassVar[tuple[str, ...]] = ("dong2020",)
    kind: Literal["disarm"] = "disarm"


class NaiveKLConfig(ComponentConfig):
    """The score function for the energies of pairs alone (paper eq. naive-kl-grad-reinforce)."""

    target: ClassVar[str] = "discrete_vae.objectives.gradients.naive_kl:NaiveKL"
    kind: Literal["naive-kl"] = "naive-kl"


GradientConfig = Annotated[
    ReparameterizedConfig | ReinforceConfig | LeaveOneOutConfig | DisARMConfig | NaiveKLConfig,
    Field(discriminator="kind"),
]
