"""The posterior: division into groups, one group of a draw, the hierarchical posterior."""

import pytest
import torch
from torch import nn

from discrete_vae import (
    DiscreteVAE,
    FactorialBernoulli,
    GraphBoltzmann,
    HierarchicalPosterior,
    LatentGroup,
    MixtureOfRamps,
    SpikeExponential,
    SpikeGaussian,
)
from discrete_vae.config import (
    FactorialBernoulliConfig,
    GraphBoltzmannConfig,
    HierarchicalPosteriorConfig,
    ModelConfig,
    RBMConfig,
)
from discrete_vae.nets.mlp import MLP
from discrete_vae.posterior import check_groups, color_groups, contiguous_groups
from discrete_vae.testing import check_frequencies, check_posterior
from tests.models import LAYERS, small_model
from tests.refusals import refused_argument


@pytest.mark.parametrize(("units", "groups"), [(7, 3), (5, 5), (9, 1), (128, 4)])
def test_sizes_differ_by_at_most_one_and_cover_in_order(units, groups):
    made = contiguous_groups(units, groups)
    assert [unit for group in made for unit in group] == list(range(units))
    assert max(map(len, made)) - min(map(len, made)) <= 1
    assert check_groups(made) == made


PRIORS = {
    "rbm": (RBMConfig(num_left=3, num_right=2), 2),
    "factorial": (FactorialBernoulliConfig(num_units=4), 1),
    "chimera": (GraphBoltzmannConfig(num_units=32, edges="chimera"), 2),
    "pegasus": (GraphBoltzmannConfig(num_units=40, edges="pegasus"), 4),
    "zephyr": (GraphBoltzmannConfig(num_units=48, edges="zephyr"), 4),
}


@pytest.mark.parametrize(("name", "device"), [*((name, "cpu") for name in PRIORS), ("chimera", "meta")])
def test_a_model_has_a_group_per_color(name, device):
    prior, number = PRIORS[name]
    posterior = HierarchicalPosteriorConfig(groups="colors", hidden=(4,))
    with torch.device(device):
        model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=prior, posterior=posterior))
    groups = check_groups(model.posterior.groups)
    assert len(groups) == number
    assert model.config.posterior.groups == "colors"  # which is what is saved


@pytest.mark.parametrize("name", ["chimera", "pegasus", "zephyr"])
def test_no_pair_lies_within_a_group(name):
    machine = GraphBoltzmann(PRIORS[name][0].num_units, name)
    group = torch.zeros(machine.num_units, dtype=torch.int64)
    for index, units in enumerate(color_groups(machine)):
        group[list(units)] = index
    assert bool((group[machine.edges[:, 0]] != group[machine.edges[:, 1]]).all())
    assert color_groups(FactorialBernoulli(3)) == ((0, 1, 2),)


GROUPS = {"in order": [[0, 1], [2], [3, 4]], "interleaved": [[3, 0], [4, 1], [2]]}


def build(groups, smoothing=None, **options):
    torch.manual_seed(0)
    return HierarchicalPosterior(6, groups, (7,), smoothing or SpikeExponential(beta=3.0), **options)


def test_a_contract_leaves_a_posterior_as_it_is():
    posterior = build([[3, 0], [2, 1]])
    check_posterior(posterior, torch.linspace(-1, 1, 24).reshape(4, 6))
    assert posterior.training
    assert {parameter.dtype for parameter in posterior.parameters()} == {torch.float32}
    assert all(parameter.grad is None for parameter in posterior.parameters())


@pytest.mark.parametrize("depends_on_x", [False, True])
def test_groups_and_log_prob_are_of_one_sample(depends_on_x):
    posterior = build(GROUPS["interleaved"], SpikeGaussian(prior_loc=0.5) if depends_on_x else None)
    sample = posterior.rsample(torch.rand(40, 6), generator=torch.Generator().manual_seed(1))
    kl = sample.kl_of_zeta()
    for units, group in zip(map(sorted, GROUPS["interleaved"]), sample.groups, strict=True):
        assert torch.equal(group.zeta, sample.zeta[:, units])
        assert torch.equal(group.bits, sample.z[:, units])
        assert torch.equal(group.logits, sample.logits[:, units])
        assert group.units.tolist() == units
        assert torch.equal(group.kl_of_zeta, kl[:, units]) if depends_on_x else group.kl_of_zeta is None
    q = torch.sigmoid(sample.logits)
    expected = torch.where(sample.z == 1, q, 1 - q).log().sum(-1)
    if depends_on_x:
        laws = torch.distributions.Normal(*sample.parameters), torch.distributions.Normal(0.5, 1.0)
        of_zeta = [torch.where(sample.z == 1, law.log_prob(sample.zeta), 0.0).sum(-1) for law in laws]
        expected = expected + of_zeta[0] - of_zeta[1]
        assert float(kl.detach().min()) >= 0
        assert float(kl.detach().mean()) < 0.1  # it begins near the prior
    else:
        assert not hasattr(posterior, "parameter_network")
        assert (sample.smoothing, sample.parameters, kl) == (None, (), None)
    torch.testing.assert_close(sample.log_prob(), expected, rtol=1e-4, atol=1e-5)


def test_later_logits_depend_on_earlier_zeta_and_pass_the_bounded_norm():
    posterior = build(GROUPS["interleaved"])
    logits = posterior.rsample(torch.rand(500, 6)).logits
    deviation = (logits - logits.mean(0)).abs().mean(0)
    torch.testing.assert_close(deviation, torch.full((5,), 2.0), rtol=0.2, atol=0)
    logits = posterior.eval().rsample(torch.rand(1, 6).expand(200, 6)).logits.detach()
    assert float(logits[:, [4, 1, 2]].std(0).min()) > 1e-4


def test_zeta_of_a_group_is_drawn_with_its_own_parameters():
    posterior, x = build(GROUPS["interleaved"], SpikeGaussian(prior_loc=0.5)).eval(), torch.rand(4, 6)
    with torch.no_grad():
        posterior.parameter_network.norm.offset.copy_(torch.linspace(-2, 2, 10))
    sample = posterior.rsample(x, num_samples=50, generator=torch.Generator().manual_seed(1))
    again = posterior.smoothing.cdf(sample.zeta, sample.logits, *sample.parameters).detach()
    noise = torch.rand(50, 4, 5, generator=torch.Generator().manual_seed(1))
    order = torch.tensor([unit for group in GROUPS["interleaved"] for unit in group]).argsort()
    found = (again - noise[..., order]).abs()[sample.z == 1]
    assert float(found.max()) < 1e-6


def test_the_gradient_of_logits_by_earlier_zeta_is_in_the_order_of_the_prior():
    posterior = build(GROUPS["interleaved"], MixtureOfRamps()).double().eval()
    features, pull = torch.rand(4, 6).double(), torch.rand(4, 5).double()
    sample = posterior.rsample(features)
    zeta = sample.zeta.detach().requires_grad_()
    earlier, logits = [], torch.zeros(4, 5).double()
    parts = zip(GROUPS["interleaved"], posterior.networks, posterior.norms, strict=True)
    for units, network, norm in parts:
        logits[:, units] = norm(network(features, *earlier))
        earlier.append(zeta[:, units])
    torch.testing.assert_close(sample.logits, logits)
    (expected,) = torch.autograd.grad((pull * logits).sum(), zeta)
    torch.testing.assert_close(sample.paths.gradient(pull), expected)


def test_a_network_of_ones_own():
    asked = []

    def make(sizes, size):
        asked.append((list(sizes), size))
        return MLP(sizes, size)

    made = build(GROUPS["in order"], SpikeGaussian(prior_loc=0.5), network=make)
    assert isinstance(made.parameter_network.network, MLP)
    assert asked == [([6], 2), ([6, 2], 1), ([6, 2, 1], 2), ([6], 10)]


ZEROS, SHARP = torch.zeros(2, 3), SpikeExponential(beta=1.0)
# (the argument that the error names, a call)
REFUSED = [
    ("num_groups", lambda: contiguous_groups(3, 4)),
    *(
        (argument, lambda groups=groups: check_groups(groups))
        for argument, groups in (
            ("groups", []),
            ("groups", "01"),
            ("groups[1]", [[0], []]),
            ("groups", [[0, 1], [1, 2]]),
            ("groups", [[0, 2]]),
            ("groups[0]", [[0, -1]]),
            ("groups[0]", [[0, 1.0]]),
            ("groups[0]", [0, 1]),
        )
    ),
    ("zeta", lambda: LatentGroup(logits=ZEROS, zeta=torch.zeros(1, 3), bits=ZEROS)),
    ("bits", lambda: LatentGroup(logits=ZEROS, zeta=ZEROS, bits=torch.zeros(2, 2))),
    *(
        ("units", lambda units=units: LatentGroup(logits=ZEROS, zeta=ZEROS, bits=ZEROS, units=units))
        for units in (torch.tensor([0, 1]), torch.tensor([0.0, 1.0, 2.0]), [0, 1, 2])
    ),
    ("groups", lambda: HierarchicalPosterior(6, 2, (3,), SHARP)),
    ("smoothing", lambda: HierarchicalPosterior(6, [[0], [1]], (3,), SpikeExponential)),
    ("groups", lambda: HierarchicalPosterior(6, [[0], [1]], (3,), SHARP, num_units=4)),
    ("num_samples", lambda: build(GROUPS["in order"]).rsample(torch.zeros(2, 6), num_samples=0)),
    ("uniforms", lambda: build(GROUPS["in order"]).sample_discretely(torch.zeros(4, 6), torch.rand(4, 5))),
]


@pytest.mark.parametrize(("argument", "call"), REFUSED)
def test_what_breaks_a_rule_is_named(argument, call):
    assert refused_argument(call) == argument


def test_discrete_draws_in_float32_have_the_law_of_zeta_given_z():
    posterior = build(GROUPS["in order"]).eval()
    with torch.no_grad():
        uniforms = torch.rand(1, 20_000, 5, generator=torch.Generator().manual_seed(3))
        sample = posterior.sample_discretely(
            torch.rand(1, 6).expand(20_000, 6), uniforms, generator=torch.Generator().manual_seed(4)
        )
        drawn = sample.zeta[sample.z == 1]
        assert torch.equal(sample.zeta != 0, sample.z == 1)
        beta = posterior.smoothing.beta.double()
        levels = torch.special.expm1(beta * drawn.double()) / torch.special.expm1(beta)  # F(zeta | z = 1)
        counts = torch.histc(levels, bins=20, min=0, max=1)
    check_frequencies(counts, torch.full((20,), 0.05))


class Ignores(nn.Module):
    """A network that makes nothing of what was drawn before."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, features, *earlier):
        return self.network(features, *map(torch.zeros_like, earlier))


@pytest.mark.parametrize(
    "parts", [{"smoothing": {"kind": "ramps"}}, {"hierarchy": LAYERS}], ids=["zeta", "layers"]
)
def test_importance_samples_go_past_frozen_parts_and_networks_that_ignore_what_was_drawn(parts):
    model = small_model(groups=4, **parts)
    networks = model.hierarchy.posterior if "hierarchy" in parts else model.posterior.networks
    networks[1] = Ignores(networks[1])

    def gradients(trained):
        noise = torch.Generator().manual_seed(0)
        bound = model.elbo(torch.ones(3, 5), num_importance_samples=2, generator=noise)
        return torch.autograd.grad(bound.loss, trained)

    last = list(networks[-1].parameters())
    wanted = gradients(last)
    for module in (networks[0], model.posterior.norms[0]):
        module.requires_grad_(False)
    for found, right in zip(gradients(last), wanted, strict=True):
        torch.testing.assert_close(found, right)
