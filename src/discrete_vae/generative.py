"""The generative half of the model: what draws and decodes, whatever its posterior is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.checks import (
    check_binary,
    check_finite,
    check_positive_int,
    check_tensor,
    values_are_known,
)
from discrete_vae.draws import ModelSample
from discrete_vae.errors import InvalidInputError
from discrete_vae.hierarchy.base import Hierarchy
from discrete_vae.likelihoods.base import Likelihood
from discrete_vae.nets.eval_mode import eval_mode
from discrete_vae.nets.finite_weights import check_weights
from discrete_vae.noise import draw_key, one_source
from discrete_vae.samplers.block_gibbs import BlockGibbs
from discrete_vae.smoothing.base import Smoothing

Statistic: TypeAlias = Literal["mean", "mode", "sample"]
"""What is read off p(x | zeta, h)."""


def check_statistic(statistic: object) -> None:
    """Check the name of a statistic.

    Raises:
        InvalidInputError: If it is none.
    """
    if not isinstance(statistic, str) or statistic not in get_args(Statistic):
        repair = "Codes have a mode, and no useful mean."
        raise InvalidInputError(
            "statistic", "must be 'mean', 'mode' or 'sample'", f"{statistic!r}"[:80], repair
        )


class GenerativeModel(nn.Module, ABC):
    """p(x, h, zeta, z) = p(z) r(zeta|z) p(h|zeta) p(x|zeta,h) of parts that a subclass sets.

    Attributes:
        prior: p(z).
        hierarchy: p(h | zeta), and what the decoder reads.
        decoder: (row, latent) -> (row, *parameter_shape).
        likelihood: p(x | what the decoder gives).
    """

    prior: BoltzmannMachine
    hierarchy: Hierarchy
    decoder: nn.Module
    likelihood: Likelihood

    @property
    @abstractmethod
    def smoothing(self) -> Smoothing:
        """r(zeta|z)."""

    @property
    def dtype(self) -> torch.dtype:
        """In which the networks compute; x and latents are brought to it."""
        return next(self.decoder.parameters(), self.prior.bias).dtype

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return self.likelihood.event_shape

    @torch.no_grad()
    def decode(
        self,
        zeta: Tensor,
        h: Tensor | None = None,
        *,
        statistic: Statistic = "mean",
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """E[x | zeta, h], or what else of p(x | zeta, h) is asked for, with running statistics.

        Args:
            zeta: (..., row, unit), in the smoothing's domain; of any floating-point dtype, as h.
            h: The continuous layers, (..., layer, unit). None draws them from p(h | zeta), for each row of zeta anew:
                rows that repeat one zeta then differ in their continuous layers alone.
            statistic: "mean" is E[x | zeta, h], which for bits are probabilities, and which codes, being names, do not
                have in any useful sense; "mode" is the most probable x, feature by feature; "sample" is a draw of x.
                The latter two are values that x can have.
            seed: Seed of the noise in h and x, short for a generator with that seed.
            generator: Source of that noise; without it and a seed torch's global generator is.

        Returns:
            (..., *event).

        Raises:
            InvalidInputError: If zeta or h has another shape or is not floating-point, zeta leaves its domain, both
                seed and generator are given, statistic is none of the three, or a weight or a mean of the model is not
                finite.
        """
        check_statistic(statistic)
        zeta = self.smoothing.check_zeta(zeta, (..., "row", self.prior.num_units)).to(self.dtype)
        generator = one_source(seed, generator, zeta.device)
        if h is not None:
            shape = (*zeta.shape[:-1], self.hierarchy.num_layers, self.hierarchy.num_units)
            h = check_tensor("h", h, shape).to(self.dtype)
        return self._read_out(zeta, h, generator, statistic)[0]

    @torch.no_grad()
    def sample(
        self,
        n: int | None = None,
        *,
        z: Tensor | None = None,
        zeta: Tensor | None = None,
        num_sweeps: int = 1000,
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> ModelSample:
        """Draw from the generative model.

        One source of noise governs all of z, zeta and h: the same seed, or a generator in the same state, repeats the
        whole result; without either, torch's global generator is the source, so that each call draws anew.

        Args:
            n: Number of draws; may be left out where z is given.
            z: States of the prior to decode, (n, unit), from chains of your own. None starts n independent chains
                at fair coins and sweeps them; for trained priors with distinct modes that is not an exact draw.
            zeta: Smoothed states to decode, (n, unit), which belong to the given z; rows that repeat one zeta then
                differ in their continuous layers alone. None draws them from r(zeta|z).
            num_sweeps: Sweeps of these chains.
            seed: Integer from 0 to 2^64 - 1, short for a generator with that seed.
            generator: Source of all noise.

        Returns:
            Means of x with the latents behind them, in the model's dtype; `Likelihood.sample` of the decoder's output
            draws x itself.

        Raises:
            InvalidInputError: If n or num_sweeps is not a positive integer, z or zeta has another shape or domain,
                zeta comes without z, both seed and generator are given, or a weight of the model is not finite.

        Examples:
            >>> from discrete_vae import DiscreteVAE
            >>> from discrete_vae.config import ModelConfig, RBMConfig
            >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
            >>> draws = [model.sample(5, seed=1).mean for _ in range(2)]
            >>> torch.equal(*draws), draws[0].shape
            (True, torch.Size([5, 6]))
        """
        generator = one_source(seed, generator, self.prior.bias.device)
        if z is None:
            if zeta is not None:
                raise InvalidInputError(
                    "z", "must be given with zeta", "None", "Give the states behind zeta."
                )
            chains = BlockGibbs(self.prior, check_positive_int("n", n), seed=draw_key(generator))
            z = chains.step(num_sweeps)
        rows = "sample" if n is None else check_positive_int("n", n)
        z = check_binary("z", check_tensor("z", z, (rows, self.prior.num_units))).to(self.dtype)
        if zeta is None:
            zeta = self.smoothing.sample_zeta(z, generator=generator)
        else:
            zeta = self.smoothing.check_zeta(zeta, z.shape).to(self.dtype)
        mean, h = self._read_out(zeta, None, generator)
        return ModelSample(mean, z, zeta, h)

    @torch.no_grad()
    def project_(self) -> None:
        """Bring every bounded parameter back inside its bounds; call it after each step of the optimizer.

        Bounds hold without it too, see `discrete_vae.bounds.bounded`; parameters then return to them later.
        """
        for module in self.modules():
            project = getattr(module, "project_", None)
            if module is not self and project is not None:
                project()

    def _read_out(
        self,
        zeta: Tensor,
        h: Tensor | None,
        generator: torch.Generator | None,
        statistic: Statistic = "mean",
    ) -> tuple[Tensor, Tensor]:
        """A statistic of p(x | zeta, h), (..., *event), and h, drawn if there is none."""
        check_weights("model", self)  # a mean hides an infinite logit
        with eval_mode(self) as model:
            likelihood = model.likelihood
            if h is None:
                h = model.hierarchy.sample(zeta, generator=generator)
            parameters = model.parameters_of(model.hierarchy.decoder_input(zeta, h))
            if statistic == "mean":
                x = likelihood.mean(parameters)
            else:
                self._finite("the decoder's output", parameters)  # a bit or a code hides what is not finite
                x = (
                    likelihood.mode(parameters)
                    if statistic == "mode"
                    else likelihood.sample(parameters, generator=generator)
                )
        return self._finite(f"the decoder's {statistic}", x.to(self.dtype)), h

    def parameters_of(self, latents: Tensor) -> Tensor:
        """What the decoder makes of latents with any leading axes, (..., *parameter_shape)."""
        rows = latents.reshape(-1, latents.shape[-1])
        return self.decoder(rows).unflatten(0, latents.shape[:-1])

    def _finite(self, name: str, result: Tensor) -> Tensor:
        """Return a result if it is finite; otherwise name the weight to blame, or the result."""
        if values_are_known(result) and not bool(result.isfinite().all()):
            check_weights("model", self)
        repair = "Weights are finite but too large: restore an earlier state, or compute in a wider dtype."
        return check_finite(name, result, repair=repair)
