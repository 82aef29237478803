"""A trial runs once, says what fails, and leaves no trace in a recording."""

import subprocess
import sys

import pytest
import torch

from discrete_vae.errors import KernelWarning
from discrete_vae.kernels.capture import Recorder
from discrete_vae.kernels.registry import check_close, tried


def test_a_trial_that_fails_is_said_once():
    @tried("The loop", "something slower is used")
    def works() -> None:
        check_close((torch.zeros(2), torch.zeros(2)), (torch.zeros(2), torch.tensor([0.0, 1e-3])))

    with pytest.warns(
        KernelWarning, match="The loop does not work .*its numbers are wrong.*something slower"
    ):
        assert works() is False
    assert works() is False


def test_a_trial_is_no_part_of_a_recording():
    @tried("The loop", "something slower is used")
    def works() -> None:
        assert torch.get_default_device().type == "cpu"
        check_close((torch.ones(2) * 2, torch.full((2,), 2.0)))  # looks at values

    x = torch.ones(2)
    with Recorder() as recorder:
        assert works()
        x.add(1)
    assert recorder.problem is None
    assert len(recorder.calls) == 1


FIRST_USE_IN_FLOAT64 = """
import warnings
import torch
warnings.simplefilter("error")
from discrete_vae.rng import keyed_generator
from discrete_vae.training.loop import training_step
from discrete_vae.training.state import TrainingState
from tests.training.test_step import config_of

def values(dtype):
    torch.set_default_dtype(torch.float32)
    config = config_of("layers")
    state = TrainingState.initial(config, torch.full((30, 64), 0.3))
    torch.set_default_dtype(dtype)
    for _ in range(3):
        found = training_step(state, config, torch.ones(20, 64), 1.0, 0.5).value
        state.step += 1
    x, generator = torch.ones(5, 64), keyed_generator(0)
    likelihood = state.model.log_likelihood(x, num_samples=10, log_partition=0.0, generator=generator).value
    return torch.cat([found, likelihood]).double()

assert torch.equal(values(torch.float64), values(torch.float32))
"""


def test_torchs_default_dtype_switches_no_kernel_off():
    done = subprocess.run(
        [sys.executable, "-c", FIRST_USE_IN_FLOAT64], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
