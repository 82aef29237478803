"""The registry of figures: one file per figure, which makes a table and a picture of a request."""

from pathlib import Path

import pytest

from discrete_vae import figures
from discrete_vae.figures.registry import FIGURES
from tests.figures.test_figures import MAKERS


def test_every_figure_of_a_file_has_a_name():
    drawn = {name.replace("_", "-") for name in MAKERS}
    assert set(FIGURES) == drawn


@pytest.mark.parametrize("name", FIGURES)
def test_an_entry_names_a_function_of_a_file(name):
    module, _, function = FIGURES[name].place.partition(":")
    assert function == f"make_{name.replace('-', '_')}"
    assert (Path(figures.__file__).parent / f"{module}.py").is_file()
    assert FIGURES[name].about == FIGURES[name].about.strip(" .")


def test_all_exports_are_there():
    for name in figures.__all__:
        assert getattr(figures, name) is not None
    assert dir(figures) == sorted(figures.__all__)
    with pytest.raises(AttributeError, match="no attribute 'draw_nothing'"):
        _ = figures.draw_nothing
