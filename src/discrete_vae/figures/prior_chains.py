"""The check of chains that a figure draws along."""

from __future__ import annotations

from discrete_vae.checks import check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.model import DiscreteVAE
from discrete_vae.samplers.protocol import Sampler


def check_prior_chains(model: DiscreteVAE, chains: Sampler, num_chains: int, **counts: int) -> None:
    """Refuse chains of another machine than the model's prior, and numbers that they cannot give.

    Args:
        model: The model.
        chains: The chains.
        num_chains: How many of them are to be used.
        counts: Other numbers, of sweeps for example, by argument name.

    Raises:
        InvalidInputError: If a number is not a positive integer, there are fewer chains than asked for, or the chains
            belong to another machine.
    """
    for name, value in counts.items():
        check_positive_int(name, value)
    if chains.energy is not model.prior:
        repair = "Build them with energy=model.prior."
        raise InvalidInputError("chains", "must sample the model's own prior", "another machine's", repair)
    if check_positive_int("num_chains", num_chains) > chains.num_chains:
        rule = f"must be at most {chains.num_chains}, the number of chains"
        raise InvalidInputError("num_chains", rule, num_chains, "Build a sampler with more chains.")
