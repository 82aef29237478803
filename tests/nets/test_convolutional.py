import pytest
import torch
from torch import nn

from discrete_vae.kernels.adam import Adam
from discrete_vae.kernels.registry import load
from discrete_vae.nets import convolutional
from discrete_vae.nets.convolutional import ConvolutionalDecoder, ConvolutionalEncoder, Doubling
from discrete_vae.nets.modes import set_precision
from tests.refusals import refused_argument

WIDTHS = (4, 6)


def made(shape):
    return ConvolutionalEncoder(shape, 7, WIDTHS), ConvolutionalDecoder(7, shape, WIDTHS)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)], ids=str)
def test_defaults_are_small(shape):
    encoder, decoder = ConvolutionalEncoder(shape, 256), ConvolutionalDecoder(256, shape)
    assert decoder(encoder(torch.rand(2, *shape))).shape == (2, *shape)
    assert sum(p.numel() for network in (encoder, decoder) for p in network.parameters()) < 1_000_000


def test_an_example_does_not_depend_on_its_batch():
    encoder, decoder = made((1, 8, 8))
    x = torch.rand(6, 1, 8, 8)
    together = decoder(encoder(x))
    torch.testing.assert_close(together[:1], decoder(encoder(x[:1])))
    encoder.eval()
    decoder.eval()
    torch.testing.assert_close(together, decoder(encoder(x)))


def test_the_output_starts_where_it_is_told_and_many_rows_are_decoded_in_parts():
    decoder = ConvolutionalDecoder(7, (2, 5, 6), WIDTHS)
    latents, start = torch.rand(777, 7), torch.randn(2, 5, 6)
    before = decoder(latents)
    decoder.initialize_output_(start)
    torch.testing.assert_close(decoder(latents), before + start)
    with torch.no_grad():
        torch.testing.assert_close(decoder(latents), before + start)


REFUSED = [
    ("input_shape", lambda: ConvolutionalEncoder((28, 28), 3)),
    ("input_shape[2]", lambda: ConvolutionalEncoder((1, 28, 0), 3)),
    ("num_features", lambda: ConvolutionalEncoder((1, 28, 28), 0)),
    ("widths", lambda: ConvolutionalEncoder((1, 28, 28), 3, ())),
    ("widths[1]", lambda: ConvolutionalEncoder((1, 28, 28), 3, (4, -1))),
    ("input_shape", lambda: ConvolutionalEncoder((1, 28, 7), 3, (4, 4, 4))),
    *(  # a norm of one number is 0
        ("widths", lambda make=make, last=last: make((2, 2, last)))
        for make in (
            lambda widths: ConvolutionalEncoder((1, 8, 8), 3, widths),
            lambda widths: ConvolutionalDecoder(3, (1, 8, 8), widths),
        )
        for last in (4, 8)
    ),
    ("x", lambda: ConvolutionalEncoder((1, 8, 8), 3, WIDTHS)(torch.zeros(2, 64))),
    ("latents", lambda: ConvolutionalDecoder(3, (1, 8, 8), WIDTHS)(torch.zeros(4, 2, 3))),
    ("start", lambda: ConvolutionalDecoder(7, (2, 5, 6), WIDTHS).initialize_output_(torch.zeros(2, 1, 1))),
]


@pytest.mark.parametrize(("argument", "call"), REFUSED)
def test_refusals(argument, call):
    assert refused_argument(call) == argument


@pytest.mark.parametrize("channels", [1, 3, 5])
def test_a_doubling_is_a_transposed_convolution(channels):
    """However it is computed, with its gradients."""
    torch.manual_seed(0)
    doubling = Doubling(4, channels).double()
    x = torch.randn(3, 4, 5, 7, dtype=torch.float64, requires_grad=True)
    right = nn.functional.conv_transpose2d(x, doubling.weight, stride=2, padding=1)
    mine, weights = doubling(x), torch.randn_like(right)
    assert mine.shape == (3, channels, 10, 14)
    torch.testing.assert_close(mine, right)
    found, wanted = (
        torch.autograd.grad((each * weights).sum(), (x, doubling.weight)) for each in (mine, right)
    )
    torch.testing.assert_close(found, wanted)


COMPILED = (4, 8, 16, 64, 256)  # widths of images whose norm is compiled
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 0.02}


@pytest.mark.parametrize("width", [*COMPILED, 6, 24], ids=str)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format], ids=str)
def test_the_norm_and_its_gradients_are_those_in_float64(width, dtype, layout):
    """With means far from 0, and offsets that close half of the rectifiers."""
    torch.manual_seed(width)
    norm = convolutional._Norm(width)
    x = torch.randn(3, width, 5, 7) + 10 * torch.rand(width, 1, 1)
    x = x.to(dtype).contiguous(memory_format=layout)
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 2, width))
        norm.bias.copy_(torch.linspace(-1, 1, width))
    kernel = load("group_norm.rectified_norm")
    assert kernel.supports(x, norm.weight, norm.bias, norm.num_groups, norm.eps) == (width in COMPILED)
    wide = [each.detach().double().requires_grad_() for each in (x, norm.weight, norm.bias)]
    right = torch.relu(nn.functional.group_norm(wide[0], norm.num_groups, *wide[1:], norm.eps))
    x.requires_grad_()
    mine, weights = norm(x), torch.randn_like(right)
    assert mine.dtype == dtype
    assert 0.2 < float((right > 0).sum()) / right.numel() < 0.8
    found = torch.autograd.grad(mine, (x, norm.weight, norm.bias), weights.to(dtype))
    wanted = torch.autograd.grad(right, wide, weights)
    for each, exact in zip((mine, *found), (right, *wanted), strict=True):
        error = float((each - exact).detach().norm() / exact.detach().norm())
        assert error < TOLERANCE[dtype], error


def test_the_norm_does_not_depend_on_threads_and_keeps_what_is_not_a_number(threads_of_torch):
    torch.manual_seed(0)
    norm, x = convolutional._Norm(32), torch.randn(64, 32, 8, 8)
    found = []
    for threads in (1, 2):
        threads_of_torch(threads)
        given = x.clone().requires_grad_()
        out = norm(given)
        found.append((out.detach(), *torch.autograd.grad(out.square().sum(), (given, norm.weight))))
    for one, two in zip(*found, strict=True):
        assert torch.equal(one, two)
    x[5, 9, 2, 3] = torch.nan
    bad = norm(x).isnan().nonzero()
    assert {tuple(place) for place in bad[:, :2].tolist()} == {(5, channel) for channel in range(8, 12)}


def test_products_in_bfloat16_are_the_same_up_to_rounding():
    """Weights stay float32, and their gradients arrive in the copies that products read."""
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        network = nn.Sequential(*made((2, 9, 8)))
        working = set_precision(network, dtype)
        Adam(network.parameters(), working=working)
        # each half has a linear map, two changes of size, two blocks of two
        assert len(working) == 2 * (1 + 2 + 4)
        x = torch.rand(5, 2, 9, 8, generator=torch.Generator().manual_seed(1))
        out = network(x)
        out.square().mean().backward()
        assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}
        assert {each.gradient.dtype for each in working} == {dtype}
        found.append([out.detach(), *(each.gradient.float() for each in working)])
    assert not torch.equal(found[0][0], found[1][0])
    # at the start, gradients of the first layers are what is left of terms that cancel: a quarter of it is rounding
    for index, (right, mine) in enumerate(zip(*found, strict=True)):
        assert float((mine - right).norm() / right.norm()) < (0.35 if index else 0.03)
