"""Without the extra: what names it, and what works all the same."""

import importlib
import sys

import pytest

from discrete_vae import RBM
from discrete_vae.errors import InvalidInputError
from discrete_vae.interop.dimod import DimodSampler, from_bqm, to_bqm
from discrete_vae.interop.dimod.remapping import places
from tests.boltzmann.graphs import small_graph


@pytest.fixture
def without_extra(monkeypatch):
    for name in ("dimod", "dwave", "dwave.graphs", "dwave.samplers"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("without_extra")
class TestWithoutTheExtra:
    @pytest.mark.parametrize(
        "call",
        [
            lambda: to_bqm(RBM(1, 1)),
            lambda: from_bqm(None),
            lambda: DimodSampler(RBM(1, 1), 2).step(1),
            lambda: places(small_graph("Chimera cell")),
        ],
    )
    def test_errors_name_it(self, call):
        with pytest.raises(
            InvalidInputError, match=r"must be installed; .*pip install 'discrete-vae\[dwave\]'"
        ):
            call()

    def test_our_samplers_are_classes_of_dimod(self, monkeypatch):
        monkeypatch.delitem(sys.modules, "discrete_vae.interop.dimod.conversion", raising=False)
        with pytest.raises(ImportError, match=r"pip install 'discrete-vae\[dwave\]'"):
            importlib.import_module("discrete_vae.interop.dimod.conversion")

    def test_samples_of_before_are_there(self):
        chains = DimodSampler(RBM(2, 1), 3)
        assert chains.z.shape == (3, 3)
        assert chains.local_chains().step(1).shape == (3, 3)
