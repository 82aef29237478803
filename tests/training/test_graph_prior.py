"""Training with a prior on a graph: the RBM's run where the graph is that of an RBM, and a run with odd cycles."""

import math

import torch

from discrete_vae.config import GraphBoltzmannConfig
from discrete_vae.load import load_run
from tests.training.tiny import CONFIG, start_run, train_quietly


def trained(folder, prior):
    model = CONFIG.model.model_copy(update={"prior": prior})
    config = CONFIG.model_copy(update={"model": model})
    run = start_run(folder, config)
    train_quietly(run, config)
    return load_run(run)


def test_the_graph_of_an_rbm_learns_what_the_rbm_learns(tmp_path):
    edges = tuple((i, 5 + j) for i in range(5) for j in range(4))
    graph = trained(tmp_path / "graph", GraphBoltzmannConfig(num_units=9, edges=edges)).model.prior
    rbm = trained(tmp_path / "rbm", CONFIG.model.prior).model.prior
    assert float(rbm.weight.detach().abs().max()) > 0.01
    # sums in another order may turn a draw of the chains, one in some 10 million
    torch.testing.assert_close(graph.weight.view(5, 4), rbm.weight, rtol=0, atol=1e-4)
    torch.testing.assert_close(graph.bias, rbm.bias, rtol=0, atol=1e-4)


def test_a_complete_graph_trains_and_its_model_samples(tmp_path):
    model = trained(tmp_path / "run", GraphBoltzmannConfig(num_units=7, edges="complete")).model
    assert model.prior.weight.shape == (21,)
    x = torch.bernoulli(torch.full((5, 64), 0.5), generator=torch.Generator().manual_seed(0))
    assert math.isfinite(float(model.elbo(x).value.detach().mean()))
    sample = model.sample(3, num_sweeps=5)
    assert sample.z.shape == (3, 7)
    assert sample.mean.shape == (3, 64)
