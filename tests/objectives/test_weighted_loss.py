"""The loss with weights on its KL terms, and its gradients by the terms."""

import pytest
import torch

from discrete_vae.objectives.elbo import Elbo, loss_gradients


@pytest.mark.parametrize("log_partition", [None, 3.0, torch.tensor(3.0, dtype=torch.float64)])
def test_value_and_gradients(log_partition):
    parts = [torch.randn(5, dtype=torch.float64, requires_grad=True) for _ in range(3)]

    def loss(*parts):
        return Elbo(*parts, log_partition, True).weighted_loss(discrete=0.3, continuous=0.7)

    shift = 0.0 if log_partition is None else 0.3 * 3.0
    plain = (0.3 * parts[1] + 0.7 * parts[2] - parts[0]).mean() + shift
    torch.testing.assert_close(loss(*parts), plain)
    torch.autograd.gradcheck(loss, parts)
    torch.autograd.gradgradcheck(lambda *p: loss(*p) ** 2, parts)


def test_the_gradients_of_the_loss_are_those_of_the_loss():
    parts = [torch.randn(7, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    loss = Elbo(*parts, 2.0, trains_prior=True).weighted_loss(discrete=0.3, continuous=0.7)
    exact = torch.autograd.grad(loss, parts)
    for mine, right in zip(loss_gradients(7, 0.3, 0.7, like=parts[0]), exact, strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-15, atol=0)
