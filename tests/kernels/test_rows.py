"""Fused row reductions: widths beside whole vectors, layouts, precisions, sums, threads, and noise of keys alone."""

import math

import pytest
import torch

from discrete_vae.kernels import rows
from discrete_vae.kernels.codegen import FLOAT32, concatenate
from discrete_vae.kernels.gibbs import philox4x32, uniforms


def _body(elements, per_row):
    a, b = elements
    return [a * per_row[0] + b, a - b], [a * b, a]


ROWS = rows.RowReduction("test rows", _body)
ALL = rows.RowReduction("test all", _body, finish=lambda sums, per_row: [sums[0] * per_row[0], sums[1]])


def values(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("width", [1, 31, 32, 33, 100])
@pytest.mark.parametrize("lead", [(), (7,), (2, 3, 2)])
def test_widths_and_shapes(width, lead):
    a, b, numbers = values(*lead, width), values(*lead, width, seed=1), values(*lead, seed=2)
    beyond = torch.full((2, a.numel() + 8), 7.0)
    outputs = [place[: a.numel()].view(a.shape) for place in beyond.unbind()]
    sums = [torch.empty(lead) for _ in range(2)]
    ROWS([a, b], [numbers], outputs, sums)
    wide = a.double()
    exact = [wide * numbers.double()[..., None] + b, a - b, (wide * b).sum(-1), wide.sum(-1)]
    for mine, right in zip((*outputs, *sums), exact, strict=True):
        torch.testing.assert_close(mine.double(), right.double(), rtol=1e-6, atol=3e-6)
    assert bool((beyond[:, a.numel() :] == 7).all())  # nothing is written behind the last row


def test_sums_over_all_rows_and_a_finish():
    a, b, factor = values(70, 45), values(70, 45, seed=1), torch.tensor(-2.0)
    sums = [torch.full((), torch.nan) for _ in range(2)]
    ALL([a, b], [factor], list(torch.empty(2, a.shape[-1]).unsqueeze(-2).expand(2, *a.shape)), sums)
    torch.testing.assert_close(sums[0].double(), -2 * (a.double() * b).sum(), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(sums[1].double(), a.double().sum(), rtol=1e-5, atol=1e-4)


def test_layouts_are_read_where_they_are():
    wide = values(6, 5, 40)
    of_rows = (wide[:, :, 3:20], wide[:, 2, 3:20], wide[:, :2, 3:20])
    for part in (*of_rows, wide[0, 0, :7].expand(6, 7), wide[:, :1, :7].expand(6, 5, 7)):
        assert rows.as_rows(part).data_ptr() == part.data_ptr()
    for part in (wide.transpose(0, 2), wide[:, :, ::2], wide[None, :, :2, 3:20]):
        copy = rows.as_rows(part)
        assert copy.is_contiguous()
        assert torch.equal(copy, part)
    numbers = wide[:, :2, 0].transpose(0, 1)
    assert rows.as_numbers(numbers) is numbers
    assert rows.as_numbers(wide.transpose(0, 1)).is_contiguous()
    a = wide[:, :, 3:20]
    outputs = [values(6, 5, 50)[:, :, 8:25] for _ in range(2)]
    sums = [torch.empty(6, 5) for _ in range(2)]
    ROWS([a, a], [wide[:, :, 0]], outputs, sums)
    torch.testing.assert_close(outputs[0], a * wide[:, :, :1] + a)
    torch.testing.assert_close(sums[1], a.sum(-1))


def test_threads_change_nothing(monkeypatch):
    monkeypatch.setattr(rows, "SMALLEST_SHARED", 0)
    found = {1: [], 2: []}
    for threads, made in found.items():
        monkeypatch.setattr(rows, "available_threads", lambda threads=threads: threads)
        for lead in ((101,), (2, 50), (50, 2)):
            a, b, numbers = values(*lead, 50), values(*lead, 50, seed=1), values(*lead, seed=2)
            outputs, sums = [torch.empty(2, *a.shape), torch.empty(2, *lead)]
            ROWS([a, b], [numbers], outputs, sums)
            keys = rows.Keys(torch.arange(len(a)), 0, 0)
            made += [outputs, sums, rows.draw_normals((101, len(a), 50), keys)]
    assert all(map(torch.equal, *found.values()))


def _sample_body(elements, per_row):
    a, b = elements
    return rows.Block([a * b], [a + b], a * per_row[0] + per_row[1], [a * 0 + 1.5, a * 0 + 2])


SAMPLES = rows.RowReduction("test samples", _sample_body, adds=True, factors=True, prefetches=True)
WORDS = rows.RowReduction(
    "test words", lambda _elements, _per_row, words: rows.Block([concatenate(words).view(FLOAT32)])
)
TWO_AND_MINUS_ONE = torch.tensor([2.0, -1.0]).unbind()


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("width", [1, 32, 33, 2100])
@pytest.mark.parametrize("lead", [(1, 1), (5, 3)])
def test_samples_of_all_widths_and_precisions(half, width, lead):
    dtype = torch.bfloat16 if half else torch.float32
    a, b = values(*lead, width).to(dtype), values(*lead, width, seed=1)
    beyond = torch.full((a.numel() + 8,), 7.0)
    total = values(*lead, seed=2)
    before = total.double()
    wide = torch.full((3, *lead, width + 9), 7.0, dtype=dtype)
    spread = [place[..., 4 : 4 + width] for place in wide]
    outputs = [beyond[: a.numel()].view(a.shape)]
    SAMPLES([a, b], TWO_AND_MINUS_ONE, outputs, [total], spread=spread)
    assert bool((beyond[a.numel() :] == 7).all())
    assert bool((wide[..., :4] == 7).all() & (wide[..., 4 + width :] == 7).all())
    assert torch.equal(beyond[: a.numel()].view(a.shape), a.float() * b)
    for place in spread:
        assert torch.equal(place, (a.float() * 2 - 1).to(dtype))
    exact = before + (a.double() + b).sum(-1) - width * math.log(3)
    torch.testing.assert_close(total.double(), exact, rtol=1e-6, atol=1e-5 * math.sqrt(width))


def test_layouts_of_samples_are_read_where_they_are():
    wide, shared = values(6, 5, 40), values(5, 17)
    a, b = wide[:, :, 3:20], shared.expand(6, 5, 17)
    out, total = torch.zeros(5, 6, 50), torch.zeros(6, 5)
    place = out.transpose(0, 1)[..., 8:25]
    for one, other, there, sums in ((a, b, place, total), (b, a, place, total)):
        SAMPLES([one, other], TWO_AND_MINUS_ONE, [there], [sums])
        torch.testing.assert_close(there, a * b)
    torch.testing.assert_close(total, 2 * ((a + b).sum(-1) - 17 * math.log(3)))


def test_words_are_philox_of_place_sample_and_key():
    keys, first, draw = torch.tensor([3, -5, 2**40 + 9]), 2**31 - 2, 7
    shape = 4, 3, 70
    found = torch.empty(shape)
    WORDS([found], outputs=[found], keys=rows.Keys(keys, first, draw))
    low = 0xFFFFFFFF
    counters = (
        (draw << 16) + torch.arange(24)[None, None],
        (first + torch.arange(4))[:, None, None],
        (keys & low)[None, :, None],
        ((keys >> 32) & low)[None, :, None],
    )
    words = torch.stack(philox4x32(counters, rows.KEY), -1).view(4, 3, 3, 8, 2, 2)
    # of eight counters first words 0 and 1 of each, then words 2 and 3
    expected = words.transpose(3, 4).reshape(4, 3, 96)[..., :70]
    assert torch.equal(found.view(torch.int32).long() & low, expected)
    drawn = rows.draw_uniforms(shape, rows.Keys(keys, first, draw))
    assert torch.equal(drawn, uniforms(expected))


def test_normal_numbers():
    """Moments and tails of 2 million, and none related to its neighbours; alpha 1e-6 each."""
    found = rows.draw_normals((4000, 2, 256), rows.Keys(torch.tensor([1, 2]), 0, 0)).double()
    count = found.numel()
    for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3), (6, 15)):
        spread = math.sqrt(math.prod(range(1, 2 * power, 2)) - moment**2)
        assert abs(float((found**power).mean()) - moment) < 5 * spread / math.sqrt(count)
    for bound in (0.5, 1.0, 2.0, 3.0, 4.0):
        tail = math.erfc(bound / math.sqrt(2))
        assert abs(float((found.abs() > bound).double().mean()) - tail) < 5 * math.sqrt(tail / count)
    for one, other in (
        (found[..., :16], found[..., 16:32]),  # both of a pair
        (found[..., :-1], found[..., 1:]),
        (found[:-1], found[1:]),
        (found[:, 0], found[:, 1]),
    ):
        for a, b in ((one, other), (one.square() - 1, other.square() - 1)):
            products = a * b
            assert abs(float(products.mean())) < 5 * float(products.std()) / math.sqrt(products.numel())
