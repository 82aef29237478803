"""The bound with importance samples: what it refuses, and how often networks run."""

import torch

from discrete_vae.nets.mlp import MLP
from tests.models import LAYERS, small_model

X = torch.bernoulli(torch.full((8, 5), 0.5), generator=torch.Generator().manual_seed(0))


def build():
    return small_model(hierarchy=LAYERS | {"num_layers": 3})


def bound_of(model, num_samples, seed=2):
    given = {"log_partition": 0.0, "negative_phase": torch.zeros(3, 4), "num_importance_samples": num_samples}
    return model.elbo(X, **given, generator=torch.Generator().manual_seed(seed))


def test_each_network_runs_once_over_all_rows(monkeypatch):
    rows = {}

    def counted(self, *inputs, forward=MLP.forward):
        rows.setdefault(self, []).append(max((value.shape[:-1] for value in inputs), key=len))
        return forward(self, *inputs)

    model = build().train()
    monkeypatch.setattr(MLP, "forward", counted)
    bound_of(model, 6).loss.backward()
    first, *later = [network.network for network in model.hierarchy.posterior]
    assert rows[first] == [(8,)]
    assert [rows[network] for network in later] == [[(6, 8)]] * 2
    assert all(len(calls) == 1 for calls in rows.values())
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters())
    assert min(float(p.grad.abs().max()) for p in model.hierarchy.parameters()) > 0


def test_frozen_parts_are_left_alone():
    """Where the layers' posterior does not train, the gradient of all else is that of the full bound."""
    model = build().eval()
    names, gradients = [name for name, _ in model.named_parameters()], []
    for frozen in (False, True):
        model.hierarchy.posterior.requires_grad_(not frozen)
        model.zero_grad()
        bound_of(model, 3).loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    for name in names:
        if name.startswith("hierarchy.posterior"):
            assert gradients[1][name] is None
        else:
            torch.testing.assert_close(gradients[1][name], gradients[0][name])
