"""The encoder of a trained run fitted anew, with its posteriors, in a folder of its own."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from discrete_vae.checks import check_number, check_positive_int
from discrete_vae.data.batches import TrainingBatches
from discrete_vae.data.splits import DataSplits, training_subset
from discrete_vae.errors import InvalidInputError, NonFiniteLossError
from discrete_vae.evaluation.evaluate import MeanElbo, elbo_parts, mean_elbo, positive_weights, standard_error
from discrete_vae.kernels.adam import Adam
from discrete_vae.log_partition.estimate import comparable_log_partition
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.mlp import L1BatchNorm
from discrete_vae.nets.modes import precision_of_products
from discrete_vae.nets.weights import check_finite_weights, non_finite_weight
from discrete_vae.rng import key_to_seed, keyed_generator
from discrete_vae.runs.checkpoints import MODEL_PREFIX, CheckpointRecord
from discrete_vae.runs.io import write_json
from discrete_vae.runs.load import CHAINS_PREFIX, LoadedRun
from discrete_vae.runs.run_directory import (
    CONFIG_SUM,
    RunDirectory,
    check_derived_folder,
    derived_run,
    describe_environment,
)
from discrete_vae.samplers.gibbs import Sampler
from discrete_vae.training.loop import best_entry
from discrete_vae.training.schedules import CosineRate
from discrete_vae.training.step import choose_precision

MODEL_SHARE, LEARNING_RATE = 0.5, 3e-4  # share of a batch that the model draws, and the largest step size
NUM_STEPS = 2000

_STREAM, _VALIDATION_STREAM = 0x7265666974, 0x726576616C
_FINAL_FRACTION, _DRAWS = 0.01, 5


@dataclass(frozen=True)
class Refit:
    """The bound on validation examples before and after the posterior was fitted anew.

    log p(x) is the same for both, so the difference is what the mean KL from posterior to true posterior lost.

    Attributes:
        before: With the posterior of training.
        after: With the new one, with the same noise.
        gain_std_error: Standard error of the gain over examples, nats; NaN in records that have none.
    """

    before: MeanElbo
    after: MeanElbo
    gain_std_error: float = math.nan

    @property
    def gain(self) -> float:
        """Rise of the bound, nats."""
        return self.after.elbo - self.before.elbo


def refit_posterior(
    model: DiscreteVAE,
    dataset: DataSplits,
    chains: Sampler,
    *,
    log_partition: float,
    log_partition_std_error: float = 0.0,
    num_steps: int,
    batch_size: int = 100,
    model_share: float = MODEL_SHARE,
    learning_rate: float = LEARNING_RATE,
    num_sweeps: int = 20,
    seed: int = 0,
    precision: torch.dtype = torch.float32,
    report: Callable[[int, float], None] | None = None,
) -> Refit:
    """Raise the ELBO on training examples and on draws of the model by the encoder and the posteriors alone.

    The bound rises towards log p(x), which stays what it is: the prior, the layers' prior, the decoder, the smoothing
    (whose beta prior and posterior share), and the running statistics of all of them keep every bit.
    Draws of the model, always new ones, keep the posterior from learning the training examples by heart, so that
    bounds and importance weights of other examples gain too. No value of a draw is missing.

    Args:
        model: A trained model; its encoder and posteriors change in place. It is left in evaluation mode.
        dataset: Its data: training examples are learned from, validation examples measured.
        chains: Chains of the model's prior, at its distribution; they are swept on.
        log_partition: log Z of the prior, nats; it shifts both results alike.
        log_partition_std_error: Its standard error, nats; carried into the results.
        num_steps: Steps of Adam, whose step size falls to a hundredth as half a cosine.
        batch_size: Examples per step, at least 2.
        model_share: Share of them that the model draws, from 0 to 1.
        learning_rate: Largest step size.
        num_sweeps: Sweeps of the chains between two steps.
        seed: Seed of all noise.
        precision: Of the networks' products while they are fitted, float32 or bfloat16; both bounds are in float32.
        report: Called after each step with the steps done and the loss, nats.

    Returns:
        The bound before and after.

    Raises:
        InvalidInputError: If a number breaks its rule, the batch has more training examples than there are, or the
            Gaussian layers do not keep their posterior apart.
        NonFiniteLossError: If the loss or a weight is not finite; the posterior is left where it was then.
    """
    counts = {"num_steps": num_steps, "batch_size": batch_size, "num_sweeps": num_sweeps}
    _check_refit(model, dataset, model_share=model_share, learning_rate=learning_rate, seed=seed, **counts)
    parts, device = _inference_parts(model), model.prior.bias.device
    num_drawn = round(model_share * batch_size)
    batches = _batches(dataset, batch_size - num_drawn, seed, device)
    valid, rate = dataset.valid.to(device), CosineRate(_FINAL_FRACTION)
    conditions = {part: c.to(device) for part, c in dataset.conditions.items()}
    bound = partial(
        elbo_parts,
        model,
        valid,
        condition=conditions.get("valid"),
        log_partition=log_partition,
        num_samples=_DRAWS,
        seed=key_to_seed(seed, _VALIDATION_STREAM),
    )
    weights = dataset.weights.get("valid")
    more: dict[str, Any] = {
        "num_samples": _DRAWS,
        "log_partition_std_error": log_partition_std_error,
        "weights": weights,
    }
    before = bound()
    with _training_alone(model, parts) as trained, precision_of_products(model, precision) as working:
        optimizer = Adam(trained, lr=learning_rate, working=working)
        for step in range(num_steps):
            generator = keyed_generator(seed, _STREAM, step, device=device)
            x = [] if batches is None else [batches.batch(step).flatten(1)]
            given = [] if batches is None else [batches.condition(step)]
            if num_drawn > 0:
                with _blaming_a_weight(model, step):
                    z = chains.step(num_sweeps)
                    rows = torch.randperm(len(z), device=device, generator=generator)
                    rows = rows[torch.arange(num_drawn, device=device) % len(z)]
                    zeta = model.smoothing.sample_zeta(z[rows].to(model.dtype), generator=generator)
                    c = conditions.get("train")
                    if c is not None:  # those of examples, since the model has no law of c
                        c = c[_examples(len(c), num_drawn, dataset.weights.get("train"), generator)]
                    given.append(c)
                    found = model.decode(zeta, condition=c, statistic="sample", generator=generator)
                    x.append(found.flatten(1))
            known = [c for c in given if c is not None]
            condition = torch.cat(known) if known else None
            loss = model.elbo(
                torch.cat(x), condition=condition, log_partition=log_partition, generator=generator
            ).loss
            value = loss.item()
            if not math.isfinite(value):
                raise NonFiniteLossError(step, "the loss of the posterior", value, None)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * rate(step / num_steps)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for part in parts:
                for module in part.modules():
                    if isinstance(module, L1BatchNorm):
                        module.project_()
            if report is not None:
                report(step + 1, value)
    with _blaming_a_weight(model, num_steps):
        check_finite_weights(model)
    after = bound()
    gain = (after - before) @ after.new_tensor([1.0, -1.0, -1.0])
    error = standard_error(gain, positive_weights(weights, len(valid)))
    return Refit(mean_elbo(before, **more), mean_elbo(after, **more), float(error))


def _check_refit(
    model: DiscreteVAE,
    dataset: DataSplits,
    *,
    model_share: float,
    learning_rate: float,
    seed: int,
    **counts: int,  # num_steps, batch_size, num_sweeps
) -> None:
    for name, count in counts.items():
        check_positive_int(name, count)
    check_number("batch_size", batch_size := counts["batch_size"], at_least=2, repair="Give 100.")
    check_number("model_share", model_share, at_least=0, at_most=1, repair=f"Give {MODEL_SHARE}.")
    check_number("learning_rate", learning_rate, above=0, repair=f"Give {LEARNING_RATE}.")
    key_to_seed(seed)
    if len(dataset.valid) < 2:
        repair = "Give more examples."
        raise InvalidInputError(
            "dataset", "must have at least 2 validation examples", len(dataset.valid), repair
        )
    _inference_parts(model)
    _batches(dataset, batch_size - round(model_share * batch_size), seed, "cpu")


def _batches(dataset: DataSplits, size: int, seed: int, device: torch.device | str) -> TrainingBatches | None:
    return TrainingBatches(dataset, size, seed=seed, device=device) if size > 0 else None


def _examples(count: int, num_drawn: int, weights: np.ndarray | None, generator: torch.Generator) -> Tensor:
    """Places of examples that are drawn with replacement, by their weights if there are some."""
    device = generator.device
    if weights is None:
        return torch.randint(count, (num_drawn,), device=device, generator=generator)
    shares = torch.as_tensor(weights, dtype=torch.float64, device=device)
    return torch.multinomial(shares, num_drawn, replacement=True, generator=generator)


def _inference_parts(model: DiscreteVAE) -> list[nn.Module]:
    """The parts of the model that q(z, zeta, h | x) has and p(x, h, zeta, z) has not."""
    parts = [model.encoder, *(part for part in model.posterior.children() if part is not model.smoothing)]
    if model.hierarchy.num_layers > 0:
        layers = getattr(model.hierarchy, "posterior", None)
        if not isinstance(layers, nn.Module):
            rule = "must keep the networks of q(h | zeta, x) in a module of their own, posterior"
            raise InvalidInputError("hierarchy", rule, type(model.hierarchy).__name__, "Name it so.")
        parts.append(layers)
    return parts


@contextmanager
def _training_alone(model: DiscreteVAE, parts: list[nn.Module]) -> Iterator[list[nn.Parameter]]:
    """Within the block these parts alone train, with the statistics of the batch; all is as it was afterwards."""
    # parameters that stand outside the parts, too, such as tied weights, are those of p(x), which keeps every bit
    inside, everywhere = (
        Counter(id(each) for part in owners for _, each in part.named_parameters(remove_duplicate=False))
        for owners in (parts, [model])
    )
    own = (each for part in parts for each in part.parameters() if inside[id(each)] == everywhere[id(each)])
    trained = [parameter for parameter in own if parameter.requires_grad]
    kept = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model.eval().requires_grad_(False)
    for part in parts:
        part.train()
    for parameter in trained:
        parameter.requires_grad_(True)
    try:
        yield trained
    finally:
        model.eval()
        for parameter in kept:
            parameter.requires_grad_(True)


@contextmanager
def _blaming_a_weight(model: DiscreteVAE, step: int) -> Iterator[None]:
    """Name the weight that diverged, and the step, if the block refuses the model for it."""
    try:
        yield
    except InvalidInputError:
        if (broken := non_finite_weight(model)) is None:
            raise
        raise NonFiniteLossError(step, f"the weight {broken[0]}", broken[1], None) from None


class RunRefit:
    """A refit of a run's posterior; whatever can be wrong is found when it is made, before the work.

    The new folder is written at the end, whole or not at all. It has the run's config, environment and log up to the
    checkpoint, and one checkpoint with the model and the chains where the refit left them. Training cannot go on with
    it, as it has nothing of the optimizer.

    Args:
        run: The run, which stays as it is.
        loaded: A checkpoint of it.
        dataset: The run's data, whole; as many examples are read as in training.
        out: A new or empty folder outside the run, or one that this very refit has filled, in which case nothing is
            computed and the loaded model stays as it is; ``~`` is the home directory.
        num_steps: This and what follows is as in `refit_posterior`.
        batch_size: None means as many as in training.

    Attributes:
        folder: The folder of the new run.
        num_steps: Steps of Adam.
        made: The result if this very refit has filled the folder; None otherwise.

    Examples:
        >>> import tempfile
        >>> from discrete_vae import load_dataset, load_experiment, load_run, train
        >>> from discrete_vae.config.overrides import apply_overrides
        >>> config = apply_overrides(load_experiment("digits", size="smoke"), [("training.num-epochs", ["1"])])
        >>> dataset = load_dataset("digits")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder)
        ...     result = train(config, dataset, path / "run")
        ...     run = RunDirectory.open(path / "run")
        ...     refit = RunRefit(run, load_run(run), dataset, path / "new", num_steps=5)
        ...     found = refit.run()
        ...     load_run(path / "new").step
        12
        >>> found.after.num_examples
        250
    """

    def __init__(
        self,
        run: RunDirectory,
        loaded: LoadedRun,
        dataset: DataSplits,
        out: str | Path,
        *,
        num_steps: int = NUM_STEPS,
        batch_size: int | None = None,
        model_share: float = MODEL_SHARE,
        learning_rate: float = LEARNING_RATE,
        seed: int = 0,
    ) -> None:
        self.num_steps = num_steps
        self._run, self._loaded, self._sum = run, loaded, dataset.description.sha256
        training, device = loaded.config.training, loaded.model.prior.bias.device
        self._settings: dict[str, Any] = {
            "num_steps": num_steps,
            "batch_size": training.batch_size if batch_size is None else batch_size,
            "model_share": model_share,
            "learning_rate": learning_rate,
            "num_sweeps": training.num_sweeps,
            "seed": seed,
        }
        self._dataset = training_subset(dataset, training)
        self._precision = choose_precision(loaded.config, device=device, begun=run.read_environment())
        self._asked: dict[str, Any] = {
            "run": str(run.path.resolve()),
            **loaded.named,
            "config": self._settings | {"precision": self._precision.name},
            "data_sha256": self._sum,
        }
        if loaded.changed_config is not None:
            self._asked["changed_config"] = asdict(loaded.changed_config)

        def read(fields: Mapping[str, Any]) -> Refit:
            before, after = (MeanElbo(**fields[name]) for name in ("before", "after"))
            return Refit(before, after, fields.get("gain_std_error", math.nan))

        self.folder, self.made = check_derived_folder(out, run, "refit.json", self._asked, read)
        _check_refit(loaded.model, self._dataset, **self._settings)
        run.metrics().read()

    def run(self, report: Callable[[int, float], None] | None = None) -> Refit:
        """Fit the posterior and write the new run; the loaded model's posterior changes, and its chains are swept on.

        `report` is called after each step with the steps done and the loss, nats.
        """
        if self.made is not None:
            return self.made
        start, run, loaded, seed = time.monotonic(), self._run, self._loaded, self._settings["seed"]
        log_partition = comparable_log_partition(loaded.model.prior, chains=loaded.chains.z, seed=seed)
        found = refit_posterior(
            loaded.model,
            self._dataset,
            loaded.chains,
            log_partition=log_partition.value,
            log_partition_std_error=log_partition.std_error,
            precision=self._precision.dtype,
            report=report,
            **self._settings,
        )
        about = self._asked | {
            "seconds": time.monotonic() - start,
            "before": asdict(found.before),
            "after": asdict(found.after),
            "gain_std_error": found.gain_std_error,
            "environment": describe_environment(seed=seed, device=loaded.model.prior.bias.device),
        }
        tensors = {f"{MODEL_PREFIX}{name}": value for name, value in loaded.model.state_dict().items()}
        tensors |= {f"{CHAINS_PREFIX}{name}": value for name, value in loaded.chains.state_dict().items()}
        meta = {"step": loaded.step, CONFIG_SUM: run.config_sha256()}
        record = CheckpointRecord(loaded.step, meta, best_entry(loaded.step, found.after))
        log = [line for line in run.metrics().read() if line["step"] <= loaded.step]
        begun = run.read_environment()
        with derived_run(self.folder, run, record, tensors, environment=begun, log=log) as new:
            write_json(new.refit_path, about)
        return found
