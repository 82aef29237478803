import pytest
import torch

from discrete_vae import system as system_module
from discrete_vae.config import GaussianHierarchyConfig, HierarchicalPosteriorConfig, ModelConfig, RBMConfig
from discrete_vae.errors import InvalidInputError
from discrete_vae.model import DiscreteVAE


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A system that says of its memory what the test wants."""
    monkeypatch.setattr(system_module, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(system_module, "_CGROUP", tmp_path)
    return tmp_path


def test_what_is_available_is_the_least_of_machine_and_container(system):
    (system / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    2000 kB\n")
    assert system_module.available_memory() == 2000 * 1024
    (system / "memory.current").write_text("500\n")
    (system / "memory.max").write_text("max\n")
    assert system_module.available_memory() == 2000 * 1024
    (system / "memory.max").write_text("1500\n")
    (system / "memory.stat").write_text("anon 100\nfile 400\ninactive_file 150\nactive_file 50\n")
    assert system_module.available_memory() == 1200


def test_a_limit_of_the_shell_counts(system, monkeypatch):
    resource = pytest.importorskip("resource")
    (system / "meminfo").write_text("MemAvailable:    2000 kB\n")
    (system / "statm").write_text("3 2 1 0 0 0 0\n")
    monkeypatch.setattr(system_module, "_STATM", system / "statm")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (5 * resource.getpagesize(), 0))
    assert system_module.available_memory() == 2 * resource.getpagesize()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, 0))
    assert system_module.available_memory() == 2000 * 1024


def test_without_a_word_of_what_is_free_all_there_is_counts(system):
    found = system_module.available_memory()
    assert found is None or found > 2**20


def test_nothing_is_refused_where_nothing_is_known(monkeypatch):
    monkeypatch.setattr(system_module, "available_memory", lambda: None)
    system_module.check_memory("x", 10**30, "Use less.")
    assert "received more than it has" in str(system_module.out_of_memory())


def test_the_need_and_what_is_free_are_named(monkeypatch):
    monkeypatch.setattr(system_module, "available_memory", lambda: 3 * 2**29)
    system_module.check_memory("x", 3 * 2**29, "Use less.")
    with pytest.raises(InvalidInputError) as caught:
        system_module.check_memory("x", 2**31, "Use less.", what="for y")
    assert str(caught.value) == (
        "x must fit this machine's memory; received a need of at least 2.0 GiB for y, where 1.5 GiB are free. Use less."
    )


@pytest.mark.parametrize("sizes", [(1 << 45,), (1 << 31, 1 << 31)])
def test_what_torch_says_of_too_large_tensors_is_understood(sizes):
    with pytest.raises(InvalidInputError, match="x must fit this machine's memory; received more than"):  # noqa: SIM117
        with system_module.allocating("x", "Use less."):
            torch.empty(*sizes)


def test_other_errors_stay_what_they_are():
    with pytest.raises(RuntimeError, match="size of tensor"), system_module.allocating("x", "Use less."):
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
    with pytest.raises(InvalidInputError) as caught:
        DiscreteVAE.from_config(config)
    assert caught.value.argument == part


def test_a_model_that_does_not_fit_is_refused_though_each_of_its_weights_does(monkeypatch):
    monkeypatch.setattr(system_module, "available_memory", lambda: 2**22)
    config = ModelConfig(num_features=12, posterior=HierarchicalPosteriorConfig(hidden=(10_000,)))
    with pytest.raises(InvalidInputError, match=r"model\.posterior must fit"):
        DiscreteVAE.from_config(config)
    with torch.device("meta"):  # takes none
        assert DiscreteVAE.from_config(config).posterior.num_units == 128
