"""Laws that every hierarchy of continuous layers obeys; the tests run them over the config unions."""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.hierarchy.base import Hierarchy, HierarchySample
from discrete_vae.hierarchy.prior import AutoregressiveGaussianPrior
from discrete_vae.testing.goodness_of_fit import check_mean


def check_gaussian_prior(prior: AutoregressiveGaussianPrior, *, seed: int = 0) -> None:
    """All layers at once are the layers one by one; each depends on zeta and on earlier layers, on nothing else.

    Args:
        prior: In float64 and evaluation mode, with running statistics that are not all alike.
        seed: Seed of the points where it is tried.

    Raises:
        AssertionError: If a law is broken; names the layer.
    """
    generator = torch.Generator().manual_seed(seed)
    zeta = torch.rand(3, prior.num_latents, generator=generator, dtype=torch.float64).requires_grad_()
    h = torch.randn(3, prior.num_layers, prior.num_units, generator=generator, dtype=torch.float64)
    h.requires_grad_()
    together = prior.layers(zeta, h)
    assert together.mean.shape == together.log_std.shape == h.shape
    for index in range(prior.num_layers):
        alone = prior.next_layer(zeta, h[:, :index])
        for name in ("mean", "log_std"):
            got, want = getattr(together, name)[:, index], getattr(alone, name)
            assert torch.allclose(got, want, rtol=1e-10, atol=1e-12), f"layer {index} alone is another one"
            from_zeta, from_h = torch.autograd.grad(got.sum(), (zeta, h), retain_graph=True)
            size = from_h.abs().amax((0, 2))
            assert bool((size[index:] == 0).all()), f"layer {index} sees its own sample or a later one"
            assert bool((size[:index] > 0).all()), f"layer {index} misses an earlier one"
            assert float(from_zeta.abs().max()) > 0, f"layer {index} does not see zeta"
    read = prior.decoder_input(zeta, h)
    assert read.shape == (3, prior.decoder_size)
    seen = torch.autograd.grad(read.square().sum(), (zeta, h))
    assert all(bool((part != 0).all()) for part in seen), "the decoder does not see all latents"


def check_closed_form_kl(
    hierarchy: Hierarchy, x: Tensor, zeta: Tensor, *, num_batches: int = 60, seed: int = 0
) -> None:
    """E_q[sum of closed-form KLs] = E_q[log q(h) - log p(h)], for given x and zeta.

    The two sides share no formula. A prior that sees a layer's own sample, a posterior in another order than the
    prior's, and a KL from p to q break the law.

    Args:
        hierarchy: In evaluation mode.
        x: (feature,).
        zeta: (latent,).
        num_batches: Batches of 1000 draws.
        seed: Seed of the noise.

    Raises:
        AssertionError: If the law is broken, with false-alarm rate 1e-6.
    """
    samples = _draws(hierarchy, x, zeta, num_batches, seed)
    assert all(float(sample.kl().min()) >= 0 for sample in samples), "a closed-form KL is negative"
    check_mean(
        torch.stack([(sample.kl() + sample.log_ratio()).mean()[None] for sample in samples]), torch.zeros(1)
    )


def check_normalized(
    hierarchy: Hierarchy, x: Tensor, zeta: Tensor, *, num_batches: int = 60, seed: int = 0
) -> None:
    """E_q[p(h) / q(h)] = 1, for given x and zeta: what is sampled has the density that the weights take it to have.

    Args:
        hierarchy: In evaluation mode, its posterior near its prior: otherwise rare draws carry the mean.
        x: (feature,).
        zeta: (latent,).
        num_batches: Batches of 1000 draws.
        seed: Seed of the noise.

    Raises:
        AssertionError: If the law is broken, with false-alarm rate 1e-6.
    """
    samples = _draws(hierarchy, x, zeta, num_batches, seed)
    weights = torch.stack([sample.log_ratio().exp().mean()[None] for sample in samples])
    check_mean(weights, torch.ones(1), resolution=0.02)


@torch.no_grad()
def _draws(
    hierarchy: Hierarchy, x: Tensor, zeta: Tensor, num_batches: int, seed: int
) -> list[HierarchySample]:
    generator = torch.Generator().manual_seed(seed)
    rows = zeta.expand(1000, 1, -1)
    return [hierarchy.rsample(x[None], rows, generator=generator) for _ in range(num_batches)]
