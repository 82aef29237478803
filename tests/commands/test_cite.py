"""dvae cite."""

from discrete_vae import load_experiment
from discrete_vae.cli import main
from discrete_vae.presets import cite


def test_an_experiment(capsys):
    assert main(["cite", "mnist-static"]) == 0
    assert capsys.readouterr().out == cite(load_experiment("mnist-static")) + "\n"


def test_a_run(trained, capsys):
    assert main(["cite", str(trained)]) == 0
    assert "{kingma2015," in capsys.readouterr().out


def test_neither(capsys):
    assert main(["cite", "mnist-statik"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: NAME must be one of the folder of a run, ")
    assert message.endswith("Did you mean mnist-static?\n")
