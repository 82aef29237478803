"""The sizes that a component takes when it is swapped into an experiment: one rule for each size of each component.

The defaults of the configs are the paper's, for 28x28 images on a GPU. Here every size follows what the experiment has
already: its latents, the widths of its posterior networks, its chains, and for what it lacks its size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isqrt
from typing import Any

Fields = Mapping[str, Any]  # an experiment as `model_dump` gives it

_LAYERS = {"smoke": 2, "short": 4, "cpu": 8, "paper": 10}
_REPLICAS = 10  # a sweep of tempered chains costs one sweep per replica, about so many
_CHANNELS = {
    "smoke": (8, 2),
    "short": (16, 3),
    "cpu": (16, 3),
    "paper": (16, 3),
}  # of the largest image, and the most halvings


def swapped_sizes(slot: str, kind: str, experiment: Fields) -> dict[str, Any]:
    """The sizes of a component that an experiment does not have yet.

    Args:
        slot: Where it goes, "model.hierarchy".
        kind: Its name, "gaussian".
        experiment: The experiment before the swap.

    Returns:
        Values by field; empty for a component without sizes.

    Examples:
        >>> from discrete_vae.experiments import load_experiment
        >>> swapped_sizes("model.hierarchy", "gaussian", load_experiment("digits", "smoke").model_dump())
        {'num_layers': 2, 'num_units': 16, 'posterior_hidden': (200,), 'prior_hidden': (100,)}
    """
    return {
        field: rule(experiment)
        for (rule_slot, rule_kind, field), rule in RULES.items()
        if (rule_slot, rule_kind) == (slot, kind)
    }


def _latents(experiment: Fields) -> int:
    prior = experiment["model"]["prior"]
    return prior["num_units"] if "num_units" in prior else prior["num_left"] + prior["num_right"]


def _chimera(experiment: Fields) -> int:
    """The largest Chimera graph with no more units than there are latents; one cell has 8."""
    return 8 * max(1, isqrt(_latents(experiment) // 8)) ** 2


def _widths(experiment: Fields) -> tuple[int, ...]:
    return tuple(experiment["model"]["posterior"]["hidden"])


def _channels(experiment: Fields) -> tuple[int, ...]:
    """Channels of the images, twice as many after each halving, until these have about 4 x 4 pixels."""
    shape = experiment["model"]["event_shape"] or (1, 4, 4)
    halvings = max(1, (min(shape[-2:]) // 4).bit_length())
    first, most = _CHANNELS[experiment["size"]]
    return tuple(first * 2**level for level in range(min(halvings, most)))


def _chains(experiment: Fields) -> int:
    """The chains without replicas that the experiment's cost as much as."""
    sampler = experiment["training"]["sampler"]
    return sampler["num_chains"] * (_REPLICAS if sampler["kind"] == "parallel-tempering" else 1)


def _smallest_divisor(number: int) -> int:
    """Above 1, so that layers fall into equal groups; 1 has only itself."""
    return next((divisor for divisor in range(2, number + 1) if number % divisor == 0), 1)


RULES: dict[tuple[str, str, str], Callable[[Fields], Any]] = {
    ("model.prior", "rbm", "num_left"): lambda e: -(-_latents(e) // 2),
    ("model.prior", "rbm", "num_right"): lambda e: max(1, _latents(e) // 2),
    ("model.prior", "factorial", "num_units"): _latents,
    ("model.prior", "graph", "num_units"): _chimera,
    ("model.posterior", "hierarchical", "groups"): lambda e: e["model"]["posterior"]["groups"],
    ("model.posterior", "hierarchical", "hidden"): _widths,
    ("model.hierarchy", "gaussian", "num_layers"): lambda e: _LAYERS[e["size"]],
    ("model.hierarchy", "gaussian", "num_units"): lambda e: max(1, _latents(e) // 2),
    ("model.hierarchy", "gaussian", "posterior_hidden"): _widths,
    ("model.hierarchy", "gaussian", "prior_hidden"): lambda e: tuple(-(-w // 2) for w in _widths(e)[-1:]),
    ("model.hierarchy.sharing", "groups", "num_groups"): lambda e: _smallest_divisor(
        e["model"]["hierarchy"]["num_layers"]
    ),
    ("model.encoder", "convolutional", "num_features"): lambda e: min(256, *_widths(e)),
    ("model.encoder", "convolutional", "widths"): _channels,
    ("model.decoder", "convolutional", "widths"): _channels,
    ("model.decoder", "mlp", "hidden"): lambda e: _widths(e)[-1:],
    # how many there are is a matter of the data
    ("model.likelihood", "categorical", "num_categories"): lambda e: 2,
    ("training.gradient", "leave-one-out", "num_samples"): lambda e: 2,
    ("training.gradient.baseline", "learned", "hidden"): lambda e: (min([100, *_widths(e)]),),
    ("training.sampler", "block-gibbs", "num_chains"): lambda e: _chains(e),
    ("training.sampler", "parallel-tempering", "num_chains"): lambda e: max(1, _chains(e) // _REPLICAS),
    ("training.sampler", "trajectory-tempering", "num_chains"): lambda e: max(2, _chains(e)),
    ("training.sampler", "dimod", "num_chains"): lambda e: _chains(e),
}
"""Rules by the component's slot, its name and the field."""
