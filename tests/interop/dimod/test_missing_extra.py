"""Without the extra: errors name it, and a run that was trained with a solver opens all the same."""

import subprocess
import sys

import pytest

from discrete_vae import RBM
from discrete_vae.errors import InvalidInputError
from discrete_vae.interop.dimod import DimodSampler, from_bqm, places, to_bqm
from tests.boltzmann.graphs import small_graph


@pytest.mark.parametrize(
    "call",
    [
        lambda: to_bqm(RBM(1, 1)),
        lambda: from_bqm(None),
        lambda: DimodSampler(RBM(1, 1), 2).step(1),
        lambda: places(small_graph("Chimera cell")),
    ],
)
def test_errors_name_it(call, monkeypatch):
    for name in ("dimod", "dwave", "dwave.graphs", "dwave.samplers"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InvalidInputError, match=r"pip install 'discrete-vae\[dwave\]'"):
        call()


def test_samples_of_before_are_there_in_a_process_without_dimod():
    script = """
import sys
sys.modules["dimod"] = None
from discrete_vae import RBM
from discrete_vae.interop.dimod import DimodSampler
chains = DimodSampler(RBM(2, 1), 3)
assert chains.z.shape == (3, 3)
assert chains.local_chains().step(1).shape == (3, 3)
try:
    from discrete_vae.interop.dimod import BlockGibbsSampler
except ImportError as error:
    assert "discrete-vae[dwave]" in str(error)
else:
    raise AssertionError("imported")
"""
    subprocess.run([sys.executable, "-c", script], check=True)
