"""Examples through a model in batches: what an example gives is its own."""

import numpy as np
import pytest
import torch

from discrete_vae.inference.rows import RowNoise, in_batches
from discrete_vae.rng import open_uniform, standard_normal
from tests.inference.models import small_model, some_bits


def drawn(model, x, **settings):
    def compute(batch, numbers):
        noise = RowNoise(numbers, 0, 5)
        features = model.read(batch, None)
        sample = model.posterior.rsample(features, generator=noise)
        return {"zeta": sample.zeta, "h": model.hierarchy.rsample(features, sample.zeta, generator=noise).h}

    return in_batches(model, x, compute, **settings)


@pytest.mark.parametrize("layers", [0, 2])
def test_an_example_does_not_depend_on_the_others(layers):
    model, x = small_model(layers=layers), some_bits(11)
    whole = drawn(model, x)
    order = np.random.default_rng(0).permutation(11)
    permuted = drawn(model, x[order], numbers=order)
    alone = drawn(model, x[7:8], numbers=[7])
    for name, values in whole.items():
        np.testing.assert_array_equal(permuted[name], values[order])
        np.testing.assert_array_equal(alone[name], values[7:8])
    for size in (1, 4):
        np.testing.assert_allclose(drawn(model, x, batch_size=size)["zeta"], whole["zeta"], atol=2e-6)
    other = drawn(model, x, numbers=range(1, 12))
    assert (other["zeta"] != whole["zeta"]).any(1).all()


def test_types_are_kept_progress_reaches_the_end_and_training_mode_comes_back():
    def compute(x, numbers):
        return {"bits": x.to(torch.uint8), "n": torch.tensor(numbers)}

    model, seen, numbers = small_model().train(), [], [5, 6, 7, 8, 2**40]
    found = in_batches(model, some_bits(5), compute, numbers=numbers, batch_size=2, report=seen.append)
    np.testing.assert_array_equal(found["bits"], some_bits(5))
    assert found["bits"].dtype == np.uint8
    assert found["n"].tolist() == numbers
    assert seen == [2, 4, 5]
    assert model.training
    assert model.posterior.norms[0].training


def test_noise_is_of_the_row_the_seed_and_the_key():
    like = torch.zeros(2, 3)
    first = standard_normal(like, shape=(2, 4), generator=RowNoise([1, 2], 0, 9))
    for changed in (RowNoise([1, 2], 1, 9), RowNoise([1, 2], 0, 8), RowNoise([3, 4], 0, 9)):
        assert not bool((standard_normal(like, shape=(2, 4), generator=changed) == first).any())
    assert not torch.equal(first[0], first[1])
    many = open_uniform(torch.zeros(2000, 5), generator=RowNoise(range(2000), 0))
    assert abs(float(many.mean()) - 0.5) < 5 * (1 / 12 / many.numel()) ** 0.5
    assert abs(float(torch.corrcoef(many[:, :2].T)[0, 1])) < 5 / 2000**0.5
