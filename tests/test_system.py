"""Devices, memory and lengths of time."""

import pytest
import torch

from discrete_vae import DiscreteVAE, load_dataset, load_experiment, load_run, system, train
from discrete_vae.config import GaussianHierarchyConfig, HierarchicalPosteriorConfig, ModelConfig, RBMConfig
from discrete_vae.errors import InvalidInputError
from discrete_vae.system import check_device, computing_on, in_words
from tests.refusals import refused, refused_argument


def test_devices(monkeypatch):
    for name in ("cpu", "cpu:0", torch.device("cpu")):
        assert check_device(name) == torch.device(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert check_device("auto") == torch.device("cpu")
    missing = [name for name in ("mps", "xpu") if not getattr(torch, name).is_available()]
    for name in ("gpu", "", "cuda:-1", "meta", "cpu:x", 3, None, True, "cuda", "cuda:3", *missing):
        assert refused_argument(check_device, name) == "device"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert check_device("auto") == torch.device("cuda")


def test_a_library_that_is_built_for_another_numpy_is_named_with_the_reason(tmp_path, monkeypatch):
    (tmp_path / "built_for_another.py").write_text("raise ValueError('numpy.dtype size changed')")
    monkeypatch.syspath_prepend(tmp_path)
    error = refused(system.optional_library, "built_for_another", "logger", "Install it: pip install it.")
    assert "ValueError: numpy.dtype size changed. Install it" in str(error)


def test_every_function_that_takes_a_device_checks_it_before_all_else(tmp_path):
    config = load_experiment("digits", size="smoke")
    for call in (
        lambda: load_run(tmp_path / "no-run", device="gpu"),
        lambda: DiscreteVAE.from_pretrained(tmp_path / "no-model", device="gpu"),
        lambda: train(config, load_dataset("digits"), tmp_path / "run", device="gpu"),
    ):
        assert refused_argument(call) == "device"
    assert not list(tmp_path.iterdir())
    assert computing_on(torch.device("cuda", 1)) == "Computing on cuda:1."
    assert f"{torch.get_num_threads()} thread" in computing_on(torch.device("cpu"))


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine that says of its memory what the test wants."""
    monkeypatch.setattr(system, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(system, "_CGROUP", tmp_path)
    monkeypatch.setattr(system, "_OWN_GROUP", tmp_path / "cgroup")
    return tmp_path


def test_what_is_available_is_the_least_of_machine_and_container(machine):
    (machine / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    2000 kB\n")
    assert system.available_memory() == 2000 * 1024
    (machine / "memory.current").write_text("500\n")
    (machine / "memory.max").write_text("max\n")
    assert system.available_memory() == 2000 * 1024
    (machine / "memory.max").write_text("1500\n")
    (machine / "memory.stat").write_text("anon 100\nfile 400\ninactive_file 150\nactive_file 50\n")
    assert system.available_memory() == 1200


def test_the_least_of_a_job_and_of_what_it_lies_in_counts(machine):
    (machine / "meminfo").write_text("MemAvailable:    2000 kB\n")
    (machine / "cgroup").write_text("1:name=systemd:/other\n0::/slurm/job_7/step\n")
    for group, limit in (("slurm", "9000"), ("slurm/job_7", "1500"), ("slurm/job_7/step", "max")):
        (machine / group).mkdir()
        (machine / group / "memory.max").write_text(f"{limit}\n")
        (machine / group / "memory.current").write_text("500\n")
        (machine / group / "memory.stat").write_text("anon 100\n")
    assert system.available_memory() == 1000
    (machine / "slurm/memory.max").write_text("1100\n")
    assert system.available_memory() == 600


def test_a_limit_of_the_shell_counts(machine, monkeypatch):
    resource = pytest.importorskip("resource")
    (machine / "meminfo").write_text("MemAvailable:    2000 kB\n")
    (machine / "statm").write_text("3 2 1 0 0 0 0\n")
    monkeypatch.setattr(system, "_STATM", machine / "statm")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (5 * resource.getpagesize(), 0))
    assert system.available_memory() == 2 * resource.getpagesize()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, 0))
    assert system.available_memory() == 2000 * 1024


def test_what_does_not_fit_is_refused_where_that_is_known(machine, monkeypatch):
    found = system.available_memory()
    assert found is None or found > 2**20  # all there is, where no file says what is free
    monkeypatch.setattr(system, "available_memory", lambda: 3 * 2**29)
    system.check_memory("x", 3 * 2**29, "Use less.")
    error = refused(system.check_memory, "x", 2**31, "Use less.", what="for y")
    assert (error.argument, "2.0 GiB" in str(error), "1.5 GiB" in str(error)) == ("x", True, True)
    monkeypatch.setattr(system, "available_memory", lambda: None)
    system.check_memory("x", 10**30, "Use less.")


def test_a_failed_allocation_is_named_and_other_errors_stay_what_they_are():
    for sizes in ((1 << 45,), (1 << 31, 1 << 31)):
        with pytest.raises(InvalidInputError, match="^x "), system.allocating("x", "Use less."):
            torch.empty(*sizes)
    with pytest.raises(RuntimeError, match="size of tensor"), system.allocating("x", "Use less."):
        torch.zeros(2) + torch.zeros(3)


HUGE = 10**12


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("model.posterior", {"posterior": HierarchicalPosteriorConfig(hidden=(HUGE,))}),
        ("model", {"posterior": HierarchicalPosteriorConfig(hidden=(HUGE, HUGE))}),
        ("model", {"hierarchy": GaussianHierarchyConfig(num_layers=HUGE)}),
        ("model.hierarchy", {"hierarchy": GaussianHierarchyConfig(num_units=HUGE)}),
        ("model.prior", {"prior": RBMConfig(num_left=HUGE)}),
        ("model.posterior", {"num_features": HUGE}),
    ],
)
def test_a_model_of_absurd_sizes_is_refused_before_it_is_made(part, change):
    config = ModelConfig(num_features=12).model_copy(update=change)
    assert refused_argument(DiscreteVAE.from_config, config) == part


def test_a_model_that_does_not_fit_is_refused_though_each_of_its_weights_does(monkeypatch):
    monkeypatch.setattr(system, "available_memory", lambda: 2**22)
    config = ModelConfig(num_features=12, posterior=HierarchicalPosteriorConfig(hidden=(10_000,)))
    assert refused_argument(DiscreteVAE.from_config, config) == "model.posterior"
    with torch.device("meta"):  # takes none
        assert DiscreteVAE.from_config(config).posterior.num_units == 128


def test_two_units_and_no_sixty_of_one():
    words = {0: "0 s", 0.25: "0.25 s", 3.14159: "3.1 s", 9.96: "10 s", 59.7: "1 min", 61: "1 min 1 s"}
    words |= {3599.9: "1 h", 86399: "1 day", 90000: "1 day 1 h", 573.9 * 3600: "23 days 22 h"}
    assert {seconds: in_words(seconds) for seconds in words} == words
