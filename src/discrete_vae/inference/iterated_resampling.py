"""Markov chains over the latents of a row whose stationary law is exactly that given its observed entries."""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.inference.conditional_draws import GappedRow, Proposals
from discrete_vae.inference.resampled import gumbel

_MOVES, _NOISE = 3, 4


class IteratedResampling:
    """Chains that are moved by iterated importance resampling.

    A chain's state is one of K draws, each from a proposal of its own that stands still: q(latents | the row as filled
    in the k-th way). A step draws the other K - 1 anew, then picks one of the K with a probability proportional to its
    weight w_k = p(x_observed, latents_k) / q_k(latents_k). That is block Gibbs on (k, all draws) under the law

        (1 / K) p(latents_k | x_observed) prod_{j != k} q_j(latents_j),

    in which the picked draw has the law p(latents | x_observed) whatever the q_j are: it needs no more samples to be
    exact, only more steps. Where the largest weight is that of the state for long, the chain stands still.

    Source: Tjelmeland 2004 ("Using all Metropolis-Hastings proposals to estimate mean values"); Andrieu, Lee & Vihola
    2018, "Uniform ergodicity of the iterated conditional SMC"; here the proposals differ from draw to draw.

    Args:
        proposals: Of the row, after its rounds (`Proposals.draw`); what it reads is not changed any more.
        row: The row.
        num_chains: Chains. The first step picks their first states among K draws.
        num_candidates: K, at least 2.
        chunk_size: Draws that the networks compute at a time.

    Attributes:
        num_steps: Steps so far.
        num_moves: How often a chain has left its state, of all chains and steps.
    """

    def __init__(
        self,
        proposals: Proposals,
        row: GappedRow,
        *,
        num_chains: int,
        num_candidates: int,
        chunk_size: int,
    ) -> None:
        self._proposals, self._num_chains, self._chunk_size = proposals, num_chains, chunk_size
        fills = torch.arange(num_candidates, device=row.x.device) % len(proposals.features)
        self._features = proposals.features[fills]
        self._noise = row.generator(_NOISE)
        self._kept: tuple[Tensor, Tensor, Tensor] | None = None
        self.num_steps = self.num_moves = 0

    @property
    def parameters(self) -> Tensor:
        """What the decoder makes of the states, (chain, *parameter_shape)."""
        assert self._kept is not None
        return self._kept[2]

    def step(self) -> tuple[Tensor, Tensor, Tensor]:
        """Move all chains once.

        Returns:
            The log-weights of the candidates that each chain picked among, (chain, candidate), and what the decoder
            makes of them, (chain, candidate, *parameter_shape). Given these the next state is one of them with
            probabilities proportional to the weights, so weighted means over them have its expectation and less noise.
            Last, which of them were drawn anew, (chain, candidate) bool.
        """
        key = (_MOVES, self.num_steps)
        drawn = list(self._proposals.propose(key, self._features, self._num_chains, self._chunk_size))
        log_weights = torch.cat([part.log_weights for part in drawn])
        parameters = torch.cat([part.parameters for part in drawn])
        chains = torch.arange(self._num_chains, device=log_weights.device)
        fresh = torch.ones_like(log_weights, dtype=torch.bool)
        if self._kept is not None:
            slots, of_state, state = self._kept
            log_weights[chains, slots], parameters[chains, slots] = of_state, state
            fresh[chains, slots] = False
        picked = (log_weights + gumbel(tuple(log_weights.shape), self._noise)).argmax(1)
        if self._kept is not None:
            self.num_moves += int((picked != self._kept[0]).sum())
        self._kept = picked, log_weights[chains, picked], parameters[chains, picked]
        self.num_steps += 1
        return log_weights, parameters, fresh
