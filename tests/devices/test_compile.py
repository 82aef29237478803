"""The objective with its backward pass is one graph: no data-dependent shape, no look at a value."""

import pytest
import torch

from tests.devices.models import CHANGES, build, data
from tests.models import LAYERS, small_model


def run(model, x, chains, compiled):
    def loss(x, chains):
        return model.elbo(x, negative_phase=chains, log_partition=3.0).loss

    function = torch.compile(loss, fullgraph=True, backend="aot_eager") if compiled else loss
    torch._dynamo.reset()
    model.zero_grad()
    value = function(x, chains)
    value.backward()
    return value.detach(), {name: part.grad for name, part in model.named_parameters()}


QUICK = ("a graph and missing entries",)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CHANGES]
)
def test_loss_and_backward_compile_without_a_break_and_compute_the_same(name, fixed_noise):
    # In 64 bits, since the two may add in another order, which 32 show.
    model = build(name).double()
    x, chains = (part.double() for part in data(model))
    if model.missing:
        model.initialize_(x)
    one, other = run(model, x, chains, compiled=False), run(model, x, chains, compiled=True)
    torch.testing.assert_close(one[0], other[0])
    for name, gradient in one[1].items():
        torch.testing.assert_close(
            other[1][name], gradient, rtol=1e-7, atol=1e-8 * max(1, float(gradient.abs().max()))
        )


def test_batches_of_two_sizes_and_two_values_of_log_z_compile():
    model = small_model(groups=2, hierarchy=LAYERS)
    x, chains = data(model)
    torch._dynamo.reset()
    bound = torch.compile(model.elbo, fullgraph=True, backend="aot_eager")
    for rows, log_z in (x, 3.0), (x[:5], 4.0):
        elbo = bound(rows, negative_phase=chains, log_partition=log_z)
        elbo.loss.backward()
        assert len(elbo.value) == len(rows)
        assert bool(elbo.value.isfinite().all())
