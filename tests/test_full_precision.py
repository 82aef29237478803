"""Products that nothing rounds, and what a compiled graph says where it cannot help it."""

import warnings

import pytest
import torch

from discrete_vae import numerics


def test_tf32_is_off_inside_and_back_outside():
    products = torch.backends.mkldnn.matmul
    before = products.fp32_precision
    try:
        products.fp32_precision = "bf16"
        with numerics.full_precision(torch.zeros(1)):
            assert products.fp32_precision == "ieee"
        assert products.fp32_precision == "bf16"
    finally:
        products.fp32_precision = before


@pytest.mark.parametrize("rounding", ["bf16", "ieee"])
def test_a_compiled_graph_says_that_its_products_are_rounded(rounding):
    products = torch.backends.mkldnn.matmul
    before, weight = products.fp32_precision, torch.ones(3, 3)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def energy(z):
        with numerics.full_precision(z):
            return z @ weight

    torch._dynamo.reset()
    try:
        products.fp32_precision = rounding
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                energy(torch.ones(2, 3))
    finally:
        products.fp32_precision = before
    found = [each for each in caught if each.category is numerics.RoundedProductsWarning]
    assert len(found) == (rounding == "bf16")
    if found:
        assert "on cpu, and a compiled graph cannot switch that off" in str(found[0].message)
