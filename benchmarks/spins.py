"""A machine over {0,1} as one over {-1,+1}."""

from __future__ import annotations

import numpy as np


def to_spins(weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coupling J (left, right) and field h (unit,) with exp(h s + s J s) the law of z = (1 + s) / 2."""
    coupling = weight / 4
    return coupling, bias / 2 + np.concatenate([coupling.sum(1), coupling.sum(0)])
