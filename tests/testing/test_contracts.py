"""The entry of posteriors; other contracts are tested with the parts that they judge."""

import dataclasses

import pytest
import torch

from discrete_vae import HierarchicalPosterior, SpikeExponential
from discrete_vae.testing import check_posterior

FEATURES = torch.linspace(-1, 1, 20).reshape(4, 5)


class OtherLogits(HierarchicalPosterior):
    """A fault: the logits are not those that z was drawn from."""

    def rsample(self, features, *, num_samples=None, generator=None):
        right = super().rsample(features, num_samples=num_samples, generator=generator)
        bits = self.smoothing.bits(right.zeta, right.logits / 2)
        return dataclasses.replace(right, logits=right.logits / 2, bits=bits)


class OtherSide(HierarchicalPosterior):
    """A fault: z is 1 where the uniform is above 1 - q."""

    def sample_discretely(self, features, uniforms, *, generator=None):
        return super().sample_discretely(features, 1 - uniforms, generator=generator)


def build(kind):
    torch.manual_seed(0)
    posterior = kind(5, [[3, 0], [2, 1]], (7,), SpikeExponential(beta=3.0))
    with torch.no_grad():
        for parameter in posterior.networks.parameters():
            parameter.mul_(2)
    return posterior


def test_a_right_posterior_passes_and_stays_as_it_is():
    posterior = build(HierarchicalPosterior)
    check_posterior(posterior, FEATURES)
    assert posterior.training
    assert {parameter.dtype for parameter in posterior.parameters()} == {torch.float32}
    assert all(parameter.grad is None for parameter in posterior.parameters())


@pytest.mark.parametrize("kind", [OtherLogits, OtherSide])
def test_faults_are_found(kind):
    with pytest.raises(AssertionError):
        check_posterior(build(kind), FEATURES)
