"""Everything that a training run carries from step to step, and its way into a checkpoint and back."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.profiler import record_function

from discrete_vae.boltzmann.base import LogPartition
from discrete_vae.checks import check_count, check_number
from discrete_vae.config import BlockGibbsConfig, ExperimentConfig, OptimizerConfig, instantiate
from discrete_vae.distributed import (
    average_,
    broadcast,
    compute_on_rank_zero,
    gather_shares,
    own_share,
    world_size,
)
from discrete_vae.errors import InvalidInputError, naming
from discrete_vae.evaluation.evaluate import by_weight
from discrete_vae.kernels.adam import Adam
from discrete_vae.log_partition.estimate import comparable_log_partition, quick_log_partition
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.modes import set_precision
from discrete_vae.nets.weights import OTHER_MODEL, check_like, check_weights, described, load_weights
from discrete_vae.objectives.gradients import GradientEstimator
from discrete_vae.rng import key_to_seed
from discrete_vae.runs.checkpoints import MODEL_PREFIX
from discrete_vae.runs.load import CHAINS_PREFIX, initial_gradient, initial_model, load_chains
from discrete_vae.samplers.gibbs import Sampler, TellsLogPartition
from discrete_vae.smoothing.base import Smoothing
from discrete_vae.sparse import Examples
from discrete_vae.training.step import RecordedStep, choose_precision

# Step sizes and decay of the parameters.

_FACTOR, _DECAY = "rate_factor", "decoupled_decay"  # names that torch's optimizers leave alone


def parameter_groups(
    model: DiscreteVAE, settings: OptimizerConfig, *others: nn.Module
) -> list[dict[str, Any]]:
    """The parameters as an optimizer takes them: networks first, then those that the settings set apart.

    Only matrices and the like decay, those of p(h | zeta) and of the decoder, not scales, offsets and biases. Settings
    that change nothing make one group. Other modules, baselines of the gradient for example, are trained as networks.
    `set_rates` and `decay_weights` read what is in the groups beside the parameters.
    """

    def matrices(part: object, decay: float) -> list[nn.Parameter]:
        if decay == 0.0 or not isinstance(part, nn.Module):
            return []
        named = part.named_parameters()  # biases of images have axes as well
        return [each for name, each in named if each.dim() >= 2 and not name.endswith("bias")]

    machine = list(model.prior.parameters()) if settings.prior_learning_rate_factor != 1.0 else []
    layers = matrices(getattr(model.hierarchy, "prior", None), settings.layers_weight_decay)
    decoder = matrices(model.decoder, settings.decoder_weight_decay)
    apart = {id(parameter) for parameter in (*machine, *layers, *decoder)}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in apart]
    rest += [parameter for other in others for parameter in other.parameters()]
    groups = [
        {"params": rest, _FACTOR: 1.0, _DECAY: 0.0},
        {"params": machine, _FACTOR: settings.prior_learning_rate_factor, _DECAY: 0.0},
        {"params": layers, _FACTOR: 1.0, _DECAY: settings.layers_weight_decay},
        {"params": decoder, _FACTOR: 1.0, _DECAY: settings.decoder_weight_decay},
    ]
    return [group for group in groups if group["params"]]


def set_rates(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give each group of `parameter_groups` its step size, of which the networks' is given."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group[_FACTOR]


def decay_weights(optimizer: torch.optim.Optimizer) -> None:
    """Shrink the weights of groups that decay by 1 - step size * decay; call it before a step of the optimizer.

    It never enters Adam's moments. Frozen weights stay as they are.

    Source: Loshchilov & Hutter 2019, algorithm 2.
    """
    for group in optimizer.param_groups:
        if group[_DECAY] > 0:
            with torch.no_grad():
                for parameter in group["params"]:
                    if parameter.requires_grad:
                        parameter.mul_(1 - group["lr"] * group[_DECAY])


RAW_PREFIX = "raw/"
"""In front of the names of the weights that train, in a checkpoint whose model is their average."""


class AveragedWeights:
    """Exponential moving average of a model's states after each step, bias-corrected as in Adam.

    a_t = (1 - d) / (1 - d^t) sum_s d^(t - s) w_s, which weighs all states from the first on and nothing else:
    a_1 = w_1, and while t is well below 1 / (1 - d) it is their plain mean. Parameters and running statistics are
    averaged alike, in their own precision; what is no floating-point number is copied. Bounds of parameters hold for
    averages too, as they are convex.

    Source: Polyak & Juditsky 1992 (averages); Kingma & Ba 2015, section 3 (the correction).

    Args:
        model: The model that trains; it is copied, its random start is no part of the average.
        decay: d, from 0 to below 1.

    Attributes:
        model: The average, in evaluation mode, without gradients.

    Examples:
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
        >>> averages = AveragedWeights(model, decay=0.5)
        >>> for step, value in enumerate((3.0, 6.0), start=1):
        ...     _ = model.prior.bias.data.fill_(value)
        ...     averages.update(model, step)
        >>> averages.model.prior.bias[0]  # (3 / 2 + 6) / (1 / 2 + 1)
        tensor(5.)
    """

    def __init__(self, model: DiscreteVAE, decay: float) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        # averages lie within bounds that rise, the present one is of one step
        for part in self.model.modules():
            if isinstance(part, Smoothing):
                part.bound_sharpness_(math.inf)
        self._decay = decay

    @torch.no_grad()
    def update(self, model: DiscreteVAE, step: int) -> None:
        """Take in the state of the model that trains after a step; the first step is 1."""
        now, weight = model.state_dict(), (1 - self._decay) / (1 - self._decay**step)
        tied: set[int] = set()  # parameters that have several names are averaged once
        for name, average in self.model.state_dict().items():
            if average.numel() and average.data_ptr() in tied:
                continue
            tied.add(average.data_ptr())
            if average.is_floating_point():
                average.lerp_(now[name], weight)
            else:
                average.copy_(now[name])


# What a line of the log says of the steps since the one before.


_TERMS = ("elbo", "reconstruction", "kl_discrete", "kl_continuous")


@dataclass
class ElboSums:
    """Sums of the bound and its terms over the steps since the last line of the log; a checkpoint has them."""

    parts: list[float] = field(default_factory=lambda: [0.0] * len(_TERMS))
    count: int = 0

    @classmethod
    def from_state(cls, state: object) -> ElboSums:
        """Go on from what `dataclasses.asdict` gave."""
        fields = state if isinstance(state, dict) else {}
        parts = fields.get("parts")
        if not isinstance(parts, list) or len(parts) != len(_TERMS):
            rule = f"must hold a count and the {len(_TERMS)} sums of {', '.join(_TERMS)}"
            raise InvalidInputError("sums", rule, f"{state!r}"[:80], OTHER_MODEL)
        parts = [check_number("sums", part, repair=OTHER_MODEL) for part in parts]
        return cls(parts, check_count("sums", fields.get("count"), repair=OTHER_MODEL))

    def add(self, means: Sequence[float], log_partition: float) -> None:
        """Count one step with the means of `LossTerms` over its batch and log Z, nats."""
        reconstruction, relative, continuous = means
        discrete = relative + log_partition
        parts = (reconstruction - discrete - continuous, reconstruction, discrete, continuous)
        self.parts = [total + part for total, part in zip(self.parts, parts, strict=True)]
        self.count += 1

    def means(self, log_partition_change: float) -> dict[str, float]:
        """Means over the steps counted, nats per example.

        They were counted with the log Z before them, which is taken to have changed evenly.
        """
        means = {name: total / self.count for name, total in zip(_TERMS, self.parts, strict=True)}
        means["elbo"] -= log_partition_change / 2
        means["kl_discrete"] += log_partition_change / 2
        return means


PARTS = ("chains", "networks", "optimizer")
TIME_METRICS = ("seconds", "examples_per_second", *(f"{part}_share" for part in PARTS))
"""Metrics that differ between two runs of the same numbers."""


class StepTimes:
    """Seconds of the parts of steps since the last line of the log, which a trace of single steps names too.

    The networks are the loss and its gradients. What is left of the time are the data and the log. An accelerator works
    while the host goes on, so shares are left out there.
    """

    def __init__(self) -> None:
        self.labels = False  # True names the parts in a trace
        self._label: AbstractContextManager[object] | None = None
        self.restart()

    def restart(self) -> None:
        """Count from now on."""
        self._start = self._since = time.perf_counter()
        self._part: str | None = None
        self._seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self._steps = 0

    def begin(self, part: str | None) -> None:
        """Count the time from now on as that of a part; None is none of them."""
        now = time.perf_counter()
        if self._part is not None:
            self._seconds[self._part] += now - self._since
        self._part, self._since = part, now
        if self._label is not None:
            self._label.__exit__(None, None, None)
            self._label = None
        if self.labels and part is not None:
            self._label = record_function(part)
            self._label.__enter__()

    def end_step(self) -> None:
        """Count a step."""
        self.begin(None)
        self._steps += 1

    def metrics(self, batch_size: int, device: torch.device) -> dict[str, float]:
        """Examples per second since the last restart and, on the CPU, the share of each part in the time."""
        elapsed = time.perf_counter() - self._start
        if self._steps == 0 or elapsed <= 0:
            return {}
        found = {"examples_per_second": self._steps * batch_size / elapsed}
        if device.type == "cpu":
            found |= {f"{part}_share": seconds / elapsed for part, seconds in self._seconds.items()}
        return found


# Training divided among the processes of torchrun.
#
# A batch and the persistent chains are cut into equal runs of rows, one for each process. Each takes the gradient of
# its rows with its chains; the average of the shares is the gradient of the whole, as both means are means of equal
# shares. Every process then takes the same step, so weights and moments are the same bits everywhere. Chains are
# numbered through: together they take the steps of one process with the same weights. The noise of the posterior is
# keyed by the process, and batch norms see the rows of their process, with running statistics that are averaged.
# One message averages complete gradients: the hooks of DistributedDataParallel would keep steps from being recorded.


def own_chains(config: ExperimentConfig, energy: nn.Module) -> Sampler:
    """The persistent chains of this process, at their start."""
    sampler = config.training.sampler
    if world_size() == 1:
        return instantiate(sampler, energy=energy, seed=config.seed)
    assert isinstance(sampler, BlockGibbsConfig)
    share = own_share(sampler.num_chains)
    own = sampler.model_copy(update={"num_chains": share.stop - share.start})
    return instantiate(own, energy=energy, seed=config.seed, first_chain=share.start)


@torch.no_grad()
def take_weights_of_rank_zero(*modules: nn.Module) -> None:
    """Bring all weights and buffers to those of the first process, whose processor may have rounded otherwise."""
    for module in modules:
        for each in (*module.parameters(), *module.buffers()):
            each.copy_(broadcast(each))


@torch.no_grad()
def average_step(
    optimizer: Adam, modules: Sequence[nn.Module], means: tuple[float, ...]
) -> tuple[float, ...]:
    """Average the gradients that there are, the buffers, and the means of the loss terms; returns the last."""
    if world_size() == 1:
        return means
    average_([leaf.grad for leaf in optimizer.gradient_leaves() if leaf.grad is not None], torch.float32)
    buffers = [each for module in modules for each in module.buffers() if each.is_floating_point()]
    device = buffers[0].device if buffers else torch.device("cpu")
    of_batch = torch.tensor(means, dtype=torch.float64, device=device)
    # in float64 the average of equal numbers is that number: constants stay
    average_([of_batch, *buffers], torch.float64)
    return tuple(of_batch.tolist())


# The state itself.


GRADIENT_PREFIX = "gradient/"  # in front of the names of the gradient estimator's state, in a checkpoint

_MOMENTS = ("exp_avg", "exp_avg_sq", "step")
_LOG_Z_STREAM, _AVERAGED_LOG_Z_STREAM = 0x6C6F677A, 0x61766C6F677A
_ANNEALED_CHAINS, _TEMPERATURES, _MAX_ENUMERATED = 200, 300, 12  # log Z in a quarter second


@dataclass
class TrainingState:
    """The parts of a run; all are saved but times, record and recorded."""

    model: DiscreteVAE
    optimizer: Adam  # over all of its parameters and the gradient's own, in `parameter_groups`
    chains: Sampler  # the persistent chains, those of this process if there are several
    gradient: GradientEstimator  # what estimates the gradient of the bound, with what it has learned
    seed: int  # the experiment's
    step: int = 0  # steps done
    log_partition: float = 0.0  # log Z of the prior when it was last estimated, nats
    log_partition_std_error: float = math.inf  # its standard error
    sums: ElboSums = field(default_factory=ElboSums)  # what the next line of the log averages
    times: StepTimes = field(default_factory=StepTimes)  # where the time goes
    averages: AveragedWeights | None = None  # they are what a checkpoint's model is
    record: bool = True  # true where steps are recorded and repeated
    recorded: RecordedStep = field(init=False)  # takes the gradients

    def __post_init__(self) -> None:
        self.recorded = RecordedStep(self.model, self.optimizer, self.gradient, record=self.record)

    @classmethod
    def initial(
        cls,
        config: ExperimentConfig,
        train: Examples,
        *,
        condition: Tensor | None = None,
        weights: np.ndarray | None = None,
        device: torch.device | str = "cpu",
        precision: torch.dtype | None = None,
    ) -> TrainingState:
        """The state before the first step; depends on the config and the statistics of the training data alone.

        The condition, (example, column), is that of a model of p(x | c), and the weights, (example,) above 0, are those
        of the statistics. None for the precision of the products means what the config asks for on this device.
        """
        if precision is None:
            precision = choose_precision(config, device=device).dtype
        model = initial_model(config)
        train, condition = by_weight(model.likelihood, train, condition, weights)
        model.initialize_(train, condition=condition)
        model.to(device)
        settings, decay = config.training.optimizer, config.training.averaging.decay
        averages = AveragedWeights(model, decay) if decay > 0 else None  # before it has working copies
        gradient = initial_gradient(config, model)
        working = set_precision(model, precision)
        groups = parameter_groups(model, settings, gradient)
        optimizer = Adam(groups, lr=settings.learning_rate, eps=settings.eps, working=working)
        chains, record = own_chains(config, model.prior), config.training.record
        state = cls(model, optimizer, chains, gradient, config.seed, averages=averages, record=record)
        state.estimate_log_partition()
        return state

    @property
    def evaluated(self) -> DiscreteVAE:
        """The model that is validated and saved: the averaged weights, or without them those that train."""
        return self.model if self.averages is None else self.averages.model

    def evaluated_log_partition(self) -> tuple[float, float]:
        """log Z of the prior that is validated, and its standard error, nats.

        Averaged weights have a prior of their own. The chains, which follow the weights that train, are no draws of it,
        but where bridge sampling starts.
        """
        if self.averages is None:
            return self.log_partition, self.log_partition_std_error
        seed = key_to_seed(self.seed, _AVERAGED_LOG_Z_STREAM, self.step)
        prior, chains = self.averages.model.prior, gather_shares(self.chains.z)
        found = compute_on_rank_zero(lambda: comparable_log_partition(prior, chains=chains, seed=seed))
        return found.value, found.std_error

    def estimate_log_partition(self, *, to_compare: bool = False) -> None:
        """Estimate log Z at the prior's present weights, by the sampler if it can, else exactly or by annealing.

        A value to compare with other checkpoints' needs more than annealing, which is too low on average and may not
        know it (`comparable_log_partition`). With averaged weights it never is compared (`evaluated_log_partition`).
        """
        chains = gather_shares(self.chains.z) if to_compare and self.averages is None else None
        seed = key_to_seed(self.seed, _LOG_Z_STREAM, self.step)

        def estimate() -> LogPartition:
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

        found = compute_on_rank_zero(estimate)
        self.log_partition, self.log_partition_std_error = found.value, found.std_error

    def capture(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and plain values that `restore` needs, those of all processes; every process must ask."""
        tensors: dict[str, Tensor] = {}
        for prefix, module in self._modules():
            tensors |= {f"{prefix}{name}": value for name, value in module.state_dict().items()}
        for name, parameter in self._parameters():
            for moment in _MOMENTS:
                if moment in self.optimizer.state[parameter]:
                    tensors[f"optimizer/{name}/{moment}"] = self.optimizer.state[parameter][moment]
        for name, value in self.chains.state_dict().items():
            is_divided = isinstance(value, Tensor) and value.ndim > 0
            tensors[f"{CHAINS_PREFIX}{name}"] = gather_shares(value) if is_divided else value
        return tensors, {
            "step": self.step,
            "log_partition": self.log_partition,
            "log_partition_std_error": self.log_partition_std_error,
            "sums": asdict(self.sums),
        }

    def _modules(self) -> Iterator[tuple[str, nn.Module]]:
        """All whose weights are saved, with what stands in front of their names."""
        yield MODEL_PREFIX, self.evaluated
        if self.averages is not None:
            yield RAW_PREFIX, self.model
        yield GRADIENT_PREFIX, self.gradient

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """All that the optimizer trains, by the names that checkpoints have for them."""
        yield from self.model.named_parameters()
        for name, parameter in self.gradient.named_parameters():
            yield f"{GRADIENT_PREFIX}{name}", parameter

    def restore(
        self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], *, source: str = "checkpoint"
    ) -> None:
        """Go on from what `capture` gave; what is damaged or of another model is refused and changes nothing."""
        with naming(source):
            step = check_count("step", meta.get("step"), repair=OTHER_MODEL)
            log_partition = check_number("log_partition", meta.get("log_partition"), repair=OTHER_MODEL)
            error = meta.get("log_partition_std_error")
            std_error = check_number("log_partition_std_error", error, at_least=0, repair=OTHER_MODEL)
            sums = ElboSums.from_state(meta.get("sums"))
            for prefix, module in self._modules():
                check_weights(module, tensors, prefix=prefix)
            raw = sorted(name for name in tensors if name.startswith(RAW_PREFIX))
            if raw and self.averages is None:
                repair = "The run was trained with averaged weights: put training.averaging.decay back."
                raise InvalidInputError(raw[0], "must not be there", described(tensors[raw[0]]), repair)
            self._check_moments(tensors, step)
            load_chains(self.chains, tensors, divided=True)
        for prefix, module in self._modules():
            load_weights(module, tensors, prefix=prefix)
        if step > 0:
            for name, parameter in self._parameters():
                if parameter.requires_grad:
                    self.optimizer.state[parameter] = {
                        moment: tensors[f"optimizer/{name}/{moment}"].to(parameter.device, copy=True)
                        for moment in _MOMENTS
                    }
        self.__post_init__()
        self.step, self.sums = step, sums
        self.log_partition, self.log_partition_std_error = log_partition, std_error

    def _check_moments(self, tensors: Mapping[str, Tensor], step: int) -> None:
        """Check Adam's moments: all three for each trained parameter, none before the first step.

        The optimizer's fused kernel trusts their sizes and would write beyond the end of smaller ones.
        """
        wanted = {
            f"optimizer/{name}/{moment}": torch.zeros((), dtype=torch.float32)
            if moment == "step"
            else parameter
            for name, parameter in self._parameters()
            for moment in _MOMENTS
            if step > 0 and parameter.requires_grad
        }
        saved = {name: value for name, value in tensors.items() if name.startswith("optimizer/")}
        for name in sorted(wanted.keys() | saved.keys()):
            check_like(name, saved.get(name), wanted.get(name))
            if not bool(saved[name].isfinite().all()):
                raise InvalidInputError(name, "must be finite", "NaN or an infinity", OTHER_MODEL)
