"""Every figure has a frozen table that can be written, and a picture whose drawing changes nothing."""

import csv
import importlib
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
    "feature_statistics": lambda model: (torch.eye(9)[:, :4], torch.eye(6)[None, :, :4].expand(5, -1, -1)),
    "log_partition_histogram": lambda model: ([1.0, 1.1, 0.9], [0.1, 0.1, 0.1]),
    "reconstructions": lambda model: (model, torch.zeros(5, 12)),
    "training_curves": lambda model: (
        [
            {"step": n, "epoch": n / 2, "elbo": n - 9.0, "validation_elbo": -8.0, "kl_discrete": 1.0}
            for n in (1, 2, 3)
        ],
    ),
}
"""Arguments of each figure's table."""


@pytest.fixture(params=MAKERS)
def figure(request):
    """A figure's name, its two functions and what they take."""
    name = request.param
    stem = "column_distributions" if name == "columns" else name
    return name, getattr(figures, f"{stem}_table"), getattr(figures, f"draw_{stem}"), MAKERS[name]


def test_every_figure_of_the_registry_is_made_by_a_function_and_tested_here():
    assert {name.replace("-", "_") for name in FIGURES} == set(MAKERS)
    for entry in FIGURES.values():
        module, _, function = entry.place.partition(":")
        assert callable(getattr(importlib.import_module(f"discrete_vae.figures.{module}"), function))


def test_the_table_is_a_frozen_record_that_can_be_written(figure, model, tmp_path):
    _, make, _, arguments = figure
    table = make(*arguments(model))
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
        for name, column in columns.items():
            np.testing.assert_array_equal(saved[name], column)


def test_drawing_returns_a_figure_and_changes_nothing(figure, model, monkeypatch, tmp_path):
    _, make, draw, arguments = figure
    table = make(*arguments(model))
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
