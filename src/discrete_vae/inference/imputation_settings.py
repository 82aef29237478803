"""How gaps are filled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from discrete_vae.checks import check_positive_int
from discrete_vae.domains import BINARY
from discrete_vae.errors import InvalidInputError
from discrete_vae.likelihoods.base import Likelihood
from discrete_vae.likelihoods.categorical import CategoricalLikelihood

Method: TypeAlias = Literal["importance", "chains"]
Filling: TypeAlias = Literal["mean", "mode"]


@dataclass(frozen=True)
class ImputationSettings:
    """How gaps are filled.

    Attributes:
        method: "importance" weighs draws of the latents, and is exact as num_samples grows; "chains" moves chains by
            iterated importance resampling, and is exact as num_steps grows.
        filling: "mean", E[x | observed entries], for bits a probability; "mode", the most probable value, for bits and
            codes alone. None is the mode for codes, which have no useful mean, and the mean for all others.
        num_draws: Draws of each example besides, from p(x | observed entries).
        num_samples: Draws of the latents per example, those of all rounds together. Chains start after them.
        num_rounds: Rounds in which proposals learn from earlier draws, see `conditional_draws.Proposals`.
        num_fills: Ways in which a round's proposals read the gaps.
        truncated: Whether importance weights are truncated, see `discrete_vae.inference.weighted_moments.truncated`:
            for models whose draws have few effective samples, whose means would else be those of a few draws. All
            draws of an example are then in memory.
        num_steps: Steps of the chains; the first fifth is left out of means.
        num_candidates: Candidates per step, at least 2.
    """

    method: Method = "importance"
    filling: Filling | None = None
    num_draws: int = 0
    num_samples: int = 1000
    num_rounds: int = 10
    num_fills: int = 5
    truncated: bool = False
    num_steps: int = 100
    num_candidates: int = 20

    def __post_init__(self) -> None:
        for name, words in (("method", get_args(Method)), ("filling", (None, *get_args(Filling)))):
            if getattr(self, name) not in words:
                rule = f"must be one of {', '.join(map(str, words))}"
                raise InvalidInputError(
                    name, rule, repr(getattr(self, name))[:80], "Leave it out for the default."
                )
        for name in ("num_samples", "num_rounds", "num_fills", "num_steps", "num_candidates"):
            check_positive_int(name, getattr(self, name))
        if self.num_draws != 0:
            check_positive_int("num_draws", self.num_draws)
        if self.truncated and self.method != "importance":
            rule = "must be left out for chains, which have no weights of their own"
            raise InvalidInputError("truncated", rule, True, "Leave it out.")
        if self.num_candidates < 2:
            raise InvalidInputError("num_candidates", "must be at least 2", self.num_candidates, "Give 20.")
        if self.num_rounds > self.num_samples:
            rule, repair = (
                f"must be at most num_samples, {self.num_samples}",
                "Give more samples, or fewer rounds.",
            )
            raise InvalidInputError("num_rounds", rule, self.num_rounds, repair)


def filling_for(likelihood: Likelihood, settings: ImputationSettings) -> Filling:
    """What gaps are filled with.

    Args:
        likelihood: The model's.
        settings: What is asked for.

    Raises:
        InvalidInputError: If the likelihood has no such filling.
    """
    codes = isinstance(likelihood, CategoricalLikelihood)
    if codes and settings.filling == "mean":
        rule = "must be 'mode' or draws for codes, which have no mean"
        raise InvalidInputError("filling", rule, "'mean'", "Leave it out.")
    if settings.filling == "mode" and not codes and likelihood.domain(exact=True) != BINARY:
        rule = "must be 'mean' for values that are neither bits nor codes"
        raise InvalidInputError("filling", rule, "'mode'", "Leave it out, or take draws.")
    return settings.filling or ("mode" if codes else "mean")
