"""The parts of a model, built from its config, and their size before they are built."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.base import BoltzmannMachine
from discrete_vae.config import ComponentConfig, GraphBoltzmannConfig, ModelConfig, instantiate
from discrete_vae.errors import InvalidInputError
from discrete_vae.hierarchy.base import Hierarchy
from discrete_vae.nets.modes import eval_mode
from discrete_vae.posterior import Posterior, color_groups
from discrete_vae.rng import DrawsFrom
from discrete_vae.system import check_memory, is_allocation_failure

NARROWER = "Make the networks narrower (the settings called hidden), or use fewer units."
"""The repair of a model that does not fit the memory."""

_LARGE = re.compile(r"(?<![\d.])\d{4}")  # a number from which a model is counted before it is made


def build_parts(
    config: ModelConfig, *, encoder: nn.Module | None = None, decoder: nn.Module | None = None
) -> dict[str, Any]:
    """The parts of a model by the names of `DiscreteVAE`'s arguments; networks start from torch's global generator.

    Modules that are given take the place of the config's encoder and decoder. A model that may be large is counted
    before, as far as the config describes it.
    """
    on_meta = torch.get_default_device().type == "meta"
    if not on_meta and encoder is None and decoder is None and _LARGE.search(config.model_dump_json()):
        check_model_memory(config, 4, "for weights")
    prior = instantiate(config.prior)
    smoothing = instantiate(config.smoothing)
    likelihood = instantiate(config.likelihood, event_shape=config.shape)
    first, *rest = likelihood.input_shape
    rows_of_mask = likelihood.event_shape[0] if config.missing else 0
    shape = (first + rows_of_mask, *rest)
    read: Any = instantiate(config.encoder, input_shape=shape) if encoder is None else encoder
    of_encoder = read.num_features if encoder is None else _count_features(encoder, shape)
    condition, of_condition = None, 0
    if config.condition:
        from discrete_vae.nets.condition import ConditionEmbedding  # here, since few models need it

        condition = ConditionEmbedding(config.condition)
        of_condition = condition.num_features
    num_features = config.num_classes + of_encoder + of_condition
    num_latents = prior.num_units + of_condition
    hierarchy = instantiate(config.hierarchy, num_latents=num_latents, num_features=num_features)
    groups = config.posterior.groups
    if groups == "colors":
        of_colors = [[unit for unit in group if unit >= config.num_classes] for group in color_groups(prior)]
        groups = [group for group in of_colors if group]
    posterior = instantiate(
        config.posterior.model_copy(update={"groups": groups}),
        num_features=num_features,
        num_units=prior.num_units,
        smoothing=smoothing,
        num_classes=config.num_classes,
    )
    if decoder is None:
        sizes = {"num_latents": hierarchy.decoder_size, "parameter_shape": likelihood.parameter_shape}
        decoder = instantiate(config.decoder, **sizes)
    return {
        "prior": prior,
        "posterior": posterior,
        "likelihood": likelihood,
        "hierarchy": hierarchy,
        "encoder": read,
        "decoder": decoder,
        "missing": config.missing,
        "mask": config.mask,
        "condition": condition,
    }


def _count_features(encoder: nn.Module, shape: tuple[int, ...]) -> int:
    """Features that a user's encoder makes of one example of a shape."""
    weight = next(encoder.parameters(), torch.zeros(()))
    with torch.no_grad(), eval_mode(encoder) as still:
        features: object = still(torch.zeros(1, *shape, dtype=weight.dtype, device=weight.device))
    if isinstance(features, Tensor) and features.dim() == 2:
        return features.shape[1]
    received = (
        f"shape {tuple(features.shape)}" if isinstance(features, Tensor) else f"a {type(features).__name__}"
    )
    repair = "Return one tensor of a row per example, by features.flatten(1) say."
    raise InvalidInputError("the encoder's output", "must have shape (batch, feature)", received, repair)


def check_sizes(
    prior: BoltzmannMachine, posterior: Posterior, hierarchy: Hierarchy, num_latents: int
) -> None:
    """Check that posterior and hierarchy have the sizes of a prior, with a condition's features among the latents."""
    alone = num_latents == prior.num_units
    read = "read the prior's {} units" if alone else "read {} units and features of the condition"
    for part, rule, found, wanted in (
        ("posterior", "cover the prior's {} units", posterior.num_units, prior.num_units),
        ("hierarchy", read, hierarchy.num_latents, num_latents),
        ("hierarchy", "read the posterior's {} features", hierarchy.num_features, posterior.num_features),
    ):
        if found != wanted:
            rule, repair = f"must {rule.format(wanted)}", "Build the parts for each other."
            raise InvalidInputError(part, rule, found, repair)


def check_parts(model: nn.Module, config: ModelConfig, own: tuple[str, ...]) -> None:
    """Check that a model's parts, but the user's own, are the config's, from which they will be built again."""
    given = {name: getattr(model, name) for name in own}
    with DrawsFrom(torch.Generator("cpu")), torch.device("cpu"):  # weights that nobody reads
        built = build_parts(config, **given)
    parts = {name: part for name, part in built.items() if isinstance(part, nn.Module) and name not in own}
    for name, wanted in ({"smoothing": built["posterior"].smoothing} | parts).items():
        found, kind = getattr(model, name), type(wanted).__name__
        if type(found) is type(wanted) and _layout(found) == _layout(wanted):
            continue
        received = f"a {type(found).__name__}" + (" of another layout" if type(found) is type(wanted) else "")
        repair = "Keep the model's state_dict, or set it in the config."
        if name in ("encoder", "decoder"):
            repair = "Give parts of your own to from_config, or keep the model's state_dict."
        raise InvalidInputError(f"model.{name}", f"must be the config's {kind}", received, repair)


def _layout(part: nn.Module) -> dict[str, Any]:
    """The shapes of a part's state, and what a constructor fixes: the units of blocks, edges and groups."""
    shapes = {name: getattr(value, "shape", None) for name, value in part.state_dict().items()}
    fixed = {name: value for name, value in part.named_buffers() if name not in shapes}
    return shapes | {name: value.tolist() for name, value in fixed.items() if value.dtype == torch.int64}


# The size of a model, before it is built.

# Least bytes: objects of Python, and an edge of a graph while it is colored.
_PER_UNIT, _PER_NETWORK, _PER_EDGE = 100, 10_000, 100
_UNCOUNTABLE = 2**63


def count_weights(config: ModelConfig) -> int:
    """Trained numbers of the model of a config, which is not built for it."""
    return sum(_sizes(config).values())


def _sizes(config: ModelConfig, gradient: ComponentConfig | None = None) -> dict[str, int]:
    """Trained numbers of each part of a model, and of a gradient's estimator, once units and groups fit the memory."""
    prior, groups = config.prior, config.posterior.groups
    networks = groups if isinstance(groups, int) else 1 if groups == "colors" else len(groups)
    networks += getattr(config.hierarchy, "num_layers", 0)
    is_complete = isinstance(prior, GraphBoltzmannConfig) and prior.edges == "complete"
    edges = prior.num_units * (prior.num_units - 1) // 2 if is_complete else 0
    check_memory("model.prior", _PER_UNIT * prior.num_units + _PER_EDGE * edges, "Use fewer units.")
    check_memory("model", _PER_NETWORK * networks, "Use fewer groups of the posterior, or fewer layers.")
    try:
        with torch.device("meta"):
            built = build_parts(config)
            parts = {f"model.{name}": part for name, part in built.items() if isinstance(part, nn.Module)}
            if gradient is not None:
                posterior: Posterior = built["posterior"]
                sizes = {"group_of_unit": posterior.group_of_unit, "num_features": posterior.num_features}
                parts["training.gradient"] = instantiate(gradient, **sizes)
    except RuntimeError as error:
        if not is_allocation_failure(error):
            raise
        return {"model": _UNCOUNTABLE}
    return {name: sum(each.numel() for each in part.parameters()) for name, part in parts.items()}


def check_model_memory(
    config: ModelConfig, bytes_each: int, what: str, *, gradient: ComponentConfig | None = None
) -> None:
    """Check that a model's parts fit each other and the memory, before anything large is made.

    Parameters, each of some bytes, are counted on torch's meta device; those of a gradient's estimator too.
    """
    sizes = _sizes(config, gradient)
    largest = max(sizes, key=lambda name: sizes[name])
    check_memory(largest, bytes_each * sum(sizes.values()), NARROWER, what=what)
