"""Every hierarchy and every kind of sharing; `test_hierarchy_exact` has their KL, densities and gradients."""

import pytest
import torch

from discrete_vae import CompleteSharing, GaussianHierarchy, GroupSharing, NoSharing
from discrete_vae.config import (
    GaussianHierarchyConfig,
    HierarchyConfig,
    NoHierarchyConfig,
    SharingConfig,
    instantiate,
    members,
)
from discrete_vae.hierarchy.gaussian import Gaussian
from discrete_vae.nets.mlp import L1BatchNorm
from discrete_vae.testing import check_gaussian_prior
from tests.refusals import refused_argument

SIZES = {"num_latents": 5, "num_layers": 4, "num_units": 3}
ZETA = torch.tensor([0.0, 0.9, 0.3, 0.0, 1.0], dtype=torch.float64)

sharings = pytest.mark.parametrize(
    "sharing", [member() for member in members(SharingConfig)], ids=lambda config: config.kind
)


def build(sharing, hidden=(7,)):
    sizes = {"num_layers": 4, "num_units": 3, "posterior_hidden": hidden, "prior_hidden": hidden}
    config = GaussianHierarchyConfig(**sizes, sharing=sharing)
    return instantiate(config, num_features=6, num_latents=5)


@torch.no_grad()
def scramble(module, scale=0.4, seed=0):
    """The module in float64 and evaluation mode with parameters and running statistics drawn at random."""
    generator = torch.Generator().manual_seed(seed)
    module = module.double().eval()
    for parameter in module.parameters():
        parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
    for part in module.modules():
        if isinstance(part, L1BatchNorm):
            part.running_mean.copy_(0.2 * torch.randn(part.num_features, generator=generator))
            part.running_deviation.copy_(0.5 + torch.rand(part.num_features, generator=generator))
            part.scale.add_(1.0)
    return module


@sharings
def test_prior_is_autoregressive(sharing):
    check_gaussian_prior(scramble(build(sharing)).prior)


@pytest.mark.parametrize("config", [member() for member in members(HierarchyConfig)], ids=lambda c: c.kind)
def test_every_hierarchy_has_the_interface(config):
    hierarchy = instantiate(config, num_features=6, num_latents=5)
    x, zeta = torch.rand(8, 6), torch.rand(8, 5)
    for front in ((), (3,)):
        sample = hierarchy.rsample(x, zeta.expand(*front, 8, 5))
        assert sample.h.shape == (*front, 8, hierarchy.num_layers, hierarchy.num_units)
        assert sample.kl().shape == sample.log_ratio().shape == (*front, 8)
        assert sample.decoder_input.shape == (*front, 8, hierarchy.decoder_size)
        assert torch.equal(sample.decoder_input, hierarchy.decoder_input(zeta.expand(*front, 8, 5), sample.h))
    assert hierarchy.sample(zeta).shape == sample.h.shape[1:]
    assert hierarchy.num_features == 6
    assert hierarchy.num_latents == 5


def test_no_hierarchy_is_nothing():
    hierarchy = instantiate(NoHierarchyConfig(), num_features=6, num_latents=5)
    zeta = torch.rand(8, 5)
    sample = hierarchy.rsample(torch.rand(8, 6), zeta)
    assert torch.equal(sample.kl(), torch.zeros(8))
    assert torch.equal(sample.log_ratio(), torch.zeros(8))
    assert sample.decoder_input is zeta
    assert list(hierarchy.parameters()) == []


@sharings
def test_ancestral_samples_follow_the_prior(sharing):
    """Standardized by `layers`, ancestral samples are standard normal."""
    prior = scramble(build(sharing)).prior
    h = prior.sample(ZETA.expand(40_000, -1), generator=torch.Generator().manual_seed(0))
    made = prior.layers(ZETA.expand(40_000, -1), h)

    def is_normal(noise):  # moments of 40,000 draws: alpha below 1e-7
        off = noise.T @ noise / 40_000 - torch.eye(12)
        return float(noise.mean(0).abs().max()) < 6 / 200 and float(off.abs().max()) < 8 * 2**0.5 / 200

    noise = ((h - made.mean) / made.log_std.exp()).flatten(1).detach()
    assert is_normal(noise)
    assert not is_normal(noise + 0.05)  # planted
    assert not is_normal(1.05 * noise)


def test_complete_sharing_is_one_group():
    torch.manual_seed(0)
    complete = CompleteSharing(**SIZES, hidden=(7,))
    grouped = GroupSharing(**SIZES, hidden=(7,), num_groups=1)
    grouped.load_state_dict(complete.state_dict())
    zeta, h = torch.rand(9, 5), torch.randn(9, 4, 3)
    assert torch.equal(complete.layers(zeta, h).mean, grouped.layers(zeta, h).mean)


def test_groups_have_networks_of_their_own():
    prior = scramble(GroupSharing(**SIZES, hidden=(7,), num_groups=2))
    zeta = torch.rand(9, 5, dtype=torch.float64)
    h = torch.randn(9, 4, 3, dtype=torch.float64)
    before = prior.layers(zeta, h).mean
    with torch.no_grad():
        prior.networks[1].network.layers[0].weight.mul_(2)
    changed = (prior.layers(zeta, h).mean != before).any(-1).any(0)
    assert changed.tolist() == [False, False, True, True]


def test_the_log_std_is_bounded():
    prior = NoSharing(**SIZES, hidden=(), log_std_bound=2.0)
    with torch.no_grad():
        for parameter in prior.parameters():
            parameter.mul_(1e3)
    log_std = prior.layers(torch.ones(2, 5), torch.ones(2, 4, 3)).log_std.detach()
    assert float(log_std.abs().max()) <= 2.0
    free = NoSharing(**SIZES, hidden=(), log_std_bound=None)
    free.load_state_dict(prior.state_dict())
    assert float(free.layers(torch.ones(2, 5), torch.ones(2, 4, 3)).log_std.detach().abs().max()) > 2.0


def test_the_path_gradient_of_many_draws_is_that_of_their_densities():
    hierarchy = scramble(GaussianHierarchy(6, NoSharing(3, 3, 2, (5,)), (7,)))
    x, zeta = torch.rand(4, 6).double(), torch.rand(4, 3).double().requires_grad_()
    drawn, weights = hierarchy.rsample_many(x, zeta, 5), torch.rand(5, 4).double()
    h = drawn.h.detach().requires_grad_()
    joint, log_q = zeta.detach().expand(5, -1, -1), 0.0
    for network, layer in zip(hierarchy.posterior, h.unbind(-2), strict=True):
        log_q = log_q + network(x.expand(5, -1, -1), joint).log_prob(layer).sum(-1)
        joint = torch.cat([joint, layer], -1)
    torch.testing.assert_close(drawn.log_prob, log_q.detach())
    (expected,) = torch.autograd.grad((weights * log_q).sum(), h)
    torch.testing.assert_close(drawn.path_gradient(weights), expected)


class OneScale(NoSharing):
    """Right: each layer has one scale, whatever is above it."""

    def layers(self, zeta, h):
        made = super().layers(zeta, h)
        return Gaussian(made.mean, torch.zeros_like(made.log_std))

    def next_layer(self, zeta, earlier):
        made = super().next_layer(zeta, earlier)
        return Gaussian(made.mean, torch.zeros_like(made.log_std))


def test_a_prior_whose_scales_depend_on_nothing_obeys_in_any_precision_and_stays_as_it_is():
    prior = OneScale(**SIZES, hidden=(7,)).train()
    check_gaussian_prior(prior)
    assert prior.training
    assert {parameter.dtype for parameter in prior.parameters()} == {torch.float32}


class OwnSample(CompleteSharing):
    """A fault: the running sum of a layer includes the layer itself."""

    def layers(self, zeta, h):
        return self.networks[0](self.zeta_map(zeta).unsqueeze(-2) + h.cumsum(-2))


def test_a_prior_that_sees_its_own_sample_is_rejected():
    with pytest.raises(AssertionError, match="layer 0"):
        check_gaussian_prior(scramble(OwnSample(**SIZES, hidden=(7,))))


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("num_groups", lambda: GroupSharing(**SIZES, hidden=(7,), num_groups=3)),
        *((size, lambda size=size: NoSharing(**(SIZES | {size: 0}), hidden=())) for size in SIZES),
        ("log_std_bound", lambda: NoSharing(**SIZES, hidden=(), log_std_bound=0.0)),
    ],
)
def test_refusals(argument, call):
    assert refused_argument(call) == argument
