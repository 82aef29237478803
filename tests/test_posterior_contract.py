"""The shipped contracts of posteriors: they hold for ours, and find what is wrong."""

import dataclasses

import pytest
import torch

from discrete_vae import HierarchicalPosterior, SpikeExponential, SpikeGaussian
from discrete_vae.posterior import Posterior, PosteriorSample
from discrete_vae.testing import contracts
from tests.refusals import refused_argument
from tests.transformations import SMOOTHINGS

FEATURES = torch.linspace(-1, 1, 20, dtype=torch.float64).reshape(4, 5)
GROUPS = {"in order": [[0, 1], [2], [3]], "interleaved": [[3, 0], [2, 1]], "one group": [[0, 1, 2, 3]]}


def build(groups, smoothing=None, kind=HierarchicalPosterior):
    torch.manual_seed(0)
    return kind(5, groups, (7,), smoothing or SpikeExponential(beta=3.0)).double().eval()


@pytest.mark.parametrize(
    ("name", "kind"),
    [*(("interleaved", kind) for kind in SMOOTHINGS), *((name, "spike-exponential") for name in GROUPS)],
)
def test_every_transformation_and_division_into_groups(name, kind):
    contracts.check_posterior(build(GROUPS[name], SMOOTHINGS[kind]()), FEATURES)


class Autoregressive(Posterior):
    """What a user brings: one linear map per unit, which reads all units before it."""

    def __init__(self, num_features, num_units, smoothing):
        super().__init__(num_features, torch.arange(num_units), smoothing)
        self.maps = torch.nn.ModuleList(torch.nn.Linear(num_features + unit, 1) for unit in range(num_units))

    def rsample(self, features, *, num_samples=None, generator=None):
        front = () if num_samples is None else (num_samples,)
        read = features.expand(*front, *features.shape)
        parts = []
        for unit in self.maps:
            logits = unit(read)
            zeta = self.smoothing.rsample(logits, generator=generator)
            z = self.smoothing.sample_z(zeta, logits, generator=generator)
            parts.append((z, zeta, logits, self.smoothing.bits(zeta, logits)))
            read = torch.cat([read, zeta], -1)
        return PosteriorSample(
            *(torch.cat(part, -1) for part in zip(*parts, strict=True)), self.group_of_unit
        )


def test_a_posterior_of_ones_own():
    torch.manual_seed(0)
    posterior = Autoregressive(5, 3, SpikeExponential(beta=2.0)).double().eval()
    contracts.check_posterior(posterior, FEATURES)
    # it has no discrete draws
    assert refused_argument(posterior.sample_discretely, FEATURES, torch.rand(1, 4, 3)) == "gradient"


def test_a_posterior_with_classes_and_one_of_too_many_units():
    torch.manual_seed(0)
    posterior = HierarchicalPosterior(5, [[2, 3], [4]], (5,), SpikeExponential(beta=3.0), num_classes=2)
    contracts.check_posterior(posterior.double().eval(), FEATURES)
    assert refused_argument(contracts.check_posterior, build([list(range(64))]), FEATURES) == "posterior"


class ReadsRho(HierarchicalPosterior):
    """A fault: zeta comes from its marginal, by noise of its own."""

    def sample_discretely(self, features, uniforms, *, generator=None):
        right = super().sample_discretely(features, uniforms, generator=generator)
        return dataclasses.replace(right, zeta=self.smoothing.rsample(right.logits, generator=generator))


class OtherSide(HierarchicalPosterior):
    """A fault: z is 1 where the uniform is above 1 - q, which has the same law."""

    def sample_discretely(self, features, uniforms, *, generator=None):
        return super().sample_discretely(features, 1 - uniforms, generator=generator)


@pytest.mark.parametrize("kind", [ReadsRho, OtherSide])
def test_faults_of_discrete_draws_are_found(kind):
    with pytest.raises(AssertionError):
        contracts.check_discrete_draws(build(GROUPS["in order"], kind=kind), FEATURES)


def changed(change):
    """A kind whose draws are right, and say something wrong of themselves."""

    class Changed(HierarchicalPosterior):
        def rsample(self, features, *, num_samples=None, generator=None):
            right = super().rsample(features, num_samples=num_samples, generator=generator)
            return dataclasses.replace(right, **change(self, right))

    return Changed


def no_law_of_x(posterior, right):
    return {"smoothing": None, "parameters": ()}


def flipped_parameters(posterior, right):
    return {"parameters": tuple(value.flip(-1) for value in right.parameters)}


def second_draw(posterior, right):
    return {"z": torch.bernoulli(torch.sigmoid(right.logits.detach()))}


def half_the_logits(posterior, right):
    return {"logits": right.logits / 2, "bits": posterior.smoothing.bits(right.zeta, right.logits / 2)}


def cut_off(posterior, right):
    detached = {name: getattr(right, name).detach() for name in ("zeta", "logits", "bits")}
    return detached | {"zeta": right.zeta.detach().requires_grad_()}


def detached(name):
    return lambda posterior, right: {name: getattr(right, name).detach()}


# what is wrong -> (whether the transformation depends on x, what is said of a right draw, the law that is broken)
FAULTS = {
    "prior and posterior share r": (True, no_law_of_x, contracts.check_sample),
    "the parameters are not in the prior's order": (True, flipped_parameters, contracts.check_law),
    "z and zeta are of two draws": (False, second_draw, contracts.check_sample),
    "the logits are not those that z was drawn from": (False, half_the_logits, contracts.check_law),
    "no gradient reaches the networks": (False, cut_off, contracts.check_gradients),
    **{
        f"{name} carry no gradient": (False, detached(name), contracts.check_gradients)
        for name in ("zeta", "logits", "bits")
    },
}


@pytest.mark.parametrize(("depends_on_x", "change", "check"), FAULTS.values(), ids=FAULTS)
def test_faults_are_found(depends_on_x, change, check):
    posterior = build(GROUPS["in order"], SpikeGaussian() if depends_on_x else None, changed(change))
    if depends_on_x:
        with torch.no_grad():
            posterior.parameter_network.norm.offset.copy_(torch.linspace(-1, 1, 8))
    with pytest.raises(AssertionError):
        check(posterior, FEATURES)


def test_all_units_are_not_drawn_together_though_it_says_so():
    posterior = build(GROUPS["in order"])
    posterior.group_of_unit.zero_()
    with pytest.raises(AssertionError):
        contracts.check_groups(posterior, FEATURES)
