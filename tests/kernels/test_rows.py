"""Passes over rows: widths beside whole vectors, layouts, numbers per row, sums, threads."""

import pytest
import torch

from discrete_vae.kernels import rows
from discrete_vae.kernels.rows import RowReduction, as_numbers, as_rows, unread


def _body(elements, per_row):
    a, b = elements
    return [a * per_row[0] + b, a - b], [a * b, a]


ROWS = RowReduction("test rows", _body, elements=2, per_row=1, outputs=2, sums=2)
ALL = RowReduction(
    "test all",
    _body,
    elements=2,
    per_row=1,
    outputs=2,
    sums=2,
    across_rows=True,
    finish=lambda sums, per_row: [sums[0] * per_row[0], sums[1]],
)


def values(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("width", [1, 5, 31, 32, 33, 64, 100])
@pytest.mark.parametrize("lead", [(), (1,), (7,), (2, 3)])
def test_widths_and_shapes(width, lead):
    a, b, numbers = values(*lead, width), values(*lead, width, seed=1), values(*lead, seed=2)
    beyond = torch.full((2, a.numel() + 8), 7.0)
    outputs = [place[: a.numel()].view(a.shape) for place in beyond.unbind()]
    sums = [torch.empty(lead) for _ in range(2)]
    ROWS([a, b], [numbers], outputs, sums)
    exact = [
        a.double() * numbers.double()[..., None] + b,
        a - b,
        (a.double() * b).sum(-1),
        a.double().sum(-1),
    ]
    for mine, right in zip((*outputs, *sums), exact, strict=True):
        torch.testing.assert_close(mine.double(), right.double(), rtol=1e-6, atol=3e-6)
    assert bool((beyond[:, a.numel() :] == 7).all())  # nothing is written behind the last row


def test_sums_over_all_rows_and_a_finish():
    a, b, factor = values(70, 45), values(70, 45, seed=1), torch.tensor(-2.0)
    sums = [torch.full((), torch.nan) for _ in range(2)]
    ALL([a, b], [factor], unread(a.shape, 2), sums)
    torch.testing.assert_close(sums[0].double(), -2 * (a.double() * b).sum(), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(sums[1].double(), a.double().sum(), rtol=1e-5, atol=1e-4)


def test_layouts_are_read_where_they_are():
    wide = values(6, 5, 40)
    for part in (
        wide[:, :, 3:20],
        wide[:, 2, 3:20],
        wide[0, 0, :7].expand(6, 7),
        wide[:, :, :17].expand(6, 5, 17),
    ):
        assert as_rows(part).data_ptr() == part.data_ptr()
    for part in (wide.transpose(0, 2), wide[:, :2, 3:20], wide[:, :, ::2], wide[:, :1, :7].expand(6, 5, 7)):
        copy = as_rows(part)
        assert copy.is_contiguous()
        assert torch.equal(copy, part)
    numbers = wide[:, 0, 0]
    assert as_numbers(numbers) is numbers
    assert as_numbers(wide[:, :2, 0].transpose(0, 1)).is_contiguous()
    a = wide[:, :, 3:20]
    outputs = [values(6, 5, 50)[:, :, 8:25] for _ in range(2)]
    sums = [torch.empty(6, 5) for _ in range(2)]
    ROWS([a, a], [wide[:, :, 0]], outputs, sums)
    torch.testing.assert_close(outputs[0], a * wide[:, :, :1] + a)
    torch.testing.assert_close(sums[1], a.sum(-1))


def test_threads_change_nothing(monkeypatch):
    a, b, numbers = values(101, 50), values(101, 50, seed=1), values(101, seed=2)
    found = []
    for threads in (1, 2):
        monkeypatch.setattr(rows, "threads_for", lambda *_, threads=threads: threads)
        made = [torch.empty_like(a), torch.empty_like(a), torch.empty(101), torch.empty(101)]
        ROWS([a, b], [numbers], made[:2], made[2:])
        found.append(made)
    for one, two in zip(*found, strict=True):
        assert torch.equal(one, two)
