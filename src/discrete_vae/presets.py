"""Ready experiments: functions of the size that return a config. Nothing here imports torch."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from math import prod
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from discrete_vae._version import __version__
from discrete_vae.config import (
    BernoulliLikelihoodConfig,
    BetaBoundConfig,
    BlockGibbsConfig,
    Caltech101SilhouettesConfig,
    CompleteSharingConfig,
    DataConfig,
    DigitsConfig,
    EvaluationConfig,
    ExperimentConfig,
    FactorialBernoulliConfig,
    FileDataConfig,
    GaussianHierarchyConfig,
    GaussianLikelihoodConfig,
    GroupSharingConfig,
    HierarchicalPosteriorConfig,
    LikelihoodConfig,
    MLPDecoderConfig,
    MNISTDynamicConfig,
    MNISTStaticConfig,
    ModelConfig,
    NoHierarchyConfig,
    NoSharingConfig,
    OmniglotConfig,
    OptimizerConfig,
    PriorConfig,
    RBMConfig,
    SharingConfig,
    TrainingConfig,
    WarmUpConfig,
)
from discrete_vae.config.base import ComponentConfig, Record
from discrete_vae.errors import InvalidInputError
from discrete_vae.overrides import Override, check_known, settings, slots

Size = Literal["smoke", "short", "cpu", "paper"]
SIZES: tuple[str, ...] = get_args(Size)

_MODULES = {
    "digits": "digits",
    "mnist-dynamic": "mnist_dynamic",
    "mnist-static": "mnist_static",
    "omniglot": "omniglot",
    "caltech101-silhouettes": "caltech101_silhouettes",
    "mnist-static-rbm128": "mnist_static_rbm128",
    "mnist-static-rbm200": "mnist_static_rbm200",
    "mnist-static-rbm128-linear": "mnist_static_rbm128_linear",
    "mnist-static-rbm200-linear": "mnist_static_rbm200_linear",
    "mnist-static-factorial-prior": "mnist_static_factorial_prior",
    "mnist-static-factorial": "mnist_static_factorial",
}


def experiment_names() -> tuple[str, ...]:
    """The names that `load_experiment` knows."""
    return tuple(_MODULES)


def experiment_function(name: str) -> Callable[[Size], ExperimentConfig]:
    """The function behind a name; its docstring says command, expected value and time.

    Raises:
        InvalidInputError: If there is no such experiment.
    """
    if not isinstance(name, str) or name not in _MODULES:
        rule = f"must be one of {', '.join(_MODULES)}"
        raise InvalidInputError("experiment", rule, repr(name), _meant(str(name)))
    return globals()[_MODULES[name]]


def _meant(word: str) -> str:
    """What to do about a word that is no experiment's name; a file is recognized as one."""
    close = [name for name in _MODULES if name.startswith(word)]
    close = close or get_close_matches(word, _MODULES, n=1)
    if Path(word).suffix in {".npy", ".npz", ".csv", ".parquet"}:
        return f"Did you mean --data {word}?"
    if close and word:
        return f"Did you mean {' or '.join(close[:3])}?"
    return "dvae list shows what they are; for data of your own: --data FILE."


def load_experiment(name: str, size: Size = "short") -> ExperimentConfig:
    """The config of a ready experiment.

    Args:
        name: See `experiment_names`.
        size: "smoke" (under a minute), "short" (minutes to an hour on two cores), "cpu" (an hour or two on two cores)
            or "paper".

    Raises:
        InvalidInputError: If the name or the size is unknown.

    Examples:
        >>> load_experiment("digits").model.prior.num_units
        32
    """
    if size not in SIZES:
        raise InvalidInputError(
            "size", f"must be one of {', '.join(SIZES)}", repr(size), "Choose one of them."
        )
    return experiment_function(name)(size)


# An experiment for data of one's own.


_BATCH_SIZE = 100
_STEPS = {"smoke": 200, "short": 8_000, "cpu": 40_000, "paper": 100_000}
_WIDTHS = {"smoke": 50, "short": 200, "cpu": 400, "paper": 1000}
_UNITS = {"smoke": 8, "short": 24, "cpu": 32, "paper": 64}
_SMOKE_WORK, _MIN_SMOKE_STEPS = 2_000_000, 20  # work is steps x features
_MAX_SMOKE_EXAMPLES = 250  # of validation and of test


def own_data(
    path: Path,
    *,
    event_shape: tuple[int, ...],
    num_train: int,
    num_valid: int,
    num_test: int,
    size: str,
    likelihood: LikelihoodConfig | None = None,
    binarize: bool = False,
    missing: bool = False,
) -> ExperimentConfig:
    """An RBM prior, four groups and one hidden layer per network; for real values a Gaussian layer besides.

    Command: dvae train --data FILE, with --model.likelihood for other values than bits. The default size trains 8,000
    steps, a few minutes on two cores; 24 + 24 units keep log Z exact. What it reaches depends on the data. Real values
    vary within a class, and bits would have to spell that out: one layer of Gaussian latents tells it, so that the bits
    are left to the classes. On 5,000 rows of 45 columns in 8 clusters, within which four factors correlate the columns,
    the ELBO rose by 7 nats, and the different codes of these rows fell from 4,945 to 1,737. Size smoke
    takes a minute at most however large the file is: it sees a fixed random choice of the examples, and takes fewer
    steps where there are very many features.

    Args:
        path: The file.
        event_shape: Shape of an example, (feature,) or (channel, row, column).
        num_train: Examples of its training part.
        num_valid: Examples of its validation part.
        num_test: Examples of its test part.
        size: "smoke", "short", "cpu" or "paper".
        likelihood: How values are read; None is as bits.
        binarize: Whether values are probabilities of bits.
        missing: Whether values are missing.
    """
    num_features = prod(event_shape)
    num_steps, chosen, validated, tested = _STEPS[size], None, None, None
    batch_size = min(_BATCH_SIZE, num_train)
    if size == "smoke":
        num_steps = min(num_steps, max(_MIN_SMOKE_STEPS, _SMOKE_WORK // num_features))
        chosen = _fewer(num_train, num_steps * batch_size)
        validated, tested = _fewer(num_valid, _MAX_SMOKE_EXAMPLES), _fewer(num_test, _MAX_SMOKE_EXAMPLES)
    num_epochs = max(1, num_steps // ((chosen or num_train) // batch_size))
    width, units = _WIDTHS[size], _UNITS[size]
    likelihood = likelihood or BernoulliLikelihoodConfig()
    layer = GaussianHierarchyConfig(
        num_layers=1, num_units=units, posterior_hidden=(width,), prior_hidden=(-(-width // 2),)
    )
    is_table = len(event_shape) == 1
    return ExperimentConfig(
        name="own-data",
        size=size,
        data=FileDataConfig(path=path, binarize=binarize),
        model=ModelConfig(
            num_features=num_features if is_table else None,
            event_shape=None if is_table else event_shape,
            missing=missing,
            prior=RBMConfig(num_left=units, num_right=units),
            posterior=HierarchicalPosteriorConfig(groups=4, hidden=(width,)),
            hierarchy=layer if isinstance(likelihood, GaussianLikelihoodConfig) else NoHierarchyConfig(),
            decoder=MLPDecoderConfig(hidden=(width,)),
            likelihood=likelihood,
        ),
        training=TrainingConfig(
            num_epochs=num_epochs,
            batch_size=batch_size,
            num_examples=chosen,
            num_validation_examples=validated,
            warm_up=WarmUpConfig(epochs=0.05 * num_epochs, prior_epochs=0.1 * num_epochs),
            beta_bound=BetaBoundConfig(start=3.0, slope=3.0 / num_epochs),
            sampler=BlockGibbsConfig(num_chains=500),
            num_sweeps=20,
            validate_every=min(500, num_steps // 2),
        ),
        evaluation=EvaluationConfig(num_samples=200 if size == "smoke" else 1000, num_examples=tested),
    )


def _fewer(count: int, most: int) -> int | None:
    """The limit where it leaves some out, None for all."""
    return most if count > most else None


# What to cite for a model: the papers behind the parts that are in use.


LIBRARY = f"""% This library
@software{{discrete-vae,
  title   = {{discrete-vae: variational autoencoders with a {{Boltzmann}}-machine prior}},
  author  = {{{{The discrete-vae developers}}}},
  version = {{{__version__}}}
}}"""


@cache
def references() -> dict[str, str]:
    """Every reference by its key, as BibTeX."""
    text = files("discrete_vae").joinpath("references.bib").read_text(encoding="utf-8")
    return {re.findall(r"@\w+\{([^,]+),", entry)[0]: entry for entry in text.strip().split("\n\n")}


def cited_keys(config: ExperimentConfig) -> list[str]:
    """Keys of the papers behind an experiment, each once: that of the model, those of its parts, those of settings.

    Examples:
        >>> from discrete_vae import load_experiment
        >>> cited_keys(load_experiment("digits"))
        ['rolfe2017', 'alpaydin1998', 'loshchilov2017', 'tieleman2008', 'kingma2015', 'burda2016', 'bennett1976']
    """
    training = config.training
    keys = ["rolfe2017", *_keys_of_parts(config), "kingma2015"]
    if training.averaging.decay > 0:
        keys.append("polyak1992")
    if training.num_importance_samples > 1:
        keys.append("tucker2019")
    keys.append("burda2016")  # log p(x) of an evaluation is their bound of many samples
    if not isinstance(config.model.prior, FactorialBernoulliConfig):
        keys.append("bennett1976")
    return list(dict.fromkeys(keys))


def cite(config: ExperimentConfig | None = None) -> str:
    """BibTeX of the library and of the papers behind an experiment; of the model's paper alone without one."""
    keys = ["rolfe2017"] if config is None else cited_keys(config)
    return "\n\n".join([LIBRARY, *(references()[key] for key in keys)])


def _keys_of_parts(record: Record) -> Iterator[str]:
    """The keys that components name, the record's own and those within."""
    if isinstance(record, ComponentConfig):
        yield from record.references
    for name in type(record).model_fields:
        value = getattr(record, name)
        if isinstance(value, Record):
            yield from _keys_of_parts(value)


# Where two experiments differ, in the words of the command line.


def first_difference(before: ExperimentConfig, after: ExperimentConfig) -> tuple[str, object, object]:
    """The option of the first value that differs, and the two values.

    Args:
        before: One experiment.
        after: Another one, not the same.

    Examples:
        >>> from discrete_vae.presets import load_experiment
        >>> first_difference(load_experiment("digits", "smoke"), load_experiment("digits", "short"))
        ('--size', 'smoke', 'short')
    """
    return _first(before.model_dump(), after.model_dump())


def _first(before: dict[str, Any], after: dict[str, Any]) -> tuple[str, object, object]:
    name = next(name for name in after if before.get(name) != after[name])
    one, other = before.get(name), after[name]
    if isinstance(one, dict) and isinstance(other, dict):
        option, one, other = _first(one, other)
        return f"--{name.replace('_', '-')}.{option.removeprefix('--')}", one, other
    return "EXPERIMENT" if name == "name" else f"--{name.replace('_', '-')}", one, other


# What the experiments with continuous layers share: the paper's settings, and one choice where it has none.


_BATCH_SIZES = {"smoke": 100, "short": 400, "cpu": 400, "paper": 100}
_LEARNING_RATES = {"smoke": 1e-3, "short": 4e-3, "cpu": 4e-3, "paper": 1e-3}
# widths of all posterior networks
_PAPER_EXPERIMENT_WIDTHS = {
    "smoke": (100, 100),
    "short": (400, 400),
    "cpu": (400, 400),
    "paper": (2000, 2000),
}
_PAPERS_WARM_UP = WarmUpConfig(strength=20.0, epochs=5, prior_strength=2.0, prior_epochs=20)


class CpuChoices(NamedTuple):
    """What validation data prefer in size cpu of one data set (docs/results.md).

    Attributes:
        warm_up_epochs: Of the layers; the prior's own are three times as many. None: as many steps as in size short.
        num_importance_samples: In the last quarter of the run.
        decoder_weight_decay: Of the decoder's matrices.
    """

    warm_up_epochs: int | None = None
    num_importance_samples: int = 5
    decoder_weight_decay: float = 0.0


_AS_SHORT = CpuChoices()


def paper_experiment(
    name: str,
    size: str,
    *,
    data: DataConfig,
    layers: dict[str, tuple[int, int, int]],
    sharing: SharingConfig,
    num_epochs: dict[str, int],
    num_training: int,
    decoder_hidden: dict[str, tuple[int, ...]] | None = None,
    batch_sizes: dict[str, int] = _BATCH_SIZES,
    cpu: CpuChoices = _AS_SHORT,
) -> ExperimentConfig:
    """An experiment on 28x28 images with an RBM of 64 + 64 units, four groups and Gaussian layers below.

    Args:
        name: Its name.
        size: "smoke", "short", "cpu" or "paper".
        data: Its data set.
        layers: By size: number of layers, units of each, width of the prior's one hidden layer.
        sharing: How the prior's networks share parameters.
        num_epochs: By size.
        num_training: Training examples, which set how often to validate.
        decoder_hidden: Widths of the decoder's hidden layers by size; None makes it linear.
        batch_sizes: Of the minibatches, by size.
        cpu: What size cpu has of its own.
    """
    num_layers, num_units, prior_width = layers[size]
    return ExperimentConfig(
        name=name,
        size=size,
        data=data,
        model=ModelConfig(
            event_shape=(1, 28, 28),
            prior=RBMConfig(num_left=64, num_right=64),
            posterior=HierarchicalPosteriorConfig(groups=4, hidden=_PAPER_EXPERIMENT_WIDTHS[size]),
            hierarchy=GaussianHierarchyConfig(
                num_layers=num_layers,
                num_units=num_units,
                posterior_hidden=_PAPER_EXPERIMENT_WIDTHS[size],
                prior_hidden=(prior_width,),
                sharing=sharing,
            ),
            decoder=MLPDecoderConfig(hidden=() if decoder_hidden is None else decoder_hidden[size]),
        ),
        training=_training(
            size,
            num_epochs[size],
            num_training,
            batch_sizes[size],
            cpu if size == "cpu" else _AS_SHORT,
        ),
        evaluation=_evaluation(size),
    )


def _training(
    size: str, num_epochs: int, num_training: int, batch_size: int, choices: CpuChoices
) -> TrainingConfig:
    """Training as in the paper's section architecture, with fewer sweeps in the small sizes.

    The paper's: Adam with a decaying step size, 100 sweeps per step of 20 persistent chains per example of the batch, a
    trained beta under a bound that rises with the epoch, warm-up of strength 20 over 5 epochs and a further one of
    strength 2 over 20 epochs on the RBM alone. Ours, as the paper is silent: minibatches of 100, a step size that falls
    as half a cosine from 1e-3 to 3e-5 (short and cpu: from 4e-3 to 1.2e-4), a bound of beta from 3 to 8 (above 8, rare
    draws carry most of beta's gradient), and no early stopping but that the best checkpoint by validation bound is the
    one evaluated.

    Sizes short and cpu have what paid in measurements (docs/results.md) and is not the paper's: minibatches of 400
    (Caltech-101 Silhouettes 200), for which the step size first rises over 3 % of the run (without, the Gaussian layers
    of wide models died), other warm-ups, and five importance samples in the last quarter of the run, where nothing else
    was chosen.

    Args:
        size: "smoke", "short", "cpu" or "paper".
        num_epochs: Epochs.
        num_training: Training examples, which set how often to validate.
        batch_size: Examples of a minibatch.
        choices: Of sizes short and cpu.
    """
    validations = {"smoke": 2, "short": 25, "cpu": 50, "paper": 100}[size]
    in_minutes = size in ("short", "cpu")
    return TrainingConfig(
        num_epochs=num_epochs,
        batch_size=batch_size,
        optimizer=OptimizerConfig(
            learning_rate=_LEARNING_RATES[size],
            rise=0.03 if in_minutes else 0.0,
            decoder_weight_decay=choices.decoder_weight_decay,
        ),
        num_importance_samples=choices.num_importance_samples if in_minutes else 1,
        warm_up=_warm_up(batch_size, choices.warm_up_epochs) if in_minutes else _PAPERS_WARM_UP,
        beta_bound=BetaBoundConfig(start=3.0, slope=5.0 / num_epochs),
        sampler=BlockGibbsConfig(num_chains=2000),
        num_sweeps={"smoke": 10, "short": 30, "cpu": 30, "paper": 100}[size],
        log_every=100,
        validate_every=max(1, num_epochs * (num_training // batch_size) // validations),
    )


def _warm_up(batch_size: int, epochs: int | None) -> WarmUpConfig:
    """So many epochs, the prior's own three times as many; None: the steps of 1 and 3 epochs of minibatches of 100.

    Fewer leave the binary latents unused. Long runs have time for more, and where eight or more Gaussian layers compete
    for what there is to code, the binary latents need them (docs/results.md).
    """
    epochs = batch_size // 100 if epochs is None else epochs
    return WarmUpConfig(epochs=epochs, prior_epochs=3 * epochs)


def smoke_evaluation() -> EvaluationConfig:
    """An evaluation in seconds: few samples of few examples, and log Z to 0.05 nats."""
    return EvaluationConfig(
        num_samples=100,
        num_examples=100,
        log_partition_std_error=0.05,
        num_annealed_chains=100,
        num_temperatures=300,
        num_chain_sweeps=200,
    )


def _evaluation(size: str) -> EvaluationConfig:
    """10^4 importance samples on the whole test part; 10^3 on 1,000 examples in size short, fewer in smoke.

    Size cpu takes them in bfloat16 where that is faster, which moved no mean in measurements (docs/results.md).
    """
    if size == "smoke":
        return smoke_evaluation()
    few = 1000 if size == "short" else None
    precision = "auto" if size == "cpu" else "float32"
    return EvaluationConfig(num_samples=few or 10_000, num_examples=few, precision=precision)


# What the simplified models of the supplement share: static MNIST, binary latents alone.


_SIMPLIFIED_WIDTHS = {"smoke": 100, "short": 500, "cpu": 500, "paper": 2000}
_NUM_EPOCHS = {"smoke": 1, "short": 80, "cpu": 960, "paper": 1000}


def simplified_experiment(
    name: str, size: str, *, prior: PriorConfig, groups: int = 4, linear: bool = False
) -> ExperimentConfig:
    """An experiment without Gaussian layers, whose posterior networks have two hidden layers.

    Source: Rolfe 2017, section supplementary-results, which says neither widths nor lengths: those of size paper are
    the other experiments'. Size cpu has minibatches of 400, for which the step size first rises, a shorter warm-up, and
    decay of a decoder with a hidden layer; in equal time these are ahead of minibatches of 100 (docs/results.md). The
    smoothing of independent units becomes less sharp, for which both their bounds are higher (same page).

    Args:
        name: Its name.
        size: "smoke", "short", "cpu" or "paper".
        prior: Of the binary latents.
        groups: Groups of the posterior; 1 is the factorial posterior.
        linear: Whether the decoder is a linear map of zeta; otherwise it has one hidden layer.
    """
    width, num_epochs = _SIMPLIFIED_WIDTHS[size], _NUM_EPOCHS[size]
    first, last = (1.5, 3.5) if isinstance(prior, FactorialBernoulliConfig) else (3.0, 8.0)
    large = size == "cpu"
    return ExperimentConfig(
        name=name,
        size=size,
        data=MNISTStaticConfig(),
        model=ModelConfig(
            event_shape=(1, 28, 28),
            prior=prior,
            posterior=HierarchicalPosteriorConfig(groups=groups, hidden=(width, width)),
            decoder=MLPDecoderConfig(hidden=() if linear else (width,)),
        ),
        training=TrainingConfig(
            num_epochs=num_epochs,
            batch_size=400 if large else 100,
            optimizer=OptimizerConfig(
                learning_rate=4e-3 if large else 3e-3,
                rise=0.03 if large else 0.0,
                decoder_weight_decay=0.1 if large and not linear else 0.0,
            ),
            warm_up=WarmUpConfig(epochs=4, prior_epochs=12) if large else WarmUpConfig(),
            beta_bound=BetaBoundConfig(start=first, slope=(last - first) / num_epochs),
            sampler=BlockGibbsConfig(num_chains=2000),
            num_sweeps={"smoke": 10, "short": 30, "cpu": 30, "paper": 100}[size],
            log_every=500 if large else 100,  # log Z in a line takes as long as ten steps
            validate_every={"smoke": 250, "short": 1000, "cpu": 2400, "paper": 5000}[size],
        ),
        evaluation=(
            smoke_evaluation()
            if size == "smoke"
            else EvaluationConfig(num_samples=10_000, precision="auto" if size == "cpu" else "float32")
        ),
    )


# The embedded default: scikit-learn's 8x8 digits, no download.


def digits(size: str) -> ExperimentConfig:
    """8x8 digits, RBM 16 + 16, four groups, no Gaussian layers.

    Command: dvae train digits, then dvae evaluate runs/digits-short; or make demo.

    Data: scikit-learn's digits, 1,297 / 250 / 250 examples, intensities as probabilities, a new binarization each step.

    Expected test log-likelihood: short -22.56 +- 0.22 nats (docs/results.md).

    Time: short, which cpu equals, half a minute on one core, smoke 2 seconds.
    """
    return ExperimentConfig(
        name="digits",
        size=size,
        data=DigitsConfig(),
        model=ModelConfig(
            event_shape=(1, 8, 8),
            prior=RBMConfig(num_left=16, num_right=16),
            posterior=HierarchicalPosteriorConfig(groups=4, hidden=(200,)),
            decoder=MLPDecoderConfig(hidden=(200,)),
        ),
        training=TrainingConfig(
            num_epochs={"smoke": 10, "short": 200, "cpu": 200, "paper": 1000}[size],
            batch_size=100,
            optimizer=OptimizerConfig(learning_rate=3e-3),
            warm_up=WarmUpConfig(epochs=10, prior_epochs=30),
            beta_bound=BetaBoundConfig(start=3.0, slope=0.006 if size == "paper" else 0.03),
            sampler=BlockGibbsConfig(num_chains=500),
            num_sweeps=20,
            log_every=100,
            validate_every={"smoke": 60, "short": 200, "cpu": 200, "paper": 600}[size],
        ),
        evaluation=EvaluationConfig(num_samples=1000),
    )


# Statically binarized MNIST with 20 Gaussian layers in two groups.


def mnist_static(size: str) -> ExperimentConfig:
    """Static MNIST, RBM 64 + 64, 4 Gaussian layers of 32 units; size paper: 20 layers of 256 in two groups.

    Command: dvae train mnist-static [--size paper], then dvae evaluate RUN.

    Prior networks have one hidden layer and posterior networks two, in size paper of 2000 units each, where the decoder
    is linear. Sizes short and cpu share no networks, since a sum of 32 units would be all that the decoder reads, and
    their decoder has one hidden layer: of 800 in size short; of 200, with decay, in size cpu, which has 10 layers, no
    importance samples, and is long enough for the wider one to overfit (docs/results.md).

    Data: the published binarization, 50,000 / 10,000 / 10,000 images.

    Expected test log-likelihood: short -84.44 +- 0.70 nats, cpu -82.48 +- 0.21 (docs/results.md);
    paper -81.01 +- 0.04 in the paper.

    Time: short 14 minutes on two cores, cpu an hour and a half on one; ``dvae validate mnist-static --size paper``
    times a step of paper.
    """
    return paper_experiment(
        "mnist-static",
        size,
        data=MNISTStaticConfig(),
        layers={  # number of layers, units of each, width of the prior's networks
            "smoke": (2, 16, 50),
            "short": (4, 32, 200),
            "cpu": (10, 32, 200),
            "paper": (20, 256, 2000),
        },
        sharing=NoSharingConfig() if size in ("short", "cpu") else GroupSharingConfig(num_groups=2),
        decoder_hidden={"smoke": (), "short": (800,), "cpu": (200,), "paper": ()},
        num_epochs={"smoke": 1, "short": 128, "cpu": 480, "paper": 1000},
        num_training=50_000,
        cpu=CpuChoices(warm_up_epochs=8, num_importance_samples=1, decoder_weight_decay=0.1),
    )


# Dynamically binarized MNIST with 18 Gaussian layers, the paper's largest data set.


def mnist_dynamic(size: str) -> ExperimentConfig:
    """Dynamic MNIST, RBM 64 + 64, 4 Gaussian layers of 32 units; size paper: 18 layers of 64.

    Command: dvae train mnist-dynamic [--size paper], then dvae evaluate RUN.

    Prior networks have one hidden layer and posterior networks two, in size paper of 1000 and 2000 units; no layers
    share one. The decoder is linear, in sizes short and cpu it has one hidden layer of 800. Size cpu: 8 layers.

    Data: binarized afresh in each step; validation (the last 10,000 training images) and test once, with seed 0.

    Expected test log-likelihood: cpu -81.03 +- 0.21 nats (docs/results.md); paper -80.15 +- 0.08 in the paper.

    Time: short a quarter of an hour on two cores, cpu two hours on one thread;
    ``dvae validate mnist-dynamic --size paper`` times a step of paper.
    """
    return paper_experiment(
        "mnist-dynamic",
        size,
        data=MNISTDynamicConfig(),
        layers={  # number of layers, units of each, width of the prior's networks
            "smoke": (2, 16, 50),
            "short": (4, 32, 200),
            "cpu": (8, 32, 200),
            "paper": (18, 64, 1000),
        },
        sharing=NoSharingConfig(),
        decoder_hidden={"smoke": (), "short": (800,), "cpu": (800,), "paper": ()},
        num_epochs={"smoke": 1, "short": 128, "cpu": 440, "paper": 1000},
        num_training=50_000,
    )


# Omniglot with 16 Gaussian layers in two groups and a decoder with a hidden layer.


def omniglot(size: str) -> ExperimentConfig:
    """Omniglot, RBM 64 + 64, 4 Gaussian layers of 64 units; size paper: 16 layers of 256 in two groups.

    Command: dvae train omniglot [--size paper], then dvae evaluate RUN.

    Prior networks have one hidden layer and posterior networks two, in size paper of 800 and 2000 units and shared by
    two groups of layers. In the paper the decoder has hidden layers on this data set alone, and it does not say which;
    here it is one of 800 units. Sizes short and cpu share no networks, and those of the prior have 400 units. Size cpu:
    8 layers.

    Data: the 28x28 partition of Burda et al., binarized afresh in each step; validation (1,345 shuffled training
    images) and test once, with seed 0. A rebuilt file (see the data set's description) has other test images than
    published figures.

    Expected test log-likelihood: short -103.7 +- 1.2 nats, cpu -99.38 +- 0.40, rebuilt file (docs/results.md); paper
    -97.43 +- 0.05 in the paper.

    Time: short 10 minutes on two cores, cpu two hours on one; ``dvae validate omniglot --size paper`` times a
    step of paper.
    """
    return paper_experiment(
        "omniglot",
        size,
        data=OmniglotConfig(),
        layers={  # number of layers, units of each, width of the prior's networks
            "smoke": (2, 16, 50),
            "short": (4, 64, 400),
            "cpu": (8, 64, 400),
            "paper": (16, 256, 800),
        },
        sharing=NoSharingConfig() if size in ("short", "cpu") else GroupSharingConfig(num_groups=2),
        decoder_hidden={"smoke": (50,), "short": (800,), "cpu": (800,), "paper": (800,)},
        num_epochs={"smoke": 2, "short": 200, "cpu": 800, "paper": 1000},
        num_training=23_000,
        cpu=CpuChoices(warm_up_epochs=16),
    )


# Caltech-101 Silhouettes with 12 Gaussian layers that share all prior parameters.


def caltech101_silhouettes(size: str) -> ExperimentConfig:
    """Caltech-101 Silhouettes, RBM 64 + 64, 4 Gaussian layers of 80 units; size paper: 12 layers of 80.

    Command: dvae train caltech101-silhouettes [--size paper], then dvae evaluate RUN.

    One prior network, with a hidden layer of 100 units, serves all layers; posterior networks have two, in size paper
    of 2000 units; the decoder is linear. Size cpu: 12 layers, no importance samples, and decay of the decoder's
    matrix, without which it overfits (docs/results.md).

    Data: official split of 4,100 / 2,264 / 2,307 images, object = 1.

    Expected test log-likelihood: short -104.7 +- 1.6 nats, cpu -96.90 +- 0.95 (docs/results.md); paper -97.6 +- 0.11 in
    the paper.

    Time: short 6 minutes on two cores, cpu two hours on one; ``dvae validate caltech101-silhouettes --size
    paper`` times a step of paper.
    """
    return paper_experiment(
        "caltech101-silhouettes",
        size,
        data=Caltech101SilhouettesConfig(),
        layers={  # number of layers, units of each, width of the prior's networks
            "smoke": (2, 16, 50),
            "short": (4, 80, 100),
            "cpu": (12, 80, 100),
            "paper": (12, 80, 100),
        },
        sharing=CompleteSharingConfig(),
        num_epochs={"smoke": 10, "short": 600, "cpu": 3200, "paper": 1000},
        num_training=4_100,
        batch_sizes={"smoke": 100, "short": 200, "cpu": 200, "paper": 100},
        cpu=CpuChoices(warm_up_epochs=50, num_importance_samples=1, decoder_weight_decay=0.4),
    )


# The simplified model of the supplement whose prior and posterior have no couplings.


def mnist_static_factorial(size: str) -> ExperimentConfig:
    """Static MNIST, 200 independent units, one group, linear decoder, no Gaussian layers.

    Command: dvae train mnist-static-factorial, then dvae evaluate RUN --num-samples 1000 --num-examples 1000.

    Data: the published binarization, 50,000 / 10,000 / 10,000 images.

    Expected test log-likelihood: cpu, with 1,455 for its 960 epochs, -104.42 +- 0.24 nats (docs/results.md); -102.9 in
    the paper, whose widths and length are not known; short was not measured.

    Time: short 40,000 steps; ``dvae validate mnist-static-factorial`` times one.
    """
    return simplified_experiment(
        "mnist-static-factorial",
        size,
        prior=FactorialBernoulliConfig(num_units=200),
        groups=1,
        linear=True,
    )


# The simplified model of the supplement whose prior has no couplings.


def mnist_static_factorial_prior(size: str) -> ExperimentConfig:
    """Static MNIST, 200 independent units, four groups, linear decoder, no Gaussian layers.

    Command: dvae train mnist-static-factorial-prior, then dvae evaluate RUN --num-samples 1000 --num-examples 1000.

    Data: the published binarization, 50,000 / 10,000 / 10,000 images.

    Expected test log-likelihood: cpu, with 584 of its 960 epochs, -100.56 +- 0.24 nats (docs/results.md); -97.0 in
    the paper, whose widths and length are not known; short was not measured.

    Time: short 40,000 steps; ``dvae validate mnist-static-factorial-prior`` times one.
    """
    return simplified_experiment(
        "mnist-static-factorial-prior", size, prior=FactorialBernoulliConfig(num_units=200), linear=True
    )


# The simplified model of the supplement: 128 RBM units, no continuous layers, a deep decoder.


def mnist_static_rbm128(size: str) -> ExperimentConfig:
    """Static MNIST, RBM 64 + 64, four groups, no Gaussian layers.

    Command: dvae train mnist-static-rbm128, then dvae evaluate RUN --num-samples 1000 --num-examples 1000.

    The decoder has one hidden layer, the posterior's networks two.

    Data: the published binarization, 50,000 / 10,000 / 10,000 images.

    Expected test log-likelihood: cpu, with 1,011 for its 960 epochs, -86.72 +- 0.23 nats; short, of 80 epochs,
    between -94.45 +- 0.78 after 34 and -91.50 +- 0.77 after 100 (docs/results.md); -86.9 in the paper.

    Time: short 40,000 steps of 14 ms on two cores; ``dvae validate mnist-static-rbm128 --size paper`` times a step of
    paper.
    """
    return simplified_experiment("mnist-static-rbm128", size, prior=RBMConfig(num_left=64, num_right=64))


# The simplified model of the supplement with 128 RBM units and a linear decoder.


def mnist_static_rbm128_linear(size: str) -> ExperimentConfig:
    """Static MNIST, RBM 64 + 64, four groups, linear decoder, no Gaussian layers.

    Command: dvae train mnist-static-rbm128-linear, then dvae evaluate RUN --num-samples 1000 --num-examples 1000.

    Data: the published binarization, 50,000 / 10,000 / 10,000 images.

    Expected test log-likelihood: cpu, with 1,065 for its 960 epochs, -92.21 +- 0.24 nats (docs/results.md); -92.7 in
    the paper, whose widths and length are not known; short was not measured.

    Time: short 40,000 steps; ``dvae validate mnist-static-rbm128-linear`` times one.
    """
    return simplified_experiment(
        "mnist-static-rbm128-linear", size, prior=RBMConfig(num_left=64, num_right=64), linear=True
    )


# The simplified model of the supplement with 200 RBM units.


def mnist_static_rbm200(size: str) -> ExperimentConfig:
    """Static MNIST, RBM 100 + 100, four groups, no Gaussian layers.

    Command: dvae train mnist-static-rbm200, then dvae evaluate RUN --num-samples 1000 --num-examples 1000.

    The decoder has one hidden layer, the posterior's networks two.

    Data: the published binarization, 50,000 / 10,000 / 10,000 images.

    Expected test log-likelihood: cpu, with 599 of its 960 epochs, -85.76 +- 0.22 nats (docs/results.md); -85.2 in the
    paper, whose widths and length are not known; short was not measured.

    Time: short 40,000 steps, cpu 120,000 steps of 35 to 48 ms on one thread with bfloat16; ``dvae validate
    mnist-static-rbm200`` times one.
    """
    return simplified_experiment("mnist-static-rbm200", size, prior=RBMConfig(num_left=100, num_right=100))


# The simplified model of the supplement with 200 RBM units and a linear decoder.


def mnist_static_rbm200_linear(size: str) -> ExperimentConfig:
    """Static MNIST, RBM 100 + 100, four groups, linear decoder, no Gaussian layers.

    Command: dvae train mnist-static-rbm200-linear, then dvae evaluate RUN --num-samples 1000 --num-examples 1000.

    Data: the published binarization, 50,000 / 10,000 / 10,000 images.

    Expected test log-likelihood: cpu, with 870 of its 960 epochs, -88.86 +- 0.23 nats (docs/results.md); -88.8 in the
    paper, whose widths and length are not known; short was not measured.

    Time: short 40,000 steps; ``dvae validate mnist-static-rbm200-linear`` times one.
    """
    return simplified_experiment(
        "mnist-static-rbm200-linear", size, prior=RBMConfig(num_left=100, num_right=100), linear=True
    )


# The folder that a run goes to when none is named.


_MAX_LENGTH, _DIGEST = 80, 8  # characters


def run_name(base: str, seed: int | None, overrides: list[Override]) -> str:
    """A run's name: what it is based on, then what was set on the command line.

    The same settings give the same name in whatever order they were given. A name that would be long, or would lose
    what a file name cannot hold, ends in a digest of the settings.

    Args:
        base: Experiment and size.
        seed: Its seed, if one was given.
        overrides: Pairs of a setting's path and its values.

    Raises:
        InvalidInputError: If a path is no setting's.

    Examples:
        >>> run_name("digits-short", 3, [("training.num-epochs", ["5"]), ("model.smoothing", ["spike-slab"])])
        'digits-short-smoothing-spike-slab-num-epochs-5-seed-3'
    """
    for path, _ in overrides:
        check_known(path)
    chosen = {
        path: " ".join(values) or "empty" for path, values in overrides
    }  # of a setting given twice the last counts
    parts = [(_short_names()[path], chosen[path]) for path in sorted(chosen)]
    parts += [("seed", str(seed))] if seed is not None else []
    said = "".join(f"-{name}-{_safe(value)}" for name, value in parts)
    complete = all(_safe(value) == value.replace(" ", "-") for _, value in parts)
    if len(base) + len(said) > _MAX_LENGTH or not complete:
        kept = said[: max(0, _MAX_LENGTH - _DIGEST - 1 - len(base))].rstrip("-.")
        exact = repr([(path, chosen[path]) for path in sorted(chosen)] + [seed])
        said = f"{kept}-{hashlib.sha256(exact.encode()).hexdigest()[:_DIGEST]}"
    return base + said


def _safe(value: str) -> str:
    return re.sub(r"[^A-Za-z0-9.+-]+|[.]{2,}", "-", value).strip("-.")


@cache
def _short_names() -> dict[str, str]:
    """For each setting as many of its last parts as tell it from all others."""
    known = sorted({*slots(), *settings()})
    endings = {
        path: ["-".join(path.split(".")[-n:]) for n in range(1, path.count(".") + 2)] for path in known
    }
    counts: dict[str, int] = {}
    for ending in (ending for found in endings.values() for ending in found):
        counts[ending] = counts.get(ending, 0) + 1
    return {
        path: next(end for end in found if counts[end] == 1 or end == found[-1])
        for path, found in endings.items()
    }
