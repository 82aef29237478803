"""Values of the paper (Rolfe 2017): log-likelihoods in nats, each with the label of its place in the source."""

from __future__ import annotations

from typing import NamedTuple


class MainResult(NamedTuple):
    """One data set of table 1."""

    log_likelihood: float  # of the discrete VAE, mean of 16 runs
    spread: float  # standard deviation of the 16 runs
    elbo: float | None  # of the discrete VAE; None where it is not given
    next_best: tuple[str, float]  # name and log-likelihood of the best other model that is listed
    without_rbm: float  # how much lower the log-likelihood is without the RBM


class Architecture(NamedTuple):
    """One row of table 2."""

    num_layers: int  # of continuous latents
    num_units: int  # continuous latents per layer
    prior_hidden: int  # hidden units per layer of the prior
    sharing: str  # of parameters in the prior, as the config names it: none, groups or complete
    num_groups: int | None = None  # that share; None without groups


class Curve(NamedTuple):
    """Points of one line of a figure."""

    label: str  # of the figure in the source
    about: str  # which line it is
    x: tuple[float, ...]  # what was varied
    log_likelihood: tuple[float, ...]  # at each


TABLE_1 = "tab:mnist-omniglot-caltech"
TABLE_2 = "tab:architectural-hyperparameters"
RESULTS = "results-section"  # the spreads, and what removing the RBM does
SUPPLEMENT = "sec:supplementary-results"

MAIN_RESULTS = {
    "mnist-dynamic": MainResult(-80.15, 0.08, None, ("Ladder VAE", -81.74), 0.09),
    "mnist-static": MainResult(-81.01, 0.04, -84.58, ("variational Gaussian process", -81.32), 0.37),
    "omniglot": MainResult(-97.43, 0.05, None, ("DBN", -100.45), 0.69),
    "caltech101-silhouettes": MainResult(-97.6, 0.11, None, ("NAIS NADE", -100.0), 0.66),
}
"""`TABLE_1` and `RESULTS`, by experiment."""

ARCHITECTURES = {
    "mnist-dynamic": Architecture(18, 64, 1000, "none"),
    "mnist-static": Architecture(20, 256, 2000, "groups", 2),
    "omniglot": Architecture(16, 256, 800, "groups", 2),
    "caltech101-silhouettes": Architecture(12, 80, 100, "complete"),
}
"""`TABLE_2`, by experiment."""

SIMPLIFIED = {
    "mnist-static-factorial": -102.9,
    "mnist-static-factorial-prior": -97.0,
    "mnist-static-rbm128-linear": -92.7,
    "mnist-static-rbm200-linear": -88.8,
    "mnist-static-rbm128": -86.9,
    "mnist-static-rbm200": -85.2,
}
"""`SUPPLEMENT`: log-likelihoods on static MNIST, by experiment, rising."""

GIBBS_ITERATIONS = Curve(
    "fig:ll-vs-gibbs-sampling",
    "ten layers",
    (1, 5, 10, 50, 100, 500),
    (-80.43, -80.43, -80.38, -80.39, -80.34, -80.30),
)
RBM_UNITS = Curve(
    "fig:ll-vs-num-rbm-units",
    "ten layers",
    (8, 16, 32, 64, 96, 128),
    (-80.5188464, -80.4732307, -80.3952749, -80.2914739, -80.3484205, -80.3406563),
)
POSTERIOR_GROUPS = Curve(
    "fig:ll-vs-rbm-approx-post-layers",
    "ten layers",
    (1, 2, 4, 8),
    (-80.51978, -80.27014, -80.28587, -80.39957),
)
PRIOR_WIDTH_LINEAR = Curve(
    "fig:ll-overfitting-prior",
    "one hidden layer, linear decoder",
    (100, 200, 300, 400, 500),
    (-82.24, -82.03, -82.22, -82.22, -82.56),
)
PRIOR_WIDTH_DEEP = Curve(
    "fig:ll-overfitting-prior",
    "one hidden layer, decoder with one",
    (100, 200, 300, 400, 500),
    (-82.30, -81.92, -82.03, -82.20, -82.63),
)
POSTERIOR_WIDTH = Curve(
    "fig:ll-overfitting-approx-post",
    "two hidden layers",
    (500, 1000, 1500, 2000),
    (-82.14, -81.96, -81.95, -82.00),
)
LOG_PARTITION_SPREAD = 0.1
"""`fig:log-partition-function-hist`: repeats differ by no more than about this, nats (sec:log-partition-function)."""
