"""Every experiment in every size builds."""

import inspect
import re

import pytest
import torch

from discrete_vae import DiscreteVAE
from discrete_vae.errors import InvalidInputError
from discrete_vae.presets import SIZES, experiment_function, experiment_names, load_experiment


@pytest.mark.parametrize("name", experiment_names())
@pytest.mark.parametrize("size", SIZES)
def test_config_builds_a_model(name, size):
    config = load_experiment(name, size)
    assert (config.name, config.size) == (name, size)
    with torch.device("meta"):
        model = DiscreteVAE.from_config(config.model)
    assert model.event_shape == config.model.shape


@pytest.mark.parametrize("name", experiment_names())
def test_docstring_says_command_data_figure_and_time(name):
    text = inspect.getdoc(experiment_function(name)) or ""
    command, data, figure, time = (
        re.search(rf"^{part}.*: (.+)", text, re.MULTILINE)
        for part in ("Command", "Data", "Expected test log-likelihood", "Time")
    )
    assert command is not None
    assert f"dvae train {name}" in command.group()
    assert None not in (data, figure, time)
    assert "nats" in text


@pytest.mark.parametrize("name", experiment_names())
def test_the_first_line_describes_the_default_size(name):
    """`dvae list` shows it; what is trained unless another size is asked for comes before size paper."""
    line = (inspect.getdoc(experiment_function(name)) or "").partition("\n")[0]
    short, _, paper = line.partition("; size paper: ")
    model = load_experiment(name).model
    if model.prior.kind == "factorial":
        assert f"{model.prior.num_units} independent units, " in short
    else:
        assert f"RBM {model.prior.num_left} + {model.prior.num_right}, " in short
    assert ("linear decoder" in short) == (model.decoder.hidden == () and model.hierarchy.kind == "none")
    if model.hierarchy.kind == "none":
        assert short.endswith("no Gaussian layers.")
        return
    of_paper = load_experiment(name, "paper").model.hierarchy
    assert f"{model.hierarchy.num_layers} Gaussian layers of {model.hierarchy.num_units} units" in short
    assert f"{of_paper.num_layers} layers of {of_paper.num_units}" in paper
    for text, config in ((short, model.hierarchy), (paper, of_paper)):
        assert ("groups" in text) == (config.sharing.kind == "groups")


@pytest.mark.parametrize("name", [name for name in experiment_names() if name != "digits"])
def test_size_cpu_lies_between_short_and_paper(name):
    short, cpu, paper = (load_experiment(name, size) for size in ("short", "cpu", "paper"))
    assert short.training.num_epochs <= cpu.training.num_epochs
    assert max(cpu.model.posterior.hidden) < min(paper.model.posterior.hidden)
    assert cpu.training.optimizer.rate.kind == "cosine"
    assert (cpu.evaluation.num_samples, cpu.evaluation.num_examples) == (10_000, None)
    if cpu.model.hierarchy.kind == "gaussian":
        layers = [config.model.hierarchy.num_layers for config in (short, cpu, paper)]
        assert layers[0] < layers[1] <= layers[2]
        overfits = name in ("caltech101-silhouettes", "mnist-static")  # importance samples make it worse
        assert (cpu.training.num_importance_samples == 1) == overfits
        assert (cpu.training.optimizer.decoder_weight_decay > 0) == overfits


def test_size_cpu_of_digits_is_short():
    cpu, short = (load_experiment("digits", size) for size in ("cpu", "short"))
    assert cpu.model_copy(update={"size": "short"}) == short


def test_unknown_names():
    with pytest.raises(
        InvalidInputError,
        match="experiment must be one of digits, mnist-dynamic, .*; received 'x'",
    ):
        load_experiment("x")
    with pytest.raises(
        InvalidInputError, match="size must be one of smoke, short, cpu, paper; received 'huge'"
    ):
        load_experiment("digits", "huge")


@pytest.mark.parametrize(
    ("name", "repair"),
    [
        ("digit", "Did you mean digits?"),
        ("omniglott", "Did you mean omniglot?"),
        ("mine.csv", "Did you mean --data mine.csv?"),
        ("", "dvae list shows what they are"),
        (None, "dvae list shows what they are"),
    ],
)
def test_a_mistyped_name_is_answered_with_what_was_meant(name, repair):
    with pytest.raises(
        InvalidInputError, match=r"^experiment must be one of digits, .*; received "
    ) as caught:
        load_experiment(name)
    assert repair in str(caught.value)
