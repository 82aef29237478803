"""The discrete variational autoencoder: its bound, log-likelihood, codes, samples, and its way to a file and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, SupportsFloat, get_args

import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.base import BoltzmannMachine
from discrete_vae.build import NARROWER, build_parts, check_parts, check_sizes
from discrete_vae.checks import (
    check_binary,
    check_examples,
    check_finite,
    check_number,
    check_positive_int,
    check_tensor,
    values_are_known,
    values_are_readable,
)
from discrete_vae.config import ModelConfig, SharpLimitConfig
from discrete_vae.config.model import Mask
from discrete_vae.errors import InvalidInputError, naming
from discrete_vae.hierarchy.base import Hierarchy, NoHierarchy
from discrete_vae.likelihoods.base import Likelihood, Statistic, check_statistic, fitted_to, validate_batch
from discrete_vae.nets.mlp import MixedPrecisionLayer, MLPDecoder
from discrete_vae.nets.modes import eval_mode, folded_networks
from discrete_vae.nets.weights import check_finite_weights, load_weights
from discrete_vae.objectives.elbo import (
    MAX_SILENTLY_ENUMERATED_UNITS,
    Batch,
    Elbo,
    check_kl_weights,
    check_trains_prior,
    gradient_and_value,
    loss_gradients,
    loss_terms,
    weighs_binary_latents,
)
from discrete_vae.objectives.importance import (
    ClassProbabilities,
    ImportanceSampler,
    LogLikelihood,
    class_probabilities,
    importance_weighted,
)
from discrete_vae.posterior import UNKNOWN, Posterior, check_labels, clamped_labels
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import DrawsFrom, draw_key, open_uniform, resolve_generator
from discrete_vae.samplers.gibbs import BlockGibbs
from discrete_vae.smoothing.base import Smoothing
from discrete_vae.sparse import Examples, SparseRows
from discrete_vae.system import allocating, check_device

if TYPE_CHECKING:
    from discrete_vae.nets.condition import ConditionEmbedding
    from discrete_vae.objectives.gradients import GradientEstimate, GradientEstimator
    from discrete_vae.runs.run_directory import RunDirectory


@dataclass(frozen=True, eq=False, repr=False)
class ModelSample(ShowsShapes):
    """Draws from the generative model.

    Attributes:
        mean: E[x | zeta, h], (sample, *event); of bits, probabilities.
        z: Prior states, (sample, unit), in {0,1}.
        zeta: Smoothed z, (sample, unit).
        h: Continuous layers, (sample, layer, unit); none without a hierarchy.
    """

    mean: Tensor
    z: Tensor
    zeta: Tensor
    h: Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Encoding(ShowsShapes):
    """A draw of all latents from the approximating posterior.

    Attributes:
        z: (batch, unit), in {0,1}.
        zeta: (batch, unit).
        logits: Log-odds of each unit given x and the earlier groups, (batch, unit).
        h: The continuous layers, (batch, layer, unit); no layer without a hierarchy.
    """

    z: Tensor
    zeta: Tensor
    logits: Tensor
    h: Tensor


class DiscreteVAE(nn.Module):
    """p(x, h, zeta, z) = p(z) r(zeta|z) p(h|zeta) p(x|zeta,h) with a Boltzmann machine p(z), and q(z, zeta, h | x).

    With a condition c it is p(x, h, zeta, z | c) = p(z) r(zeta|z) p(h|zeta,c) p(x|zeta,h,c), and q(z, zeta, h | x, c).
    The prior does not read c, so codes mean the same for every c. Networks read e(c), the condition's features, behind
    x's features and behind zeta, see `discrete_vae.nets.condition`.

    With classes, a known label y is e_y, one-hot, in the prior's first units; an unknown one is summed over, see
    `discrete_vae.objectives.elbo`. The posterior says how many classes there are. A function without an argument for
    labels refuses such a model, unless its docstring says otherwise.

    Methods raise `InvalidInputError` for an argument that breaks its rule and for a result that is not finite, with the
    name of the weight that is to blame; `elbo` and `estimate_gradient` look for such weights on the CPU alone.

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
        missing: True if entries of x may be unobserved. The encoder then reads values and mask, joined along
            the first axis after the batch's.
        mask: "gaps" for a mask that is 1 where an entry is unobserved, else 0; "observed" for the opposite, as models
            of versions without this argument read it.
        condition: e(c); None for a model without a condition. The posterior then reads [features, e(c)], and the
            hierarchy [zeta, e(c)] in place of zeta: their sizes count e(c) in.

    Attributes:
        config: The config that `from_config` built the model from; None for a model put together by hand.

    Examples:
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
        >>> model.elbo(torch.zeros(5, 6)).value.shape
        torch.Size([5])
    """

    config: ModelConfig | None = None
    condition: ConditionEmbedding | None
    mask: Mask = "observed"  # of models that were pickled before there was a choice
    _own: tuple[str, ...] = ()  # parts that the caller of from_config gave
    _version = 2  # of a state_dict; models of version 1 read masks that are 1 for what is observed

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
        condition: ConditionEmbedding | None = None,
    ) -> None:
        super().__init__()
        num_latents = prior.num_units + (0 if condition is None else condition.num_features)
        if hierarchy is None:
            hierarchy = NoHierarchy(num_latents=num_latents, num_features=posterior.num_features)
        check_sizes(prior, posterior, hierarchy, num_latents)
        if mask not in get_args(Mask):
            repair = "Leave it out, but for weights from a model that read 1 for what is observed."
            raise InvalidInputError("mask", "must be 'gaps' or 'observed'", f"{mask!r}"[:80], repair)
        self.prior = prior
        self.encoder = nn.Flatten() if encoder is None else encoder
        self.posterior = posterior
        self.hierarchy = hierarchy
        if decoder is None:
            decoder = MLPDecoder(hierarchy.decoder_size, likelihood.parameter_shape)
        self.decoder = decoder
        self.likelihood = likelihood
        self.missing, self.mask = missing, mask
        self.condition = condition
        self.pair_order = prior.pair_order(posterior.group_of_unit)
        # constants are made on the CPU, where their values can be looked at
        posterior.to(prior.bias.device)
        self.pair_order.to(prior.bias.device)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name not in ("prior", "posterior") or "pair_order" not in self._modules:
            return
        if self.prior.num_units == self.posterior.num_units:  # else the other one follows
            order = self.prior.pair_order(self.posterior.group_of_unit)
            super().__setattr__("pair_order", order.to(self.prior.bias.device))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "condition" not in self._modules:  # nor in models that were pickled before there was one
            self.condition = None

    def _load_from_state_dict(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        if local_metadata.get("version") == 1 and self.missing and self.mask == "gaps":
            repair = "Build the model with mask='observed', as it was trained."
            rule = "must be of a model whose mask is 1 for a gap"
            raise InvalidInputError("state_dict", rule, "an older one", repair)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    @classmethod
    def from_config(
        cls, config: ModelConfig, *, encoder: nn.Module | None = None, decoder: nn.Module | None = None
    ) -> Self:
        """Build a model with new parameters; networks start from torch's global generator.

        Modules of your own take the place of the config's encoder, (batch, *input_shape) -> (batch, feature), and
        decoder, (row, latent) -> (row, *parameter_shape).
        """
        given = {"encoder": encoder, "decoder": decoder}
        given = {name: part for name, part in given.items() if part is not None}
        for name, part in given.items():
            if not isinstance(part, nn.Module):
                repair = "Give an instance of a class that derives from torch.nn.Module."
                raise InvalidInputError(name, "must be a module", f"{part!r}"[:80], repair)
        with allocating("model", NARROWER):
            model = cls(**build_parts(config, **given))
        model.config, model._own = config, tuple(given)
        return model

    @property
    def smoothing(self) -> Smoothing:
        """r(zeta|z), which the posterior owns."""
        return self.posterior.smoothing

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the networks, to which x and latents are cast."""
        return next(self.decoder.parameters(), self.prior.bias).dtype

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return self.likelihood.event_shape

    @torch.no_grad()
    def initialize_(
        self, x: Examples, observed: Tensor | None = None, condition: Tensor | None = None
    ) -> None:
        """Start from the statistics of the training data: the likelihood's own, the condition's, the decoder's output.

        A decoder with a method ``initialize_output_(start)`` gets the parameters to start at, (*parameter_shape);
        others keep their start.
        """
        start = self._fit_(self.likelihood.initialize_, x, observed, condition)
        initialize_output = getattr(self.decoder, "initialize_output_", None)
        if initialize_output is not None:
            initialize_output(start)

    @torch.no_grad()
    def make_independent_(
        self, x: Examples, observed: Tensor | None = None, condition: Tensor | None = None
    ) -> None:
        """Become the model in which features are independent, each with the law that fits the training data x.

        All weights of the prior and all matrices of the networks become 0: in evaluation mode q(z | x) = p(z), likewise
        of Gaussian layers, and the decoder returns its start whatever the latents are. Then the ELBO is log p(x), up to
        what a transformation that depends on x adds; of a condition nothing is used. Only for a model that has not been
        trained.
        """
        self._refuse_classes("an independent start")
        initialize_output = getattr(self.decoder, "initialize_output_", None)
        if initialize_output is None:
            received = type(self.decoder).__name__
            repair = "Give it the method, or leave training.independent_start out."
            raise InvalidInputError("decoder", "must have initialize_output_", received, repair)
        start = self._fit_(self.likelihood.fit_marginals_, x, observed, condition)
        for part in (self.prior, self.posterior, self.hierarchy, self.decoder):
            for parameter in part.parameters():
                if part is self.prior or parameter.dim() >= 2:
                    parameter.zero_()
        initialize_output(start)

    def _fit_(
        self, fit: Callable[..., Tensor], x: Examples, observed: Tensor | None, condition: Tensor | None
    ) -> Tensor:
        """Fit the likelihood, by a method of its own, and the condition's features; returns the decoder's start."""
        examples = fitted_to(self.likelihood, x)
        if isinstance(examples, SparseRows) and observed is None:
            start = fit(examples)
        else:
            start = fit(*self.preprocess(examples[:], observed))
        c = self.check_condition(condition, len(x))
        if self.condition is not None and c is not None:
            self.condition.initialize_(c)
        return start

    @torch.no_grad()
    def project_(self) -> None:
        """Bring every bounded parameter back inside its bounds; call it after each step of the optimizer.

        Bounds hold without it too, see `discrete_vae.numerics.bounded`; parameters then return to them later.
        """
        for module in self.modules():
            project = getattr(module, "project_", None)
            if module is not self and project is not None:
                project()

    # The bound and log p(x).

    def elbo(
        self,
        x: Tensor,
        *,
        negative_phase: Tensor | None = None,
        log_partition: Tensor | SupportsFloat | None = None,
        observed: Tensor | None = None,
        condition: Tensor | None = None,
        labels: Tensor | None = None,
        label_weight: float = 1.0,
        num_importance_samples: int = 1,
        generator: torch.Generator | None = None,
    ) -> Elbo:
        """One-sample estimates of the evidence lower bound; value and gradient are unbiased given log Z.

        For a model with classes it is a bound of log p(x, y) where the label y is known, else of log sum_y p(x, y).

        Several importance samples give a higher bound, see `discrete_vae.objectives.importance`. They are of the
        Gaussian layers, if there are any; else of zeta, from which z is summed out.

        Args:
            x: (batch, *event) or (batch, feature), in the likelihood's domain; NaN is an unobserved entry where the
                model allows them.
            negative_phase: (chain, unit), samples of the prior from any sampler: they give log Z its gradient.
            log_partition: log Z of the prior, nats: it gives the value; a tensor that carries a gradient gives that
                too. Where neither is given it is enumerated if at most 12 units lie outside the prior's largest block;
                otherwise the value is NaN, and the loss asks for the negative phase.
            observed: (batch, *event) bool, False where an entry is unobserved, whatever x holds there.
            condition: c of p(x | c), (batch, column), or (1, column) for all examples, as `ConditionEmbedding.check`
                wants it: with NaN for what is missing. A model has it if and only if it has `ModelConfig.condition`.
            labels: Of a model with classes, (batch,) integers, -1 for a label that is not known; None knows none.
            label_weight: Weight of -log q(y | x), of each known label, in the gradients of value and loss, not in
                their numbers: 0 leaves the gradient of the bound.
            num_importance_samples: k per example; more than 1 needs Gaussian layers, or a transformation without a
                spike, and a model without classes.
            generator: Source of the noise; None means torch's global generator.

        Returns:
            The bound and its parts, (batch,), nats, and the loss.
        """
        batch = self.check_batch(
            x, observed=observed, condition=condition, labels=labels, generator=generator
        )
        gradient, value = gradient_and_value(self.prior, negative_phase, log_partition)
        batch = replace(
            batch,
            log_partition_gradient=gradient,
            num_importance_samples=check_positive_int("num_importance_samples", num_importance_samples),
            label_weight=check_number("label_weight", label_weight, at_least=0, repair="Give 0 for none."),
        )
        terms = loss_terms(self, batch)
        self._check_terms_finite(*terms)
        trains_prior = self._trains_prior(gradient)
        return Elbo(*terms, value, trains_prior, num_importance_samples, weighs_binary_latents(self))

    forward = elbo  # so that the module can be called

    def _trains_prior(self, log_partition_gradient: Tensor | None) -> bool:
        wants_gradient = torch.is_grad_enabled() and any(p.requires_grad for p in self.prior.parameters())
        return log_partition_gradient is not None or not wants_gradient

    def estimate_gradient(
        self,
        estimator: GradientEstimator,
        x: Tensor,
        *,
        negative_phase: Tensor | None = None,
        log_partition: Tensor | SupportsFloat | None = None,
        observed: Tensor | None = None,
        condition: Tensor | None = None,
        discrete: float = 1.0,
        continuous: float = 1.0,
        num_importance_samples: int = 1,
        generator: torch.Generator | None = None,
    ) -> GradientEstimate:
        """Estimate the gradient of `Elbo.weighted_loss` once, by an estimator of your choice.

        The arguments are those of `elbo`, of whose log_partition only the gradient matters here, and weights of the KL
        of the binary latents (discrete) and of the Gaussian layers (continuous). The estimator, for example
        `discrete_vae.DisARM.of(model)`, learns from the batch in training mode. The `loss` of what is returned is to be
        differentiated.

        Examples:
            >>> from discrete_vae import LeaveOneOut
            >>> from discrete_vae.config import ModelConfig, RBMConfig
            >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
            >>> estimate = model.estimate_gradient(LeaveOneOut.of(model, num_samples=4), torch.zeros(5, 6))
            >>> estimate.loss.backward()
            >>> estimate.num_evaluations
            4
        """
        if not isinstance(estimator, nn.Module):
            repair = "Make one for this model, by LeaveOneOut.of(model) for example."
            raise InvalidInputError("estimator", "must be a GradientEstimator", f"{estimator!r}"[:80], repair)
        batch = self.check_batch(x, observed=observed, condition=condition, generator=generator)
        check_positive_int("num_importance_samples", num_importance_samples)
        check_kl_weights(discrete, continuous, num_importance_samples, weighs_binary_latents(self))
        gradient, _ = gradient_and_value(self.prior, negative_phase, log_partition)
        check_trains_prior(self._trains_prior(gradient))
        groups, own = estimator.group_of_unit, self.posterior.group_of_unit
        readable = values_are_readable(groups) and values_are_readable(own)
        # of other groups the bias would be silent
        if groups.shape != own.shape or (readable and not torch.equal(groups, own)):
            name = type(estimator).__name__
            rule, repair = "must be for this model's groups of units", f"Make it by {name}.of(model)."
            raise InvalidInputError("estimator", rule, f"a {name} for others", repair)
        grad_outputs = loss_gradients(len(batch.x), discrete, continuous, like=batch.x)
        batch = replace(
            batch,
            log_partition_gradient=gradient,
            num_importance_samples=num_importance_samples,
            discrete_weight=grad_outputs[1] * len(batch.x),
            labels=None,  # so that a model with classes is refused
        )
        estimate = estimator.estimate(self, batch, grad_outputs)
        self._check_terms_finite(*estimate.terms)
        return estimate

    @torch.no_grad()
    def log_likelihood(
        self,
        x: Tensor,
        num_samples: int,
        *,
        log_partition: Tensor | SupportsFloat | None = None,
        observed: Tensor | None = None,
        condition: Tensor | None = None,
        labels: Tensor | None = None,
        chunk_size: int = 100,
        keys: Sequence[int] | None = None,
        generator: torch.Generator | None = None,
    ) -> LogLikelihood:
        """Estimate log p(x), or log p(x | c), by importance sampling from the posterior, zeta sampled as in training.

        The networks use their running statistics, whatever mode the module is in. Of an example with unobserved
        entries it is the probability of those observed. For a model with classes it is log p(x, y) where the label y is
        known, else log sum_y p(x, y), of which a sample is one draw for each class.

        Source: Rolfe 2017, section results (10^4 samples).

        Args:
            x: (batch, *event) or (batch, feature), in the likelihood's domain.
            num_samples: Importance samples per example.
            log_partition: log Z of the prior, nats; None enumerates it where `elbo` does.
            observed: As in `elbo`.
            condition: As in `elbo`.
            labels: As in `elbo`.
            chunk_size: Samples that are in memory at a time.
            keys: One per example, from `discrete_vae.rng.key_to_seed`: its noise then depends on its key alone.
            generator: Source of the noise where there are no keys; None means torch's global generator.

        Returns:
            The estimate with its standard error, (batch,), nats.
        """
        given = {"observed": observed, "condition": condition, "labels": labels}
        batch = self.check_batch(x, **given, exact=True, keys=keys, generator=generator)
        with self.importance_sampler(log_partition) as sampler:
            return importance_weighted(sampler.log_weights(batch, num_samples, chunk_size))

    @torch.no_grad()
    def predict(
        self,
        x: Tensor,
        num_samples: int = 100,
        *,
        observed: Tensor | None = None,
        condition: Tensor | None = None,
        chunk_size: int = 100,
        keys: Sequence[int] | None = None,
        generator: torch.Generator | None = None,
    ) -> ClassProbabilities:
        """Estimate p(y | x) of each class y by importance sampling of p(x, y), in which log Z cancels.

        The arguments are those of `log_likelihood`; samples are per example and class.

        Returns:
            The probabilities with their standard errors, (batch, class), and q(y | x), which costs no sampling.

        Examples:
            >>> from discrete_vae.config import ModelConfig, RBMConfig
            >>> prior = RBMConfig(num_left=5, num_right=2)
            >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=prior, num_classes=3))
            >>> model.predict(torch.zeros(5, 6)).value.shape
            torch.Size([5, 3])
        """
        given = {"observed": observed, "condition": condition}
        batch = self.check_batch(x, **given, exact=True, keys=keys, generator=generator)
        self.check_labels(None, len(batch.x))
        with self.importance_sampler(0.0) as sampler:
            weights = sampler.log_weights_of_classes(batch, num_samples, chunk_size)
        with eval_mode(self) as model:
            features = model.features_of(batch.x, batch.observed, batch.condition)
            return class_probabilities(weights, model.posterior.log_prob_of_classes(features))

    @contextmanager
    def importance_sampler(self, log_partition: Tensor | SupportsFloat | None) -> Iterator[ImportanceSampler]:
        """Compute importance weights of many batches; the model must not change within the block.

        The arguments and errors are those of `log_likelihood`.
        """
        _, log_z = gradient_and_value(self.prior, None, log_partition)
        if log_z is None:
            largest = MAX_SILENTLY_ENUMERATED_UNITS
            rule = f"must be given if over {largest} units lie outside the largest block"
            repair = "Estimate it once: estimate_log_partition(model.prior)."
            raise InvalidInputError("log_partition", rule, "None", repair)
        # folding sets attributes of the networks, which other threads use
        with torch.no_grad(), eval_mode(self, copied=True) as model, folded_networks(model):
            yield ImportanceSampler(
                model, torch.as_tensor(log_z, dtype=torch.float64, device=self.prior.bias.device)
            )

    # Codes, reconstructions, samples.

    @torch.no_grad()
    def encode(
        self,
        x: Tensor,
        *,
        observed: Tensor | None = None,
        condition: Tensor | None = None,
        labels: Tensor | None = None,
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Encoding:
        """Draw z, zeta and h from the posterior, with running statistics, for x and what comes with it as in `elbo`.

        A label that is not known is drawn too, from q(y | x), and stands in the first units.
        A seed, an integer from 0 to 2^64 - 1, is short for a generator with that seed. Without either torch's global
        generator is the source of the noise, so each call differs.
        """
        batch = self.check_batch(x, observed=observed, condition=condition, labels=labels)
        generator = resolve_generator(seed, generator, batch.x.device)
        with eval_mode(self) as model:
            features = model.features_of(batch.x, batch.observed, batch.condition)
            features, _ = model.with_drawn_label(features, batch.labels, generator=generator)
            sample = model.posterior.rsample(features, generator=generator)
            self._check_finite("the posterior network's logits", sample.logits)
            zeta = model.hierarchy.with_condition(sample.zeta, features)
            h = model.hierarchy.rsample(features, zeta, generator=generator).h
        return Encoding(sample.z, sample.zeta, sample.logits, self._check_finite("the posterior's h", h))

    @torch.no_grad()
    def reconstruct(
        self,
        x: Tensor,
        *,
        observed: Tensor | None = None,
        condition: Tensor | None = None,
        decoder_condition: Tensor | None = None,
        statistic: Statistic = "mean",
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """A statistic of p(x | zeta, h), (batch, *event), for one draw of zeta and h from the posterior of x.

        It is `decode` after `encode`, whose arguments it takes, with one source of noise; where the likelihood has an
        exposure, at that of x, and not at the reference as `decode`. The decoder reads the decoder_condition, for
        example x's batch as it would have been elsewhere; None is x's own condition.
        """
        check_statistic(statistic)
        if decoder_condition is None:
            decoder_condition = condition
        generator = resolve_generator(seed, generator, self.prior.bias.device)
        drawn = self.encode(x, observed=observed, condition=condition, generator=generator)
        c, rows = self.check_condition(decoder_condition, len(x)), self.preprocess(x, observed)
        return self._decode(drawn.zeta, drawn.h, c, statistic, generator, rows=rows)[0]

    @torch.no_grad()
    def decode(
        self,
        zeta: Tensor,
        h: Tensor | None = None,
        *,
        condition: Tensor | None = None,
        statistic: Statistic = "mean",
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """E[x | zeta, h], or another statistic of p(x | zeta, h), with running statistics.

        Args:
            zeta: (..., row, unit), in the smoothing's domain; of any floating-point dtype, as h.
            h: The continuous layers, (..., layer, unit). None draws them from p(h | zeta), for each row of zeta anew.
            condition: As in `elbo`, (row, column), or (1, column) for all rows.
            statistic: "mean" is E[x | zeta, h], for bits probabilities; unordered categories have no useful mean.
                "mode" is the most probable x, feature by feature; "sample" is a draw of x.
            seed: As in `encode`, for the noise in h and x.
            generator: Source of that noise.

        Returns:
            (..., *event).
        """
        check_statistic(statistic)
        zeta = self.smoothing.check_zeta(zeta, (..., "row", self.prior.num_units)).to(self.dtype)
        generator = resolve_generator(seed, generator, zeta.device)
        if h is not None:
            shape = (*zeta.shape[:-1], self.hierarchy.num_layers, self.hierarchy.num_units)
            h = check_tensor("h", h, shape).to(self.dtype)
        c = self.check_condition(condition, zeta.shape[-2])
        return self._decode(zeta, h, c, statistic, generator)[0]

    @torch.no_grad()
    def sample(
        self,
        n: int | None = None,
        *,
        z: Tensor | None = None,
        zeta: Tensor | None = None,
        condition: Tensor | None = None,
        labels: Tensor | None = None,
        num_sweeps: int = 1000,
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> ModelSample:
        """Draw from the generative model, all of z, zeta and h by one source of noise.

        Args:
            n: Number of draws; may be left out where z or labels are given.
            z: States of the prior to decode, (n, unit), from chains of your own. None starts n independent chains
                at fair coins and sweeps them; for trained priors with distinct modes that is not an exact draw.
            zeta: Smoothed states to decode, (n, unit), which belong to the given z; None draws them from r(zeta|z).
            condition: As in `elbo`, (n, column), or (1, column) for all draws. z and zeta do not depend on it.
            labels: Of a model with classes, (n,) integers: draws of p(x | y), by chains whose first units are clamped;
                -1 leaves them free. Without z.
            num_sweeps: Sweeps of these chains.
            seed: As in `encode`.
            generator: Source of all noise.

        Returns:
            Means of x with the latents behind them, in the model's dtype; `decode` with statistic "sample" draws x.

        Examples:
            >>> from discrete_vae.config import ModelConfig, RBMConfig
            >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
            >>> draws = [model.sample(5, seed=1).mean for _ in range(2)]
            >>> torch.equal(*draws), draws[0].shape
            (True, torch.Size([5, 6]))
        """
        generator = resolve_generator(seed, generator, self.prior.bias.device)
        if z is None:
            if zeta is not None:
                raise InvalidInputError("z", "must be given with zeta", "None", "Give what is behind zeta.")
            n = len(labels) if n is None and isinstance(labels, Sized) and getattr(labels, "ndim", 1) else n
            chains = BlockGibbs(self.prior, check_positive_int("n", n), seed=draw_key(generator))
            if labels is not None:
                y = self.check_labels(labels, chains.num_chains)
                start, fixed = clamped_labels(chains.z, y, self.posterior.num_classes)
                chains = BlockGibbs(self.prior, len(start), seed=chains.seed, start=start, clamped=fixed)
            z = chains.step(num_sweeps)
        elif labels is not None:
            raise InvalidInputError("labels", "must be left out with z", "both", "Clamp the chains of z.")
        rows = "sample" if n is None else check_positive_int("n", n)
        z = check_binary("z", check_tensor("z", z, (rows, self.prior.num_units))).to(self.dtype)
        if zeta is None:
            zeta = self.smoothing.sample_zeta(z, generator=generator)
        else:
            zeta = self.smoothing.check_zeta(zeta, z.shape).to(self.dtype)
        mean, h = self._decode(zeta, None, self.check_condition(condition, len(zeta)), "mean", generator)
        return ModelSample(mean, z, zeta, h)

    def _decode(
        self,
        zeta: Tensor,
        h: Tensor | None,
        condition: Tensor | None,
        statistic: Statistic | Literal["expected"],
        generator: torch.Generator | None,
        *,
        rows: tuple[Tensor, Tensor | None] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """A statistic of p(x | zeta, h), (..., *event), at the exposure of rows; and h, drawn if there is none.

        "expected" is E[T(x) | zeta, h], (..., *statistic_shape), see `Likelihood.expected_statistics`.
        """
        check_finite_weights(self)  # a mean hides an infinite logit
        with eval_mode(self) as model:
            likelihood = model.likelihood
            zeta = model.with_condition(zeta, condition)
            if h is None:
                h = model.hierarchy.sample(zeta, generator=generator)
            parameters = model.parameters_of(model.hierarchy.decoder_input(zeta, h))
            if rows is not None:
                parameters = likelihood.at_exposure(parameters, *rows)
            if statistic in ("mode", "sample"):  # a bit or a code hides what is not finite
                self._check_finite("the decoder's output", parameters)
            if statistic == "mean":
                x = likelihood.mean(parameters)
            elif statistic == "mode":
                x = likelihood.mode(parameters)
            elif statistic == "sample":
                x = likelihood.sample(parameters, generator=generator)
            else:
                x = likelihood.expected_statistics(parameters)
            if rows is not None and statistic != "expected":
                x = likelihood.with_exposure(x, rows[0])
        # codes and counts have more digits than a half-precision model
        dtype = self.dtype if statistic == "mean" else torch.promote_types(self.dtype, torch.float32)
        return self._check_finite(f"the decoder's {statistic}", x.to(dtype)), h

    # The limit of sharp smoothing; saved models.

    def discretized(self) -> Self:
        """The model in the limit of infinitely sharp smoothing: z itself goes into whatever reads zeta.

        The networks read z where they were trained on smoothed values. It is a model like any other, but training needs
        a score function, since no gradient passes through zeta. Its weights and buffers are those of this model, not
        copies.

        Source: Rolfe 2017, footnote in section spike-and-exponential (a trained model with beta -> infinity).

        Raises:
            InvalidInputError: If the smoothing has no parameter that takes zeta to z.

        Examples:
            >>> from discrete_vae.config import ModelConfig, RBMConfig
            >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
            >>> draw = model.discretized().sample(5, seed=1)
            >>> torch.equal(draw.zeta, draw.z), model.smoothing
            (True, SpikeExponential(beta=3, trainable=True))
        """
        limit = self.smoothing.sharp_limit()
        if limit is None:
            repair = "Those with a beta or a b have one, see docs/smoothing.md."
            rule = "must be a transformation with a limit in which zeta is z"
            raise InvalidInputError("model.smoothing", rule, f"a {type(self.smoothing).__name__}", repair)
        limit.train(self.smoothing.training)
        shared: list[object] = [*self.parameters(), *self.buffers()]
        shared += [part.mixed_precision for part in self.modules() if isinstance(part, MixedPrecisionLayer)]
        found = deepcopy(self, {id(part): part for part in shared} | {id(self.smoothing): limit})
        if self.config is not None:
            found.config = self.config.model_copy(update={"smoothing": SharpLimitConfig()})
        return found

    def save_pretrained(self, path: str | Path) -> Path:
        """Write the model into a folder of its own: ``model.safetensors`` and ``config.json``.

        Whole or not at all; a saved model that is there gives way. Of parts of your own the weights are saved.

        Args:
            path: The folder, new or empty or that of a saved model; ``~`` is the home directory. It is returned.

        Raises:
            InvalidInputError: If the model was not built by `from_config`, a part has been exchanged since, a weight
                is not finite, or the folder holds anything else.
            OSError: If the disk is full or refuses.
        """
        if self.config is None:
            repair = "Build it by DiscreteVAE.from_config, or keep its state_dict."
            raise InvalidInputError("model.config", "must be known to save the model", "None", repair)
        check_parts(self, self.config, self._own)
        check_finite_weights(self)
        from discrete_vae.runs.load import write_model

        within = deepcopy(self)
        within.project_()  # bounds are not saved
        return write_model(path, self.config, within.state_dict(), dtype=self.dtype, own=self._own)

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path | RunDirectory,
        *,
        encoder: nn.Module | None = None,
        decoder: nn.Module | None = None,
        device: torch.device | str = "cpu",
        revision: str | None = None,
    ) -> Self:
        """Load what `save_pretrained` wrote, or the best checkpoint of a run; nothing is unpickled.

        Args:
            path: The folder of a saved model, or that of a run, whose data need not be there any more. A name
                OWNER/NAME, where there is no folder OWNER here, is that of a model of the Hugging Face hub, see
                `discrete_vae.interop.hub`.
            encoder: The module of your own that the model was saved with; its weights are overwritten.
            decoder: The same.
            device: Device of the model, which is in evaluation mode.
            revision: Branch, tag or commit of a model of the hub; None is its main branch.

        Raises:
            InvalidInputError: If the device or the folder is not there, a file or a weight is damaged or does not fit,
                or the hub cannot be reached.
        """
        device = check_device(device)
        from discrete_vae.runs.load import read_model

        saved = read_model(path, revision=revision)
        saved.check_parts(encoder=encoder, decoder=decoder)
        # new weights are drawn, then overwritten
        with DrawsFrom(torch.Generator("cpu")), torch.device("cpu"), naming(saved.source):
            model = cls.from_config(saved.config, encoder=encoder, decoder=decoder).to(saved.dtype)
            load_weights(model, saved.tensors)
        return model.to(device).eval()

    # What inference and the estimators of the bound share.

    def check_batch(
        self,
        x: Tensor,
        *,
        observed: Tensor | None = None,
        condition: Tensor | None = None,
        labels: Tensor | None = None,
        exact: bool = False,
        keys: Sequence[int] | None = None,
        generator: torch.Generator | None = None,
    ) -> Batch:
        """Check a batch and what comes with it, as `elbo` and `log_likelihood` take it; exact as in `Likelihood.check`.

        A model with classes gets a label for each example, -1 where it is not known.
        """
        x, mask = self.preprocess(check_examples("x", x) if exact else x, observed, exact=exact)
        if keys is not None and (len(keys) != len(x) or generator is not None):
            rule = f"must be one for each of the {len(x)} examples, without a generator"
            raise InvalidInputError("keys", rule, len(keys), "Give one per row of x, or leave them out.")
        c = self.check_condition(condition, len(x))
        has_none = labels is None and not self.posterior.num_classes
        y = None if has_none else self.check_labels(labels, len(x))
        return Batch(x, mask, generator=generator, condition=c, labels=y, keys=keys)

    def preprocess(
        self, x: object, observed: Tensor | None = None, *, exact: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Check a batch; returns it in the event's shape with the mask of observed entries, see `validate_batch`."""
        x, observed = validate_batch(
            x, observed, self.likelihood, like=self.prior.bias, missing=self.missing, exact=exact
        )
        return x.to(torch.promote_types(self.dtype, torch.float32)), observed

    def check_condition(self, condition: object, num_rows: int) -> Tensor | None:
        """Check a condition, see `ConditionEmbedding.check`; None if and only if the model has none."""
        self._check_has_condition(condition)
        return None if self.condition is None else self.condition.check(condition, num_rows)

    def _check_has_condition(self, condition: object) -> None:
        if condition is not None and self.condition is None:
            repair = "Leave it out, or build the model with ModelConfig.condition."
            raise InvalidInputError("condition", "must be left out for a model without one", "some", repair)
        if condition is None and self.condition is not None:
            rule = f"must hold {', '.join(self.condition.names)[:80]} for a model of p(x | c)"
            repair = "Give (example, column); NaN is a missing value."
            raise InvalidInputError("condition", rule, "None", repair)

    def with_condition(self, zeta: Tensor, condition: Tensor | None) -> Tensor:
        """[zeta, e(c)] for the hierarchy, (..., row, latent), of zeta and a checked condition, (row, column)."""
        self._check_has_condition(condition)
        if self.condition is None or condition is None:
            return zeta
        return self.hierarchy.with_condition(zeta, self.condition(condition))

    def check_labels(self, labels: object, num_rows: int) -> Tensor:
        """Check labels of a model with classes, see `discrete_vae.objectives.elbo`; (row,) int64, -1 for unknown."""
        if not self.posterior.num_classes:
            repair = "Build the model with ModelConfig.num_classes."
            raise InvalidInputError("model", "must have classes of labels", "a model without", repair)
        return check_labels(labels, num_rows, self.posterior.num_classes, like=self.prior.bias)

    def _refuse_classes(self, what: str) -> None:
        if self.posterior.num_classes:
            rule, repair = f"must have no classes for {what}", "Take elbo, log_likelihood, predict or encode."
            raise InvalidInputError("model", rule, f"{self.posterior.num_classes} classes", repair)

    def with_label(self, features: Tensor, labels: Tensor) -> Tensor:
        """[e_y, features], (row, class + feature), of rows and their labels, (row,), all known."""
        of_label = torch.nn.functional.one_hot(labels, self.posterior.num_classes)
        return torch.cat([of_label.to(features.dtype), features], -1)

    def with_drawn_label(
        self, features: Tensor, labels: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """[e_y, features] with y drawn from q(y | x) where no label, (row,), is known, and log q(y | x), (row, class).

        A model without classes has its features alone, and None.
        """
        if not self.posterior.num_classes:
            return features, None
        log_q = self.posterior.log_prob_of_classes(features)
        # the Gumbel-max trick; noise at its median gives the most probable class
        noise = open_uniform(log_q, generator=generator)
        drawn = (log_q - (-noise.log()).log()).argmax(-1)
        y = drawn if labels is None else torch.where(labels == UNKNOWN, drawn, labels)
        return self.with_label(features, y), log_q

    def read(self, x: Tensor, observed: Tensor | None, condition: Tensor | None = None) -> Tensor:
        """`features_of` a model without classes, as its posterior and its Gaussian layers read them."""
        self._refuse_classes("what reads x without a label")
        return self.features_of(x, observed, condition)

    def features_of(self, x: Tensor, observed: Tensor | None, condition: Tensor | None = None) -> Tensor:
        """Encode a checked batch, (batch, feature): all that the posterior reads but e_y, see `with_label`.

        A model with a condition has e(c) behind the encoder's features.
        """
        self._check_has_condition(condition)
        given = self.likelihood.network_input(x, observed)
        if self.missing:
            seen = torch.ones_like(x, dtype=torch.bool) if observed is None else observed
            mask = seen if self.mask == "observed" else ~seen
            given = torch.cat([given, mask.to(x.dtype)], dim=1)
        features = self.encoder(given.to(self.dtype))
        size = self.posterior.num_features - self.posterior.num_classes
        if self.condition is None or condition is None:
            return check_tensor("the encoder's output", features, (len(x), size))
        size -= self.condition.num_features
        check_tensor("the encoder's output", features, (len(x), size))
        of_condition = self.condition(condition)
        return torch.cat([features.to(of_condition.dtype), of_condition], -1)

    def parameters_of(self, latents: Tensor) -> Tensor:
        """Decode latents with any leading axes to the likelihood's parameters, (..., *parameter_shape)."""
        rows = latents.reshape(-1, latents.shape[-1])
        if rows.dtype != torch.bfloat16:  # which are rounded for the decoder
            rows = rows.to(self.dtype)
        shape = (len(rows), *self.likelihood.parameter_shape)
        parameters = check_tensor("the decoder's output", self.decoder(rows), shape)
        return parameters.unflatten(0, latents.shape[:-1])

    def _check_finite(self, name: str, result: Tensor) -> Tensor:
        """Return a result if it is finite; otherwise name the weight to blame, or the result."""
        if values_are_known(result) and not bool(result.isfinite().all()):
            check_finite_weights(self)
        repair = "Weights are finite. Look for values far from all others, or restore an earlier state."
        return check_finite(name, result, repair=repair)

    def _check_terms_finite(self, *terms: Tensor) -> None:
        """Name the weight to blame for a bound that is not finite, if one is, where values can be read."""
        if values_are_readable(terms[0]):
            total = float(sum(each.detach().sum() for each in terms))
            if not math.isfinite(total):
                check_finite_weights(self)
