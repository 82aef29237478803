"""Whether an experiment can be run on its data, here and now."""

from __future__ import annotations

from discrete_vae.checks import check_gradients_are_recorded
from discrete_vae.config import ExperimentConfig
from discrete_vae.data.batches import TrainingBatches
from discrete_vae.data.chosen import chosen_examples
from discrete_vae.data.dataset import DataSplits
from discrete_vae.data.readable import check_readable
from discrete_vae.errors import InvalidInputError
from discrete_vae.training.compiled_loss import check_compiler
from discrete_vae.training.feasible import check_feasible
from discrete_vae.training.replicas import check_divisible


def check_experiment(config: ExperimentConfig, dataset: DataSplits) -> int:
    """Check that an experiment can be run on its data; returns the number of steps of the whole run.

    Raises:
        InvalidInputError: If the model's parts do not fit each other, the data or the memory, a batch is too large,
            torch records no gradients here, or the step is to be compiled and torch.compile does not work here.
    """
    check_gradients_are_recorded("train")
    if dataset.num_features != config.model.num_values:
        rule = f"must have the data's {dataset.num_features} values"
        repair = "Leave it out, or use the data that the model was made for."
        name = "model.num_features" if config.model.event_shape is None else "model.event_shape"
        raise InvalidInputError(name, rule, config.model.num_values, repair)
    check_readable(config.model, dataset)
    check_feasible(config, dataset)
    check_divisible(config)
    chosen = chosen_examples(dataset, config.training)
    batches = TrainingBatches(chosen, config.training.batch_size, seed=config.seed)
    if config.training.compile:
        check_compiler()
    return config.training.num_epochs * batches.steps_per_epoch
