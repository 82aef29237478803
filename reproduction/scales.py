"""What tables of many runs make smaller in size short, and figures 6 and 9 in size paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reproduction.planned_run import Scale, as_changes

_BRIEF: Mapping[str, Sequence[object]] = {
    "training.num-epochs": [64],
    "training.beta-bound.slope": [5 / 64],
    "training.validate-every": [320],
    "training.num-importance-samples": [1],
}
_NARROW_POSTERIOR: Mapping[str, Sequence[object]] = {
    "model.posterior.hidden": [100, 100],
    "model.hierarchy.posterior-hidden": [100, 100],
}
_NARROW: Mapping[str, Sequence[object]] = {**_NARROW_POSTERIOR, "model.decoder.hidden": [400]}

TEN_LAYERS = Scale(
    "ten-layers", as_changes({"model.hierarchy.num-layers": [10], "model.hierarchy.sharing": ["none"]})
)
"""Figures 6 and 9 in the paper."""

BRIEF = Scale("brief", as_changes(_BRIEF))
"""Half of size short's steps, all of the ELBO as in the paper, for both MNISTs."""

SMALL = Scale("small", as_changes({**_BRIEF, **_NARROW}))
"""The same with narrow networks."""

NARROW = {
    "mnist-dynamic": Scale("narrow", as_changes(_NARROW)),
    "mnist-static": Scale("narrow", as_changes(_NARROW)),
    "omniglot": Scale("narrow", as_changes({**_NARROW, "model.hierarchy.prior-hidden": [100]})),
    "caltech101-silhouettes": Scale("narrow", as_changes(_NARROW_POSTERIOR)),
}
"""Size short with narrow networks, by experiment: the models that come with the library."""
