"""The head of a Gaussian layer and its KL: written-out gradients against finite differences, in float64."""

import pytest
import torch

from discrete_vae.hierarchy.gaussian import Gaussian
from discrete_vae.hierarchy.gaussian_network import GaussianNetwork


@pytest.mark.parametrize("bound", [5.0, 0.5, None])
def test_a_draw_and_its_gaussian(bound):
    network = GaussianNetwork([3], (), 2, log_std_bound=bound).double()
    network.network.initialize_output_(0.0, 100.0)
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    noise = torch.randn(4, 2, dtype=torch.float64)

    def draw(x):
        gaussian, h = network.rsample(x, noise=noise)
        return gaussian.mean, gaussian.log_std, h

    mean, log_std, h = draw(x)
    raw_mean, raw = network.output(x).chunk(2, -1)
    torch.testing.assert_close(mean, raw_mean)
    torch.testing.assert_close(log_std, raw if bound is None else bound * torch.tanh(raw / bound))
    torch.testing.assert_close(h, mean + log_std.exp() * noise)
    assert torch.equal(network(x).log_std, log_std)
    torch.autograd.gradcheck(draw, x)
    for output in draw(x):  # each alone
        (got,) = torch.autograd.grad(output.sum(), x, retain_graph=True)
        assert bool((got != 0).all())


def test_kl():
    tensors = [torch.randn(3, 2, dtype=torch.float64, requires_grad=True) for _ in range(4)]
    torch.autograd.gradcheck(lambda a, b, c, d: Gaussian(a, b).kl_to(Gaussian(c, d)), tensors)
