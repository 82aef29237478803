"""The discrete variational autoencoder, composed of its parts."""

from __future__ import annotations

import math
import re
from typing import Any, Self, SupportsFloat, get_args

import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.checks import check_positive_int, values_are_readable
from discrete_vae.config import (
    ComponentConfig,
    GaussianHierarchyConfig,
    GraphBoltzmannConfig,
    ModelConfig,
    instantiate,
)
from discrete_vae.config.model import Mask
from discrete_vae.errors import InvalidInputError
from discrete_vae.hierarchy.base import Hierarchy, NoHierarchy
from discrete_vae.likelihoods.base import Likelihood
from discrete_vae.log_partition.surrogate import gradient_and_value
from discrete_vae.memory import allocating, check_memory, is_allocation_failure
from discrete_vae.nets.finite_weights import check_weights
from discrete_vae.nets.mlp_decoder import MLPDecoder
from discrete_vae.objectives.bound import Batch, bound_parts, weighs_binary_latents
from discrete_vae.objectives.elbo import Elbo, check_kl_weights, loss_gradients
from discrete_vae.objectives.gradients.base import GradientEstimate, GradientEstimator
from discrete_vae.posteriors.base import Posterior
from discrete_vae.posteriors.groups import color_groups
from discrete_vae.posteriors.hierarchical import HierarchicalPosterior
from discrete_vae.pretrained import PretrainedModel
from discrete_vae.reading import count_features, input_shape

# Least bytes: objects of Python, and an edge of a graph while it is colored.
_PER_UNIT, _PER_NETWORK, _PER_EDGE = 100, 10_000, 100
_UNCOUNTABLE = 2**63
_LARGE = re.compile(r"(?<![\d.])\d{5}")  # a number from which a model is counted before it is made
_NARROWER = "Make the networks narrower (the settings called hidden), or use fewer units."


class DiscreteVAE(PretrainedModel):
    """p(x, h, zeta, z) = p(z) r(zeta|z) p(h|zeta) p(x|zeta,h) with a Boltzmann machine p(z), and its posterior.

    Source: Rolfe 2017, sections continuous-variable, gradient-of-KL-divergence and continuous-hierarchy.

    Args:
        prior: p(z).
        posterior: q(z, zeta | x), of the encoder's features; it owns the smoothing r(zeta|z).
        likelihood: p(x | zeta, h), of the decoder's output; it knows the event shape of x.
        hierarchy: p(h | zeta) and q(h | zeta, x); None is no continuous layer.
        encoder: Any module (batch, *input_shape) -> (batch, feature), run once per example, where input_shape is the
            likelihood's; None flattens.
        decoder: Any module (row, latent) -> (row, *parameter_shape), where parameter_shape is the likelihood's; None
            is a linear map. What a latent is the hierarchy's `decoder_input` says.
        missing: Whether entries of x may be unobserved. The encoder then reads a mask behind the values: the first
            axes of both, one after the other.
        mask: "gaps" for a mask that is 1 where an entry is unobserved, else 0; "observed" for the opposite, which
            models read whose config or state is from a version without this argument.

    Attributes:
        config: What `from_config` built the model from; None for a model put together by hand.

    Raises:
        InvalidInputError: If the parts do not fit each other.

    Examples:
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
        >>> model.elbo(torch.zeros(5, 6)).value.shape
        torch.Size([5])
    """

    def __init__(
        self,
        *,
        prior: BoltzmannMachine,
        posterior: Posterior,
        likelihood: Likelihood,
        hierarchy: Hierarchy | None = None,
        encoder: nn.Module | None = None,
        decoder: nn.Module | None = None,
        missing: bool = False,
        mask: Mask = "gaps",
    ) -> None:
        super().__init__()
        if hierarchy is None:
            hierarchy = NoHierarchy(num_latents=prior.num_units, num_features=posterior.num_features)
        _check_fits("posterior", "must cover the prior's {} units", posterior.num_units, prior.num_units)
        _check_fits("hierarchy", "must read the prior's {} units", hierarchy.num_latents, prior.num_units)
        rule = "must read the posterior's {} features"
        _check_fits("hierarchy", rule, hierarchy.num_features, posterior.num_features)
        self.prior = prior
        self.encoder = nn.Flatten() if encoder is None else encoder
        self.posterior = posterior
        self.hierarchy = hierarchy
        self.decoder = (
            MLPDecoder(hierarchy.decoder_size, likelihood.parameter_shape) if decoder is None else decoder
        )
        self.likelihood = likelihood
        self.missing = missing
        if mask not in get_args(Mask):
            repair = "Leave it out, but for weights from a model that read 1 for what is observed."
            raise InvalidInputError("mask", "must be 'gaps' or 'observed'", f"{mask!r}"[:80], repair)
        self.mask = mask
        self.pair_order = prior.pair_order(posterior.group_of_unit)
        # constants are made on the CPU, where their values can be looked at
        posterior.to(prior.bias.device)
        self.pair_order.to(prior.bias.device)

    _version = 2  # of a state_dict; models of version 1 read masks that are 1 for what is observed

    def _load_from_state_dict(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        if local_metadata.get("version") == 1 and self.missing and self.mask == "gaps":
            rule, received = (
                "must be of a model whose mask is 1 for a gap",
                "one of a version before there were any",
            )
            repair = "Build the model with mask='observed', as it was trained."
            raise InvalidInputError("state_dict", rule, received, repair)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    @classmethod
    def from_config(
        cls, config: ModelConfig, *, encoder: nn.Module | None = None, decoder: nn.Module | None = None
    ) -> Self:
        """Build a model with new parameters; networks start from torch's global generator.

        Args:
            config: The model.
            encoder: A module of your own in place of the config's, (batch, *input_shape) -> (batch, feature).
            decoder: A module of your own in place of the config's, (row, latent) -> (row, *parameter_shape).

        Raises:
            InvalidInputError: If the parts do not fit each other, or the memory.
        """
        if torch.get_default_device().type == "meta":
            return cls._build(config, encoder, decoder)
        if encoder is None and decoder is None and _LARGE.search(config.model_dump_json()):
            check_model_memory(config, 4, "for weights")
        with allocating("model", _NARROWER):
            return cls._build(config, encoder, decoder)

    @classmethod
    def _build(cls, config: ModelConfig, encoder: nn.Module | None, decoder: nn.Module | None) -> Self:
        prior = instantiate(config.prior)
        smoothing = instantiate(config.smoothing)
        own = tuple(
            name for name, part in {"encoder": encoder, "decoder": decoder}.items() if part is not None
        )
        likelihood = instantiate(config.likelihood, event_shape=config.shape)
        shape = input_shape(likelihood, missing=config.missing)
        read: nn.Module = instantiate(config.encoder, input_shape=shape) if encoder is None else encoder
        num_features = count_features(read, shape)
        hierarchy = instantiate(config.hierarchy, num_latents=prior.num_units, num_features=num_features)
        groups = color_groups(prior) if config.posterior.groups == "colors" else config.posterior.groups
        posterior = instantiate(
            config.posterior.model_copy(update={"groups": groups}),
            num_features=num_features,
            num_units=prior.num_units,
            smoothing=smoothing,
        )
        if decoder is None:
            decoder = instantiate(
                config.decoder, num_latents=hierarchy.decoder_size, parameter_shape=likelihood.parameter_shape
            )
        model = cls(
            prior=prior,
            posterior=posterior,
            likelihood=likelihood,
            hierarchy=hierarchy,
            encoder=read,
            decoder=decoder,
            missing=config.missing,
            mask=config.mask,
        )
        model.config, model._own = config, own
        return model

    @torch.no_grad()
    def initialize_(self, x: Tensor, observed: Tensor | None = None) -> None:
        """Start from the statistics of the training data: the likelihood's own, and the decoder's output.

        A decoder with a method ``initialize_output_(start)`` gets the parameters to start at, (*parameter_shape);
        others keep their start.

        Args:
            x: (example, *event), the training data.
            observed: As in `elbo`.

        Raises:
            InvalidInputError: If x breaks the likelihood's rule.
        """
        start = self.likelihood.initialize_(*self._open(x, observed))
        initialize_output = getattr(self.decoder, "initialize_output_", None)
        if initialize_output is not None:
            initialize_output(start)

    def forward(
        self,
        x: Tensor,
        *,
        negative_phase: Tensor | None = None,
        log_partition: Tensor | SupportsFloat | None = None,
        observed: Tensor | None = None,
        num_importance_samples: int = 1,
        generator: torch.Generator | None = None,
    ) -> Elbo:
        """`elbo`, so that the module can be called."""
        return self.elbo(
            x,
            negative_phase=negative_phase,
            log_partition=log_partition,
            observed=observed,
            num_importance_samples=num_importance_samples,
            generator=generator,
        )

    def elbo(
        self,
        x: Tensor,
        *,
        negative_phase: Tensor | None = None,
        log_partition: Tensor | SupportsFloat | None = None,
        observed: Tensor | None = None,
        num_importance_samples: int = 1,
        generator: torch.Generator | None = None,
    ) -> Elbo:
        """One-sample estimates of the evidence lower bound; value and gradient are unbiased given log Z.

        With several importance samples it is a higher bound, which lies between the ELBO and log p(x) and rises in
        their number. Of a model with Gaussian layers these are weighted alone: E log (1/k) sum_j p(x, h_j | zeta) /
        q(h_j | zeta, x) - KL[q(z, zeta | x) || p(z, zeta)], see `discrete_vae.objectives.partial_bound`. Without them
        zeta is, from which z is summed out, if the transformation has no spike: E log (1/k) sum_j p(x, zeta_j) /
        q(zeta_j | x), by a bound of log p(zeta), see `discrete_vae.objectives.relaxed_bound`.

        Args:
            x: (batch, *event) or (batch, feature), in the likelihood's domain; NaN is an unobserved entry where the
                model allows them.
            negative_phase: (chain, unit), samples of the prior from any sampler: they give log Z its gradient.
            log_partition: log Z of the prior, nats: it gives the value; a tensor that carries a gradient gives that
                too. Where neither is given it is enumerated if the prior has at most 12 units outside its largest
                block; otherwise the value is NaN, and the loss asks for the negative phase.
            observed: (batch, *event) bool, False where an entry is unobserved, whatever x holds there.
            num_importance_samples: k, samples of the Gaussian layers for each draw of the binary latents, or of zeta
                where there are none; more than 1 needs such layers, or a transformation without a spike.
            generator: Source of the noise; None means torch's global generator.

        Returns:
            The bound and its parts, (batch,), nats, and the loss.

        Raises:
            InvalidInputError: If x has another shape, dtype or domain, or another argument breaks its rule; on the CPU
                also if the bound is not finite since a weight is not.
        """
        x, observed = self._open(x, observed)
        check_positive_int("num_importance_samples", num_importance_samples)
        gradient, value = gradient_and_value(self.prior, negative_phase, log_partition)
        batch = Batch(x, observed, gradient, num_importance_samples, generator=generator)
        wants_gradient = torch.is_grad_enabled() and any(p.requires_grad for p in self.prior.parameters())
        parts = bound_parts(self, batch)
        self._check_parts_finite(*parts)
        return Elbo(
            *parts,
            value,
            gradient is not None or not wants_gradient,
            num_importance_samples,
            weighs_binary_latents(self),
        )

    def estimate_gradient(
        self,
        estimator: GradientEstimator,
        x: Tensor,
        *,
        negative_phase: Tensor | None = None,
        log_partition: Tensor | SupportsFloat | None = None,
        observed: Tensor | None = None,
        discrete: float = 1.0,
        continuous: float = 1.0,
        num_importance_samples: int = 1,
        generator: torch.Generator | None = None,
    ) -> GradientEstimate:
        """One estimate of the gradient of `Elbo.weighted_loss`, by an estimator of your choice.

        Args:
            estimator: For example `discrete_vae.DisARM.of(model)`; it learns from the batch in training mode.
            x: As in `elbo`.
            negative_phase: As in `elbo`.
            log_partition: As in `elbo`; only its gradient matters here.
            observed: As in `elbo`.
            discrete: Weight of the KL of the binary latents.
            continuous: Weight of the KL of the Gaussian layers.
            num_importance_samples: As in `elbo`.
            generator: As in `elbo`.

        Returns:
            The estimate, whose `loss` is to be differentiated, and what it cost.

        Raises:
            InvalidInputError: If an argument breaks its rule, or the estimator does not fit.

        Examples:
            >>> from discrete_vae import LeaveOneOut
            >>> from discrete_vae.config import ModelConfig, RBMConfig
            >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
            >>> estimate = model.estimate_gradient(LeaveOneOut.of(model, num_samples=4), torch.zeros(5, 6))
            >>> estimate.loss.backward()
            >>> estimate.num_evaluations
            4
        """
        x, observed = self._open(x, observed)
        check_positive_int("num_importance_samples", num_importance_samples)
        check_kl_weights(
            discrete,
            continuous,
            num_importance_samples=num_importance_samples,
            weighs_binary_latents=weighs_binary_latents(self),
        )
        gradient, _ = gradient_and_value(self.prior, negative_phase, log_partition)
        seeds = loss_gradients(len(x), discrete, continuous, like=self.prior.bias)
        weight = seeds[1] * len(x)
        batch = Batch(x, observed, gradient, num_importance_samples, weight, generator)
        estimate = estimator.estimate(self, batch, seeds)
        self._check_parts_finite(*estimate.parts)
        return estimate

    def _check_parts_finite(self, *parts: Tensor) -> None:
        """Name the weight to blame for a bound that is not finite, if one is, where values can be read."""
        if values_are_readable(parts[0]) and not math.isfinite(
            float(sum(part.detach().sum() for part in parts))
        ):
            check_weights("model", self)


def count_weights(config: ModelConfig) -> int:
    """Trained numbers of the model of a config, which is not built for it.

    Examples:
        >>> from discrete_vae.config import FactorialBernoulliConfig, MLPDecoderConfig, HierarchicalPosteriorConfig
        >>> posterior = HierarchicalPosteriorConfig(groups=1, hidden=())
        >>> prior = FactorialBernoulliConfig(num_units=2)
        >>> count_weights(ModelConfig(num_features=3, prior=prior, posterior=posterior))
        22
    """
    with torch.device("meta"):
        model = DiscreteVAE.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())


def _check_fits(name: str, rule: str, got: int, wanted: int) -> None:
    """Check that a part of the model has the size that another part asks for."""
    if got != wanted:
        raise InvalidInputError(name, rule.format(wanted), got, "Build the parts for each other.")


def check_model_memory(
    config: ModelConfig, bytes_each: int, what: str, *, gradient: ComponentConfig | None = None
) -> None:
    """Check that a model can be built and fits the memory, before anything large is made.

    Parameters are counted on torch's meta device.

    Args:
        config: The model.
        bytes_each: Bytes that a parameter takes.
        what: What they are for, "for weights" say.
        gradient: What estimates its gradient, which may have parameters too.

    Raises:
        InvalidInputError: If its parts do not fit each other, or the memory; names the largest part.
    """
    prior, groups, hierarchy = config.prior, config.posterior.groups, config.hierarchy
    networks = groups if isinstance(groups, int) else 1 if groups == "colors" else len(groups)
    networks += hierarchy.num_layers if isinstance(hierarchy, GaussianHierarchyConfig) else 0
    is_complete = isinstance(prior, GraphBoltzmannConfig) and prior.edges == "complete"
    edges = prior.num_units * (prior.num_units - 1) // 2 if is_complete else 0
    check_memory("model.prior", _PER_UNIT * prior.num_units + _PER_EDGE * edges, "Use fewer units.")
    check_memory("model", _PER_NETWORK * networks, "Use fewer groups of the posterior, or fewer layers.")
    part, needed = "model", _UNCOUNTABLE
    try:
        with torch.device("meta"):
            model = DiscreteVAE.from_config(config)
            parts = {f"model.{name}": child for name, child in model.named_children()}
            posterior = model.posterior
            if gradient is not None:
                assert isinstance(posterior, HierarchicalPosterior)  # the only kind with a config
                units = posterior.num_units
                parts["training.gradient"] = instantiate(
                    gradient,
                    group_of_unit=torch.arange(units, device="cpu") * len(posterior.groups) // units,
                    num_features=posterior.num_features,
                )
    except RuntimeError as error:
        if not is_allocation_failure(error):
            raise
    else:
        counts = {name: sum(p.numel() for p in module.parameters()) for name, module in parts.items()}
        part = max(counts, key=lambda name: counts[name])
        needed = bytes_each * sum(counts.values())
    check_memory(part, needed, _NARROWER, what=what)
