"""Ready experiments: one table of settings by experiment and size. Nothing here imports torch."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from math import prod
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from discrete_vae import __version__
from discrete_vae.config import ExperimentConfig, LikelihoodConfig
from discrete_vae.config.overrides import (
    Override,
    Slot,
    apply_overrides,
    check_known,
    overrides_of,
    put,
    read_value,
    settings,
    settings_of,
    slots,
)
from discrete_vae.errors import InvalidInputError, not_one_of

Size = Literal["smoke", "short", "cpu", "paper"]
SIZES: tuple[str, ...] = get_args(Size)


class BySize(NamedTuple):
    """A setting's value in each size; `...` leaves the default of its config."""

    smoke: Any = ...
    short: Any = ...
    cpu: Any = ...
    paper: Any = ...


class Experiment(NamedTuple):
    """One row of the table."""

    about: str  # a line about the model, in size short unless it says otherwise; `dvae list` shows it
    settings: Mapping[str, Any]  # values by path in the config, or `BySize`; else its default holds


def _epochs(smoke: int, short: int, cpu: int, paper: int, *, rise: float = 5.0) -> dict[str, BySize]:
    """The epochs of a run, over which the bound of a trained beta rises by so much."""
    num_epochs = (smoke, short, cpu, paper)
    slopes = BySize(*(rise / number for number in num_epochs))
    return {"training.num_epochs": BySize(*num_epochs), "training.beta_bound.slope": slopes}


# What all experiments on 28x28 images share.
#
# The paper's (Rolfe 2017, section architecture, where nothing else is named): an RBM of 64 + 64 units; a posterior of
# four groups; two hidden layers of 2000 units in all networks of the posterior; Adam with a decaying step size; 100
# sweeps per step of 20 persistent chains per example of the batch; a trained beta below a bound that rises with the
# epoch; a warm-up of strength 20 over 5 epochs, and one of strength 2 over 20 epochs on the RBM alone; 10^4 importance
# samples on the whole test part (section results-section).
#
# Ours, where the paper is silent: batches of 100, so 2000 chains; 1000 epochs; a step size that falls as half a cosine;
# a bound of beta from 3 to 8, above which rare draws carry most of beta's gradient; the best checkpoint by validation
# bound in place of early stopping.
#
# Sizes short and cpu hold what was better in equal time and is not the paper's (docs/lab-notes.md): narrower networks,
# batches of 400, for which the step size first rises, fewer sweeps, other warm-ups, evaluation in bfloat16.
_IMAGES = {
    "model.event_shape": (1, 28, 28),
    "model.posterior.groups": 4,
    "model.decoder.kind": "mlp",
    "training.beta_bound.start": 3.0,
    "training.sampler.kind": "block-gibbs",
    "training.sampler.num_chains": 2000,
    "training.num_sweeps": BySize(10, 30, 30, 100),
    "evaluation.num_samples": BySize(100, 10_000, 10_000, 10_000),
    "evaluation.num_examples": BySize(smoke=100),
    "evaluation.precision": BySize(cpu="auto"),
    "evaluation.log_partition_std_error": BySize(smoke=0.05),
    "evaluation.num_annealed_chains": BySize(smoke=100),
    "evaluation.num_temperatures": BySize(smoke=300),
    "evaluation.num_chain_sweeps": BySize(smoke=200),
}


def _rbm(side: int) -> dict[str, Any]:
    """An RBM with so many units on each side."""
    return {"model.prior.kind": "rbm", "model.prior.num_left": side, "model.prior.num_right": side}


# The paper's four models, with Gaussian layers below the RBM: table architectural-hyperparameters gives their number,
# units, and the width and the sharing of their prior networks. Sizes short and cpu: five importance samples in the last
# quarter of the run, but where the model overfits; a warm-up of the steps that 1 and 3 epochs have with batches of 100,
# since with a shorter one the binary latents stay unused; a longer one in size cpu where many layers compete with them
# for what there is to code.
_LAYERED = _IMAGES | {
    **_rbm(64),
    "model.posterior.hidden": BySize((100, 100), (400, 400), (400, 400), (2000, 2000)),
    "model.hierarchy.kind": "gaussian",
    "model.hierarchy.posterior_hidden": BySize((100, 100), (400, 400), (400, 400), (2000, 2000)),
    "training.batch_size": BySize(100, 400, 400, 100),
    "training.optimizer.learning_rate": BySize(1e-3, 4e-3, 4e-3, 1e-3),
    "training.optimizer.rise": BySize(short=0.03, cpu=0.03),
    "training.num_importance_samples": BySize(short=5, cpu=5),
    "training.warm_up.epochs": BySize(5, 4, 4, 5),
    "training.warm_up.prior_epochs": BySize(20, 12, 12, 20),
    "evaluation.num_samples": BySize(100, 1000, 10_000, 10_000),
    "evaluation.num_examples": BySize(smoke=100, short=1000),
}

# The simplified models of section supplementary-results: static MNIST, binary latents alone, 128 or 200 of them, with a
# decoder that is a deep network, here of one hidden layer, or linear. The paper says neither widths nor lengths; those
# of size paper are the other experiments'. The smoothing of independent units becomes less sharp, with which both their
# bounds are higher (docs/lab-notes.md).
_SIMPLIFIED = _IMAGES | {
    "data.kind": "mnist-static",
    "model.posterior.hidden": BySize((100, 100), (500, 500), (500, 500), (2000, 2000)),
    **_epochs(1, 80, 960, 1000),
    "training.batch_size": BySize(100, 100, 400, 100),
    "training.optimizer.learning_rate": BySize(3e-3, 3e-3, 4e-3, 3e-3),
    "training.optimizer.rise": BySize(cpu=0.03),
    "training.warm_up.epochs": BySize(5, 5, 4, 5),
    "training.warm_up.prior_epochs": BySize(20, 20, 12, 20),
    "training.log_every": BySize(cpu=500),  # log Z in a line takes as long as ten steps
    "training.validate_every": BySize(250, 1000, 2400, 5000),
}
_INDEPENDENT_200 = {
    "model.prior.kind": "factorial",
    "model.prior.num_units": 200,
    "training.beta_bound.start": 1.5,
    **_epochs(1, 80, 960, 1000, rise=2.0),
}
_LINEAR = {"model.decoder.hidden": ()}
_ONE_HIDDEN_LAYER = {
    "model.decoder.hidden": BySize((100,), (500,), (500,), (2000,)),
    "training.optimizer.decoder_weight_decay": BySize(cpu=0.1),
}


def _simplified(about: str, settings: dict[str, Any]) -> Experiment:
    return Experiment(f"Static MNIST, {about}, no Gaussian layers.", _SIMPLIFIED | settings)


EXPERIMENTS: dict[str, Experiment] = {
    # scikit-learn's digits, no download; no experiment of the paper
    "digits": Experiment(
        "8x8 digits, RBM 16 + 16, four groups, no Gaussian layers.",
        {
            "data.kind": "digits",
            "model.event_shape": (1, 8, 8),
            **_rbm(16),
            "model.posterior.groups": 4,
            "model.posterior.hidden": (200,),
            "model.decoder.kind": "mlp",
            "model.decoder.hidden": (200,),
            "training.num_epochs": BySize(40, 200, 200, 1000),
            "training.batch_size": 100,
            "training.optimizer.learning_rate": 3e-3,
            "training.warm_up.epochs": 10,
            "training.warm_up.prior_epochs": 30,
            "training.beta_bound.start": 3.0,
            "training.beta_bound.slope": BySize(0.03, 0.03, 0.03, 0.006),
            "training.sampler.kind": "block-gibbs",
            "training.sampler.num_chains": 500,
            "training.num_sweeps": 20,
            "training.validate_every": BySize(120, 200, 200, 600),
            "evaluation.num_samples": 1000,
        },
    ),
    # table architectural-hyperparameters, dynamic MNIST; a linear decoder
    "mnist-dynamic": Experiment(
        "Dynamic MNIST, RBM 64 + 64, 4 Gaussian layers of 32 units; size paper: 18 layers of 64.",
        _LAYERED
        | {
            "data.kind": "mnist-dynamic",
            "model.hierarchy.num_layers": BySize(2, 4, 8, 18),
            "model.hierarchy.num_units": BySize(16, 32, 32, 64),
            "model.hierarchy.prior_hidden": BySize((50,), (200,), (200,), (1000,)),
            "model.hierarchy.sharing.kind": "none",
            "model.decoder.hidden": BySize((), (800,), (800,), ()),
            **_epochs(1, 128, 440, 1000),
            "training.validate_every": BySize(250, 640, 1100, 5000),
        },
    ),
    # Table architectural-hyperparameters, static MNIST; a linear decoder. Sizes short and cpu share no networks, since
    # a sum of 32 units would be all that the decoder reads. Size cpu is long enough to overfit: a narrower decoder,
    # whose weights decay, and no importance samples.
    "mnist-static": Experiment(
        "Static MNIST, RBM 64 + 64, 4 Gaussian layers of 32 units; size paper: 20 layers of 256 in two groups.",
        _LAYERED
        | {
            "data.kind": "mnist-static",
            "model.hierarchy.num_layers": BySize(2, 4, 10, 20),
            "model.hierarchy.num_units": BySize(16, 32, 32, 256),
            "model.hierarchy.prior_hidden": BySize((50,), (200,), (200,), (2000,)),
            "model.hierarchy.sharing.kind": BySize("groups", "none", "none", "groups"),  # two, the default
            "model.decoder.hidden": BySize((), (800,), (200,), ()),
            **_epochs(1, 128, 480, 1000),
            "training.optimizer.decoder_weight_decay": BySize(cpu=0.1),
            "training.num_importance_samples": BySize(short=5),
            "training.warm_up.epochs": BySize(5, 4, 8, 5),
            "training.warm_up.prior_epochs": BySize(20, 12, 24, 20),
            "training.validate_every": BySize(250, 640, 1200, 5000),
        },
    ),
    # table architectural-hyperparameters, Omniglot; the paper's decoder has hidden layers here alone, of unsaid widths
    "omniglot": Experiment(
        "Omniglot, RBM 64 + 64, 4 Gaussian layers of 64 units; size paper: 16 layers of 256 in two groups.",
        _LAYERED
        | {
            "data.kind": "omniglot",
            "model.hierarchy.num_layers": BySize(2, 4, 8, 16),
            "model.hierarchy.num_units": BySize(16, 64, 64, 256),
            "model.hierarchy.prior_hidden": BySize((50,), (400,), (400,), (800,)),
            "model.hierarchy.sharing.kind": BySize("groups", "none", "none", "groups"),  # two, the default
            "model.decoder.hidden": BySize((50,), (800,), (800,), (800,)),
            **_epochs(2, 200, 800, 1000),
            "training.warm_up.epochs": BySize(5, 4, 16, 5),
            "training.warm_up.prior_epochs": BySize(20, 12, 48, 20),
            "training.validate_every": BySize(230, 456, 912, 2300),
        },
    ),
    # Table architectural-hyperparameters, Caltech-101 Silhouettes; a linear decoder, and one prior network for all
    # layers. Size cpu overfits: the decoder's weights decay, and there are no importance samples.
    "caltech101-silhouettes": Experiment(
        "Caltech-101 Silhouettes, RBM 64 + 64, 4 Gaussian layers of 80 units; size paper: 12 layers of 80.",
        _LAYERED
        | {
            "data.kind": "caltech101-silhouettes",
            "model.hierarchy.num_layers": BySize(2, 4, 12, 12),
            "model.hierarchy.num_units": BySize(16, 80, 80, 80),
            "model.hierarchy.prior_hidden": BySize((50,), (100,), (100,), (100,)),
            "model.hierarchy.sharing.kind": "complete",
            "model.decoder.hidden": (),
            **_epochs(10, 600, 3200, 1000),
            "training.batch_size": BySize(100, 200, 200, 100),
            "training.optimizer.decoder_weight_decay": BySize(cpu=0.4),
            "training.num_importance_samples": BySize(short=5),
            "training.warm_up.epochs": BySize(5, 2, 50, 5),
            "training.warm_up.prior_epochs": BySize(20, 6, 150, 20),
            "training.validate_every": BySize(205, 480, 1280, 410),
        },
    ),
    "mnist-static-rbm128": _simplified("RBM 64 + 64, four groups", _rbm(64) | _ONE_HIDDEN_LAYER),
    "mnist-static-rbm200": _simplified("RBM 100 + 100, four groups", _rbm(100) | _ONE_HIDDEN_LAYER),
    "mnist-static-rbm128-linear": _simplified("RBM 64 + 64, four groups, linear decoder", _rbm(64) | _LINEAR),
    "mnist-static-rbm200-linear": _simplified(
        "RBM 100 + 100, four groups, linear decoder", _rbm(100) | _LINEAR
    ),
    "mnist-static-factorial-prior": _simplified(
        "200 independent units, four groups, linear decoder", _INDEPENDENT_200 | _LINEAR
    ),
    "mnist-static-factorial": _simplified(
        "200 independent units, one group, linear decoder",
        _INDEPENDENT_200 | _LINEAR | {"model.posterior.groups": 1},
    ),
}


def experiment_names() -> tuple[str, ...]:
    """The names that `load_experiment` knows."""
    return tuple(EXPERIMENTS)


def load_experiment(
    name: str, size: Size = "short", *, settings: Mapping[str, Any] | None = None
) -> ExperimentConfig:
    """The config of a ready experiment.

    Args:
        name: See `experiment_names`.
        size: "smoke" (under a minute), "short" (minutes to an hour on two cores), "cpu" (an hour or two on two cores)
            or "paper".
        settings: Values that differ, by the names that ``dvae train --settings`` lists.

    Raises:
        InvalidInputError: If the name, the size or a setting is not known, or a value breaks its rule.

    Examples:
        >>> load_experiment("digits").model.prior.num_units
        32
        >>> load_experiment("digits", settings={"training.num_epochs": 60}).training.num_epochs
        60
    """
    if size not in SIZES:
        raise not_one_of("size", SIZES, size)
    if not isinstance(name, str) or name not in EXPERIMENTS:
        rule = f"must be one of {', '.join(EXPERIMENTS)}"
        raise InvalidInputError("experiment", rule, repr(name), _meant(str(name)))
    config = _config(name, size, EXPERIMENTS[name].settings)
    return config if settings is None else apply_overrides(config, overrides_of(settings))


def _config(name: str, size: str, settings: Mapping[str, Any]) -> ExperimentConfig:
    fields: dict[str, Any] = {"name": name, "size": size}
    for path, value in settings.items():
        here = getattr(value, size) if isinstance(value, BySize) else value
        if here is not ...:
            put(fields, path, here)
    return ExperimentConfig(**fields)


def _meant(word: str) -> str:
    """The repair for a word that is no experiment's name, such as a file."""
    close = [name for name in EXPERIMENTS if name.startswith(word)]
    close = close or get_close_matches(word, EXPERIMENTS, n=1)
    if Path(word).suffix in {".npy", ".npz", ".csv", ".parquet"}:
        return f"Did you mean --data {word}?"
    if close and word:
        return f"Did you mean {' or '.join(close[:3])}?"
    return "dvae list shows what they are; for data of your own: --data FILE."


# An experiment for data of one's own.


class _OwnSize(NamedTuple):
    steps: int  # at most
    width: int  # of the networks
    units: int  # on each side of the RBM and of the Gaussian layer


_OWN_DATA = {
    "smoke": _OwnSize(200, 50, 8),
    "short": _OwnSize(8_000, 200, 24),
    "cpu": _OwnSize(40_000, 400, 32),
    "paper": _OwnSize(100_000, 1000, 64),
}
_BATCH_SIZE, _LARGEST_BATCH, _BATCHES = 100, 500, 100
_FEW_ROWS, _UNITS_OF_FEW = 10_000, 16
_FEWEST_ROWS = 1000
_VALIDATIONS, _PATIENCE = 40, 10
_MOST_VALIDATED = 20_000  # examples, from which validation would take longer than training
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
    """An RBM prior, four groups and one hidden layer per network, by rows and columns of the training part.

    - The first checkpoint is a model of independent features, which a better one must beat on the validation part by
      more than chance. Training ends when ten validations, a quarter of the run, have brought no better bound.
    - Below 1,000 rows a linear decoder: a hidden layer would fit the rows. It is linear too where there are fewer rows
      than features.
    - Below 10,000 rows at most 16 + 16 units, whose log Z is exact in a tenth of a second.
    - From 10,000 rows on, batches of a hundredth of the rows, at most 500: the same steps pass through large tables
      more often. Warm-up and the bound of beta follow the length of the run. At most 20,000 rows are validated.
    - Real values and counts vary within a class: one layer of Gaussian latents tells how, so that the bits are left to
      the classes. A table has it if one of its columns is of such a kind.

    Size smoke takes a minute at most however large the file is: it sees a fixed random choice of the examples, and
    takes fewer steps where there are very many features. What it has trained is what it gives, good or not.
    """
    num_steps, width, units = _OWN_DATA[size]
    num_features = prod(event_shape)
    batch_size = min(max(_BATCH_SIZE, min(_LARGEST_BATCH, num_train // _BATCHES)), num_train)
    most = num_train, _MOST_VALIDATED, num_test
    if size == "smoke":
        batch_size = min(_BATCH_SIZE, num_train)
        num_steps = min(num_steps, max(_MIN_SMOKE_STEPS, _SMOKE_WORK // num_features))
        most = num_steps * batch_size, _MAX_SMOKE_EXAMPLES, _MAX_SMOKE_EXAMPLES
    counts = zip((num_train, num_valid, num_test), most, strict=True)
    chosen, validated, tested = (limit if count > limit else None for count, limit in counts)
    if num_train < _FEW_ROWS:
        units = min(units, _UNITS_OF_FEW)
    is_linear = num_train < max(_FEWEST_ROWS, num_features)
    num_epochs = max(1, num_steps // ((chosen or num_train) // batch_size))
    num_steps = max(num_steps, num_epochs * ((chosen or num_train) // batch_size))  # more in very many rows
    every = max(1, num_steps // (2 if size == "smoke" else _VALIDATIONS))
    settings = _rbm(units) | {
        "data.kind": "file",
        "data.path": path,
        "data.binarize": binarize,
        "model.num_features": num_features if len(event_shape) == 1 else None,
        "model.event_shape": None if len(event_shape) == 1 else event_shape,
        "model.missing": missing,
        "model.posterior.groups": 4,
        "model.posterior.hidden": (width,),
        "model.decoder.kind": "mlp",
        "model.decoder.hidden": () if is_linear else (width,),
        "training.num_epochs": num_epochs,
        "training.batch_size": batch_size,
        "training.num_examples": chosen,
        "training.num_validation_examples": validated,
        "training.schedule_unit": "run",
        "training.warm_up.epochs": 0.05,
        "training.warm_up.prior_epochs": 0.1,
        "training.beta_bound.start": 3.0,
        "training.beta_bound.slope": 3.0,
        "training.sampler.kind": "block-gibbs",
        "training.sampler.num_chains": 500,
        "training.num_sweeps": 20,
        "training.log_every": every,  # a line takes an estimate of log Z
        "training.validate_every": every,
        "training.patience": _PATIENCE,
        "training.independent_start": size != "smoke",
        "evaluation.num_samples": 200 if size == "smoke" else 1000,
        "evaluation.num_examples": tested,
    }
    if likelihood is not None:
        settings["model.likelihood"] = likelihood
        kinds = {column.kind for column in getattr(likelihood, "columns", ())} or {likelihood.kind}
        if kinds & {"gaussian", "negative-binomial", "real", "count"}:
            settings |= {
                "model.hierarchy.kind": "gaussian",
                "model.hierarchy.num_layers": 1,
                "model.hierarchy.num_units": units,
                "model.hierarchy.posterior_hidden": (width,),
                "model.hierarchy.prior_hidden": (-(-width // 2),),
            }
    return _config("own-data", size, settings)


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
    text = files("discrete_vae.config").joinpath("references.bib").read_text(encoding="utf-8")
    return {re.findall(r"@\w+\{([^,]+),", entry)[0]: entry for entry in text.strip().split("\n\n")}


def cited_keys(config: ExperimentConfig) -> list[str]:
    """Keys of the papers behind an experiment, each once: that of the model, those of its parts, those of settings."""
    training = config.training
    parts = [read_value(config, entry.path) for entry in settings_of(config) if isinstance(entry, Slot)]
    keys = ["rolfe2017", *(key for part in parts for key in part.references), "kingma2015"]
    if training.averaging.decay > 0:
        keys.append("polyak1992")
    if training.num_importance_samples > 1:
        keys.append("tucker2019")
    keys.append("burda2016")  # log p(x) of an evaluation is their bound of many samples
    if config.model.prior.kind != "factorial":
        keys.append("bennett1976")
    return list(dict.fromkeys(keys))


def cite(config: ExperimentConfig | None = None) -> str:
    """BibTeX of the library and of the papers behind an experiment; of the model's paper alone without one."""
    keys = ["rolfe2017"] if config is None else cited_keys(config)
    return "\n\n".join([LIBRARY, *(references()[key] for key in keys)])


def first_difference(before: ExperimentConfig, after: ExperimentConfig) -> tuple[str, object, object]:
    """The option of the first value in which two experiments differ, and the two values.

    Examples:
        >>> from discrete_vae.presets import load_experiment
        >>> first_difference(load_experiment("digits", "smoke"), load_experiment("digits", "short"))
        ('--size', 'smoke', 'short')
    """
    one, other, path = before.model_dump(), after.model_dump(), []
    while isinstance(one, dict) and isinstance(other, dict) and ".".join(path) not in settings():
        name = next(name for name in other if one.get(name) != other[name])
        one, other = one.get(name), other[name]
        if name != "kind":
            path.append(name.replace("_", "-"))
    return "EXPERIMENT" if path == ["name"] else f"--{'.'.join(path)}", one, other


_MAX_LENGTH, _DIGEST = 80, 8  # characters


def run_name(base: str, seed: int | None, overrides: list[Override]) -> str:
    """A run's name: experiment and size, then what was set on the command line, in whatever order.

    A name that would be long, or would lose what a file name cannot hold, ends in a digest of the settings.

    Examples:
        >>> run_name("digits-short", 3, [("training.num-epochs", ["5"]), ("model.smoothing", ["spike-slab"])])
        'digits-short-smoothing-spike-slab-num-epochs-5-seed-3'
    """
    for path, _ in overrides:
        check_known(path)
    # of a setting given twice the last counts
    chosen = {path: " ".join(values) or "empty" for path, values in overrides}
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
    parts = {path: path.split(".") for path in {*slots(), *settings()}}
    endings = {path: ["-".join(each[n:]) for n in reversed(range(len(each)))] for path, each in parts.items()}
    counts = Counter(end for ends in endings.values() for end in ends)
    return {path: next((end for end in ends if counts[end] == 1), ends[-1]) for path, ends in endings.items()}
