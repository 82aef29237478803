"""Training divided among the processes of torchrun: what is divided, what is averaged, who writes.

A batch and the persistent chains are cut into equal runs of rows, one for each process. Each takes the gradient of its
rows with its chains, the gradients are averaged, and every process takes the same step, so weights and moments are the
same bits everywhere. The average of the shares is the gradient of the whole: both the mean over the batch and that
over the chains are means of equal shares. Chains are numbered through, so on the CPU all of them together take the
steps that they would take in one process with the same weights; the noise of the posterior is keyed by the process,
and batch norms see the rows of their process, with running statistics that are averaged.

Gradients are averaged by one message after they are complete, not by DistributedDataParallel, whose hooks would keep
the step from being recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from discrete_vae.config import ExperimentConfig, instantiate
from discrete_vae.config.training import BlockGibbsConfig
from discrete_vae.distributed import average_, broadcast, gather_shares, own_share, rank, world_size
from discrete_vae.errors import InvalidInputError
from discrete_vae.samplers.gibbs import Sampler

if TYPE_CHECKING:
    from discrete_vae.kernels.adam import Adam


def check_divisible(config: ExperimentConfig) -> None:
    """Check that the processes can have equal shares of a step."""
    number, training = world_size(), config.training
    if number == 1:
        return
    sampler = training.sampler
    if not isinstance(sampler, BlockGibbsConfig):
        rule = f"must be 'block-gibbs' with {number} processes, among which its chains are divided"
        raise InvalidInputError(
            "training.sampler", rule, repr(sampler.kind), "Leave it out, or train in one process."
        )
    for name, size in (("batch_size", training.batch_size), ("sampler.num_chains", sampler.num_chains)):
        if size % number:
            rule = f"must be a multiple of the {number} processes"
            repair = f"Give {max(size // number, 1) * number}, or start another number of processes."
            raise InvalidInputError(f"training.{name}", rule, size, repair)


def own_chains(config: ExperimentConfig, energy: nn.Module) -> Sampler:
    """The persistent chains of this process, at their start."""
    sampler = config.training.sampler
    if world_size() == 1:
        return instantiate(sampler, energy=energy, seed=config.seed)
    assert isinstance(sampler, BlockGibbsConfig)
    share = own_share(sampler.num_chains)
    own = sampler.model_copy(update={"num_chains": share.stop - share.start})
    return instantiate(own, energy=energy, seed=config.seed, first_chain=share.start)


def whole_state(chains: Sampler) -> dict[str, Any]:
    """The state of the chains of all processes, as one sampler would have it; every process must ask."""
    state = chains.state_dict()
    if world_size() == 1:
        return state
    divided = {name: value for name, value in state.items() if isinstance(value, Tensor) and value.ndim > 0}
    return state | {name: gather_shares(value) for name, value in divided.items()}


def noise_key(*key: int) -> tuple[int, ...]:
    """A key of the posterior's noise, for this process's rows."""
    return key if world_size() == 1 else (*key, rank())


class Replicas:
    """Brings gradients, running statistics of modules and the step's means to their averages over the processes."""

    def __init__(self, optimizer: Adam, *modules: nn.Module) -> None:
        self._optimizer, self._modules = optimizer, modules
        self._memory: dict[torch.dtype, Tensor] = {}

    @torch.no_grad()
    def start(self) -> None:
        """Bring all weights and buffers to those of the first process, whose processor may have rounded otherwise."""
        for module in self._modules:
            for each in (*module.parameters(), *module.buffers()):
                each.copy_(broadcast(each))

    @torch.no_grad()
    def average(self, means: tuple[float, ...]) -> tuple[float, ...]:
        """Average the gradients that there are, the buffers, and the means of the loss terms; returns the last."""
        if world_size() == 1:
            return means
        gradients = [leaf.grad for leaf in self._optimizer.gradient_leaves() if leaf.grad is not None]
        self._average(gradients, torch.float32)
        buffers = [each for module in self._modules for each in module.buffers() if each.is_floating_point()]
        device = buffers[0].device if buffers else torch.device("cpu")
        of_batch = torch.tensor(means, dtype=torch.float64, device=device)
        # in float64 the average of equal numbers is that number: constants stay
        self._average([of_batch, *buffers], torch.float64)
        return tuple(of_batch.tolist())

    def _average(self, tensors: list[Any], dtype: torch.dtype) -> None:
        size = sum(each.numel() for each in tensors)
        memory = self._memory.get(dtype)
        if memory is None or len(memory) != size or memory.device != tensors[0].device:
            memory = self._memory[dtype] = torch.empty(size, dtype=dtype, device=tensors[0].device)
        average_(tensors, memory)
