"""A model changes under its recorded steps, at any step and in any way; steps are those of the changed model."""

from __future__ import annotations

import random
from pathlib import Path

import torch

from discrete_vae.training.loop import training_step
from discrete_vae.training.state import TrainingState
from tests.campaigns.engine import Campaign, Finding, Outcome
from tests.training.test_step import CASES, CHANGES, config_of

_CHANGES = {name: change for name, change in CHANGES.items() if name != "rounded products"}  # of a process


def case(_stage: object, chosen: random.Random, _number: int, _folder: Path) -> Finding:
    """Take some dozen steps with and without a recording, with changes of the model on the way."""
    name = chosen.choice([name for name in CASES if name != "missing"])
    config = config_of(name, {"training.precision": chosen.choice(["float32", "bfloat16"])})
    plain = config.model_copy(update={"training": config.training.model_copy(update={"record": False})})
    data = torch.bernoulli(
        torch.full((100, 64), 0.3), generator=torch.Generator().manual_seed(chosen.getrandbits(32))
    )
    mine, other = (TrainingState.initial(each, data) for each in (config, plain))
    done: list[str] = []
    for step in range(chosen.randint(6, 14)):
        if step > 1 and chosen.random() < 0.3:
            change = chosen.choice([*_CHANGES, "trained again", "modes"])
            done.append(f"{change} after {step} steps")
            for state in (mine, other):
                _apply(change, state)
        rows = data[
            torch.randperm(100, generator=torch.Generator().manual_seed(step))[: chosen.choice([20, 20, 33])]
        ]
        epoch, progress = step / 5 + 0.1, min(step / 10, 0.99)
        found = [training_step(state, config, rows, epoch, progress) for state in (mine, other)]
        for state in (mine, other):
            state.step += 1
        same = torch.equal(found[0].reconstruction, found[1].reconstruction) and all(
            torch.equal(tensor, value)
            for tensor, value in zip(
                mine.model.state_dict().values(), other.model.state_dict().values(), strict=True
            )
        )
        if not same:
            return Finding(Outcome.WRONG, f"{name}: step {step + 1} differs\n{done}")
    return Finding(Outcome.EQUAL, struck=bool(done))


def _apply(change: str, state: TrainingState) -> None:
    model = state.model
    if change == "trained again":
        model.requires_grad_(True)
    elif change == "modes":
        model.eval()
    else:
        _CHANGES[change](model)


CAMPAIGN = Campaign(
    name="recorded-steps",
    what="changes of a model (storage, parts, modes, settings, frozen parameters) under its recorded steps",
    bounded=4,
    long=400,
    prepare=lambda folder: None,
    case=case,
)
