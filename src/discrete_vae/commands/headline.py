"""What dvae train says before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from discrete_vae.commands.device import computing_on
from discrete_vae.config import ExperimentConfig
from discrete_vae.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    import torch

    from discrete_vae.data.dataset import DataSplits
    from discrete_vae.training.precision import Precision


def headline(
    config: ExperimentConfig,
    dataset: DataSplits,
    run: RunDirectory,
    done: int,
    num_steps: int,
    device: torch.device,
    precision: Precision,
) -> str:
    """Data, steps, folder, how values are read, and where it computes.

    Args:
        config: The experiment.
        dataset: Its data set, whole.
        run: Where the results go.
        done: Steps done already.
        num_steps: Steps of the whole run.
        device: Where it computes.
        precision: In which precision.
    """
    chosen = config.training.num_examples
    count = f"{len(dataset.train)}" if chosen is None else f"{chosen} of {len(dataset.train)}"
    what = f"{dataset.name}: {count} training examples of {dataset.num_features} features"
    start = f"from step {done} to {num_steps}" if done else f"{num_steps} steps"
    lines = [f"{what}; {start} ({config.training.num_epochs} epochs); results go to {run.path}"]
    if chosen is not None:
        lines.append(
            "A fixed random choice of the examples is used; --training.num-examples none takes all of them."
        )
    if dataset.dynamic:
        says = "Values between 0 and 1 are read as probabilities: each step draws new bits with them."
        own = config.data.kind == "file"
        lines.append(f"{says} For measurements that are none: --model.likelihood gaussian." if own else says)
    train, *others = dataset.summaries.values()
    values = sum(others, train)
    if values.num_missing:
        share = 100 * values.num_missing / values.num_values
        are = "is" if values.num_missing == 1 else "are"
        where = "" if train.num_missing else ", none of them in the examples to train on"
        lines.append(
            f"{values.num_missing:,} of the {values.num_values:,} values ({share:.1f} %) {are} missing{where}: the "
            "model reads which are there, and learns from these."
        )
    if config.model.likelihood.kind == "gaussian":
        lines += _constant(dataset, config)
    if getattr(config.model.likelihood, "shorten_tails", False):
        lines.append(_long_tails(dataset))
    lines.append(computing_on(device))
    lines.append(f"Products of the networks in {precision.name}: {precision.reason}.")
    return "\n".join(lines)


def _long_tails(dataset: DataSplits) -> str:
    """Which features are read on another scale."""
    from discrete_vae.likelihoods.tails import long_tails

    found = long_tails(dataset.train).nonzero()[:, 0].tolist()
    return (
        f"{len(found)} of {dataset.num_features} features have long tails{_named(dataset, found)} and are read on a "
        "scale of asinh, as if their logarithms were taken: --model.likelihood.shorten-tails false leaves them."
    )


def _constant(dataset: DataSplits, config: ExperimentConfig) -> list[str]:
    """Which features have one value in the examples to train on, if any."""
    from discrete_vae.data.chosen import chosen_examples
    from discrete_vae.likelihoods.standardizer import Standardizer

    standardizer = Standardizer((dataset.num_features,))
    standardizer.fit_(chosen_examples(dataset, config.training).train)
    found = standardizer.constant.nonzero()[:, 0].tolist()
    if not found:
        return []
    return [
        f"{len(found)} of {dataset.num_features} features {'has' if len(found) == 1 else 'have'} one value in all "
        f"examples to train on{_named(dataset, found)}: such a feature adds nothing to any likelihood."
    ]


def _named(dataset: DataSplits, places: list[int]) -> str:
    """The names of the first few features in brackets, where they have names."""
    names = dataset.description.columns
    return (
        f" ({', '.join(names[place] for place in places[:3])}{', ...' * (len(places) > 3)})" if names else ""
    )
