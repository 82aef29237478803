"""The laws of an approximating posterior over the binary latents; run them on one of your own.

Each function raises AssertionError where the law is broken. Give a float64 posterior in evaluation mode.
"""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.posteriors.base import Posterior, PosteriorSample
from discrete_vae.smoothing.input_dependent import InputDependentSmoothing
from discrete_vae.smoothing.spike_at_zero import SpikeAtZero
from discrete_vae.testing.goodness_of_fit import check_frequencies, check_mean

_SATURATED = 45.0  # sigmoid is 1 to the last digit of float64


def check_sample(posterior: Posterior, features: Tensor) -> None:
    """Shapes, dtypes and domains of a draw, and that z, zeta, logits and bits are of one and the same draw.

    Args:
        posterior: The posterior.
        features: (batch, feature), at least two rows.
    """
    shape = (len(features), posterior.num_units)
    for num_samples in (None, 1, 3):
        sample = posterior.rsample(features, num_samples=num_samples, generator=_seeded(0))
        front = () if num_samples is None else (num_samples,)
        for name in ("z", "zeta", "logits", "bits"):
            part = getattr(sample, name)
            assert part.shape == (*front, *shape), f"{name} has shape {tuple(part.shape)}"
            assert part.dtype == features.dtype, f"{name} is {part.dtype}"
            assert bool(part.isfinite().all()), f"{name} is not finite"
        _check_consistent(posterior, sample)
    assert torch.equal(
        posterior.rsample(features, generator=_seeded(1)).zeta,
        posterior.rsample(features, generator=_seeded(1)).zeta,
    ), "the generator does not govern the noise"
    parameters = [posterior.rsample(features, generator=_seeded(seed)).parameters for seed in (0, 1)]
    assert all(map(torch.equal, *parameters)), "the smoothing's parameters depend on more than the features"


def _check_consistent(posterior: Posterior, sample: PosteriorSample) -> None:
    assert bool(((sample.z == 0) | (sample.z == 1)).all()), "z holds more than 0 and 1"
    assert not sample.z.requires_grad, "z carries a gradient"
    posterior.smoothing.check_zeta(sample.zeta, sample.z.shape)
    expected = posterior.smoothing.bits(sample.zeta, sample.logits)
    torch.testing.assert_close(sample.bits, expected, msg="bits are not those of zeta and logits")
    if isinstance(posterior.smoothing, SpikeAtZero):
        assert torch.equal(sample.z, (sample.zeta != 0).to(sample.z.dtype)), "z does not belong to zeta"
    assert torch.equal(sample.group_of_unit, posterior.group_of_unit), "the sample has other groups"
    depends_on_x = isinstance(posterior.smoothing, InputDependentSmoothing)
    given = posterior.smoothing if depends_on_x else None
    assert sample.smoothing is given, "the sample does not say whether its smoothing depends on x"
    names = posterior.smoothing.parameter_names
    assert len(sample.parameters) == len(names), f"the sample has not the parameters {names}"
    for value in sample.parameters:
        assert value.shape == sample.z.shape[-2:], "a parameter of the smoothing is not (batch, unit)"


def check_discrete_draws(posterior: Posterior, features: Tensor) -> None:
    """That z is where the uniforms say, zeta is of r(zeta|z), and nothing passes through zeta to the logits.

    For posteriors that have `sample_discretely`.

    Args:
        posterior: The posterior.
        features: (batch, feature), at least two rows.
    """
    shape = (3, len(features), posterior.num_units)
    uniforms = torch.rand(shape, dtype=features.dtype, generator=_seeded(6))
    uniforms[2] = uniforms[0]
    given = features.detach().clone().requires_grad_()
    sample = posterior.sample_discretely(given, uniforms, generator=_seeded(7))
    for name in ("z", "zeta", "logits", "bits"):
        part = getattr(sample, name)
        assert part.shape == shape, f"{name} has shape {tuple(part.shape)}"
        assert part.dtype == features.dtype, f"{name} is {part.dtype}"
    assert torch.equal(sample.z, (uniforms < torch.sigmoid(sample.logits)).to(sample.z.dtype)), (
        "z is not 1 where the uniform is below q"
    )
    assert torch.equal(sample.bits, sample.z), "bits are not z"
    torch.testing.assert_close(sample.zeta[2], sample.zeta[0], msg="samples do not share the noise of zeta")
    posterior.smoothing.check_zeta(sample.zeta, shape)
    if isinstance(posterior.smoothing, SpikeAtZero):
        assert torch.equal(sample.z, (sample.zeta != 0).to(sample.z.dtype)), "z does not belong to zeta"
    if sample.zeta.requires_grad and not sample.parameters:
        (reached,) = torch.autograd.grad(sample.zeta.sum(), given, retain_graph=True, allow_unused=True)
        assert reached is None or not bool(reached.any()), "a gradient passes through zeta to the logits"


def check_groups(posterior: Posterior, features: Tensor) -> None:
    """That each unit's logits depend on zeta of earlier groups alone, as `group_of_unit` says.

    Args:
        posterior: The posterior.
        features: (batch, feature).
    """
    group = posterior.group_of_unit
    positions = sorted(set(group.tolist()))
    assert group.shape == (posterior.num_units,), "group_of_unit has another length than num_units"
    assert positions == list(range(len(positions))), "positions of groups are not 0, 1, ..."
    rows = features[:1].expand(400, -1)
    with torch.no_grad():
        sample = posterior.rsample(rows, generator=_seeded(2))
    for position in positions:
        _check_function(sample.zeta[:, group < position], sample.logits[:, group == position], position)


def _check_function(earlier: Tensor, logits: Tensor, position: int) -> None:
    """Rows with the same earlier latents must have the same logits; where there is a spike many have."""
    index = torch.zeros(len(logits), dtype=torch.int64)
    if earlier.shape[1] > 0:
        _, index = earlier.unique(dim=0, return_inverse=True)
    for row in range(int(index.max()) + 1):
        alike = logits[index == row]
        message = f"logits of group {position} differ where all earlier groups agree"
        assert torch.allclose(alike, alike[:1].expand_as(alike)), message


def check_law(
    posterior: Posterior, features: Tensor, *, num_batches: int = 50, batch_size: int = 1000
) -> None:
    """That z have the law that the logits state, and zeta that of the smoothing's parameters; alpha 1e-6 each.

    q(z | x) is the product of the stated conditionals exactly if, over all subsets of units, the product of the
    residuals z_i - q_i has mean 0: the residual of the unit that is drawn last has mean 0 given all others.

    Args:
        posterior: The posterior, of few units: all 2^n - 1 subsets are looked at.
        features: (batch, feature); the first row is used.
        num_batches: Independent batches.
        batch_size: Draws in each.
    """
    n = posterior.num_units
    subsets = ((torch.arange(1, 2**n)[:, None] >> torch.arange(n)) & 1).bool()
    generator, rows, levels = _seeded(3), [], []
    for _ in range(num_batches):
        with torch.no_grad():
            sample = posterior.rsample(features[:1], num_samples=batch_size, generator=generator)
        residual = (sample.z - torch.sigmoid(sample.logits))[:, 0]
        rows.append(torch.where(subsets, residual[:, None], 1.0).prod(-1).mean(0))
        given_z = torch.where(sample.z == 1, _SATURATED, -_SATURATED)
        level = posterior.smoothing.cdf(sample.zeta, given_z, *sample.parameters)
        levels.append(level[sample.z == 1])
    if posterior.smoothing.parameter_names:  # others were looked at with the transformation
        counts = torch.histc(torch.cat(levels), bins=20, min=0, max=1)
        check_frequencies(counts, torch.full((20,), 0.05, dtype=counts.dtype))
    check_mean(torch.stack(rows), torch.zeros(len(subsets), dtype=features.dtype))


def check_gradients(posterior: Posterior, features: Tensor) -> None:
    """That a gradient reaches every parameter and the features.

    Args:
        posterior: The posterior.
        features: (batch, feature).
    """
    features = features.detach().clone().requires_grad_()
    sample = posterior.rsample(features, num_samples=4, generator=_seeded(5))
    (sample.zeta.square().sum() + sample.logits.sum() + sample.bits.sum()).backward()
    named = [*posterior.named_parameters(), ("features", features)]
    for name, value in named:
        if value.requires_grad:
            assert value.grad is not None, f"no gradient reaches {name}"
            assert bool(value.grad.isfinite().all()), f"the gradient of {name} is not finite"


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
