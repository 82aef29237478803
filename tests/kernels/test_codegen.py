"""Elementary functions of compiled loops against float64, over the whole range of float32."""

import numpy as np
import pytest
import torch

from discrete_vae.kernels import codegen
from discrete_vae.kernels.rows import RowReduction

EXACT = {"exp": np.exp, "expm1": np.expm1, "log1p": np.log1p, "tanh": np.tanh}
SPECIAL = (
    0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4e38, -3.4e38, 88.72283, 88.7229, -103.97,
)  # fmt: skip


def compiled(name, x, part=None):
    x, function = torch.as_tensor(x, dtype=torch.float32), getattr(codegen, name)
    found = torch.empty_like(x)

    def body(elements, _per_row):
        value = function(elements[0])
        return [value if part is None else value[part]], []

    RowReduction(f"test-{name} {part}", body)([x], outputs=[found])
    return found.numpy()


def test_exponentials_of_negative_numbers():
    x = np.concatenate([-np.geomspace(1e-30, 87, 200_000), [0.0, -0.0]]).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    assert np.abs(compiled("exp_of_negative", x) / exact - 1).max() < 2**-22
    beyond = compiled("exp_of_negative", [-88.0, -1e30, -np.inf, np.nan])
    assert (beyond[:3] < 2e-38).all()
    assert np.isnan(beyond[3])


def test_logarithms():
    x = np.float32(np.concatenate([np.geomspace(1.2e-38, 3e38, 300_000), np.linspace(0.5, 2, 100_001)]))
    found, exact = compiled("log", x), np.log(x.astype(np.float64))
    assert (np.abs(found - exact) <= 2.5 * np.spacing(np.abs(exact.astype(np.float32)))).all()
    assert np.isnan(compiled("log", [np.nan])).all()


@pytest.mark.parametrize("part", [0, 1])
def test_cosine_and_sine(part):
    x = np.concatenate([np.linspace(-2, 2, 400_001), [-1000.25, 4e5 + 0.5]]).astype(np.float32)
    exact = (np.cos, np.sin)[part](x.astype(np.float64) * np.pi / 2)
    assert np.abs(compiled("cos_and_sin", x, part) - exact).max() < 2**-23


@pytest.mark.parametrize("name", EXACT)
def test_two_units_in_the_last_place(name):
    bits = np.random.default_rng(0).integers(0, 2**32, 300_000, dtype=np.uint32).view(np.float32)
    dense = [np.linspace(-110, 100, 400_001), np.linspace(-1.5, 1.5, 300_001), SPECIAL]
    x = np.concatenate([bits, *(grid.astype(np.float32) for grid in map(np.asarray, dense))])
    found = compiled(name, x)
    with np.errstate(all="ignore"):
        exact = EXACT[name](x.astype(np.float64))
        rounded = exact.astype(np.float32)
        finite = np.isfinite(rounded)
        np.testing.assert_array_equal(found[~finite], rounded[~finite])
        errors = np.abs(found[finite] - exact[finite]) / np.spacing(np.abs(rounded[finite]))
    assert errors.max() < 2.5
    assert (errors > 1.5).mean() < 0.05
