import pytest
import torch

from discrete_vae.samplers import gibbs
from discrete_vae.samplers.gibbs import pack_bits, unpack_bits


@pytest.mark.parametrize("num_units", [1, 7, 8, 9, 61, 128])
def test_round_trip(num_units):
    z = torch.randint(0, 2, (5, num_units), generator=torch.Generator().manual_seed(num_units)).float()
    packed = pack_bits(z)
    assert packed.dtype == torch.uint8
    assert packed.shape == (5, (num_units + 7) // 8)
    assert torch.equal(unpack_bits(packed, num_units), z)


def test_bit_order_is_fixed():
    z = torch.zeros(1, 16)
    z[0, 1] = z[0, 15] = 1
    assert pack_bits(z).tolist() == [[2, 128]]


@pytest.mark.parametrize("num_units", [1, 7, 8, 9, 128])
def test_other_devices_pack_as_the_cpu_does(num_units):
    z = torch.randint(2, (5, num_units), generator=torch.Generator().manual_seed(0)).float()
    packed = gibbs._pack_anywhere(z)
    assert torch.equal(packed, gibbs.pack_bits(z))
    assert torch.equal(gibbs._unpack_anywhere(packed, num_units), z)
    assert torch.equal(gibbs.unpack_bits(packed, num_units), z)
