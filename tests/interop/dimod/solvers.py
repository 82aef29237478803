"""Solvers that the tests of the negative phase ask: exact ones with a temperature, a limit, chains that break."""

import dimod
import numpy as np


class ExactDraws(dimod.Sampler):
    """Independent draws of exp(-c E_bqm) by enumeration, as an annealer at inverse temperature c would make them."""

    def __init__(self, inverse_temperature=1.0, *, sign=1.0, most_reads=None, breaks=None):
        self.inverse_temperature, self.sign, self.breaks = inverse_temperature, sign, breaks
        self.most_reads = most_reads
        self.calls = []

    @property
    def parameters(self):
        return {"num_reads": [], "seed": []}

    @property
    def properties(self):
        return {} if self.most_reads is None else {"num_reads_range": [1, self.most_reads]}

    def sample(self, bqm, *, num_reads, seed):
        self.calls.append((num_reads, seed, dict(bqm.linear)))
        n = bqm.num_variables
        states = 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1).astype(np.int8) - 1
        logits = -self.sign * self.inverse_temperature * bqm.energies((states, list(bqm.variables)))
        weights = np.exp(logits - logits.max())
        drawn = np.random.default_rng(seed).choice(2**n, num_reads, p=weights / weights.sum())
        kept, counts = np.unique(drawn, return_counts=True)  # states that were read twice come back once
        order = np.random.default_rng(0).permutation(n)  # in an order of its own
        labels = [list(bqm.variables)[index] for index in order]
        more = {} if self.breaks is None else {"chain_break_fraction": np.full(len(kept), self.breaks)}
        found = dimod.SampleSet.from_samples_bqm(
            (states[kept][:, order], labels), bqm, num_occurrences=counts
        )
        return dimod.append_data_vectors(found, **more) if more else found


class Seedless(ExactDraws):
    """The same without a seed, as a device is."""

    @property
    def parameters(self):
        return {"num_reads": []}

    def sample(self, bqm, *, num_reads):
        return super().sample(bqm, num_reads=num_reads, seed=len(self.calls))
