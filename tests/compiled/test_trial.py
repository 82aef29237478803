"""A trial runs once, says what fails, and leaves no trace in a recording."""

import pytest
import torch

from discrete_vae.compiled.recording import Recorder
from discrete_vae.compiled.trial import check_close, tried
from discrete_vae.errors import KernelWarning


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
