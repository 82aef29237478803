"""Keyed noise: a function of the key, all keys apart, the open interval; noise that is drawn before it is asked for."""

from itertools import pairwise

import pytest
import torch

from discrete_vae.errors import InvalidInputError
from discrete_vae.rng import (
    DrawnNoise,
    DrawsFrom,
    check_generator,
    draw_key,
    generator_of,
    key_to_seed,
    keyed_generator,
    open_uniform,
    resolve_generator,
    standard_normal,
)
from tests.refusals import refused_argument


def test_different_keys_give_different_seeds():
    places = ((), (0,), (1,), (0, 0), (0, 1), (1, 0), (2**64 - 1,))
    keys = [(seed, *place) for seed in (0, 1, 2**63, 2**64 - 1) for place in places]
    assert len({key_to_seed(*key) for key in keys}) == len(keys)


def test_neighboring_keys_are_unrelated():
    words = [key_to_seed(0, step) for step in range(4096)]
    flips = [bin(a ^ b).count("1") for a, b in pairwise(words)]
    assert abs(sum(flips) / len(flips) - 32) < 5 * 4 / len(flips) ** 0.5  # sd of a count of 64 fair bits is 4


def test_the_draws_depend_on_the_key_alone():
    a, b = (torch.rand(5, generator=keyed_generator(3, 7)) for _ in range(2))
    assert torch.equal(a, b)
    assert not torch.equal(a, torch.rand(5, generator=keyed_generator(3, 8)))
    assert torch.rand(1, generator=keyed_generator(2**64 - 1, 2**63)).isfinite()


def test_all_64_bits_of_a_key_count():
    """Keys that differ in one bit, or have their halves in each other's place, have streams that are unrelated.

    The correlation of 20,000 uniform numbers has a standard deviation of 0.0071 and is refused above 0.05: each of
    the 66 pairs fails by chance with a probability below 1e-11.
    """
    keys = [0, 7, 7 << 32, 7 | 7 << 32, 7 | 9 << 32, 9 | 7 << 32]
    keys += [7 | 1 << bit for bit in (31, 32, 33, 47, 62, 63)]
    draws = torch.stack([torch.rand(20_000, generator=generator_of(key)) for key in keys]).double()
    related = torch.corrcoef(draws) - torch.eye(len(draws))
    assert float(related.abs().max()) < 0.05
    narrow = [torch.rand(99, generator=torch.Generator().manual_seed(key)) for key in (7, 7 | 1 << 32)]
    assert torch.equal(*narrow)  # what torch itself makes of such keys


def test_first_draws_of_neighboring_keys_are_uniform():
    """Chi squared of 100 bins: above 200 with a probability below 1e-7."""
    firsts = torch.cat([torch.rand(3, generator=generator_of(key << 32 | key % 7)) for key in range(4000)])
    counts = torch.histc(firsts, bins=100, min=0, max=1)
    assert float((counts - counts.mean()).square().sum() / counts.mean()) < 200


def test_open_uniform_never_returns_zero():
    draws = open_uniform(torch.empty(1 << 24), generator=torch.Generator().manual_seed(1))
    assert float(draws.min()) == 2.0**-24  # torch.rand has a 0 here
    assert float(draws.max()) < 1
    assert abs(float(draws.double().mean()) - 0.5) < 6 * 0.2887 / 2**12


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_uniforms_have_float32_at_least(dtype):
    draws = open_uniform(torch.empty(1000, dtype=dtype), generator=keyed_generator(0))
    assert draws.dtype == torch.promote_types(dtype, torch.float32)
    assert len(draws.unique()) > 990


def test_keys_of_chains_come_from_the_source():
    generator = torch.Generator().manual_seed(0)
    keys = [draw_key(generator) for _ in range(1000)]
    assert len(set(keys)) == 1000
    assert max(keys) > 1 << 62  # not 32 bits wide
    assert keys[0] == draw_key(torch.Generator().manual_seed(0))


CPU, CUDA = torch.device("cpu"), torch.device("cuda:0")
REFUSED = [
    *(("seed", lambda key=key: keyed_generator(*key)) for key in ((-1,), (2**64,), (True,), ("7",))),
    *(("key[0]", lambda key=key: keyed_generator(0, key)) for key in (-1, 1.5)),
    ("generator", lambda: check_generator(torch.Generator(), CUDA)),
    ("generator", lambda: open_uniform(torch.empty(2, device="meta"), generator=torch.Generator())),
    ("seed", lambda: resolve_generator(-1, None, CPU)),
]


@pytest.mark.parametrize(("argument", "call"), REFUSED)
def test_what_breaks_a_rule_is_named(argument, call):
    assert refused_argument(call) == argument


def test_attention_which_draws_nothing_passes_a_block_with_its_own_source():
    x = torch.randn(1, 2, 3, 4)
    expected = torch.nn.functional.scaled_dot_product_attention(x, x, x)
    with DrawsFrom(torch.Generator()):
        assert torch.equal(torch.nn.functional.scaled_dot_product_attention(x, x, x), expected)


def test_one_source_of_noise():
    generator = torch.Generator()
    assert resolve_generator(None, generator, CPU) is generator
    assert resolve_generator(None, None, CPU) is None
    assert check_generator(None, CUDA) is None


def draw_both(source):
    like = torch.zeros(1)
    uniforms = open_uniform(like, shape=(2, 3), generator=source)
    return uniforms, standard_normal(like, shape=(4,), generator=source)


def test_drawn_tensors_are_handed_out_in_their_order():
    first = draw_both(keyed_generator(0))
    assert all(map(torch.equal, draw_both(DrawnNoise(first)), first))


@pytest.mark.parametrize("draws", [[], [torch.zeros(3, 2), torch.zeros(4)]])
def test_another_order_or_shape_of_drawn_tensors_is_refused(draws):
    with pytest.raises(InvalidInputError, match="noise must be asked for as it was drawn"):
        draw_both(DrawnNoise(draws))
