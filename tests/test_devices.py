"""One check of devices for every function that takes one."""

import pytest
import torch

from discrete_vae import DiscreteVAE, load_dataset, load_experiment, load_run, train
from discrete_vae.errors import InvalidInputError
from discrete_vae.system import check_device, computing_on


@pytest.mark.parametrize("name", ["cpu", "cpu:0", torch.device("cpu")])
def test_what_torch_takes_is_taken(name):
    assert check_device(name) == torch.device(name)


def test_auto_is_the_cpu_where_there_is_nothing_else(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert check_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert check_device("auto") == torch.device("cuda")


@pytest.mark.parametrize("name", ["gpu", "", "cuda:-1", "meta", "cpu:x", 3, None, True])
def test_nonsense_is_refused(name):
    with pytest.raises(InvalidInputError, match="^device must be auto, cpu, cuda or cuda:N; received "):
        check_device(name)


@pytest.mark.parametrize("name", ["cuda", "cuda:3", "mps", "xpu"])
def test_a_device_that_is_not_there_is_refused(name, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    if name in ("mps", "xpu") and getattr(torch, name).is_available():
        pytest.skip(f"this machine has {name}")
    with pytest.raises(InvalidInputError, match=f"^device must be available; received {name}, where torch"):
        check_device(name)


def test_every_function_that_takes_a_device_checks_it_before_all_else(tmp_path):
    config = load_experiment("digits", size="smoke")
    for call in (
        lambda: load_run(tmp_path / "no-run", device="gpu"),
        lambda: DiscreteVAE.from_pretrained(tmp_path / "no-model", device="gpu"),
        lambda: train(config, load_dataset("digits"), tmp_path / "run", device="gpu"),
    ):
        with pytest.raises(
            InvalidInputError, match="^device must be auto, cpu, cuda or cuda:N; received 'gpu'"
        ):
            call()
    assert not list(tmp_path.iterdir())


def test_threads_are_said_of_the_cpu_alone():
    assert computing_on(torch.device("cuda", 1)) == "Computing on cuda:1."
    assert computing_on(torch.device("cpu")).startswith(
        f"Computing on cpu with {torch.get_num_threads()} thread"
    )
