"""What each of two processes does in test_replicas.py."""

import json
import math
import os
import time
from contextlib import chdir
from dataclasses import replace

import torch

from discrete_vae.config import BlockGibbsConfig, WarmUpConfig
from discrete_vae.data.datasets import load_dataset
from discrete_vae.distributed import (
    average_,
    compute_on_rank_zero,
    gather_shares,
    own_share,
    process_group,
    rank,
    world_size,
)
from discrete_vae.errors import InvalidInputError, PeerLostError
from discrete_vae.objectives.gradients import Reparameterized
from discrete_vae.rng import NoiseSource
from discrete_vae.training.loop import run_steps, training_step
from discrete_vae.training.run import check_experiment, prepared_run, train
from discrete_vae.training.state import TrainingState, average_step
from tests.training.tiny import CONFIG, QuietProgress, start_run

BATCH = CONFIG.training.batch_size
_PATIENT = {"patience": 1, "independent_start": True, "warm_up": WarmUpConfig(epochs=0, prior_epochs=0)}
WAITING = CONFIG.model_copy(update={"training": CONFIG.training.model_copy(update=_PATIENT)})
LOST_AT, STOPPED_AT = 9, 10


class OwnRows(NoiseSource):
    """The noise of this process's rows of the batch."""

    def __init__(self, seed):
        self._generator = torch.Generator().manual_seed(seed)

    def take(self, draw, like, shape):
        share = own_share(BATCH)
        axis = list(shape).index(share.stop - share.start)
        whole = draw(like, shape=(*shape[:axis], BATCH, *shape[axis + 1 :]), generator=self._generator)
        return whole.narrow(axis, share.start, share.stop - share.start)


def averaged_gradient():
    """The gradient of a batch, with norms that have statistics of their own, and the chains after a step."""
    dataset = load_dataset("digits")
    state = TrainingState.initial(CONFIG, dataset.train)
    with torch.no_grad():  # other units than at the start, where the prior has no couplings
        for parameter in state.model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    state.model.eval()
    z = state.chains.step(4)
    x = (dataset.train[:BATCH][own_share(BATCH)] > 0.5).float()
    estimator = Reparameterized.of(state.model)
    estimate = state.model.estimate_gradient(estimator, x, negative_phase=z, generator=OwnRows(3))
    estimate.loss.backward()
    of_terms = tuple(float(part.detach().mean()) for part in estimate.terms)
    means = average_step(state.optimizer, (state.model, state.gradient), of_terms)
    gradients = [p.grad for p in state.model.parameters() if p.grad is not None]
    found = {
        "means": torch.tensor(means),
        "gradient": torch.cat([gradient.flatten() for gradient in gradients]),
        "chains": gather_shares(state.chains.z),
        "constants": torch.cat([b.flatten() for b in state.model.buffers() if b.is_floating_point()]),
    }
    same = (dataset.train[: BATCH // 2] > 0.5).float()  # in each process
    found["noise"] = training_step(state, CONFIG, same, 1.0, 0.5).reconstruction
    return found


def refused(config):
    try:
        check_experiment(config, load_dataset("digits"))
    except InvalidInputError as error:
        return str(error)
    return None


def differing(folder):
    """What is refused where the second process has another config, other data, another device, no checkpoint."""
    dataset, second, found = load_dataset("digits"), rank() == 1, []
    places = folder, folder / "elsewhere"
    if second:
        places[1].mkdir()
    for config, data, device, run in (
        (CONFIG.model_copy(update={"seed": rank()}), dataset, "cpu", folder / "none"),
        (
            CONFIG,
            replace(dataset, train=dataset.train.flip(0)) if second else dataset,
            "cpu",
            folder / "none",
        ),
        (CONFIG, dataset, "cuda" if second else "cpu", folder / "none"),
        (CONFIG, dataset, "cpu", "unbroken"),
    ):
        with chdir(places[rank()]):
            try:
                with prepared_run(config, data, run, device=torch.device(device)):
                    found.append(None)
            except InvalidInputError as error:
                found.append(error.argument)
    return found


def lose_a_peer(run):
    """What the first process says after the second one has gone, and how many seconds it took to notice."""
    left = math.inf

    def stop():
        nonlocal left
        left = time.monotonic()
        if rank() == 1 and count["steps"] == LOST_AT:
            os._exit(9)
        count["steps"] += 1
        return False

    count = {"steps": 0}
    try:
        run_steps(CONFIG, load_dataset("digits"), run, progress=QuietProgress(), stop=stop)
    except PeerLostError as error:
        return {"error": str(error), "seconds": time.monotonic() - left, "is_said": error.is_said}
    return {}


def main(folder):
    torch.set_num_threads(1)
    result = {}
    with process_group():
        torch.save(averaged_gradient(), folder / f"gradient-{rank()}.pt")
        third = torch.full((3,), 1 / 3)
        average_([third], torch.float64)
        result["constant"] = bool((third == 1 / 3).all() or (third == torch.tensor(1 / 3)).all())
        training = CONFIG.training
        uneven = (
            training.model_copy(update={"batch_size": 99}),
            training.model_copy(update={"sampler": BlockGibbsConfig(num_chains=31)}),
        )
        result["refused"] = [refused(CONFIG.model_copy(update={"training": each})) for each in uneven]

        dataset = load_dataset("digits")
        train(CONFIG, dataset, folder / "unbroken", progress=QuietProgress())
        result["differing"] = differing(folder)
        asked = {"count": 0}

        def stop():  # the second process alone is asked
            asked["count"] += 1
            return rank() == 1 and asked["count"] > STOPPED_AT

        first = train(CONFIG, dataset, folder / "stopped", progress=QuietProgress(), stop=stop)
        result["stopped"] = first.step
        train(CONFIG, dataset, folder / "stopped", progress=QuietProgress())
        ended = train(WAITING, dataset, folder / "ended", progress=QuietProgress())
        result["ended"] = [ended.step, ended.num_steps, ended.best_step]
        run = compute_on_rank_zero(lambda: start_run(folder / "lost"))
        lost = lose_a_peer(run)
        (folder / f"{rank()}.json").write_text(json.dumps(result | lost | {"world_size": world_size()}))
        os._exit(0)  # there is nobody to take leave of
