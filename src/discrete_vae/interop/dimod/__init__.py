"""dimod, both ways: priors as binary quadratic models, our chains as its samplers, its samplers as our chains.

Names load their modules on first use, so that a run which was trained with a solver opens where dimod is missing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from discrete_vae.interop.dimod.conversion import (
        BlockGibbsSampler,
        MachineOfBQM,
        ParallelTemperingSampler,
        from_bqm,
        register_solver,
        solver_names,
        to_bqm,
    )
    from discrete_vae.interop.dimod.negative_phase import DimodSampler
    from discrete_vae.interop.dimod.remapping import Divergence, Remapped, places, remap, solver_graph

_EXPORTS = {
    "BlockGibbsSampler": "conversion",
    "DimodSampler": "negative_phase",
    "Divergence": "remapping",
    "MachineOfBQM": "conversion",
    "ParallelTemperingSampler": "conversion",
    "Remapped": "remapping",
    "from_bqm": "conversion",
    "places": "remapping",
    "register_solver": "conversion",
    "remap": "remapping",
    "solver_graph": "remapping",
    "solver_names": "conversion",
    "to_bqm": "conversion",
}

__all__ = [
    "BlockGibbsSampler",
    "DimodSampler",
    "Divergence",
    "MachineOfBQM",
    "ParallelTemperingSampler",
    "Remapped",
    "from_bqm",
    "places",
    "register_solver",
    "remap",
    "solver_graph",
    "solver_names",
    "to_bqm",
]


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
