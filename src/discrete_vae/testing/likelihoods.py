"""Laws of a likelihood: its start, its density and draws, and what it is as a module.

The pieces of `check_likelihood` take a likelihood in float64, parameters (batch, *parameter_shape) and x
(batch, *event) in float64 unless they say otherwise, and raise AssertionError. Where a likelihood has an exposure, laws
over the values of x hold for a given one: there parameters are taken as they are, and x does not change them.
"""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass

import torch
from torch import Tensor

from discrete_vae.likelihoods.base import Likelihood
from discrete_vae.testing.reference import ALPHA, check_frequencies


@dataclass(frozen=True, eq=False)
class Support:
    """Points at which sums and integrals over one feature are taken.

    Attributes:
        values: (value,), float64, ascending and evenly spaced: all values, or midpoints of a grid so wide and fine
            that the law's mass is summed to 1e-9.
        discrete: Whether these are all values, and not a grid.
    """

    values: Tensor
    discrete: bool

    @classmethod
    def whole_numbers(cls, end: int) -> Support:
        """0, ..., end - 1: binary values, codes, or counts up to where their mass is spent."""
        return cls(torch.arange(end, dtype=torch.float64), discrete=True)

    @classmethod
    def interval(cls, low: float, high: float, num_points: int = 20_001) -> Support:
        """A grid of midpoints."""
        step = (high - low) / num_points
        return cls(low + step * (torch.arange(num_points, dtype=torch.float64) + 0.5), discrete=False)

    @property
    def spacing(self) -> float:
        """Distance of neighbors."""
        return float(self.values[1] - self.values[0])

    @property
    def weight(self) -> float:
        """Mass for which a density at one point stands."""
        return 1.0 if self.discrete else self.spacing


def check_likelihood(
    likelihood: Likelihood,
    x: Tensor,
    support: Support,
    *,
    sizes: tuple[float, ...] = (30.0, 1e4),
    seed: int = 0,
) -> None:
    """Check a likelihood for `DiscreteVAE(likelihood=)`: its start, its density, its draws, and copies of it.

    Args:
        likelihood: In float32, as built; copies of it are tried.
        x: (example, *event), float32, in the domain, without NaN, of features whose means differ; at least two rows
            and two features.
        support: Of a feature.
        sizes: Absolute values of the decoder's output at which `log_prob` must be finite in float32.
        seed: Seed of the outputs and draws that are tried.

    Examples:
        >>> from discrete_vae import BernoulliLikelihood
        >>> x = torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
        >>> check_likelihood(BernoulliLikelihood((2,)), x, Support.whole_numbers(2))
    """
    check_initialization(copy.deepcopy(likelihood), x)
    fitted = copy.deepcopy(likelihood).requires_grad_()  # what is frozen, too
    fitted.initialize_(x)
    wide, x = copy.deepcopy(fitted).double(), x[:3]
    generator = torch.Generator().manual_seed(seed)
    parameters = 0.7 * torch.randn(len(x), *wide.parameter_shape, generator=generator, dtype=torch.float64)
    check_normalized(wide, parameters, support)
    check_marginalizes(wide, parameters, x.double(), support)
    check_distribution(wide, parameters, x.double(), support)
    check_gradients(wide, parameters, x.double())
    check_folding(wide, parameters, x.double())
    check_exposure(wide, parameters, x.double())
    check_sample_law(wide, parameters[0], support, seed=seed)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        check_interface(fitted, parameters.float(), x)
    check_extremes(fitted, x, sizes=sizes)


def at_given_exposure(likelihood: Likelihood) -> Likelihood:
    """A copy whose `log_prob` takes the parameters as they are, whatever x's exposure."""
    if not likelihood.has_exposure:
        return likelihood
    given = copy.copy(likelihood)
    given.has_exposure = False
    return given


def check_exposure(likelihood: Likelihood, parameters: Tensor, x: Tensor) -> None:
    """`log_prob` is that of the parameters at x's exposure, which changes with the observed counts alone.

    In value and gradient, with and without unobserved entries, for the joint and for each feature.
    """
    parameters, given = parameters.detach().requires_grad_(), at_given_exposure(likelihood)
    hidden = _feature(likelihood, 0, x)
    for observed, filled in ((None, x), (~hidden, x.masked_fill(hidden, torch.nan)), (~hidden, x)):
        exposed = likelihood.at_exposure(parameters, filled, observed)
        assert exposed.shape == parameters.shape, f"at_exposure returns the shape {tuple(exposed.shape)}"
        unchanged = likelihood.has_exposure or exposed is parameters
        assert unchanged, "has_exposure is False, and at_exposure changes"
        got = likelihood.log_prob(parameters, filled, observed)
        want = given.log_prob(exposed, filled, observed)
        _assert_alike(got, want, parameters, 1e-9, "is not that at the exposure of x")
    exposed = likelihood.at_exposure(parameters, x)
    terms = likelihood.feature_log_prob(exposed, x).flatten(1).sum(1)
    _assert_close(terms, likelihood.log_prob(parameters, x), 1e-9, "feature_log_prob is not log_prob's")
    three = parameters.expand(3, *parameters.shape)
    assert torch.equal(likelihood.at_exposure(three, x)[0], exposed), "at_exposure loses the sample axis"


def _feature(likelihood: Likelihood, index: int, like: Tensor) -> Tensor:
    """Mask of a single feature, in the shape of some examples."""
    return (torch.arange(likelihood.num_features) == index).reshape(likelihood.event_shape).expand_as(like)


def feature_probabilities(likelihood: Likelihood, parameters: Tensor, support: Support) -> Tensor:
    """Probability of each point for each feature, (value, batch, *event), by `log_prob` of one feature at a time."""
    batch, event = len(parameters), likelihood.event_shape
    likelihood = at_given_exposure(likelihood)
    x = support.values.reshape(-1, *[1] * (1 + len(event))).expand(-1, batch, *event)
    every = parameters.expand(len(support.values), *parameters.shape)
    features = range(likelihood.num_features)
    columns = [likelihood.log_prob(every, x, _feature(likelihood, index, x)) for index in features]
    return torch.stack(columns, -1).unflatten(-1, event).exp() * support.weight


@torch.no_grad()
def check_normalized(likelihood: Likelihood, parameters: Tensor, support: Support) -> None:
    """Each feature's probabilities sum, or its density integrates, to 1."""
    total = feature_probabilities(likelihood, parameters, support).sum(0)
    worst = float((total - 1).abs().max())
    assert worst < 1e-8, f"the probabilities of a feature sum to 1 +- {worst:.2g}"


def check_marginalizes(likelihood: Likelihood, parameters: Tensor, x: Tensor, support: Support) -> None:
    """An unobserved entry is summed out: log p(rest) = log sum_v p(rest, x_i = v), whatever that entry holds.

    Values and gradients of the parameters are compared, with NaN in the unobserved entries; so is log p(x) with the
    sum over its features one by one, since they are independent.
    """
    likelihood = at_given_exposure(likelihood)
    parameters = parameters.detach().requires_grad_()
    every = parameters.expand(len(support.values), *parameters.shape)
    for index in range(likelihood.num_features):
        hidden = _feature(likelihood, index, x)
        got = likelihood.log_prob(parameters, x.masked_fill(hidden, torch.nan), ~hidden)
        values = support.values.reshape(-1, *[1] * x.dim())
        joint = likelihood.log_prob(every, torch.where(hidden, values, x))
        want = (joint.exp() * support.weight).sum(0).log()
        _assert_alike(got, want, parameters, 1e-7, f"without feature {index} is not the marginal's")
    hidden = torch.zeros_like(x, dtype=torch.bool)
    nothing = likelihood.log_prob(parameters, torch.full_like(x, torch.nan), hidden)
    assert torch.equal(nothing, torch.zeros_like(nothing)), "log p of nothing is not 0"


def check_gradients(likelihood: Likelihood, parameters: Tensor, x: Tensor) -> None:
    """Gradients of log p(x) in the decoder's and the likelihood's own parameters are those of finite differences."""
    parameters = parameters.detach().requires_grad_()
    inputs = {"parameters": parameters, **dict(likelihood.named_parameters())}

    def evaluate(*moved: Tensor) -> Tensor:  # gradcheck moves the inputs themselves
        return likelihood.log_prob(parameters, x)

    try:
        torch.autograd.gradcheck(evaluate, [*inputs.values()], eps=1e-6, atol=1e-6, rtol=1e-5)
    except RuntimeError as error:
        raise AssertionError(f"a gradient of log_prob is not that of finite differences: {error}") from error
    slopes = torch.autograd.grad(evaluate().sum(), [*inputs.values()])
    for name, slope in zip(inputs, slopes, strict=True):
        assert bool((slope != 0).any()), f"{name} gets no gradient"


@torch.no_grad()
def check_distribution(likelihood: Likelihood, parameters: Tensor, x: Tensor, support: Support) -> None:
    """`log_prob`, `mean` and `mode` are those of `distribution` and of the sums over the support."""
    law = likelihood.distribution(parameters)
    shape = (*parameters.shape[:1], *likelihood.event_shape)
    assert law.batch_shape == shape, f"the distribution has batch shape {tuple(law.batch_shape)}, not {shape}"
    assert law.event_shape == (), "the distribution has event axes"
    axes = tuple(range(1, x.dim()))
    got, want = at_given_exposure(likelihood).log_prob(parameters, x), law.log_prob(x).sum(axes)
    _assert_close(got, want, 1e-8, "log_prob is not the distribution's")
    probabilities = feature_probabilities(likelihood, parameters, support)
    values = support.values.reshape(-1, *[1] * x.dim())
    got, want = likelihood.mean(parameters), (probabilities * values).sum(0)
    _assert_close(got, want, 1e-7, "mean is not the expectation")
    mode = likelihood.mode(parameters)
    if support.discrete:
        most_probable = support.values[probabilities.argmax(0)]
        assert torch.equal(mode, most_probable), "mode is not the most probable value"
    else:
        at_mode, best = law.log_prob(mode).exp() * support.weight, probabilities.max(0).values
        assert bool((at_mode >= best * (1 - 1e-9)).all()), "mode is not the most probable value"


def check_sample_law(likelihood: Likelihood, parameters: Tensor, support: Support, *, seed: int = 0) -> None:
    """Draws follow `log_prob`: chi-square of each feature over 20 cells of about equal probability."""
    num_draws = 100_000
    with torch.no_grad():
        probabilities = feature_probabilities(likelihood, parameters[None], support)[:, 0].flatten(1)
        rows = parameters.expand(num_draws, *parameters.shape)
        draws, again = (
            likelihood.sample(rows, generator=torch.Generator().manual_seed(seed)) for _ in range(2)
        )
    assert draws.shape == (num_draws, *likelihood.event_shape), f"draws have shape {tuple(draws.shape)}"
    assert torch.equal(draws, again), "a generator does not repeat the draw"
    if support.discrete:
        assert torch.equal(draws, draws.round()), "a draw is not one of the values"
    half = support.spacing / 2
    for index, column in enumerate(draws.flatten(1).double().T.contiguous()):
        below = probabilities[:, index].cumsum(0)
        ends = torch.searchsorted(below, torch.arange(1, 20, dtype=torch.float64) / 20).unique()
        ends = ends[ends < len(below) - 1]
        edges = support.values[ends] + half
        counts = torch.bincount(torch.bucketize(column, edges), minlength=len(edges) + 1)
        cells = torch.cat([below[ends], torch.ones(1)]).diff(prepend=torch.zeros(1))
        try:
            check_frequencies(counts, cells.clamp_min(0), alpha=ALPHA / likelihood.num_features)
        except AssertionError as error:
            raise type(error)(f"feature {index}: {error}") from error


def check_folding(likelihood: Likelihood, parameters: Tensor, x: Tensor) -> None:
    """Feature i reads the P parameters at (:, i) of `unfold`, all of them and no others."""
    count, event = likelihood.parameters_per_feature, likelihood.event_shape
    assert likelihood.parameter_shape == (count * event[0], *event[1:]), "parameter_shape is not folded"
    unfolded = parameters.reshape(len(parameters), count, *event)
    assert torch.equal(likelihood.unfold(parameters), unfolded), "unfold does not give P blocks of the event"
    for index in range(likelihood.num_features):
        observed = torch.arange(likelihood.num_features) == index
        leaf = parameters.detach().requires_grad_()
        value = likelihood.log_prob(leaf, x, observed.reshape(event).expand_as(x))
        (slope,) = torch.autograd.grad(value.sum(), leaf)
        touched = (slope != 0).reshape(len(x), count, -1).any(0)
        want = observed.expand_as(touched)
        assert torch.equal(touched, want), f"feature {index} does not read its own parameters alone"


def _assert_close(got: Tensor, want: Tensor, tolerance: float, message: str) -> None:
    off = float((got - want).detach().abs().max())
    assert torch.allclose(got, want, rtol=tolerance, atol=tolerance), f"{message}: off by {off:.2g}"


def _assert_alike(got: Tensor, want: Tensor, parameters: Tensor, tolerance: float, wrong: str) -> None:
    """Values and gradients of two functions of the parameters are close."""
    _assert_close(got, want, tolerance, f"log_prob {wrong}")
    slope, wanted = (torch.autograd.grad(y.sum(), parameters, retain_graph=True)[0] for y in (got, want))
    _assert_close(slope, wanted, tolerance, f"the gradient {wrong}")


@torch.no_grad()
def check_interface(likelihood: Likelihood, parameters: Tensor, x: Tensor) -> None:
    """Shapes, sample axes, precision, unobserved entries in the encoder's input, and copies; all in float32."""
    shape = tuple(x.shape)
    assert likelihood.num_features == x[0].numel()
    assert likelihood.check(x) is x, "check does not return x"
    value = likelihood.log_prob(parameters, x)
    assert value.shape == shape[:1], "log_prob does not sum over the features"
    three = parameters.expand(3, *parameters.shape)
    assert likelihood.log_prob(three, x).shape == (3, *shape[:1]), "log_prob loses the sample axis"
    for name in ("mean", "mode", "sample"):
        got = getattr(likelihood, name)(three)
        assert got.shape == (3, *shape), f"{name} has shape {tuple(got.shape)}"
        assert bool(got.isfinite().all()), f"{name} is not finite"
        assert got.dtype == torch.float32, f"{name} of float32 is {got.dtype}"
        assert getattr(likelihood, name)(parameters.bfloat16()).dtype == torch.float32, f"{name} is narrow"
    likelihood.check(likelihood.mode(parameters), exact=True)
    likelihood.check(likelihood.sample(parameters), exact=True)
    assert value.dtype == torch.float32, f"log_prob of float32 is {value.dtype}"
    narrow = likelihood.log_prob(parameters.bfloat16(), x)
    assert narrow.dtype == torch.float32, "log_prob of bfloat16 is not float32"
    rounded = likelihood.log_prob(parameters.bfloat16().float(), x)
    assert torch.equal(narrow, rounded), "log_prob computes in bfloat16"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(likelihood.log_prob(parameters, x), value), "autocast changes log_prob"
    assert likelihood.log_prob(parameters.double(), x.double()).dtype == torch.float64, "float64 is narrowed"
    hidden = torch.zeros_like(x, dtype=torch.bool)
    hidden[0] = True
    read = likelihood.network_input(x.masked_fill(hidden, torch.nan), ~hidden)
    assert read.shape == (*shape[:1], *likelihood.input_shape), f"network_input has shape {tuple(read.shape)}"
    assert read.dtype == x.dtype, "network_input changes the dtype"
    assert bool(read.isfinite().all()), "network_input is not finite"
    assert torch.equal(read[1:], likelihood.network_input(x)[1:]), "the mask changes observed entries"
    for twin in (copy.deepcopy(likelihood), pickle.loads(pickle.dumps(likelihood))):
        assert torch.equal(twin.log_prob(parameters, x), value), "a copy has another log_prob"


@torch.no_grad()
def check_initialization(likelihood: Likelihood, x: Tensor) -> None:
    """`initialize_` is deterministic, heeds observed entries only, and starts better than zeros before it.

    NaN and a mask over other values say the same. A feature that was never observed, and one that is constant, leave
    everything finite.
    """
    before = likelihood.log_prob(torch.zeros(len(x), *likelihood.parameter_shape), x).mean()
    start = likelihood.initialize_(x)
    assert tuple(start.shape) == likelihood.parameter_shape, f"the start has shape {tuple(start.shape)}"
    state = copy.deepcopy(likelihood.state_dict())
    after = likelihood.log_prob(start.expand(len(x), *start.shape), x).mean()
    assert bool(after >= before), f"log p is {float(after):.4g} at the start, {float(before):.4g} before"
    hidden = torch.zeros_like(x, dtype=torch.bool)
    hidden[: len(x) // 2].flatten(1)[:, 0] = True
    hidden.flatten(1)[:, 1] = True
    starts, states = [], []
    for value, observed in ((torch.nan, None), (torch.nan, ~hidden), (1.0, ~hidden)):
        starts.append(likelihood.initialize_(x.masked_fill(hidden, value), observed))
        states.append(copy.deepcopy(likelihood.state_dict()))
    for other_start, other in zip(starts, states, strict=True):
        same = [torch.equal(other[name], states[0][name]) for name in other]
        assert all([*same, torch.equal(other_start, starts[0])]), "unobserved entries reach the statistics"
    finite = all(bool(v.isfinite().all()) for v in (*states[0].values(), starts[0]))
    assert finite, "a feature never observed leaves infinite statistics"
    likelihood.initialize_(x[:1].expand_as(x))
    constant = likelihood.log_prob(start.expand(len(x), *start.shape), x[:1].expand_as(x))
    assert bool(constant.isfinite().all()), "constant features leave no finite log_prob"
    assert bool(likelihood.network_input(x).isfinite().all()), "constant features leave no finite input"
    assert torch.equal(likelihood.initialize_(x), start), "initialize_ depends on what was there before"
    again = likelihood.state_dict()
    assert all(torch.equal(again[name], state[name]) for name in state), "initialize_ is not deterministic"


def check_extremes(likelihood: Likelihood, x: Tensor, *, sizes: tuple[float, ...] = (30.0, 1e4)) -> None:
    """In float32, log p(x) and its gradients stay finite for outputs far out."""
    for size in (*sizes, *(-size for size in sizes)):
        signs = torch.ones(len(x), *likelihood.parameter_shape)
        signs[:, ::2] = -1
        parameters = (size * signs).requires_grad_()
        value = likelihood.log_prob(parameters, x).sum()
        slopes = torch.autograd.grad(value, [parameters, *likelihood.parameters()])
        assert bool(value.isfinite()), f"log_prob is {float(value.detach())} at outputs of size {size:g}"
        assert all(bool(g.isfinite().all()) for g in slopes), f"a gradient is not finite at size {size:g}"
