"""The checkpoints of a run in training: which one it goes on from, what is saved when, which is the best."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from typing import Any

from discrete_vae.checks import check_number
from discrete_vae.config import TrainingConfig
from discrete_vae.distributed import compute_on_rank_zero, rank
from discrete_vae.errors import InvalidInputError, naming
from discrete_vae.evaluation.elbo import MeanElbo
from discrete_vae.runs.changed_config import CONFIG_SUM, check_config
from discrete_vae.runs.checkpoint_store import CheckpointStore
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.training.finite import non_finite_weight
from discrete_vae.training.log_metrics import missing_lines
from discrete_vae.training.selection import validation_score
from discrete_vae.training.state import TrainingState

_CHANGES = "config_changes"
_ELBO, _SCORE = "validation_elbo", "validation_score"
_NAMED_STEPS = 5


def best_entry(step: int, elbo: MeanElbo, bound: MeanElbo | None = None) -> dict[str, Any]:
    """What ``best.json`` says of the best checkpoint.

    Args:
        step: Its step.
        elbo: Its validation ELBO.
        bound: What it was compared by; None is the ELBO.
    """
    return {"step": step, _ELBO: elbo.elbo, _SCORE: validation_score(elbo if bound is None else bound)}


class RunCheckpoints:
    """Brings a state to where the run was left, and saves it from there on.

    Args:
        run: The run.
        state: The state before the first step; brought to the last checkpoint, if there is one.
        num_steps: Steps of the whole run.
        accept_changed_config: Whether a config.json that has changed since then is a warning, not an error.

    Attributes:
        store: The checkpoints.
        best_step: Step of the best one; None before the first validation.
        best_elbo: Its validation ELBO, nats; None before the first validation.
        best_score: What it is the best by, `validation_score`, nats; None before the first validation.

    Raises:
        InvalidInputError: If the last checkpoint is damaged or another model's, or the config has changed.
    """

    def __init__(
        self, run: RunDirectory, state: TrainingState, *, num_steps: int, accept_changed_config: bool = False
    ) -> None:
        self.store: CheckpointStore = run.checkpoints()
        self.best_step: int | None = None
        self.best_elbo: float | None = None
        self.best_score: float | None = None
        self._state, self._run, self._num_steps = state, run, num_steps
        self._config_sum = run.config_sha256()
        self._changes: list[Any] = []
        self._saved: int | None = None
        if self.store.steps():
            self._restore(accept_changed_config)

    def _restore(self, accept_changed_config: bool) -> None:
        checkpoint = self.store.load("last")
        change = check_config(self._run, checkpoint.record, accept=accept_changed_config)
        best, changes = checkpoint.record.best, checkpoint.meta.get(_CHANGES, [])
        repair = "The file was changed by other means than training: restore it from a copy."
        with naming(str(checkpoint.folder)):
            wanted = self._state.capture()[1].keys() | {CONFIG_SUM, _CHANGES}
            if differing := sorted(wanted ^ checkpoint.meta.keys()):
                received = "nothing" if differing[0] in wanted else "what training does not save"
                raise InvalidInputError(differing[0], "must be what training saves", received, repair)
            if checkpoint.meta.get("step") != checkpoint.step:
                received = f"{checkpoint.meta.get('step')!r}"[:80]
                raise InvalidInputError("step", f"must be {checkpoint.step}", received, repair)
            if best is None:
                if not checkpoint.record.interim or checkpoint.step >= self._num_steps:
                    raise InvalidInputError("best", "must name a checkpoint", "none", repair)
            else:
                self.best_step = best["step"]
                self.best_elbo, self.best_score = (
                    check_number(f"best {name}", best.get(name), repair=repair) for name in (_ELBO, _SCORE)
                )
            if not isinstance(changes, list) or not all(isinstance(each, dict) for each in changes):
                raise InvalidInputError(_CHANGES, "must be a list of changes", f"{changes!r}"[:80], repair)
        self._state.restore(checkpoint.tensors, checkpoint.meta, source=str(checkpoint.folder))
        self._changes = [*changes, *([] if change is None else [asdict(change)])]
        self._saved = self._state.step
        compute_on_rank_zero(self.store.repair_best)
        if rank() == 0:
            self._warn_of_damaged_best()

    def save(self, elbo: MeanElbo, bound: MeanElbo) -> bool:
        """Save the state after a validation; returns whether it is the best so far.

        Args:
            elbo: The validation ELBO.
            bound: What checkpoints are compared by: the bound with the run's number of importance samples, from its
                first step on. The ELBO of a model trained for that bound falls while its log-likelihood rises.
        """
        score = validation_score(bound)
        better = self.best_score is None or score > self.best_score
        if better:
            self.best_step, self.best_elbo, self.best_score = self._state.step, elbo.elbo, score
        self._save(best=best_entry(self._state.step, elbo, bound) if better else None)
        return better

    def save_interim(self) -> None:
        """Save the state between two validations, unless nothing has been done since the last checkpoint.

        Raises:
            NonFiniteLossError: If a weight is not finite; nothing is saved.
        """
        if self._state.step in (0, self._saved):
            return
        broken = non_finite_weight(self._state, self.store)
        if broken is not None:
            raise broken
        self._save(interim=True)

    def _save(self, *, best: dict[str, Any] | None = None, interim: bool = False) -> None:
        tensors, meta = self._state.capture()
        meta |= {CONFIG_SUM: self._config_sum, _CHANGES: self._changes}

        def write() -> None:
            self._run.metrics().sync()  # the log must not lag behind the checkpoint
            self.store.save(self._state.step, tensors, meta, best=best, interim=interim)

        compute_on_rank_zero(write)
        self._saved = self._state.step

    def warn_of_missing_lines(self, settings: TrainingConfig) -> None:
        """Warn if the log lacks lines of steps that were done before."""
        known = [each["step"] for each in self._changes if isinstance(each.get("step"), int)]
        steps = range(max(known, default=0) + 1, self._state.step + 1)  # other settings have other lines
        missing = missing_lines(self._run.metrics().read(), settings, steps, self._num_steps)
        if missing:
            named = ", ".join(map(str, missing[:_NAMED_STEPS])) + (
                f", ... {missing[-1]}" if len(missing) > _NAMED_STEPS else ""
            )
            warnings.warn(
                f"{self._run.metrics_path} lacks {len(missing)} lines, of the steps {named}; the weights are not "
                "concerned, and training goes on.",
                stacklevel=3,
            )

    def _warn_of_damaged_best(self) -> None:
        if self.best_step is None:
            return
        try:
            self.store.verify(self.best_step)
        except InvalidInputError as error:
            warnings.warn(f"the best checkpoint so far cannot be used: {error}", stacklevel=4)
