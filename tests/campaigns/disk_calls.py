"""Right calls of what reads or writes files: experiments, data, training, runs, saved models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import discrete_vae as dv
from discrete_vae.runs.progress import TrainingProgress
from tests.campaigns.machine_calls import Call, right_call
from tests.campaigns.tiny_runs import write_data


class _Quiet(TrainingProgress):
    """Shows nothing."""

    def __init__(self) -> None:
        super().__init__(0, 1)

    def advance(self, step: int) -> None:
        pass

    def show(self, *arguments: Any) -> None:
        pass

    def note(self, text: str) -> None:
        pass


def calls_on_disk(folder: Path) -> list[Call]:
    """All of them; in a folder a run of two steps and a saved model are made first."""
    data = str(write_data(folder / "data" / "mine.npy"))
    dataset = dv.load_dataset("file", path=data)
    config = dv.own_experiment(data, size="smoke")
    changed = {"num_epochs": 2, "validate_every": 1, "num_examples": None, "num_validation_examples": None}
    config = config.model_copy(update={"training": config.training.model_copy(update=changed)})
    run, saved = folder / "run", folder / "saved"
    dv.train(config, dataset, run, progress=_Quiet())
    dv.load_run(run).model.save_pretrained(saved)

    def train(**k: Any) -> float | None:
        return dv.train(**k, run_dir=run, progress=_Quiet()).best_elbo

    return [
        right_call("load_experiment", dv.load_experiment, name="digits", size="smoke"),
        right_call("load_dataset", dv.load_dataset, name="digits", data_dir=None, _optional=("data_dir",)),
        right_call(
            "load_dataset of a file",
            lambda **k: dv.load_dataset("file", **k),
            path=data,
            valid_fraction=0.2,
            test_fraction=0.2,
            split_seed=1,
            _sizes=("valid_fraction", "test_fraction", "split_seed"),
        ),
        right_call("own_experiment", dv.own_experiment, path=data, likelihood="bernoulli", size="smoke"),
        right_call("train", train, config=config, dataset=dataset, device="cpu"),
        right_call(
            "load_run",
            lambda **k: dv.load_run(**k).model.prior.bias,
            run=str(run),
            checkpoint="best",
            device="cpu",
        ),
        right_call(
            "load_pretrained",
            lambda **k: dv.load_pretrained(**k).model.prior.bias,
            name="digits",
            device="cpu",
        ),
        right_call(
            "DiscreteVAE.from_pretrained",
            lambda **k: dv.DiscreteVAE.from_pretrained(**k).prior.bias,
            path=str(saved),
            device="cpu",
        ),
    ]
