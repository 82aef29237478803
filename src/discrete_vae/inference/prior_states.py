"""States of a prior with some of its units set and with fields added to others."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch import Tensor

from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.checks import check_positive_int, check_states, check_tensor
from discrete_vae.errors import InvalidInputError
from discrete_vae.noise import key_to_seed, keyed_generator
from discrete_vae.samplers.block_gibbs import BlockGibbs

_STREAM = 0x70726973


class PriorStates:
    """Chains whose law is p(z | units that are set) with p(z) proportional to exp(-E(z) + field^T z).

    A field is added to the machine's biases; a unit that is set keeps its value while block Gibbs draws the others, so
    the stationary law is exactly that one. Chains start at given states of p(z), picked with probabilities proportional
    to exp(field^T z) among those that have the wanted units most nearly as wanted: a start that belongs to all modes
    by their weights, as far as those states do, since sweeps alone may not cross between modes.

    Args:
        prior: The machine; it is not changed.
        pool: States of p(z) to start from, (state, unit), such as those of the chains of training.
        clamped: Values, 0 or 1, by unit.
        field: What is added to the biases, (unit,); None adds nothing.
        num_chains: Chains.
        seed: Seed of the noise.

    Raises:
        InvalidInputError: If a unit does not exist, a value is neither 0 nor 1, or a shape does not fit.

    Examples:
        >>> from discrete_vae import RBM
        >>> states = PriorStates(RBM(2, 1), torch.zeros(4, 3), {1: 1}, num_chains=5)
        >>> states.step(10)[:, 1].tolist()
        [1.0, 1.0, 1.0, 1.0, 1.0]
    """

    def __init__(
        self,
        prior: BoltzmannMachine,
        pool: Tensor,
        clamped: Mapping[int, int] | None = None,
        field: Tensor | None = None,
        *,
        num_chains: int,
        seed: int = 0,
    ) -> None:
        clamped = {} if clamped is None else clamped
        check_states("pool", pool, ("state", prior.num_units))
        check_positive_int("num_chains", num_chains)
        check_clamps(clamped, prior.num_units)
        machine = prior
        fields = prior.bias.new_zeros(prior.num_units)
        if field is not None:
            fields = check_tensor("field", field, (prior.num_units,)).to(prior.bias)
            machine = deepcopy(prior)
            with torch.no_grad():
                machine.bias.add_(fields)
        units = torch.tensor(sorted(clamped), dtype=torch.long, device=pool.device)
        values = torch.tensor([float(clamped[unit]) for unit in sorted(clamped)], device=pool.device)
        missed = (pool[:, units] != values).sum(1)
        log_weights = (pool.double() @ fields.double().to(pool.device)).masked_fill(
            missed > missed.min(), -torch.inf
        )
        noise = keyed_generator(seed, _STREAM, device=pool.device)
        picked = torch.softmax(log_weights, 0).multinomial(num_chains, replacement=True, generator=noise)
        start = pool[picked].clone()
        start[:, units] = values
        mask = torch.zeros(prior.num_units, dtype=torch.bool, device=pool.device)
        mask[units] = True
        self.chains = BlockGibbs(
            machine,
            num_chains,
            seed=key_to_seed(seed, _STREAM),
            start=start.to(prior.bias.device),
            clamped=mask.to(prior.bias.device) if clamped else None,
        )

    def step(self, num_sweeps: int) -> Tensor:
        """Go on; returns the states, (chain, unit) float32 in {0,1}.

        Args:
            num_sweeps: Sweeps of block Gibbs, at least 1.
        """
        return self.chains.step(num_sweeps)


def check_clamps(clamped: Mapping[int, int], num_units: int, *, argument: str = "clamped") -> None:
    """Check values of units.

    Args:
        clamped: Values by unit.
        num_units: Units that there are.
        argument: What messages call them.

    Raises:
        InvalidInputError: If a unit does not exist, all are set, or a value is neither 0 nor 1.
    """
    for unit, value in clamped.items():
        if not 0 <= unit < num_units:
            rule = f"must name units from 0 to {num_units - 1}"
            raise InvalidInputError(argument, rule, unit, "Give another unit.")
        if value not in (0, 1):
            raise InvalidInputError(
                argument, "must set units to 0 or 1", f"{value} for unit {unit}", "Give 0 or 1."
            )
    if len(clamped) == num_units:
        rule, repair = "must leave at least one unit free", "Set fewer, or decode the state itself."
        raise InvalidInputError(argument, rule, f"all {num_units} units", repair)
