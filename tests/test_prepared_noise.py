"""Noise that is drawn before it is asked for."""

import pytest
import torch

from discrete_vae.errors import InvalidInputError
from discrete_vae.rng import DrawnNoise, NotedNoise, keyed_generator, open_uniform, standard_normal


def draw_both(source):
    like = torch.zeros(1)
    return open_uniform(like, shape=(2, 3), generator=source), standard_normal(
        like, shape=(4,), generator=source
    )


def test_what_was_noted_is_drawn_again_from_any_generator():
    noted = NotedNoise(keyed_generator(0))
    first = draw_both(noted)
    for generator in (keyed_generator(0), keyed_generator(1)):
        again = draw_both(DrawnNoise([request.repeat(generator) for request in noted.requests]))
        same = [torch.equal(mine, other) for mine, other in zip(first, again, strict=True)]
        assert same == [generator.initial_seed() == keyed_generator(0).initial_seed()] * 2


def test_noting_changes_nothing():
    for mine, other in zip(
        draw_both(NotedNoise(keyed_generator(3))), draw_both(keyed_generator(3)), strict=True
    ):
        assert torch.equal(mine, other)


@pytest.mark.parametrize("draws", [[], [torch.zeros(3, 2), torch.zeros(4)]])
def test_another_order_or_shape_is_refused(draws):
    with pytest.raises(InvalidInputError, match="noise must be asked for as it was drawn"):
        draw_both(DrawnNoise(draws))
