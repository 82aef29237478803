import os

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # read where huggingface_hub is imported: no test asks a hub


@pytest.fixture
def threads_of_torch(monkeypatch):
    """Set torch's number of threads for this test; calls of any size use them."""
    import torch  # here, since the process that hands out the tests reads this file and computes nothing

    from discrete_vae.kernels import loops

    before = torch.get_num_threads()
    monkeypatch.setattr(loops, "SMALLEST_SHARED", 0)
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def default_dtype():
    """Set torch's default dtype for this test."""
    import torch

    yield torch.set_default_dtype
    torch.set_default_dtype(torch.float32)
