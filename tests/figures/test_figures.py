"""Every figure has a frozen table that can be written, and a picture whose drawing changes nothing."""

import csv
import sys
from dataclasses import FrozenInstanceError, fields

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from discrete_vae import BlockGibbs, figures
from discrete_vae.figures import save_figure, save_table
from discrete_vae.figures.registry import FIGURES

MAKERS = {
    "columns": lambda model: (torch.eye(9)[:, :4], torch.eye(6)[:, :4]),
    "evolution": lambda model: (model, BlockGibbs(model.prior, 3, seed=0)),
    "feature-statistics": lambda model: (torch.eye(9)[:, :4], torch.eye(6)[None, :, :4].expand(5, -1, -1)),
    "log-partition-histogram": lambda model: ([1.0, 1.1, 0.9], [0.1, 0.1, 0.1]),
    "reconstructions": lambda model: (model, torch.zeros(5, 12)),
    "training-curves": lambda model: (
        [
            {"step": n, "epoch": n / 2, "elbo": n - 9.0, "validation_elbo": -8.0, "kl_discrete": 1.0}
            for n in (1, 2, 3)
        ],
    ),
}
"""Arguments of each figure's table."""


@pytest.mark.parametrize("name", FIGURES)
def test_a_table_can_be_written_and_drawing_it_changes_nothing(name, model, monkeypatch, tmp_path):
    stem = "column_distributions" if name == "columns" else name.replace("-", "_")
    table, draw = getattr(figures, f"{stem}_table")(*MAKERS[name](model)), getattr(figures, f"draw_{stem}")
    with pytest.raises(FrozenInstanceError):
        setattr(table, fields(table)[0].name, None)
    columns = table.columns()
    assert {column.ndim for column in columns.values()} == {1}
    (length,) = {len(column) for column in columns.values()}
    assert length > 0
    rows = list(csv.reader(save_table(table, tmp_path / "table.csv").read_text().splitlines()))
    assert rows[0] == list(columns)
    assert len(rows) == 1 + length
    with np.load(save_table(table, tmp_path / "table.npz")) as saved:
        for key, column in columns.items():
            np.testing.assert_array_equal(saved[key], column)
    before = dict.copy(matplotlib.rcParams)  # which does not read the backend's entry: that would choose one
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # importing it raises
    picture = draw(table)
    assert isinstance(picture, Figure)
    saved = save_figure(picture, tmp_path / "a.png").read_bytes()
    assert dict.copy(matplotlib.rcParams) == before
    assert saved == save_figure(draw(table), tmp_path / "b.png").read_bytes()


def test_a_notebook_shows_a_figure_in_its_own_size():
    table = figures.log_partition_histogram_table([1.0, 1.1], [0.1, 0.1])
    picture = figures.draw_log_partition_histogram(table)
    shown = picture._repr_png_()
    assert shown.startswith(b"\x89PNG")
    size = [int.from_bytes(shown[start : start + 4]) for start in (16, 20)]
    assert size == [int(inches * picture.dpi) for inches in picture.get_size_inches()]
