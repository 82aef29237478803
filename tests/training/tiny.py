"""A run that takes a second: what the tests of training share."""

import torch

from discrete_vae.config import (
    BlockGibbsConfig,
    DigitsConfig,
    EvaluationConfig,
    ExperimentConfig,
    MLPDecoderConfig,
    TrainingConfig,
)
from discrete_vae.config.overrides import apply_overrides
from discrete_vae.data.datasets import load_dataset
from discrete_vae.runs.progress import TrainingProgress
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.training.loop import run_steps
from discrete_vae.training.state import TIME_METRICS
from tests.models import small_config

CONFIG = ExperimentConfig(
    name="tiny",
    size="smoke",
    data=DigitsConfig(),
    model=small_config(64, units=(5, 4), groups=3, hidden=(12,), decoder=MLPDecoderConfig(hidden=(10,))),
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
LAYERS = {"num-layers": "2", "num-units": "3", "posterior-hidden": "6", "prior-hidden": "6"}
LAYERS = {"model.hierarchy": "gaussian"} | {
    f"model.hierarchy.{name}": value for name, value in LAYERS.items()
}
NUM_STEPS = 36  # three epochs of twelve batches


class QuietProgress(TrainingProgress):
    """Shows nothing, and can raise at a step as a kill would end the process there."""

    def __init__(self, stop_at=None):
        super().__init__(0, NUM_STEPS)
        self.stop_at = stop_at

    def advance(self, step):
        if step == self.stop_at:
            raise KeyboardInterrupt

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


def changed(config, settings):
    """A config with other settings, which are words by name."""
    return apply_overrides(config, [(name, value.split()) for name, value in settings.items()])


def stop_after(num_steps):
    """Says stop after so many steps."""
    asked = iter(range(num_steps))
    return lambda: next(asked, None) is None


def without_times(records):
    """What a log says of the numbers, which a resumption leaves as they are."""
    return [{name: value for name, value in each.items() if name not in TIME_METRICS} for each in records]


def last_tensors(run):
    return run.checkpoints().load("last").tensors


def assert_same_run(run, other):
    """All that a further step would depend on, byte by byte, the best checkpoint and the log."""
    one, two = (each.checkpoints().load("last") for each in (run, other))
    assert one.meta == two.meta
    assert one.tensors.keys() == two.tensors.keys()
    for name, value in one.tensors.items():
        raw = [tensor.contiguous().flatten().view(torch.uint8) for tensor in (value, two.tensors[name])]
        assert torch.equal(*raw), name
    assert run.best_path.read_bytes() == other.best_path.read_bytes()
    assert without_times(run.metrics().read()) == without_times(other.metrics().read())
