"""A solver as the negative phase of a run: by its config, resumed bit for bit, used without the solver."""

import json

import pytest
import torch

from discrete_vae import BlockGibbs, DiscreteVAE, load_dataset, load_experiment, load_run, train
from discrete_vae.errors import InvalidInputError
from discrete_vae.interop.dimod import negative_phase
from discrete_vae.overrides import apply_overrides

pytest.importorskip("dimod", reason="dimod is not installed (extra dwave)")
pytest.importorskip("dwave.samplers", reason="dwave-samplers is not installed (extra dwave)")

SETTINGS = {
    "model.prior": "graph",
    "model.prior.edges": "chimera",
    "model.posterior.groups": "colors",
    "training.sampler": "dimod",
    "training.sampler.num-chains": "20",
    "training.sampler.parameters": '{"beta_range": [0.2, 1.0]}',
    "training.num-sweeps": "5",
    "training.num-epochs": "1",
    "training.num-examples": "300",
    "training.num-validation-examples": "50",
    "training.log-every": "2",
    "training.validate-every": "2",
}


def configured(**changed):
    settings = SETTINGS | {
        name.replace("__", ".").replace("_", "-"): value for name, value in changed.items()
    }
    return apply_overrides(
        load_experiment("digits", "smoke"), [(name, [value]) for name, value in settings.items()]
    )


def test_a_run_goes_on_bit_for_bit_and_opens_without_the_solver(tmp_path, monkeypatch):
    config, dataset = configured(), load_dataset("digits")
    assert config.training.sampler.parameters == {"beta_range": [0.2, 1.0]}
    train(config, dataset, tmp_path / "whole")
    answers = iter([False, False, True])
    train(config, dataset, tmp_path / "parts", stop=lambda: next(answers))
    train(config, dataset, tmp_path / "parts")
    whole, parts = (load_run(tmp_path / name, "last") for name in ("whole", "parts"))
    assert all(
        torch.equal(value, parts.model.state_dict()[name]) for name, value in whole.model.state_dict().items()
    )
    assert torch.equal(whole.chains.z, parts.chains.z)
    lines = [json.loads(line) for line in (tmp_path / "whole/metrics.jsonl").read_text().splitlines()]
    assert all(0.1 < line["solver_inverse_temperature"] < 10 for line in lines if "elbo" in line)

    def refuse(*arguments):
        raise AssertionError("the solver was asked for")

    monkeypatch.setattr(negative_phase, "open_solver", refuse)
    loaded = load_run(tmp_path / "whole")
    assert isinstance(loaded.chains, BlockGibbs)
    assert loaded.chains.step(2).shape == (20, 32)
    assert loaded.model.prior.edges.shape == (80, 2)
    groups = loaded.model.posterior.groups
    assert [len(group) for group in groups] == [16, 16]
    saved = DiscreteVAE.from_pretrained(loaded.model.save_pretrained(tmp_path / "saved"))
    assert torch.equal(saved.prior.weight, loaded.model.prior.weight)
    assert saved.prior.nodes == loaded.model.prior.nodes


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"training__sampler__solver": "quantum"}, "solver must be one of"),
        ({"training__sampler__parameters": '{"speed": 1}'}, r"parameters\['speed'\] must be known to"),
        (
            {"training__sampler__parameters": '{"beta_range": "cold"}'},
            "parameters must be what simulated-annealing can",
        ),
        ({"training__sampler__parameters": "cold"}, "parameters must be"),
        ({"training__sampler__parameters": '{"cold"'}, "parameters must be valid JSON"),
        ({"training__sampler__num_gibbs_sweeps": "-1"}, "num-gibbs-sweeps"),
    ],
)
def test_what_the_solver_does_not_take_is_found_before_anything_is_written(tmp_path, changed, message):
    with pytest.raises(InvalidInputError, match=message):
        train(configured(**changed), load_dataset("digits"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
