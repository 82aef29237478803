"""The objective with its backward pass is one graph: no data-dependent shape, no look at a value."""

import pytest
import torch

from tests.devices.models import CHANGES, build, data


def run(model, x, chains, compiled):
    def loss(x, chains):
        return model.elbo(x, negative_phase=chains, log_partition=3.0).loss

    function = torch.compile(loss, fullgraph=True, backend="aot_eager") if compiled else loss
    torch._dynamo.reset()
    model.zero_grad()
    torch.manual_seed(5)
    value = function(x, chains)
    value.backward()
    return value.detach(), {name: part.grad for name, part in model.named_parameters()}


QUICK = ("a group across both sides", "a graph", "missing entries")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CHANGES]
)
def test_loss_and_backward_compile_without_a_break(name):
    model = build(name)
    x, chains = data(model)
    if model.missing:
        model.initialize_(x)
    value, gradients = run(model, x, chains, compiled=True)
    assert bool(value.isfinite())
    assert all(part is not None and bool(part.isfinite().all()) for part in gradients.values())


def test_it_computes_the_same(monkeypatch):
    """With fixed noise, since a compiled graph draws its own."""
    from discrete_vae.smoothing import base as smoothing

    monkeypatch.setattr(smoothing, "open_uniform", lambda like, generator=None: torch.full_like(like, 0.4))
    model = build("a group across both sides")
    x, chains = data(model)
    one, other = run(model, x, chains, compiled=False), run(model, x, chains, compiled=True)
    torch.testing.assert_close(one[0], other[0])
    for name, gradient in one[1].items():
        torch.testing.assert_close(other[1][name], gradient, rtol=1e-4, atol=1e-5)
