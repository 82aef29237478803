"""The benchmark of gaps in a table: each density against closed forms and quadrature, in the table's own units."""

import csv
import math

import numpy as np
import pytest
import torch
from scipy import stats

from discrete_vae.likelihoods.families import GaussianLikelihood
from discrete_vae.model import DiscreteVAE
from tests.models import small_config

LONG = 2  # the column with a long tail


def rows_with_gaps(count=400, seed=0):
    """Rows of three columns that hang together, the last of them log-normal, and where gaps are."""
    random = np.random.default_rng(seed)
    common = random.normal(size=(count, 1))
    y = common + 0.5 * random.normal(size=(count, 3))
    x = np.stack([100 * y[:, 0], y[:, 1] - 3, np.exp(2 * y[:, 2])], 1)
    return torch.from_numpy(x), torch.from_numpy(random.random(x.shape) < 0.2)


def fitted_likelihood(x):
    likelihood = GaussianLikelihood((3,), shorten_tails=True)
    likelihood.initialize_(x.float())
    assert likelihood.tails.is_long.tolist() == [False, False, True]
    return likelihood.double()


def gaussian():
    from table_imputation import Mixture

    means = torch.tensor([[0.0, 1.0, -1.0], [2.0, 0.0, 0.5]], dtype=torch.float64)
    loads = torch.tensor([[1.0, 0.5, -0.3], [0.2, 0.9, 0.4]], dtype=torch.float64)
    covariances = loads[:, :, None] * loads[:, None, :] + 0.3 * torch.eye(3, dtype=torch.float64)
    return Mixture(torch.tensor([0.3, 0.7], dtype=torch.float64).log(), means, covariances)


def test_a_mixture_given_what_is_seen_is_the_joint_over_the_margin():
    mixture = gaussian()
    y = np.random.default_rng(0).normal(size=(5, 3))
    seen = torch.tensor([[True, False, True]]).expand(5, 3)

    def density(columns):
        total = 0.0
        for weight, mean, part in zip(*(each.numpy() for each in vars(mixture).values()), strict=True):
            law = stats.multivariate_normal(mean[columns], part[np.ix_(columns, columns)])
            total += math.exp(weight) * law.pdf(y[:, columns])
        return total

    found = mixture.given(torch.from_numpy(y), seen, ~seen)
    np.testing.assert_allclose(found, np.log(density([0, 1, 2]) / density([0, 2])), rtol=1e-10)


def test_em_climbs_on_rows_with_gaps_and_finds_the_law():
    mixture = gaussian()
    random = np.random.default_rng(0)
    part = (random.random(1500) < 0.7).astype(int)
    lower = np.linalg.cholesky(mixture.covariances.numpy())
    y = mixture.means.numpy()[part] + np.einsum("rij,rj->ri", lower[part], random.normal(size=(1500, 3)))
    y, seen = torch.from_numpy(y), torch.from_numpy(random.random(y.shape) > 0.3)
    found, before = mixture, -math.inf
    found.means.add_(0.3)  # from beside the law
    for _ in range(25):
        found, after = found.refined(y, seen, ridge=0.0), float(found.log_prob(y, seen).sum())
        assert after > before - 1e-8
        before = after
    law = gaussian()
    assert before > float(law.log_prob(y, seen).sum())
    assert (found.means - law.means).abs().max() < 0.3
    assert (found.covariances - law.covariances).abs().max() < 0.4


@pytest.mark.parametrize("column", [0, LONG])
def test_densities_of_other_ways_integrate_to_one_in_the_tables_units(column):
    from table_imputation import by_columns, by_neighbors, check_units, fitted, scaled

    x, gaps = rows_with_gaps()
    assert check_units(fitted_likelihood(x)) < 1e-4  # of the model
    likelihood = fitted_likelihood(x[:300].masked_fill(gaps[:300], math.nan))
    lines = torch.linspace(-12, 12, 801, dtype=torch.float64)
    tails = likelihood.tails
    grid = tails.center[column] + tails.width[column] * lines.sinh() if column == LONG else 60 * lines
    one = x[300].repeat(len(grid), 1)
    one[:, column] = grid
    asked = torch.zeros_like(one, dtype=torch.bool)
    asked[:, column] = True
    rows = {"train": np.arange(300), "test": np.arange(300, 300 + len(grid))}
    of = scaled(likelihood, torch.cat([x[:300], one]), torch.cat([gaps[:300], asked]), rows)
    train, test = of["train"], of["test"]
    both = fitted(train, 3)
    nats = {
        "normal": by_columns(train, test, None),
        "kernels": by_columns(train, test, 0.3),
        "neighbors": by_neighbors(train, test, 0.5, 0.3),
        "Gaussian": test.in_units(both.given(test.y, test.seen, test.gaps)),
    }
    for name, values in nats.items():
        assert float(torch.trapezoid(values.exp(), grid)) == pytest.approx(1, abs=2e-3), name


def test_a_model_that_reads_no_latents_has_its_closed_form():
    """Columns are then independent, so that the gaps' density is that of a normal law on a scale of asinh."""
    from table_imputation import model_nats

    x, gaps = rows_with_gaps(12)
    networks = {"groups": 2, "hidden": (4,), "decoder": {"kind": "mlp", "hidden": (4,)}}
    law = {"kind": "gaussian", "shorten_tails": True}
    config = small_config(3, **networks, likelihood=law, missing=True)
    model = DiscreteVAE.from_config(config).eval()
    likelihood = model.likelihood
    likelihood.initialize_(rows_with_gaps()[0].float())
    with torch.no_grad():
        last = [each for each in model.decoder.modules() if isinstance(each, torch.nn.Linear)][-1]
        last.weight.zero_()
        last.bias.copy_(torch.tensor([0.3, -0.5, 0.2]))
        likelihood.log_scale.copy_(torch.tensor([-0.5, 0.1, -1.0]))
    with torch.no_grad(), model.importance_sampler(0.0) as importance_sampler:
        nats, _ = model_nats(model, importance_sampler, x, gaps, 400)
    mean, scale = likelihood.standardizer.location.double(), likelihood.standardizer.scale.double()
    loc = mean + scale * last.bias.double()
    std = scale * (1e-3 + likelihood.log_scale.double().exp())
    center, width = float(likelihood.tails.center[LONG]), float(likelihood.tails.width[LONG])
    expected = stats.norm(loc.numpy(force=True), std.numpy(force=True)).logpdf(
        np.where(np.arange(3) == LONG, np.arcsinh((x.numpy() - center) / width), x.numpy())
    )
    slope = -0.5 * np.log((x[:, LONG].numpy() - center) ** 2 + width**2)
    expected[:, LONG] += slope
    expected = np.where(gaps, expected, 0.0).sum(1)
    np.testing.assert_allclose(nats["the model's draws"], expected, atol=1e-3)
    # of two estimates, each with its own noise
    np.testing.assert_allclose(nats["the model"], expected, atol=0.6)
    assert abs(float(nats["the model"].mean()) - expected.mean()) < 0.2


def test_the_table_is_as_a_user_has_it(tmp_path):
    from table_imputation import COLUMNS, LONG, ROWS, made_up, write_table

    law, x, gaps, kind = made_up(0)
    assert x.shape == gaps.shape == (ROWS, COLUMNS)
    assert law.is_long.sum() == LONG
    assert bool((x[:, law.is_long] > 0).all())
    write_table(tmp_path / "x.csv", x[:3], gaps[:3], kind[:3])
    with (tmp_path / "x.csv").open() as file:
        lines = list(csv.reader(file))
    assert len(lines) == 4
    assert lines[1][0] == "s0"
    assert lines[1][-1] == f"kind {int(kind[0])}"
    read = np.array([[float(cell or "nan") for cell in line[1:-1]] for line in lines[1:]])
    np.testing.assert_allclose(read, x[:3].masked_fill(gaps[:3], math.nan), rtol=1e-6)
