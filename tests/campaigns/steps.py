"""Steps of training under trouble: a model changes under its recording, or several threads work at once."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import torch

from discrete_vae import BlockGibbs
from discrete_vae.interop.sklearn import DiscreteVAETransformer
from discrete_vae.rng import keyed_generator
from discrete_vae.training.loop import training_step
from discrete_vae.training.state import TrainingState
from tests.campaigns.engine import Campaign, Finding, Outcome
from tests.training.test_step import CASES, CHANGES, config_of

_CASES = [name for name in CASES if name != "missing"]
_CHANGES = {name: change for name, change in CHANGES.items() if name != "rounded products"}  # of a process


@Campaign(
    "recorded-steps",
    "changes of a model (storage, parts, modes, settings, frozen parameters) under its recorded steps",
    bounded=3,
    long=400,
)
def recorded_steps(_stage, chosen, _number, _folder):
    """Take some dozen steps with and without a recording, with changes of the model on the way."""
    name = chosen.choice(_CASES)
    config = config_of(name, {"training.precision": chosen.choice(["float32", "bfloat16"])})
    plain = config.model_copy(update={"training": config.training.model_copy(update={"record": False})})
    data = _rows(100, chosen.getrandbits(32))
    mine, other = (TrainingState.initial(each, data) for each in (config, plain))
    done = []
    for step in range(chosen.randint(6, 14)):
        if step > 1 and chosen.random() < 0.3:
            change = chosen.choice([*_CHANGES, "trained again", "modes"])
            done.append(f"{change} after {step} steps")
            for state in (mine, other):
                _apply(change, state)
        order = torch.randperm(100, generator=torch.Generator().manual_seed(step))
        rows = data[order[: chosen.choice([20, 20, 33])]]
        epoch, progress = step / 5 + 0.1, min(step / 10, 0.99)
        found = [training_step(state, config, rows, epoch, progress) for state in (mine, other)]
        for state in (mine, other):
            state.step += 1
        states = (each.model.state_dict().values() for each in (mine, other))
        if not torch.equal(*(each.reconstruction for each in found)) or not all(map(torch.equal, *states)):
            return Finding(Outcome.WRONG, f"{name}: step {step + 1} differs\n{done}")
    return Finding(Outcome.EQUAL, struck=bool(done))


def _rows(count, seed):
    return torch.bernoulli(torch.full((count, 64), 0.3), generator=torch.Generator().manual_seed(seed))


def _apply(change, state):
    model = state.model
    if change == "trained again":
        model.requires_grad_(True)
    elif change == "modes":
        model.eval()
    else:
        _CHANGES[change](model)


# Several threads of a process train, fit and evaluate at once; each gets what it gets alone.


def prepare(_folder):
    """A model in training mode, which the threads share, and rows for it."""
    rows = _rows(20, 0)
    return TrainingState.initial(config_of("layers"), rows).model.train(), rows


@Campaign(
    "threads",
    "two to eight threads that train, fit, evaluate and sample at once",
    bounded=1,
    long=200,
    prepare=prepare,
)
def threads(shared, chosen, _number, _folder):
    """Give two to eight threads a piece of work each, after it was done alone."""
    works = [_work(shared, chosen) for _ in range(chosen.randint(2, 8))]
    alone = [work() for work in works]
    before = [tensor.clone() for tensor in shared[0].state_dict().values()]
    with ThreadPoolExecutor(len(works)) as pool:
        beside = [job.result() for job in [pool.submit(work) for work in works]]
    for work, mine, other in zip(works, alone, beside, strict=True):
        if not all(np.array_equal(one, two, equal_nan=True) for one, two in zip(mine, other, strict=True)):
            what = f"{work.func.__name__}{work.args[1:]} beside {len(works) - 1} others"
            return Finding(Outcome.WRONG, what)
    if not all(map(torch.equal, before, shared[0].state_dict().values())):
        return Finding(Outcome.LOST, "the model that was evaluated is another one")
    return Finding(Outcome.EQUAL)


def _work(shared, chosen):
    kind = chosen.choice([_train, _train, _fit, _evaluate, _sample])
    return partial(kind, shared, chosen.randint(0, 3), chosen.choice(_CASES))


def _train(_shared, seed, name):
    config = config_of(name).model_copy(update={"seed": seed})
    rows = _rows(40, seed)
    state = TrainingState.initial(config, rows)
    for step in range(5):
        training_step(state, config, rows[: 20 + seed], step / 5, step / 5)
        state.step += 1
    return [tensor.numpy() for tensor in state.capture()[0].values() if tensor.dtype != torch.bfloat16]


def _fit(_shared, seed, _name):
    rows = np.random.default_rng(seed).random((60, 10)) < 0.4
    coder = DiscreteVAETransformer(num_left=2, num_right=2, hidden=(6,), num_epochs=2, random_state=seed)
    return [coder.fit_transform(rows.astype(float)), coder.score_samples(rows.astype(float))]


def _evaluate(shared, seed, _name):
    model, rows = shared
    found = model.log_likelihood(rows, num_samples=10, log_partition=0.0, generator=keyed_generator(seed))
    with torch.no_grad():
        codes = model.encode(rows, generator=keyed_generator(seed))
    return [found.value.numpy(), codes.z.numpy()]


def _sample(shared, seed, _name):
    chains = BlockGibbs(shared[0].prior, 50, seed=seed)
    return [chains.step(20).numpy(), shared[0].sample(5, seed=seed).mean.numpy()]
