"""The training loop."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from rich.console import Console
from scipy.special import stdtrit
from torch import Tensor

from discrete_vae.checks import check_number
from discrete_vae.config import ExperimentConfig, TrainingConfig
from discrete_vae.data.batches import TrainingBatches
from discrete_vae.data.splits import DataSplits, effective_number, training_subset
from discrete_vae.distributed import agree_any, compute_on_rank_zero, own_share, rank, world_size
from discrete_vae.errors import InvalidInputError, NonFiniteLossError, SolverError, naming
from discrete_vae.evaluation.evaluate import (
    ExampleValues,
    MeanElbo,
    bounds,
    by_weight,
    elbo_parts,
    evaluate_log_likelihood,
    mean_elbo,
    positive_weights,
    standard_error,
    weighted_mean,
)
from discrete_vae.nets.weights import non_finite_weight
from discrete_vae.objectives.elbo import Elbo, weighs_binary_latents
from discrete_vae.records import ShowsTable, digits_of, with_error
from discrete_vae.rng import key_to_seed
from discrete_vae.runs.checkpoints import MODEL_PREFIX, CheckpointStore
from discrete_vae.runs.load import initial_model
from discrete_vae.runs.progress import TrainingProgress
from discrete_vae.runs.run_directory import CONFIG_SUM, RunDirectory, check_config, other_rounding
from discrete_vae.system import yielding_threads
from discrete_vae.training import schedules
from discrete_vae.training.logging import (
    MetricsLogger,
    StepTrace,
    seconds_in,
    state_metrics,
    written,
)
from discrete_vae.training.state import (
    ElboSums,
    TrainingState,
    average_step,
    decay_weights,
    set_rates,
    take_weights_of_rank_zero,
)
from discrete_vae.training.step import choose_precision

_POSTERIOR_STREAM, _VALIDATION_STREAM = 0x706F7374, 0x76616C6964  # of the noise
_TERMS = ("reconstruction", "kl_discrete", "kl_continuous")
_ELBO, _SCORE = "validation_elbo", "validation_score"
_SHOWN = ("elbo", "kl_discrete", "examples_per_second")  # beside the bar
_CHANGES, _TRAINED, _SECONDS = "config_changes", "best_trained", "seconds"
_NAMED_STEPS = 5
_SAMPLES = 100  # importance samples of an example, where the lead of its bound is not clear
_LEVEL = 0.95  # of the quantile of Student's t that a lead over independent features must exceed


@dataclass(frozen=True)
class TrainingResult(ShowsTable):
    """The end of a run.

    Attributes:
        num_steps: Steps of the whole run, to where patience ended it.
        step: Steps done; fewer if the run was asked to stop.
        best_step: Step of the best checkpoint, by `validation_score`; None before the first validation.
        best_elbo: Its validation ELBO, nats; None likewise.
        seconds: Time this process trained.
        best_elbos: The ELBO of each validation example at that step; None if this process did not validate then.
        best_log_partition_std_error: Standard error of their log Z, nats; NaN without them.
    """

    num_steps: int
    step: int
    best_step: int | None
    best_elbo: float | None
    seconds: float
    best_elbos: ExampleValues | None = field(default=None, repr=False, compare=False)
    best_log_partition_std_error: float = field(default=math.nan, repr=False, compare=False)


def run_steps(
    config: ExperimentConfig,
    dataset: DataSplits,
    run: RunDirectory,
    *,
    device: torch.device | str = "cpu",
    progress: TrainingProgress | None = None,
    stop: Callable[[], bool] | None = None,
    accept_changed_config: bool = False,
    trace: StepTrace | None = None,
    logger: MetricsLogger | None = None,
) -> TrainingResult:
    """Take the steps of a run, from its last checkpoint if it has one; `discrete_vae.train` checks and prepares it.

    A step draws the negative phase from the persistent chains, then follows the gradient of the ELBO, whose KL terms
    are turned on gradually, and brings bounded parameters back inside their bounds. All noise is keyed by the seed
    and the step, so a resumed run equals an unbroken one bit for bit on CPUs of one kind; on another kind a warning
    says so. Among the processes of torchrun each step is divided, and the first process writes.

    Source: Rolfe 2017, section architecture.

    Args and errors are those of `discrete_vae.train`; a trace records single steps.
    """
    settings = config.training
    dataset = training_subset(dataset, settings)
    batches = batches_of(config, dataset, device=device, share=own_share(settings.batch_size))
    num_steps = settings.num_epochs * batches.steps_per_epoch
    begun = run.read_environment()
    precision = choose_precision(config, device=device, begun=begun).dtype
    of_train = {"condition": dataset.conditions.get("train"), "weights": dataset.weights.get("train")}
    state = TrainingState.initial(config, dataset.train, **of_train, device=device, precision=precision)
    moved = {part: c.to(device) for part, c in dataset.conditions.items() if part == "valid"}
    dataset = replace(dataset, valid=dataset.valid.to(device), conditions={**dataset.conditions, **moved})
    checkpoints = RunCheckpoints(
        run, state, settings, num_steps=num_steps, accept_changed_config=accept_changed_config
    )
    store, metrics = checkpoints.store, run.metrics()
    if is_writer := rank() == 0:
        metrics.drop_after(state.step if store.steps() else -1)
        checkpoints.warn_of_missing_lines()
        goes_on = 0 < state.step < num_steps and torch.device(device).type == "cpu"
        if goes_on and (others := other_rounding(begun)):
            text = "sums round differently, so its last weights are not those of an unbroken run"
            warnings.warn(f"the run {others}: {text}.", stacklevel=2)
    take_weights_of_rank_zero(state.model, state.gradient)
    start, before = time.monotonic(), max(seconds_in(metrics.read()), checkpoints.seconds)
    state.times.restart()
    times: dict[str, float] = {}
    best_elbos: ExampleValues | None = None
    best_error = math.nan  # of their log Z
    slower = schedules.first_importance_step(settings, num_steps)
    stage = None if slower is None else (slower, "importance samples")
    console = None if is_writer else Console(quiet=True)
    shows = progress or TrainingProgress(state.step, num_steps, console, stage=stage)

    def line(values: Mapping[str, float]) -> dict[str, float]:
        epoch, seconds = state.step / batches.steps_per_epoch, before + time.monotonic() - start
        return {"step": state.step, "epoch": epoch, "seconds": seconds, **values}

    def over() -> bool:
        """Whether all steps are taken, or patience has come to its end."""
        return state.step >= num_steps or checkpoints.wait_too_long(batches.steps_per_epoch)

    with yielding_threads(), written(metrics, logger, writes=is_writer) as append, shows as shown:
        if (reason := state.recorded.functions.reason) is not None:
            shown.note(f"Steps are taken operation by operation, which is slower: {reason}.")
        if settings.independent_start:
            is_new = state.step == 0 and all(each["step"] > 0 for each in metrics.read())
            elbo = checkpoints.begin_with_independent(config, dataset)
            if is_new:
                append(line(_line_of_validation(elbo, validation_score(elbo))))
                shown.note(f"step 0: independent columns have {elbo.elbo:.2f} nats (validation)")
        while not (ended := over()) and not agree_any(stop is not None and stop()):
            epoch, done = state.step / batches.steps_per_epoch, state.step / num_steps
            x = batches.batch(state.step)
            of_batch = batches.condition(state.step), batches.labels(state.step), batches.examples_per_label
            try:
                with nullcontext() if trace is None else trace.around(state.step + 1, state.times):
                    training_step(state, config, x, epoch, done, store, *of_batch)
            except SolverError:  # raised before anything of the step is done
                checkpoints.save_interim(line({})["seconds"])
                raise
            state.step += 1
            shown.advance(state.step)
            if trace is not None and trace.is_complete():
                shown.note(trace.write())
            validating = state.step == num_steps or state.step % settings.validate_every == 0
            if not validating and state.step % settings.log_every:
                continue
            times = state.times.metrics(settings.batch_size, x.device)
            values = _line_of_steps(state, store, to_compare=validating) | times
            append(values := line(values))
            shown.show(state.step, values["epoch"], {name: values[name] for name in _SHOWN if name in values})
            if validating:
                elbo, elbos = _validate(state, store, dataset)
                bound, examples, also = elbo, elbos, ""
                if (count := settings.num_importance_samples) > 1:
                    bound, examples = _validate(state, store, dataset, count)
                    also = f", bound of {count} samples {bound.elbo:.2f}"
                score = checkpoints.score(bound, examples)
                append(line(_line_of_validation(elbo, score)))
                if checkpoints.save(elbo, bound, score):
                    best_elbos, also = ExampleValues(elbos), f"{also} (best so far)"
                    best_error = elbo.log_partition_std_error
                found = with_error(elbo.elbo, elbo.total_std_error, 2)
                unknown = " ± unknown" if math.isnan(elbo.total_std_error) else ""
                shown.note(f"step {state.step}: validation ELBO {found}{unknown} nats{also}")
            state.times.restart()  # what the line itself took is not a step's
        shares = [name for name in times if name.endswith("_share")]
        if shares and trace is not None:
            words = (f"{name.removesuffix('_share')} {100 * times[name]:.0f} %" for name in shares)
            shown.note(f"Time of the last steps: {', '.join(words)}.")
        checkpoints.save_interim(line({})["seconds"])
        if ended and (kept := checkpoints.why_independent()):
            shown.note(kept)
        if trace is not None and not trace.written:
            shown.note(trace.write())
    best, seconds = checkpoints.best, time.monotonic() - start
    whole = state.step if ended else num_steps
    best_step, best_elbo = best.get("step"), best.get(_ELBO)
    return TrainingResult(whole, state.step, best_step, best_elbo, seconds, best_elbos, best_error)


def batches_of(
    config: ExperimentConfig,
    dataset: DataSplits,
    *,
    device: torch.device | str = "cpu",
    share: slice | None = None,
) -> TrainingBatches:
    """The batches of an experiment, of the data that it trains on."""
    training = config.training
    return TrainingBatches(
        dataset,
        training.batch_size,
        seed=config.seed,
        device=device,
        share=share,
        labels=config.model.label_numbers(dataset.labels.get("train"), len(dataset.train)),
        augmentation=training.augmentation,
        num_epochs=training.num_epochs,
    )


def training_step(
    state: TrainingState,
    config: ExperimentConfig,
    x: Tensor,
    epoch: float,
    progress: float,
    store: CheckpointStore | None = None,
    condition: Tensor | None = None,
    labels: Tensor | None = None,
    examples_per_label: float = 0.0,
) -> Elbo:
    """Take one step of the optimizer; returns the bound that it was taken for.

    Warm-up and the bound of beta go by the epochs done, or by progress, the share of the run, where they count in runs.
    The step size and the start of importance samples go by progress. The caller counts steps, which key the noise. An
    error names the last good checkpoint of the store.
    """
    settings, model = config.training, state.model
    if not model.training:
        model.train()
    time = epoch if settings.schedule_unit == "epoch" else progress
    model.smoothing.bound_sharpness_(schedules.max_beta(settings.beta_bound, time))
    set_rates(state.optimizer, schedules.learning_rate(settings.optimizer, progress))
    state.times.begin("chains")
    try:
        negative_phase = state.chains.step(settings.num_sweeps)
    except InvalidInputError:
        # the chains look at every weight that they use, so looking twice at each step is saved
        _check_weights_finite(state, store)
        raise
    state.times.begin("networks")
    discrete, continuous = schedules.kl_weights(settings.warm_up, time)
    num_samples = schedules.num_importance_samples(settings, progress)
    key = config.seed, _POSTERIOR_STREAM, state.step
    terms, means = state.recorded.take_gradients(
        x,
        negative_phase,
        discrete=discrete,
        continuous=continuous,
        num_importance_samples=num_samples,
        noise_key=key if world_size() == 1 else (*key, rank()),  # of this process's rows
        condition=condition,
        labels=labels,
        label_weight=settings.label_weight * examples_per_label,
    )
    means = average_step(state.optimizer, (model, state.gradient), means)
    _check_finite(dict(zip(_TERMS, means, strict=True)), state.step, store)
    state.times.begin("optimizer")
    decay_weights(state.optimizer)
    state.optimizer.update()
    state.recorded.project_()
    if state.averages is not None:
        state.averages.update(model, state.step + 1)
    state.sums.add(means, state.log_partition)
    state.times.end_step()
    return Elbo(*terms, state.log_partition, True, num_samples, weighs_binary_latents(model))


def _line_of_steps(state: TrainingState, store: CheckpointStore, *, to_compare: bool) -> dict[str, float]:
    """Means over the steps since the last line, and the state's metrics with log Z estimated anew."""
    _check_weights_finite(state, store)
    before = state.log_partition
    state.estimate_log_partition(to_compare=to_compare)
    values = state.sums.means(state.log_partition - before) | state_metrics(state)
    _check_finite(values, state.step, store)
    state.sums = ElboSums()
    return values


def _line_of_validation(elbo: MeanElbo, score: float) -> dict[str, float]:
    """What a line of the log says of a validation; a value that one example cannot give is left out."""
    found = {_ELBO: elbo.elbo, f"{_ELBO}_std_error": elbo.total_std_error, _SCORE: score}
    return {name: value for name, value in found.items() if not math.isnan(value)}


def _validate(
    state: TrainingState,
    store: CheckpointStore,
    dataset: DataSplits,
    num_importance_samples: int = 1,
) -> tuple[MeanElbo, Tensor]:
    """The validation ELBO or bound and that of each example, (example,), nats.

    log Z is that of the log's last line or, of averaged weights, their own.
    """
    log_partition, std_error = state.evaluated_log_partition()
    parts = elbo_parts(
        state.evaluated,
        dataset.valid,
        condition=dataset.conditions.get("valid"),
        log_partition=log_partition,
        num_importance_samples=num_importance_samples,
        seed=key_to_seed(state.seed, _VALIDATION_STREAM),
    )
    elbo = mean_elbo(parts, log_partition_std_error=std_error, weights=dataset.weights.get("valid"))
    _check_finite({"the validation ELBO": elbo.elbo}, state.step, store)
    return elbo, bounds(parts)


def _check_finite(values: Mapping[str, float], step: int, store: CheckpointStore | None) -> None:
    """Stop at the first value that is not finite; the error names it and the last good checkpoint."""
    for name, value in values.items():
        if not math.isfinite(value):
            steps = [] if store is None else store.steps()
            raise NonFiniteLossError(step, name, value, steps[-1] if steps else None) from None


def _check_weights_finite(state: TrainingState, store: CheckpointStore | None) -> None:
    if found := non_finite_weight(state.model):
        _check_finite({f"the weight {found[0]}": found[1]}, state.step, store)


# The checkpoints of a run in training: which one is the best, which one it goes on from, and what is saved when.


def validation_score(estimate: MeanElbo) -> float:
    """The score that checkpoints are compared by: the validation bound less two standard errors of its log Z, in nats.

    The bound is that which training raises: the ELBO, or the bound of the run's number of importance samples.

    Of the true bound L_k = A_k - log Z_k of checkpoint k, A_k - (log Z_k + e_k) is known, where e_k has the standard
    error s_k; noise of examples and draws is the same at each. The plain maximum picks the checkpoint whose log Z is
    known worst. L_k exceeds the score A_k - log Z_k - e_k - 2 s_k with a probability of 0.98. If a has the best score,
    b is passed over, and neither error exceeds 2 s, L_b - L_a <= 4 s_b, whatever s_a is; the plain maximum can cost
    2 s_a + 2 s_b. It trusts s_k, so log Z comes from `comparable_log_partition`, not from a short annealing.

    Examples:
        >>> lucky = MeanElbo(-89.7, 0.3, -80.0, 4.7, 5.0, 100, 1, log_partition_std_error=0.4)
        >>> known = MeanElbo(-90.0, 0.3, -80.2, 4.8, 5.0, 100, 1, log_partition_std_error=0.02)
        >>> round(validation_score(lucky), 2), round(validation_score(known), 2)
        (-90.5, -90.04)
    """
    return estimate.elbo - 2 * estimate.log_partition_std_error


def best_entry(step: int, elbo: MeanElbo, score: float | None = None) -> dict[str, Any]:
    """The entry of ``best.json``: step and validation ELBO of a checkpoint, and the score that it was compared by."""
    return {"step": step, _ELBO: elbo.elbo, _SCORE: validation_score(elbo) if score is None else score}


class RunCheckpoints:
    """Brings a state to where the run was left, and saves it from there on."""

    def __init__(
        self,
        run: RunDirectory,
        state: TrainingState,
        settings: TrainingConfig,
        *,
        num_steps: int,
        accept_changed_config: bool = False,
    ) -> None:
        self.store: CheckpointStore = run.checkpoints()
        self.best: dict[str, Any] = {}  # `best_entry` of the best; empty before the first validation
        self._independent: Tensor | None = None  # log p(x) of validation examples, features independent
        self._weights: Tensor | None = None  # of these examples
        self._dataset: DataSplits | None = None  # which they are of
        self._lead: dict[str, float] = {}  # of the last validation over independent features
        self._trained: dict[str, Any] = {}  # step, score and lead of the best that was trained; empty before
        self._knows_trained = True  # False after a resume if checkpoints have no such entry
        self._state, self._run, self._num_steps = state, run, num_steps
        self._settings = settings
        self._config_sum = run.config_sha256()
        self._changes: list[Any] = []
        self._saved: int | None = None
        self.seconds = 0.0  # of training until a checkpoint that was saved between two lines of the log
        if self.store.steps():
            self._restore(accept_changed_config)

    def _restore(self, accept_changed_config: bool) -> None:
        checkpoint = self.store.load("last")
        change = check_config(self._run, checkpoint.record, accept=accept_changed_config)
        best, changes = checkpoint.record.best, checkpoint.meta.get(_CHANGES, [])
        repair = "The file was changed by other means than training: restore it from a copy."
        with naming(str(checkpoint.folder)):
            wanted = self._meta(self._state.capture()[1]).keys()
            optional = {_SECONDS} if change is None else {_SECONDS, _TRAINED}  # which runs with patience have
            if differing := sorted((wanted ^ checkpoint.meta.keys()) - optional):
                received = "nothing" if differing[0] in wanted else "what training does not save"
                raise InvalidInputError(differing[0], "must be what training saves", received, repair)
            if checkpoint.meta.get("step") != checkpoint.step:
                received = f"{checkpoint.meta.get('step')!r}"[:80]
                raise InvalidInputError("step", f"must be {checkpoint.step}", received, repair)
            if best is None:
                if not checkpoint.record.interim or checkpoint.step >= self._num_steps:
                    raise InvalidInputError("best", "must name a checkpoint", "none", repair)
            else:
                for name in (_ELBO, _SCORE):
                    check_number(f"best {name}", best.get(name), repair=repair)
                self.best = best
            trained = checkpoint.meta.get(_TRAINED, {})
            if not isinstance(trained, dict):
                raise InvalidInputError(_TRAINED, "must hold a step and a score", f"{trained!r}"[:80], repair)
            of_lead = ("lead", "std_error", "least") if "lead" in trained else ()
            for name in ("step", "score", *of_lead) if trained else ():
                least = 0.0 if name == "step" else -math.inf
                check_number(f"{_TRAINED} {name}", trained.get(name), at_least=least, repair=repair)
            if not isinstance(changes, list) or not all(isinstance(each, dict) for each in changes):
                raise InvalidInputError(_CHANGES, "must be a list of changes", f"{changes!r}"[:80], repair)
            self.seconds = check_number(
                _SECONDS, checkpoint.meta.get(_SECONDS, 0.0), at_least=0, repair=repair
            )
        if checkpoint.step > 0:  # that of step 0 has another model than the one that trains
            self._state.restore(checkpoint.tensors, checkpoint.meta, source=str(checkpoint.folder))
        self._trained, self._knows_trained = trained, _TRAINED in checkpoint.meta or checkpoint.step == 0
        self._changes = [*changes, *([] if change is None else [asdict(change)])]
        self._saved = self._state.step
        compute_on_rank_zero(self.store.repair_best)
        if rank() == 0 and self.best:
            try:
                self.store.verify(self.best["step"])
            except InvalidInputError as error:
                warnings.warn(f"the best checkpoint so far cannot be used: {error}", stacklevel=3)

    def save(self, elbo: MeanElbo, bound: MeanElbo, score: float) -> bool:
        """Save the state after a validation with its score; returns True if it is the best so far.

        Checkpoints are compared by the bound that training raises, from the first step on: the ELBO of a model trained
        for a higher bound falls while its log-likelihood rises.
        """
        if better := not self.best or score > self.best[_SCORE]:
            self.best = best_entry(self._state.step, elbo, score)
        if not self._trained or validation_score(bound) > self._trained["score"]:
            self._trained = {"step": self._state.step, "score": validation_score(bound), **self._lead}
        self._save(best=self.best if better else None)
        return better

    def begin_with_independent(self, config: ExperimentConfig, dataset: DataSplits) -> MeanElbo:
        """Make a model of independent features the first candidate for the best checkpoint, that of step 0.

        It is saved before the first step. Training does not start from it, so the state stays as it is. Returns its
        validation ELBO, which is the log-likelihood of independent features.
        """
        model, (valid, conditions) = initial_model(config).double(), (dataset.valid, dataset.conditions)
        of_train, of_valid = (dataset.weights.get(part) for part in ("train", "valid"))
        train, condition = by_weight(model.likelihood, dataset.train, conditions.get("train"), of_train)
        model.make_independent_(train, condition=condition)
        model.to(valid.device, self._state.model.dtype)
        log_partition = model.prior.num_units * math.log(2)  # of a prior whose weights are 0
        parts = elbo_parts(model, valid, condition=conditions.get("valid"), log_partition=log_partition)
        elbo, self._independent = mean_elbo(parts, weights=of_valid), bounds(parts)
        self._weights, self._dataset = positive_weights(of_valid, len(valid)), dataset
        if not self.store.steps():
            _check_finite({"the validation ELBO of independent features": elbo.elbo}, 0, self.store)
            self.best = best_entry(0, elbo)
            own = {f"{MODEL_PREFIX}{name}": value for name, value in model.state_dict().items()}
            self._save(best=self.best, tensors=own)
        return elbo

    def score(self, bound: MeanElbo, examples: Tensor) -> float:
        """`validation_score`, which is that of independent features at most where chance may have made the lead.

        Few validation examples like one of many checkpoints by chance. The lead is the mean of differences in the same
        examples. Of a model that is no better, a lead over its standard error follows about Student's t with one degree
        of freedom less than examples: it must exceed the quantile at 0.95. That holds for one checkpoint; those of a
        run are alike, and too closely fitted ones are worse, so that all of them together seldom pass more often.

        Two standard errors of log Z, which shifts all differences, are added to what a lead must exceed. A bound may
        lie far below log p(x): where its lead is above these two and does not pass, that of the log-likelihood by
        importance samples is judged. The bound of each of the examples is (example,), nats.
        """
        score = validation_score(bound)
        if self._independent is None:
            return score
        assert self._dataset is not None
        # two standard errors of log Z, by which the score lies below the bound
        penalty = bound.elbo - score
        number = len(examples) if self._weights is None else effective_number(self._weights)
        independent = float(weighted_mean(self._independent, self._weights))

        def is_clear(lead: float, gains: Tensor) -> bool:
            error = float(standard_error(gains, self._weights))
            least = error * float(stdtrit(number - 1, _LEVEL)) + penalty
            # one example has no error
            kept = {"lead": lead, "std_error": math.hypot(error, penalty / 2), "least": least}
            self._lead = kept if math.isfinite(least) else {}
            return lead > least

        lead = bound.elbo - independent
        if is_clear(lead, examples - self._independent):
            return score
        if lead > penalty and self._lead:
            log_partition, _ = self._state.evaluated_log_partition()
            found = evaluate_log_likelihood(
                self._state.evaluated,
                self._dataset.valid,
                log_partition=log_partition,
                num_samples=_SAMPLES,
                condition=self._dataset.conditions.get("valid"),
            ).examples
            assert found is not None
            gains = found.value.to(self._independent) - self._independent
            if is_clear(float(weighted_mean(gains, self._weights)), gains):
                return score
        # that of step 0 has been rounded by the processor on which the run began
        return min(score, independent, self.best.get(_SCORE, independent))

    def why_independent(self) -> str | None:
        """A line that says why independent features are kept, None where they are not."""
        if self.best.get("step") != 0 or "lead" not in self._trained or not self._knows_trained:
            return None
        found = self._trained
        side = "better" if found["lead"] > 0 else "worse"
        return (
            f"Independent columns are kept: the best trained checkpoint, of step {found['step']}, is {side} by "
            f"{with_error(abs(found['lead']), found['std_error'], 2)} nats on the validation part, and a lead counts "
            f"from {found['least']:.{digits_of(found['std_error'], 2)}f} on."
        )

    def wait_too_long(self, steps_per_epoch: int) -> bool:
        """Tell if patience has ended: that many validations without a better bound since the best one.

        They count from the end of warm-up and the first importance samples on. The best is that of the checkpoints that
        were trained, which may still be below independent features.
        """
        settings = self._settings
        patience, every = settings.patience, settings.validate_every
        if patience is None or not self._trained:
            return False
        samples = schedules.first_importance_step(settings, self._num_steps) or 0
        first = math.ceil(max(settings.last_warm_up * steps_per_epoch, samples) / every) * every
        return self._state.step >= max(self._trained["step"], first) + patience * every

    def save_interim(self, seconds: float) -> None:
        """Save the state between two validations, unless nothing has been done since the last checkpoint.

        The seconds are those of training until now, of which the log need not have a line.
        """
        if self._state.step in (0, self._saved):
            return
        _check_weights_finite(self._state, self.store)
        self._save(interim=True, seconds=seconds)

    def _save(
        self,
        *,
        best: dict[str, Any] | None = None,
        interim: bool = False,
        seconds: float | None = None,
        tensors: Mapping[str, Tensor] | None = None,
    ) -> None:
        own, meta = self._state.capture()
        tensors, meta = own | dict(tensors or {}), self._meta(meta)
        meta |= {} if seconds is None else {_SECONDS: seconds}

        def write() -> None:
            self._run.metrics().sync()  # the log must not lag behind the checkpoint
            self.store.save(self._state.step, tensors, meta, best=best, interim=interim)

        compute_on_rank_zero(write)
        self._saved = self._state.step

    def _meta(self, of_state: dict[str, Any]) -> dict[str, Any]:
        """The plain values of a checkpoint; runs without patience keep those that they always had."""
        meta = of_state | {CONFIG_SUM: self._config_sum, _CHANGES: self._changes}
        return meta if self._settings.patience is None else meta | {_TRAINED: self._trained}

    def warn_of_missing_lines(self) -> None:
        """Warn if the log lacks lines of steps that were done before."""
        known = [each["step"] for each in self._changes if isinstance(each.get("step"), int)]
        steps = range(max(known, default=0) + 1, self._state.step + 1)  # other settings have other lines
        there = {record["step"] for record in self._run.metrics().read() if "elbo" in record}
        due = {self._num_steps} if self._num_steps in steps else set()
        for every in (self._settings.log_every, self._settings.validate_every):
            due.update(range(-(-steps.start // every) * every, steps.stop, every))
        missing = sorted(due - there)
        if missing:
            more = f", ... {missing[-1]}" if len(missing) > _NAMED_STEPS else ""
            warnings.warn(
                f"{self._run.metrics_path} lacks {len(missing)} lines, of the steps "
                f"{', '.join(map(str, missing[:_NAMED_STEPS]))}{more}; the weights are not concerned, and training "
                "goes on.",
                stacklevel=3,
            )
