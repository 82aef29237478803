"""Everything that a training run carries from step to step, and its way into a checkpoint and back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.log_partition import LogPartition
from discrete_vae.config import ExperimentConfig
from discrete_vae.distributed import compute_on_rank_zero, gather_shares
from discrete_vae.errors import naming
from discrete_vae.log_partition.estimate import comparable_log_partition, quick_log_partition
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.precision import set_precision
from discrete_vae.nets.saved_weights import check_weights, load_weights
from discrete_vae.noise import key_to_seed
from discrete_vae.objectives.gradients.base import GradientEstimator
from discrete_vae.runs.checkpoint_files import MODEL_PREFIX
from discrete_vae.samplers.protocol import Sampler, TellsLogPartition
from discrete_vae.training.adam import Adam
from discrete_vae.training.averaging import RAW_PREFIX, AveragedWeights
from discrete_vae.training.checkpoint_checks import (
    MOMENTS,
    check_log_partition,
    check_moments,
    check_raw_weights,
    check_step,
)
from discrete_vae.training.compiled_loss import CompiledLoss
from discrete_vae.training.elbo_sums import ElboSums
from discrete_vae.training.initial import initial_gradient, initial_model
from discrete_vae.training.load import CHAINS_PREFIX, load_chains
from discrete_vae.training.parameter_groups import parameter_groups
from discrete_vae.training.precision import choose_precision
from discrete_vae.training.recorded_step import RecordedStep
from discrete_vae.training.replicas import (
    Replicas,
    own_chains,
    whole_state,
)
from discrete_vae.training.step_times import StepTimes

GRADIENT_PREFIX = "gradient/"
"""What stands before the names of the sampler's state, and of the gradient's, among a checkpoint's tensors."""

_LOG_Z_STREAM, _AVERAGED_LOG_Z_STREAM = 0x6C6F677A, 0x61766C6F677A
_ANNEALED_CHAINS, _TEMPERATURES, _MAX_ENUMERATED = 200, 300, 12  # log Z in a quarter second


@dataclass
class TrainingState:
    """The parts of a run.

    Attributes:
        model: The model.
        optimizer: Adam over all of its parameters and the gradient's own, in `parameter_groups`.
        chains: The persistent chains, those of this process if there are several.
        gradient: What estimates the gradient of the bound, with what it has learned.
        seed: The experiment's.
        step: Steps done.
        log_partition: log Z of the prior when it was last estimated, nats.
        log_partition_std_error: Its standard error.
        sums: What the next line of the log averages.
        times: Where the time goes; not part of what is saved.
        averages: Averaged weights, if the run has them; they are what a checkpoint's model is.
        recorded: Takes the gradients; not part of what is saved.
        compiled: The compiled loss, if the run compiles it; not part of what is saved.
        record: Whether steps are recorded and repeated; not part of what is saved.
        replicas: What the processes of torchrun share; not part of what is saved.
    """

    model: DiscreteVAE
    optimizer: Adam
    chains: Sampler
    gradient: GradientEstimator
    seed: int
    step: int = 0
    log_partition: float = 0.0
    log_partition_std_error: float = math.inf
    sums: ElboSums = field(default_factory=ElboSums)
    times: StepTimes = field(default_factory=StepTimes)
    averages: AveragedWeights | None = None
    compiled: CompiledLoss | None = None
    record: bool = True
    recorded: RecordedStep = field(init=False)
    replicas: Replicas = field(init=False)

    def __post_init__(self) -> None:
        self.recorded = RecordedStep(self.model, self.optimizer, self.gradient, record=self.record)
        self.replicas = Replicas(self.optimizer, self.model, self.gradient)

    @classmethod
    def initial(
        cls,
        config: ExperimentConfig,
        train: Tensor,
        *,
        device: torch.device | str = "cpu",
        precision: torch.dtype | None = None,
    ) -> TrainingState:
        """The state before the first step; depends on the config and the statistics of the training data alone.

        Args:
            config: The experiment.
            train: Its training data.
            device: Where to compute.
            precision: Of the networks' products; None means what the config asks for on this device.
        """
        if precision is None:
            precision = choose_precision(config, device=device).dtype
        model = initial_model(config)
        model.initialize_(train)
        model.to(device)
        settings, decay = config.training.optimizer, config.training.averaging.decay
        averages = AveragedWeights(model, decay) if decay > 0 else None  # before it has working copies
        gradient = initial_gradient(config, model)
        working = set_precision(model, precision)
        groups = parameter_groups(model, settings, gradient)
        optimizer = Adam(groups, lr=settings.learning_rate, eps=settings.eps, working=working)
        compiled = CompiledLoss(model, working) if config.training.compile else None
        chains = own_chains(config, model.prior)
        state = cls(
            model,
            optimizer,
            chains,
            gradient,
            config.seed,
            averages=averages,
            compiled=compiled,
            record=config.training.record,
        )
        state.estimate_log_partition()
        return state

    @property
    def evaluated(self) -> DiscreteVAE:
        """What is validated and saved as the model: the averaged weights, or without them those that train."""
        return self.model if self.averages is None else self.averages.model

    def evaluated_log_partition(self) -> tuple[float, float]:
        """log Z of the prior that is validated, and its standard error, nats.

        Averaged weights have a prior of their own. The chains, which follow the weights that train, are no draws of it;
        they are where bridge sampling starts, in the modes that both priors have, and it sweeps and weighs them by the
        averaged weights.
        """
        if self.averages is None:
            return self.log_partition, self.log_partition_std_error
        seed = key_to_seed(self.seed, _AVERAGED_LOG_Z_STREAM, self.step)
        prior, chains = self.averages.model.prior, gather_shares(self.chains.z)
        found = compute_on_rank_zero(lambda: comparable_log_partition(prior, chains=chains, seed=seed))
        return found.value, found.std_error

    def estimate_log_partition(self, *, to_compare: bool = False) -> None:
        """Estimate log Z at the prior's present weights, by the sampler if it can, else exactly or by annealing.

        Args:
            to_compare: Whether the value will be compared with other checkpoints': then these, of which annealing is
                too low on average and may not know it, are not enough (`comparable_log_partition`). With averaged
                weights it never is compared, see `evaluated_log_partition`.
        """
        chains = gather_shares(self.chains.z) if to_compare and self.averages is None else None
        found = compute_on_rank_zero(lambda: self._log_partition(chains))
        self.log_partition, self.log_partition_std_error = found.value, found.std_error

    def _log_partition(self, chains: Tensor | None) -> LogPartition:
        """log Z of the prior, comparable if all chains are given."""
        seed = key_to_seed(self.seed, _LOG_Z_STREAM, self.step)
        if chains is not None:
            return comparable_log_partition(self.model.prior, chains=chains, seed=seed)
        if isinstance(self.chains, TellsLogPartition):
            return self.chains.log_partition()
        return quick_log_partition(
            self.model.prior,
            num_chains=_ANNEALED_CHAINS,
            num_temperatures=_TEMPERATURES,
            max_enumerated=_MAX_ENUMERATED,
            seed=seed,
        )

    def capture(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and plain values that `restore` needs, those of all processes; every process must ask."""
        tensors = {f"{MODEL_PREFIX}{name}": value for name, value in self.evaluated.state_dict().items()}
        if self.averages is not None:
            tensors |= {f"{RAW_PREFIX}{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"{GRADIENT_PREFIX}{name}": value for name, value in self.gradient.state_dict().items()}
        for name, parameter in self._parameters():
            for moment in MOMENTS:
                if moment in self.optimizer.state[parameter]:
                    tensors[f"optimizer/{name}/{moment}"] = self.optimizer.state[parameter][moment]
        meta: dict[str, Any] = {
            "step": self.step,
            "log_partition": self.log_partition,
            "log_partition_std_error": self.log_partition_std_error,
            "sums": self.sums.state(),
        }
        tensors |= {f"{CHAINS_PREFIX}{name}": value for name, value in whole_state(self.chains).items()}
        return tensors, meta

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """All that the optimizer trains, by the names that checkpoints have for them."""
        yield from self.model.named_parameters()
        for name, parameter in self.gradient.named_parameters():
            yield f"{GRADIENT_PREFIX}{name}", parameter

    def restore(
        self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], *, source: str = "checkpoint"
    ) -> None:
        """Go on from what `capture` gave.

        Args:
            tensors: Its tensors.
            meta: Its plain values.
            source: What errors call them.

        Raises:
            InvalidInputError: If they belong to another model or are damaged; nothing is changed.
        """
        with naming(source):
            step, (log_partition, std_error) = check_step(meta), check_log_partition(meta)
            sums = ElboSums.from_state(meta.get("sums"))
            check_weights(self.evaluated, tensors, prefix=MODEL_PREFIX)
            check_raw_weights(self.model, tensors, averaged=self.averages is not None)
            check_weights(self.gradient, tensors, prefix=GRADIENT_PREFIX)
            check_moments(self._parameters(), tensors, step=step)
            load_chains(self.chains, tensors, divided=True)
        load_weights(self.evaluated, tensors, prefix=MODEL_PREFIX)
        if self.averages is not None:
            load_weights(self.model, tensors, prefix=RAW_PREFIX)
        load_weights(self.gradient, tensors, prefix=GRADIENT_PREFIX)
        if step > 0:
            for name, parameter in self._parameters():
                if parameter.requires_grad:
                    self.optimizer.state[parameter] = {
                        moment: tensors[f"optimizer/{name}/{moment}"].to(parameter.device, copy=True)
                        for moment in MOMENTS
                    }
        self.__post_init__()
        self.step, self.sums = step, sums
        self.log_partition, self.log_partition_std_error = log_partition, std_error
