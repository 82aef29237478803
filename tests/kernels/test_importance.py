"""Draws by compiled passes: of the same noise what the modules draw, whose law the exact tests know."""

from functools import partial

import pytest
import torch
from torch import nn

from discrete_vae import (
    RBM,
    CompleteSharing,
    DiscreteVAE,
    GaussianHierarchy,
    GroupSharing,
    HierarchicalPosterior,
    NoSharing,
    SpikeExponential,
    SpikeSlab,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.kernels import rows as rows_module
from discrete_vae.kernels.importance import compiled_draws, draw
from discrete_vae.kernels.rows import Keys, draw_normals, draw_uniforms
from discrete_vae.likelihoods.base import BernoulliLikelihood
from discrete_vae.nets.convolutional import ConvolutionalDecoder
from discrete_vae.nets.mlp import L1BatchNorm, MLPDecoder
from discrete_vae.nets.modes import folded_networks, precision_of_products
from discrete_vae.rng import DrawnNoise
from discrete_vae.smoothing.spike import SharpLimit
from tests import test_hierarchy_exact

NUM_FEATURES = 9
SHARINGS = {
    "none": None,
    "no layer shares": NoSharing,
    "groups share": lambda *sizes, **rest: GroupSharing(*sizes, num_groups=2, **rest),
    "all share": CompleteSharing,
}
SMOOTHINGS = {"exponential": lambda: SpikeExponential(2.5), "slab": SpikeSlab, "sharp": SharpLimit}


GROUPS = (0, 1, 2), (3, 4), (5,)


def build(sharing="no layer shares", smoothing="exponential", groups=GROUPS, hidden=(17,), bounds=(1.0, 2.0)):
    """A float32 model in evaluation mode, with parameters and statistics drawn at random."""
    torch.manual_seed(0)
    kind, prior, hierarchy = SHARINGS[sharing], RBM(4, 2), None
    if kind is not None:
        layers = kind(6, 4, 5, hidden=hidden, log_std_bound=bounds[1])
        hierarchy = GaussianHierarchy(NUM_FEATURES, layers, hidden, log_std_bound=bounds[0])
    latents = 6 if hierarchy is None else hierarchy.decoder_size
    model = DiscreteVAE(
        prior=prior,
        posterior=HierarchicalPosterior(NUM_FEATURES, groups, hidden, SMOOTHINGS[smoothing]()),
        likelihood=BernoulliLikelihood((NUM_FEATURES,)),
        hierarchy=hierarchy,
        decoder=MLPDecoder(latents, (NUM_FEATURES,), hidden),
    )
    with torch.no_grad():
        for parameter in model.hierarchy.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        prior.weight.normal_()
        for module in model.modules():
            if isinstance(module, L1BatchNorm):
                module.running_mean.normal_(0, 0.2)
                module.running_deviation.uniform_(0.5, 1.5)
                module.offset.normal_(0, 0.5)
    return model.eval()


def images(count):
    return torch.bernoulli(torch.full((count, NUM_FEATURES), 0.4), generator=torch.Generator().manual_seed(1))


def noise_of(model, keys, first, count):
    """What the modules must be handed to draw as the passes do."""
    signed = torch.tensor(keys)
    sizes, hierarchy = [len(group) for group in model.posterior.groups], model.hierarchy

    def take(draw, size, number):
        return draw((count, len(keys), size), Keys(signed, first, number))

    survivals = [take(draw_uniforms, size, index) for index, size in enumerate(sizes)]
    drawn, numbers = [1 - torch.cat(survivals, -1)], range(len(sizes), len(sizes) + hierarchy.num_layers)
    layers = [take(draw_normals, hierarchy.num_units, number) for number in numbers]
    return DrawnNoise([*drawn, torch.stack(layers, -2)] if layers else drawn)


CASES = [
    *({"sharing": name} for name in SHARINGS),
    {"groups": ((0, 3), (5, 1, 2), (4,))},  # not in the prior's order
    {"sharing": "groups share", "groups": ((4, 0), (5, 1, 2, 3))},
    {"groups": (tuple(range(6)),)},
    {"smoothing": "slab"},
    {"smoothing": "sharp", "hidden": ()},
    {"hidden": (17, 33)},
    {"bounds": (None, None)},
]


@torch.no_grad()
@pytest.mark.parametrize("case", CASES, ids=str)
def test_same_noise_same_draws(case):
    model, first, count = build(**case), 5, 11
    for keys in ([7], [7, -3, 2**40]):
        x = images(len(keys))
        with folded_networks(model):
            passes = compiled_draws(model.posterior, model.hierarchy, model.decoder)
            for _ in range(2):  # the second time in the same memory
                found = passes(x, [key % 2**64 for key in keys], first, count)
            noise = noise_of(model, keys, first, count)
            right = draw(model.posterior, model.hierarchy, x, count, generator=noise)
        assert torch.equal(found.z, right.z)
        assert 0 < float(found.z.mean()) < 1
        torch.testing.assert_close(found.log_ratio, right.log_ratio, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found.decoder_input, right.decoder_input, rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("sharing", SHARINGS)
def test_products_in_bfloat16(sharing):
    """A few bits near their threshold come out otherwise, and all that follows them; most draws are near."""
    model, x, keys, count = build(sharing), images(2), [7, 8], 50
    with precision_of_products(model, torch.bfloat16), folded_networks(model):
        passes = compiled_draws(model.posterior, model.hierarchy, model.decoder)
        found = passes(x, keys, 0, count)
        rounded = draw(model.posterior, model.hierarchy, x, count, generator=noise_of(model, keys, 0, count))
    exact = draw(model.posterior, model.hierarchy, x, count, generator=noise_of(model, keys, 0, count))
    for other, most in ((rounded, 0.02), (exact, 0.05)):
        same = (found.z == other.z).all(-1)
        assert float(same.float().mean()) > 0.9
        error = (found.log_ratio - other.log_ratio)[same]
        assert 0 < float(error.square().mean().sqrt()) < most * other.log_ratio.std()
    if sharing in ("none", "no layer shares"):
        assert found.decoder_input.dtype == torch.bfloat16


@torch.no_grad()
def test_a_draw_depends_on_its_key_and_its_number_alone(monkeypatch):
    model, x = build(), images(3)
    with folded_networks(model):
        passes = compiled_draws(model.posterior, model.hierarchy, model.decoder)

        def drawn(rows, first, count):
            found = passes(x[rows].clone(), [10 + row for row in rows], first, count)
            return [value.clone() for value in (found.z, found.log_ratio, found.decoder_input)]

        whole = drawn([0, 1, 2], 0, 12)
        for rows, first, count in (([1], 0, 12), ([2, 0], 3, 7)):
            for mine, all_of_them in zip(drawn(rows, first, count), whole, strict=True):
                torch.testing.assert_close(mine, all_of_them[first : first + count, rows])
        monkeypatch.setattr(rows_module, "SMALLEST_SHARED", 0)
        monkeypatch.setattr(rows_module, "available_threads", lambda: 2)
        for mine, one_thread in zip(drawn([0, 1, 2], 0, 12), whole, strict=True):
            assert torch.equal(mine, one_thread)


class OwnDecoder(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.network = nn.Linear(model.hierarchy.decoder_size, NUM_FEATURES)

    def forward(self, latents):
        assert latents.dtype == torch.float32
        return self.network(latents)


def own(kind):
    """A subclass, which may compute otherwise."""
    return type("Own", (kind,), {})


def own_network(model):
    model.hierarchy.prior.networks[1].network = nn.Sequential(model.hierarchy.prior.networks[1].network)


CHANGES = {
    "own norm": lambda model: setattr(model.posterior.norms[0], "__class__", own(L1BatchNorm)),
    "no norm": lambda model: model.posterior.norms.__setitem__(0, nn.Identity()),
    "own smoothing": lambda model: setattr(model.posterior, "smoothing", own(SpikeSlab)()),
    "own posterior": lambda model: setattr(model.posterior, "__class__", own(HierarchicalPosterior)),
    "own network": own_network,
    "a norm's forward": lambda model: setattr(model.posterior.norms[0], "forward", lambda x: x),
    "a hook": lambda model: model.posterior.networks[1].register_forward_hook(lambda *_: None),
    "float64": DiscreteVAE.double,
}


def takes(model):
    with model.importance_sampler(0.0) as importance_sampler:
        return importance_sampler.takes_batches


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_is_of_another_kind_goes_by_the_modules(change):
    model = build()
    assert takes(model)
    change(model)
    assert not takes(model)
    assert bool(model.log_likelihood(images(2), 5, log_partition=0.0).value.isfinite().all())


def test_a_decoder_of_another_kind_reads_what_is_not_rounded():
    model = build()
    model.decoder = OwnDecoder(model)
    assert takes(model)
    with precision_of_products(model, torch.bfloat16):
        assert not takes(model)
        model.log_likelihood(images(2), 5, log_partition=0.0)


class Rounding(nn.Module):
    """A network that computes in another precision, whose output stays in it unless ``widened``."""

    def __init__(self, network, dtype, widened):
        super().__init__()
        self.network, self.dtype, self.widened = network, dtype, widened

    def forward(self, x):
        found = self.network(x).to(self.dtype)
        return found.float() if self.widened else found


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_networks_may_have_a_dtype_of_their_own(dtype):
    model, found = build(), []
    encoder = model.encoder
    for widened in (False, True):
        model.encoder, generator = Rounding(encoder, dtype, widened), torch.Generator().manual_seed(0)
        found.append(model.log_likelihood(images(2), 5, log_partition=0.0, generator=generator).value)
    assert torch.equal(*found)
    model.decoder = nn.Linear(model.hierarchy.decoder_size, NUM_FEATURES, dtype=dtype)
    for call in (model.elbo, partial(model.log_likelihood, num_samples=5), model.reconstruct):
        call(images(2))


@torch.no_grad()
def test_a_convolutional_decoder_reads_what_is_rounded_as_it_rounds_itself():
    model = build()
    model.decoder = ConvolutionalDecoder(model.hierarchy.decoder_size, (1, 3, 3), (2,))
    latents = torch.randn(5, model.hierarchy.decoder_size, generator=torch.Generator().manual_seed(0))
    with precision_of_products(model, torch.bfloat16):
        assert takes(model)
        assert torch.equal(model.decoder(latents), model.decoder(latents.bfloat16()))


def test_weights_that_are_not_finite_are_named():
    model = build()
    with torch.no_grad():
        model.decoder.network.output.bias.fill_(3e38)
        model.decoder.network.output.weight.fill_(3e38)
    with pytest.raises(InvalidInputError):
        model.log_likelihood(images(1), 5, log_partition=0.0)


def test_the_default_device_changes_nothing_and_log_z_keeps_its_digits():
    model, _ = test_hierarchy_exact.build("two layers, no sharing")
    model, x, values = model.float(), test_hierarchy_exact.X.float(), []
    for device, log_z in (("cpu", 0.0), ("meta", 0.0), ("cpu", 100 + 1 / 3)):
        with torch.device(device):
            noise = torch.Generator("cpu").manual_seed(1)
            values.append(model.log_likelihood(x, 50, log_partition=log_z, generator=noise).value)
    assert torch.equal(values[0], values[1])
    torch.testing.assert_close(
        values[0] - values[2], torch.full_like(values[0], 100 + 1 / 3), rtol=0, atol=1e-9
    )


def test_inference_mode_has_the_same_likelihoods():
    model, _ = test_hierarchy_exact.build("one layer, networks")
    model, values = model.float(), []
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            x, noise = test_hierarchy_exact.X.float(), torch.Generator().manual_seed(1)
            values.append(model.log_likelihood(x, 50, log_partition=0.0, generator=noise).value)
    assert torch.equal(*values)
