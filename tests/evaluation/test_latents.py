"""Effects of flips, active units, agreement with labels."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from discrete_vae import DiscreteVAE
from discrete_vae.evaluation.latents import flip_effects, label_agreement, latent_usage
from tests.models import LAYERS, small_config
from tests.refusals import refused_argument


def model_with(decoder=None, **more):
    torch.manual_seed(0)
    return DiscreteVAE.from_config(small_config(6, groups=4, **more), decoder=decoder).eval()


class Table(nn.Module):
    """Unit i alone sets feature i: a logit of 4 for zeta above 0, else -4."""

    def __init__(self):
        super().__init__()
        self.none = nn.Parameter(torch.zeros(()))

    def forward(self, zeta):
        on = torch.nn.functional.pad((zeta > 0).to(zeta.dtype), (0, 2))
        logits = 8 * on - 4
        logits[:, 3:] = 0.0  # the fourth unit does nothing
        return logits + self.none


def test_each_unit_changes_what_it_sets():
    effects = flip_effects(model_with(Table()), torch.bernoulli(torch.full((50, 6), 0.5)))
    step = 2 / (1 + math.exp(-4)) - 1
    wanted = torch.zeros(4, 6, dtype=torch.float64)
    wanted[range(3), range(3)] = step
    torch.testing.assert_close(effects.change, wanted, atol=1e-6, rtol=0)
    torch.testing.assert_close(effects.size, wanted.sum(1), atol=1e-6, rtol=0)
    assert effects.order[-1] == 3
    assert bool((effects.std_error < 1e-6).all())
    assert effects.num_codes == 50
    half = flip_effects(model_with(Table()), torch.zeros(10, 6), scale=torch.tensor([2.0, 1, 1, 1, 1, 1]))
    torch.testing.assert_close(half.change, wanted / torch.tensor([2.0, 1, 1, 1, 1, 1]), atol=1e-6, rtol=0)
    one = flip_effects(model_with(), torch.zeros(1, 6))  # one code has no standard error
    assert one.change.isfinite().all()
    assert one.std_error.isnan().all()
    assert one.size_std_error.isnan().all()


def test_layers_take_the_same_noise_before_and_after_and_their_kl_is_that_of_the_bound():
    model, x = model_with(hierarchy=LAYERS), torch.bernoulli(torch.full((400, 6), 0.5))
    usage = latent_usage(model, x)
    with torch.no_grad():
        draws = torch.stack([model.elbo(x, log_partition=0.0).kl_continuous.mean() for _ in range(20)])
    assert usage.layer_kl.shape == (2, 2)
    assert float(usage.layer_kl.sum()) == pytest.approx(float(draws.mean()), rel=0.1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.startswith("hierarchy.prior") or name.startswith("decoder"):
                weight.zero_()  # h is noise, whatever zeta is, and nobody reads zeta
    assert float(flip_effects(model, torch.zeros(20, 6)).size.max()) == 0.0


def test_information_is_entropy_of_the_mean_less_mean_entropy():
    model = model_with()
    x = torch.bernoulli(torch.full((300, 6), 0.5), generator=torch.Generator().manual_seed(0))
    usage = latent_usage(model, x)
    q = model.encode(x, seed=0).logits[:, :1].double().sigmoid()  # the first group does not depend on draws

    def entropy(p):
        return -(p * p.log() + (1 - p) * (1 - p).log())

    assert float(usage.activity[0]) == pytest.approx(float(q.mean()), rel=1e-5)
    wanted = entropy(q.mean()) - entropy(q).mean()
    assert float(usage.information[0]) == pytest.approx(float(wanted), abs=1e-6)
    assert usage.layer_kl.numel() == usage.num_dead_layer_units == 0
    assert 0 in latent_usage(model, torch.zeros(40, 6)).dead_units  # always alike
    weights = torch.ones(300)
    weights[:100] = 2
    repeated = latent_usage(model, torch.cat([x, x[:100]]))
    assert not torch.allclose(usage.information[0], repeated.information[0])
    weighted = latent_usage(model, x, weights=weights)
    torch.testing.assert_close(weighted.information[0], repeated.information[0])


def test_units_of_a_label_have_the_law_of_the_classes():
    model = model_with(units=(4, 3), num_classes=3)
    x = torch.bernoulli(torch.full((50, 6), 0.5), generator=torch.Generator().manual_seed(0))
    usage = latent_usage(model, x)
    q = model.posterior.log_prob_of_classes(model.features_of(x, None)).double().exp().detach()
    torch.testing.assert_close(usage.activity[:3], q.mean(0))
    torch.testing.assert_close(usage.entropy[:3], torch.distributions.Bernoulli(q).entropy().mean(0))


def test_agreement_of_groups_that_are_the_labels_and_of_groups_that_tell_nothing():
    random = np.random.default_rng(0)
    kinds = random.integers(0, 4, 400)
    found = label_agreement((kinds + 1) % 4, np.array(["a", "b", "c", "d"])[kinds])
    assert found.purity == found.adjusted_mutual_information == 1.0
    assert found.mutual_information == pytest.approx(found.label_entropy)
    assert found.num_labels == 4
    found = label_agreement(random.integers(0, 50, 2000), random.integers(0, 4, 2000))
    assert abs(found.adjusted_mutual_information) < 5 * found.adjusted_mutual_information_std_error
    assert found.mutual_information > 0.01  # by chance alone, which the adjusted one takes off


def test_errors_are_those_of_repeated_draws_in_any_order():
    """The jackknife against the spread of the measures of many samples."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(200):  # their spread is known to a twentieth
        kinds = random.integers(0, 3, 300)
        groups = np.where(random.random(300) < 0.8, kinds, random.integers(0, 3, 300))
        found.append(label_agreement(groups, kinds))
    for name in ("purity", "adjusted_mutual_information", "mutual_information"):
        spread = np.std([getattr(each, name) for each in found], ddof=1)
        stated = np.mean([getattr(each, f"{name}_std_error") for each in found])
        assert 0.8 < stated / spread < 1.25, name
        assert not 0.8 < 1.6 * stated / spread < 1.25  # planted
    labels, order = np.arange(2000) % 10, random.permutation(2000)  # blocks of every twentieth hold one label
    groups = np.where(random.random(2000) < labels / 10, labels, 10)
    cyclic, mixed = label_agreement(groups, labels), label_agreement(groups[order], labels[order])
    for name in ("purity", "mutual_information"):
        assert 0.5 < getattr(cyclic, f"{name}_std_error") / getattr(mixed, f"{name}_std_error") < 2, name


@pytest.mark.parametrize(
    ("count", "labels"), [(40, np.zeros(30)), (40, np.zeros((40, 2))), (40, np.zeros(0)), (19, np.zeros(19))]
)
def test_as_many_labels_as_groups_and_at_least_20(count, labels):
    assert refused_argument(label_agreement, np.zeros(count), labels) == "labels"
