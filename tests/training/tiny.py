"""A run that takes a second: what the tests of training share."""

from discrete_vae.config import (
    BlockGibbsConfig,
    DigitsConfig,
    EvaluationConfig,
    ExperimentConfig,
    HierarchicalPosteriorConfig,
    MLPDecoderConfig,
    ModelConfig,
    RBMConfig,
    TrainingConfig,
)
from discrete_vae.data.datasets import load_dataset
from discrete_vae.runs.progress import TrainingProgress
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.training.loop import run_steps
from discrete_vae.training.state import TIME_METRICS

CONFIG = ExperimentConfig(
    name="tiny",
    size="smoke",
    data=DigitsConfig(),
    model=ModelConfig(
        num_features=64,
        prior=RBMConfig(num_left=5, num_right=4),
        posterior=HierarchicalPosteriorConfig(groups=3, hidden=(12,)),
        decoder=MLPDecoderConfig(hidden=(10,)),
    ),
    training=TrainingConfig(
        num_epochs=3,
        batch_size=100,
        sampler=BlockGibbsConfig(num_chains=30),
        num_sweeps=3,
        log_every=5,
        validate_every=7,
    ),
    evaluation=EvaluationConfig(num_samples=50, num_annealed_chains=20, num_temperatures=20),
)
NUM_STEPS = 36  # three epochs of twelve batches


class QuietProgress(TrainingProgress):
    """Shows nothing, and can raise at a step as a kill would end the process there."""

    def __init__(self, stop_at=None, error=KeyboardInterrupt):
        super().__init__(0, NUM_STEPS)
        self.stop_at, self.error = stop_at, error

    def advance(self, step):
        if step == self.stop_at:
            raise self.error

    def show(self, step, epoch, values):
        pass

    def note(self, text):
        pass


def start_run(folder, config=CONFIG):
    run = RunDirectory.create(folder)
    run.write_config(config.model_dump_json())
    return run


def train_quietly(run, config=CONFIG, stop_at=None, **more):
    return run_steps(config, load_dataset("digits"), run, progress=QuietProgress(stop_at), **more)


def without_times(records):
    """What a log says of the numbers, which a resumption leaves as they are."""
    return [{name: value for name, value in each.items() if name not in TIME_METRICS} for each in records]
