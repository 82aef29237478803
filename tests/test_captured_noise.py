"""Noise that is drawn before it is asked for."""

import pytest
import torch

from discrete_vae.errors import InvalidInputError
from discrete_vae.rng import DrawnNoise, keyed_generator, open_uniform, standard_normal


def draw_both(source):
    like = torch.zeros(1)
    uniforms = open_uniform(like, shape=(2, 3), generator=source)
    return uniforms, standard_normal(like, shape=(4,), generator=source)


def test_tensors_are_handed_out_in_their_order():
    first = draw_both(keyed_generator(0))
    assert all(map(torch.equal, draw_both(DrawnNoise(first)), first))


@pytest.mark.parametrize("draws", [[], [torch.zeros(3, 2), torch.zeros(4)]])
def test_another_order_or_shape_is_refused(draws):
    with pytest.raises(InvalidInputError, match="noise must be asked for as it was drawn"):
        draw_both(DrawnNoise(draws))
