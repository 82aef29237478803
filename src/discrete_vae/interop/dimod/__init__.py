"""dimod, both ways: priors as binary quadratic models, our chains as its samplers, its samplers as our chains.

Names load their modules on first use, so that a run which was trained with a solver opens where dimod is missing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from discrete_vae.interop.dimod.conversion import MachineOfBQM, from_bqm, to_bqm
    from discrete_vae.interop.dimod.negative_phase import DimodSampler, register_solver, solver_names
    from discrete_vae.interop.dimod.remapping import Divergence, Remapped, places, remap, solver_graph
    from discrete_vae.interop.dimod.samplers import BlockGibbsSampler, ParallelTemperingSampler

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

_MODULES = {
    "conversion": ("MachineOfBQM", "from_bqm", "to_bqm"),
    "negative_phase": ("DimodSampler", "register_solver", "solver_names"),
    "remapping": ("Divergence", "Remapped", "places", "remap", "solver_graph"),
    "samplers": ("BlockGibbsSampler", "ParallelTemperingSampler"),
}


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
