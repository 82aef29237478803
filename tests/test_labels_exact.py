"""Models with a label whose p(x, y), bounds, gradients and p(y | x) are known by enumeration and quadrature."""

import math

import numpy as np
import pytest
import torch

import discrete_vae as dv
from discrete_vae import (
    RBM,
    DiscreteVAE,
    GraphBoltzmann,
    HierarchicalPosterior,
    SpikeGaussian,
    exact_log_partition,
)
from discrete_vae.boltzmann.base import enumerate_log_partition
from discrete_vae.config import (
    BlockGibbsConfig,
    DigitsConfig,
    DisARMConfig,
    ExperimentConfig,
    GaussianHierarchyConfig,
    ModelConfig,
    OptimizerConfig,
    RBMConfig,
    RealColumnConfig,
    TrainingConfig,
)
from discrete_vae.data.splits import DatasetDescription, DataSplits
from discrete_vae.inference import (
    ImputationSettings,
    class_accuracy,
    generate_of_labels,
    impute,
    predict_rows,
    score_features,
)
from discrete_vae.kernels.adam import Adam
from discrete_vae.likelihoods.base import BernoulliLikelihood
from discrete_vae.nets.mlp import MLPDecoder
from discrete_vae.numerics import bernoulli_log_prob
from discrete_vae.posterior import GivenLabel
from discrete_vae.rng import reseed
from discrete_vae.smoothing.overlapping import OverlappingExponential
from discrete_vae.testing import check_mean
from discrete_vae.training.loop import training_step
from discrete_vae.training.refit import refit_posterior
from discrete_vae.training.state import TrainingState
from discrete_vae.training.step import RecordedStep
from tests.exact_paths import flat_gradient, log_prior, randomize_norms
from tests.models import small_config, small_model
from tests.oracles.quadrature import joint_nodes, normal_nodes
from tests.refusals import refused_argument
from tests.training.tiny import QuietProgress
from tests.transformations import spike

NUM_FEATURES = 4
X = torch.tensor([[1, 0, 1, 1], [0, 0, 1, 0], [1, 1, 0, 0]], dtype=torch.float64)
LABELS = torch.tensor([1, -1, 0])

# name -> (prior, classes, groups of the other units, hidden layers, smoothing, nodes per unit and z)
CASES = {
    "two groups": (lambda: RBM(3, 1), 2, [[2], [3]], (), spike(2.0), 12),
    "two groups, networks": (lambda: RBM(2, 2), 2, [[3], [2]], (3,), spike(1.5), 20),
    "three classes on a graph": (lambda: GraphBoltzmann(5, "complete"), 3, [[4, 3]], (), spike(2.0), 10),
    "no spike": (lambda: RBM(2, 2), 2, 1, (), lambda: OverlappingExponential(beta=3.0, trainable=True), 9),
    "depends on x": (lambda: RBM(2, 1), 2, [[2]], (), lambda: SpikeGaussian(prior_loc=0.5), 24),
}


def build(name):
    """A model in evaluation mode with every parameter and running statistic drawn at random."""
    make_prior, num_classes, groups, hidden, smoothing, num_nodes = CASES[name]
    torch.manual_seed(6)
    prior = make_prior()
    posterior = HierarchicalPosterior(
        NUM_FEATURES + num_classes,
        groups,
        hidden,
        smoothing(),
        num_units=prior.num_units,
        num_classes=num_classes,
    )
    model = DiscreteVAE(
        prior=prior,
        posterior=posterior,
        decoder=MLPDecoder(prior.num_units, (NUM_FEATURES,), hidden),
        likelihood=BernoulliLikelihood((NUM_FEATURES,)),
    ).double()
    with torch.no_grad():
        for part in (prior, model.decoder, posterior.class_network):
            for parameter in part.parameters():
                parameter.add_(torch.randn_like(parameter))
    randomize_norms(model)
    if model.smoothing.parameter_names:
        posterior.parameter_network.norm.offset.data.mul_(0.3)  # narrower laws bound importance weights
    return model.eval(), num_nodes


def at_label(model, x, label, num_nodes):
    """Nodes with the label's units at e_y, (node,): log weight of r, log q(z' | x, y) and of zeta given x, log p."""
    posterior, num_classes = model.posterior, model.posterior.num_classes
    features = torch.cat([torch.eye(num_classes, dtype=torch.float64)[label], x])[None]
    parameters = ()
    if model.smoothing.parameter_names:
        raw = posterior.parameter_network(features)
        order = torch.tensor([unit for group in posterior.groups for unit in group]).argsort()
        parameters = [value[0, order] for value in model.smoothing.constrain(*raw)]
    nodes = joint_nodes(model.smoothing, model.prior.num_units, num_nodes, parameters)
    kept = (nodes.z[:, :num_classes] == features[0, :num_classes]).all(1)
    z, zeta = nodes.z[kept], nodes.zeta[kept]
    log_q = torch.zeros(len(z), dtype=torch.float64)
    for index, group in enumerate(posterior.groups[1:], 1):
        earlier = [zeta[:, list(before)] for before in posterior.groups[:index]]
        read = features.expand(len(zeta), -1)
        logits = posterior.norms[index](posterior.networks[index](read, *earlier))
        log_q = log_q + bernoulli_log_prob(z[:, list(group)], logits).sum(-1)
    log_px = model.likelihood.log_prob(model.decoder(zeta), x.expand(len(zeta), -1))
    log_joint = log_prior(model.prior)(z) + log_px - nodes.log_ratio[kept]
    return nodes.weight[kept], log_q, log_joint


def bound(weight, log_q, log_joint):
    """L(x, y) of the nodes at a label, a scalar with its gradient."""
    return (weight * log_q.exp()) @ (log_joint - log_q)


def log_sum(weight, log_q, log_joint):
    """log p(x, y)."""
    return torch.logsumexp(weight.log() + log_joint, 0)


def exact_log_joint(model, num_nodes, rows=X):
    """log p(x, y), (example, class)."""
    classes = range(model.posterior.num_classes)
    found = [[log_sum(*at_label(model, x, label, num_nodes)) for label in classes] for x in rows]
    return torch.stack([torch.stack(row) for row in found]).detach()


def log_q_of(model, x):
    return torch.log_softmax(model.posterior.class_network(x[None]), -1)[0]


def exact_bounds(model, labels, num_nodes):
    """L(x, y) of known labels, U(x) of others, (example,)."""
    found = []
    for x, label in zip(X, labels.tolist(), strict=True):
        if label >= 0:
            found.append(bound(*at_label(model, x, label, num_nodes)))
            continue
        log_q = log_q_of(model, x)
        classes = range(model.posterior.num_classes)
        of_classes = torch.stack([bound(*at_label(model, x, each, num_nodes)) for each in classes])
        found.append(log_q.exp() @ (of_classes - log_q))
    return torch.stack(found)


def estimates(model, labels, *, gradient=True, num_batches=40, repeats=300):
    """Means of the bounds of each example, with the gradient of their mean, (batch, number)."""
    rows, generator = [], torch.Generator().manual_seed(0)
    for _ in range(num_batches):
        value = model.elbo(
            X.repeat(repeats, 1),
            labels=labels.repeat(repeats),
            label_weight=0.0,
            log_partition=enumerate_log_partition(model.prior),
            generator=generator,
        ).value
        of_examples = value.detach().view(repeats, -1).mean(0)
        rows.append(torch.cat([of_examples, flat_gradient(value.mean(), model)]) if gradient else of_examples)
    return torch.stack(rows)


@pytest.mark.parametrize("name", CASES)
def test_bounds_and_every_gradient_are_unbiased(name):
    model, num_nodes = build(name)
    exact = exact_bounds(model, LABELS, num_nodes)
    expected = torch.cat([exact.detach(), flat_gradient(exact.mean(), model)])
    check_mean(estimates(model, LABELS), expected, resolution=0.04, rounding=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_bounds_lie_below_the_exact_probabilities_and_importance_samples_find_them(name):
    model, num_nodes = build(name)
    classes, generator = range(model.posterior.num_classes), torch.Generator().manual_seed(1)
    parts = [[at_label(model, x, label, num_nodes) for label in classes] for x in X]
    bounds, log_joint = (
        torch.stack([torch.stack([of(*part) for part in row]) for row in parts]).detach()
        for of in (bound, log_sum)
    )
    log_q = torch.stack([log_q_of(model, x) for x in X]).detach()
    assert bool((bounds < log_joint).all())
    unknown = (log_q.exp() * (bounds - log_q)).sum(1)
    assert bool((unknown < torch.logsumexp(log_joint, -1)).all())
    right = torch.where(
        LABELS < 0, torch.logsumexp(log_joint, -1), log_joint.gather(1, LABELS.clamp(min=0)[:, None])[:, 0]
    )
    got = model.log_likelihood(X, 20_000, labels=LABELS, chunk_size=7001, generator=generator)
    assert float(got.std_error.max()) < 0.05
    assert bool(((got.value - right).abs() < 5.5 * got.std_error + 1e-4).all())  # alpha 1e-6
    found = model.predict(X, 20_000, chunk_size=7001, generator=generator)
    exact = torch.softmax(log_joint, -1)
    assert float(found.std_error.max()) < 0.02
    assert bool(((found.value - exact).abs() < 5.5 * found.std_error + 1e-5).all())
    torch.testing.assert_close(found.approximate, log_q.exp())


def test_the_error_of_predicted_classes_is_that_of_repeated_predictions():
    model, _ = build("three classes on a graph")
    found = model.predict(X.repeat(400, 1), 200, generator=torch.Generator().manual_seed(2))
    spread = found.value.view(400, 3, 3).std(0)
    claimed = found.std_error.view(400, 3, 3).square().mean(0).sqrt()
    assert bool(((spread / claimed - 1).abs() < 0.2).all())  # 5.6 standard errors of a standard deviation


def label_units_have_an_entropy(monkeypatch):
    """The units of a known label are drawn, so that the entropy of the label is counted twice."""
    right = GivenLabel.forward
    monkeypatch.setattr(GivenLabel, "forward", lambda self, features: right(self, features) / 20)


def the_other_units_do_not_read_the_label(monkeypatch):
    """The law that is sampled is another one than that of L(x, y)."""
    right = DiscreteVAE.with_label
    monkeypatch.setattr(
        DiscreteVAE, "with_label", lambda self, features, labels: right(self, features, 0 * labels)
    )


@pytest.mark.parametrize("fault", [label_units_have_an_entropy, the_other_units_do_not_read_the_label, None])
def test_planted_faults_are_rejected(fault, monkeypatch):
    model, num_nodes = build("two groups")
    exact = exact_bounds(model, LABELS, num_nodes).detach()
    if fault is None:  # U(x) without the entropy of q(y | x)
        log_q = log_q_of(model, X[1]).detach()
        exact[1] += log_q.exp() @ log_q
    else:
        fault(monkeypatch)
    with pytest.raises(AssertionError, match="standard errors apart"):
        check_mean(estimates(model, LABELS, gradient=False), exact)


def test_autocast_keeps_the_probabilities_of_classes_in_float32():
    posterior = dv.HierarchicalPosterior(6, 1, [5], dv.SpikeExponential(), num_units=4, num_classes=2)
    with torch.autocast("cpu", torch.bfloat16):
        log_q = posterior.log_prob_of_classes(torch.ones(3, 4))
    assert log_q.dtype == torch.float32
    torch.testing.assert_close(log_q.exp().sum(-1), torch.ones(3))


def test_the_weight_of_known_labels_is_in_the_gradient_alone():
    model, _ = build("two groups")
    found = [
        model.elbo(X, labels=LABELS, label_weight=weight, generator=torch.Generator().manual_seed(3))
        for weight in (0.0, 2.5)
    ]
    assert torch.equal(found[0].value, found[1].value)
    of_known = torch.stack([log_q_of(model, X[0])[1], log_q_of(model, X[2])[0]]).sum() / 3
    parameters = list(model.posterior.class_network.parameters())
    right = torch.autograd.grad(-2.5 * of_known, parameters)
    without, with_weight = (torch.autograd.grad(each.loss, parameters) for each in found)
    for wanted, first, second in zip(right, without, with_weight, strict=True):
        torch.testing.assert_close(second - first, wanted)


def test_clamped_samples_follow_the_prior_given_the_label():
    model, _ = build("three classes on a graph")
    z = torch.cartesian_prod(*[torch.arange(2.0)] * 5).double()
    log_p, places = log_prior(model.prior)(z).detach(), 2 ** torch.arange(4, -1, -1)
    for label in (2, -1):
        count = 20_000
        drawn = model.sample(labels=torch.full((count,), label), num_sweeps=60, seed=4).z
        wanted = z[:, :3].eq(torch.nn.functional.one_hot(torch.tensor(max(label, 0)), 3)).all(1)
        law = log_p.masked_fill(~wanted, -math.inf) if label >= 0 else log_p
        law = torch.softmax(law, 0)
        counts = torch.bincount((drawn.long() * places).sum(1), minlength=len(z)).double()
        assert float(counts[law == 0].sum()) == 0
        error = (count * law * (1 - law)).sqrt()
        assert bool(((counts - count * law).abs() <= 5.7 * error + 3).all())  # alpha 1e-6 of 32 states
        other = torch.softmax(law.clamp(min=1e-30).log() / 2, 0)  # a planted fault: at twice the temperature
        assert not bool(((counts - count * other).abs() <= 5.7 * error + 3).all())


def test_labels_beside_gaussian_layers_and_a_condition():
    layer = GaussianHierarchyConfig(num_layers=1, num_units=1, posterior_hidden=(), prior_hidden=())
    parts = {"hierarchy": layer, "condition": (RealColumnConfig(name="energy"),), "num_classes": 2}
    model = small_model(NUM_FEATURES, units=(2, 1), hidden=(), seed=7, **parts).double()
    with torch.no_grad():
        for part, scale in ((model.prior, 1.0), (model.decoder, 0.6), (model.hierarchy, 0.25)):
            for parameter in part.parameters():
                parameter.copy_(scale * torch.randn_like(parameter))
    randomize_norms(model.eval(), offsets=False)
    c = torch.tensor([[0.5], [-1.0], [0.3]], dtype=torch.float64)
    nodes, (noise, weight) = joint_nodes(model.smoothing, 3, 14), normal_nodes(1, 20)
    log_p = nodes.weight.log() + log_prior(model.prior)(nodes.z)
    exact = []
    for x, of_c in zip(X, c, strict=True):
        latents = torch.cat([nodes.zeta, of_c.expand(len(nodes.zeta), 1)], 1)
        layer = model.hierarchy.prior.next_layer(latents, latents.new_zeros(len(latents), 0, 1))
        h = layer.mean[:, None] + layer.log_std.exp()[:, None] * noise
        wide = latents[:, None].expand(-1, len(noise), -1)
        read = model.hierarchy.prior.decoder_input(wide.flatten(0, 1), h.flatten(0, 1)[:, None])
        log_px = model.likelihood.log_prob(model.decoder(read), x.expand(len(read), -1))
        total = log_p[:, None] + weight.log() + log_px.view(len(nodes.z), -1)
        of_label = [total[(nodes.z[:, :2] == each).all(1)].flatten() for each in torch.eye(2)]
        exact.append(torch.stack([torch.logsumexp(each, 0) for each in of_label]))
    exact = torch.stack(exact).detach()
    right = torch.stack([exact[0, 1], torch.logsumexp(exact[1], 0), exact[2, 0]])
    log_z, more = exact_log_partition(model.prior), {"condition": c, "labels": LABELS}
    generator = torch.Generator().manual_seed(1)
    got = model.log_likelihood(X, 20_000, **more, log_partition=log_z, generator=generator)
    assert float(got.std_error.max()) < 0.05
    assert bool(((got.value - right).abs() < 5.5 * got.std_error + 1e-4).all())
    # the bound is the mean logarithm of the same weights
    with model.importance_sampler(log_z) as sampler:
        batch = model.check_batch(X, **more, generator=generator)
        of_known = sampler.log_weights(batch, 20_000, 1000)[:, LABELS >= 0].mean(0)
    many = {"condition": c.repeat(4000, 1), "labels": LABELS.repeat(4000)}
    elbo = model.elbo(X.repeat(4000, 1), **many, log_partition=log_z).value.view(4000, 3)
    means, error = elbo.mean(0), elbo.std(0) / 4000**0.5
    assert bool(((means[LABELS >= 0] - of_known).abs() < 7 * error[LABELS >= 0]).all())
    assert bool((means < right).all())


def test_a_model_with_classes_of_a_config_is_saved_and_read(tmp_path):
    graph, x = {"kind": "graph", "num_units": 8, "edges": "complete"}, X.float()
    model = small_model(NUM_FEATURES, num_classes=3, prior=graph, groups="colors", hidden=(5,)).eval()
    again = DiscreteVAE.from_pretrained(model.save_pretrained(tmp_path / "model"))
    first, second = (each.predict(x, 20, keys=[1, 2, 3]).value for each in (model, again))
    assert torch.equal(first, second)
    alone = model.predict(x[1:2], 20, keys=[2]).value
    torch.testing.assert_close(alone[0], first[1])
    code = model.encode(x, labels=LABELS, seed=1)
    assert code.z[0, :3].tolist() == [0, 1, 0]
    assert code.z[:, :3].sum(1).tolist() == [1, 1, 1]
    assert model.train().elbo(x, labels=LABELS).value.isfinite().all()


# Functions that read rows, and leave their labels unknown.


def test_gaps_are_filled_and_values_scored_over_all_classes():
    model, num_nodes = build("two groups")
    gap, column = X.clone(), torch.tensor([1])
    joint = torch.stack(
        [exact_log_joint(model, num_nodes, X.index_fill(1, column, bit)) for bit in (0.0, 1.0)]
    )
    exact = torch.softmax(joint.logsumexp(-1), 0)[1].numpy()
    gap[:, 1] = math.nan
    found = impute(model, gap, settings=ImputationSettings(num_samples=5000, num_rounds=2))
    error = found.std_error[:, 1]
    assert (error < 0.01).all()
    assert (np.abs(found.filled[:, 1] - exact) < 5.5 * error).all()  # alpha 1e-6
    of_one_class = torch.softmax(joint[..., 0], 0)[1].numpy()  # a planted fault
    assert not (np.abs(found.filled[:, 1] - of_one_class) < 5.5 * error).all()
    scores = score_features(model, X, num_samples=4000, batch_size=3)[:, 1]
    right = np.log(np.where(X[:, 1] == 1, exact, 1 - exact))
    # six standard errors of those of the mean of the weights
    np.testing.assert_allclose(scores, right, atol=0.03)


def test_rows_are_predicted_and_bounded_as_by_enumeration():
    model, num_nodes = build("two groups")
    found = predict_rows(model, X, num_samples=4000, batch_size=3)
    right = torch.softmax(exact_log_joint(model, num_nodes), -1).numpy()
    assert (found.std_error < 0.02).all()
    assert (np.abs(found.probabilities - right) < 5.5 * found.std_error + 1e-5).all()  # alpha 1e-6
    alone = predict_rows(model, X[1:2], num_samples=4000, numbers=[1], batch_size=3)
    np.testing.assert_allclose(alone.probabilities[0], found.probabilities[1], rtol=1e-9)
    log_z = float(exact_log_partition(model.prior).value)
    bounds = dv.elbo_rows(model, X, log_partition=log_z, num_samples=200, batch_size=3)
    exact = exact_bounds(model, torch.full((3,), -1), num_nodes).detach().numpy()
    assert (bounds.std_error < 0.1).all()
    assert (np.abs(bounds.value - exact) < 5.5 * bounds.std_error).all()


def test_codes_hold_the_label_that_the_posterior_gives():
    model, _ = build("two groups")
    law = torch.stack([log_q_of(model, x) for x in X]).exp().detach().numpy()
    code = dv.encode_rows(model, X)
    assert (code.bits[:, :2].argmax(1) == law.argmax(1)).all()
    np.testing.assert_allclose(code.probabilities[:, :2], law, rtol=1e-4)
    drawn = dv.encode_rows(model, X.repeat(200, 1), draw=True).bits[:, :2]
    assert (drawn.sum(1) == 1).all()
    share, error = drawn.reshape(200, 3, 2).mean(0), np.sqrt(law * (1 - law) / 200)
    assert (np.abs(share - law) < 5.5 * error + 0.02).all()
    assert dv.reconstruct_rows(model, X, num_draws=3).shape == (3, NUM_FEATURES)


def test_examples_of_a_class_have_its_units_set():
    model, _ = build("three classes on a graph")
    made = generate_of_labels(model, torch.zeros(10, 5), 4, [2, 0], num_chains=4, num_sweeps=3)
    assert made.places.tolist() == [2] * 4 + [0] * 4
    assert (made.z[:, :3] == np.eye(3)[made.places]).all()
    for bit in (0, 1):  # other units are set, and a field is added, beside the label's
        asked = {"clamped": {3: bit}, "field": torch.tensor([0, 0, 0, 0, 80.0 * bit - 40])}
        made = generate_of_labels(model, torch.zeros(10, 5), 4, [2, 0], num_chains=4, num_sweeps=3, **asked)
        assert (made.z == [[*np.eye(3)[place], bit, bit] for place in made.places]).all()


def test_no_label_is_the_same_as_unknown_labels_and_an_entry_not_observed_is_summed_over():
    model, _ = build("two groups")
    found = [
        model.elbo(X, labels=labels, generator=torch.Generator().manual_seed(5)).value
        for labels in (None, torch.full((3,), -1))
    ]
    assert torch.equal(*found)
    model, x = small_model(NUM_FEATURES, units=(3, 3), num_classes=2, missing=True).eval(), X.float()
    x[:, 1] = math.nan
    found = [
        model.elbo(each, labels=LABELS, observed=~x.isnan(), generator=torch.Generator().manual_seed(1)).value
        for each in (x.nan_to_num(nan=0.0), x.nan_to_num(nan=1.0))
    ]
    assert torch.equal(*found)


REFUSED = [
    ("labels", lambda m: m.elbo(X, labels=torch.tensor([0, 1, 2]))),
    ("labels", lambda m: m.elbo(X, labels=torch.tensor([0, 1]))),
    ("labels", lambda m: m.elbo(X, labels=torch.tensor([True, False, True]))),
    ("n", lambda m: m.sample(labels=torch.tensor(1))),
    ("labels", lambda m: m.elbo(X, labels=torch.tensor([0.0, 1.0, math.nan]))),
    ("label_weight", lambda m: m.elbo(X, labels=LABELS, label_weight=-1.0)),
    ("num_importance_samples", lambda m: m.elbo(X, labels=LABELS, num_importance_samples=2)),
    ("gradient", lambda m: m.estimate_gradient(dv.LeaveOneOut.of(m), X)),
    ("model", lambda m: m.make_independent_(X)),
    ("labels", lambda m: m.sample(z=torch.zeros(3, 4), labels=LABELS)),
    ("method", lambda m: impute(m, X * math.nan, settings=ImputationSettings(method="chains"))),
    ("labels", lambda m: generate_of_labels(m, torch.zeros(10, 4), 4, [3], num_chains=4)),
    ("clamped", lambda m: generate_of_labels(m, torch.zeros(10, 4), 4, [0], clamped={1: 1}, num_chains=4)),
    ("model", lambda _: small_model(NUM_FEATURES).elbo(X.float(), labels=LABELS)),
    ("model", lambda _: small_model(NUM_FEATURES).log_likelihood(X.float(), 2, labels=LABELS)),
    ("model", lambda _: small_model(NUM_FEATURES).predict(X.float(), 2)),
    ("model", lambda _: small_model(NUM_FEATURES).sample(labels=LABELS)),
    (
        "ModelConfig",
        lambda _: ModelConfig(num_features=4, num_classes=4, prior=RBMConfig(num_left=2, num_right=2)),
    ),
]


@pytest.mark.parametrize(("argument", "call"), REFUSED)
def test_what_breaks_a_rule_is_named(argument, call):
    assert argument in refused_argument(call, build("two groups")[0])


# Training.


def test_a_step_of_training_has_the_gradient_of_the_loss():
    model = small_model(NUM_FEATURES, units=(3, 3), num_classes=2).eval()
    states, generator, x = torch.randint(2, (20, 6)).float(), torch.Generator().manual_seed(0), X.float()
    given = {"labels": LABELS, "label_weight": 2.0}
    step = RecordedStep(model, Adam(model.parameters()))
    more = {"discrete": 0.7, "continuous": 1.0, "num_importance_samples": 1, "noise_key": (3, 1)}
    found = step.take_gradients(x, states, **more, **given)[0]
    gradients = [leaf.grad.clone() for leaf in model.parameters()]
    elbo = model.elbo(x, **given, negative_phase=states, generator=reseed(generator, 3, 1))
    assert torch.equal(found.kl_relative, elbo.kl_relative.detach())
    assert torch.equal(found.reconstruction, elbo.reconstruction.detach())
    right = torch.autograd.grad(elbo.weighted_loss(discrete=0.7), list(model.parameters()))
    for gradient, wanted in zip(gradients, right, strict=True):
        torch.testing.assert_close(gradient, wanted)


def experiment(**training):
    return ExperimentConfig(
        name="made",
        size="smoke",
        data=DigitsConfig(),  # the data are given
        model=small_config(8, units=(3, 2), hidden=(16,), num_classes=2),
        training=TrainingConfig(
            num_epochs=50,
            optimizer=OptimizerConfig(learning_rate=0.02),
            batch_size=50,
            sampler=BlockGibbsConfig(num_chains=50),
            num_sweeps=3,
            log_every=200,
            validate_every=200,
            **training,
        ),
    )


def test_the_weight_of_labels_counts_examples_per_label():
    found, x = [], splits(lambda kind: kind)[0].train[:50]
    for weight, per_label in ((0.5, 6.0), (3.0, 1.0), (0.5, 1.0)):
        config = experiment(label_weight=weight)
        state = TrainingState.initial(config, x)
        labels = torch.where(torch.arange(50) < 10, 1, -1)
        training_step(state, config, x, 1.0, 0.5, labels=labels, examples_per_label=per_label)
        found.append(
            torch.cat([each.grad.flatten() for each in state.model.posterior.class_network.parameters()])
        )
    assert torch.equal(*found[:2])
    assert not torch.allclose(*found[1:])


def splits(labels):
    """Bits of two kinds with labels of the training examples, and the test examples with their kinds."""
    parts = []
    for count in (200, 20, 100):
        kind = torch.arange(count) % 2
        law = torch.where(kind[:, None] == (torch.arange(8) < 4), 0.9, 0.1)
        parts.append((torch.bernoulli(law, generator=torch.Generator().manual_seed(count)), kind.numpy()))
    about = DatasetDescription(source="", version="", split="", values="", sha256=None)
    bits, of_train = [x for x, _ in parts], {"train": labels(parts[0][1])}
    return DataSplits("made", *bits, (8,), False, about, labels=of_train), *parts[2]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_few_labels_name_the_classes_and_a_refit_leaves_p_x_y(precision, tmp_path):
    """Labels are those of the other kind, and stay with their examples where a part of these is chosen."""
    data, x, kind = splits(lambda kind: np.where(np.arange(200) < 20, 1 - kind, -1))
    config = experiment(precision=precision, num_examples=160)
    dv.train(config, data, tmp_path / "run", progress=QuietProgress())
    loaded = dv.load_run(tmp_path / "run")
    model = loaded.model
    found = model.predict(x, 20, generator=torch.Generator().manual_seed(0))
    for law in (found.value, found.approximate):
        assert (law.argmax(1).numpy() != kind).mean() > 0.9
    rows = predict_rows(model, x, num_samples=10)
    assert class_accuracy(rows.log_probabilities, 1 - kind).accuracy > 0.9
    drawn = model.sample(labels=torch.arange(40) % 2, seed=0).mean
    of_kind = (drawn[:, :4].mean(1) > drawn[:, 4:].mean(1)).numpy() == (np.arange(40) % 2 == 0)
    assert of_kind.mean() > 0.9
    before = {name: value.clone() for name, value in model.decoder.state_dict().items()}
    log_z = float(exact_log_partition(model.prior).value)
    again = refit_posterior(model, data, loaded.chains, log_partition=log_z, num_steps=100, batch_size=50)
    assert all(torch.equal(value, before[name]) for name, value in model.decoder.state_dict().items())
    assert again.after.elbo > again.before.elbo - 0.1


@pytest.mark.parametrize(
    ("training", "labels", "argument"),
    [
        ({"num_importance_samples": 2}, lambda kind: kind, "training.num_importance_samples"),
        ({"independent_start": True}, lambda kind: kind, "training.independent_start"),
        ({"gradient": DisARMConfig()}, lambda kind: kind, "training.gradient"),
        ({}, lambda kind: kind + 1, "labels"),
        ({}, lambda kind: np.array(["a", "b"])[kind], "labels"),
    ],
)
def test_what_training_refuses_with_classes(training, labels, argument, tmp_path):
    made = experiment()
    layers = {"hierarchy": GaussianHierarchyConfig(num_layers=1, num_units=2)}
    changes = {
        "training": made.training.model_copy(update=training),
        "model": made.model.model_copy(update=layers),
    }
    asked = made.model_copy(update=changes), splits(labels)[0], tmp_path / "run"
    assert refused_argument(dv.train, *asked, progress=QuietProgress()) == argument
