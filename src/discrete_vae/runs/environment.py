"""What a run ran on, as plain values for ``environment.json``."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from discrete_vae._version import __version__

_PACKAGES = ("torch", "numpy", "numba", "triton", "scipy", "scikit-learn", "pydantic", "safetensors")
_SETTINGS = (
    *("ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA"),
    *("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX"),
)
"""Variables of the environment that say which instructions a library may use."""

_ROUNDING = (
    ("platform", "processor"),
    ("platform", "vector_instructions"),
    ("platform", "instruction_settings"),
    ("packages", "torch"),
    ("packages", "numba"),
)
"""What decides on the CPU in which order sums are added up, beside the number of threads."""


def describe_environment(*, seed: int, device: torch.device | str) -> dict[str, Any]:
    """Versions, commit, seed, device and platform of this process.

    Args:
        seed: The run's seed.
        device: Where the run computes.

    Returns:
        A mapping that JSON can express, with the keys ``discrete_vae``, ``python``, ``packages``, ``commit``,
        ``seed``, ``device``, ``platform``. ``commit`` is None unless the package runs from a git checkout;
        otherwise it holds ``hash`` and ``modified``, whether tracked files differ from that commit.

    Examples:
        >>> environment = describe_environment(seed=7, device="cpu")
        >>> environment["seed"], environment["device"]["type"]
        (7, 'cpu')
    """
    return {
        "discrete_vae": __version__,
        "python": platform.python_version(),
        "packages": _packages(),
        "commit": _commit(Path(__file__).resolve().parent),
        "seed": seed,
        "device": _describe_device(torch.device(device)),
        "platform": _platform(),
    }


def other_rounding(begun: Mapping[str, Any]) -> str | None:
    """What a run was begun with and what there is here, where these round differently on the CPU; None if they do not.

    Args:
        begun: The run's ``environment.json``; what it does not say is not compared.

    Examples:
        >>> other_rounding(describe_environment(seed=0, device="cpu")) is None
        True
    """
    here, before, now = {"platform": _platform(), "packages": _packages()}, [], []
    for part, name in _ROUNDING:
        recorded, present = begun.get(part), here[part].get(name)
        if isinstance(recorded, dict) and name in recorded and recorded[name] != present:
            words = name.replace("_", " ")
            before.append(f"{words} {recorded[name]!r}"[:200])
            now.append(f"{words} {present!r}"[:200])
    return f"began with {', '.join(before)} and goes on with {', '.join(now)}" if before else None


def _packages() -> dict[str, Any]:
    return {name: found for name in _PACKAGES if (found := _version_of(name)) is not None}


def _platform() -> dict[str, Any]:
    return {
        "system": platform.platform(),
        "machine": platform.machine(),
        "processor": _processor(),
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
        "instruction_settings": {name: os.environ[name] for name in _SETTINGS if name in os.environ},
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "implementation": sys.implementation.name,
    }


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    """Name of the processor, as Linux gives it; elsewhere what the platform says of it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def _describe_device(device: torch.device) -> dict[str, Any]:
    described: dict[str, Any] = {"type": device.type}
    if device.type == "cuda" and torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(device)
        described |= {
            "name": properties.name,
            "memory_bytes": properties.total_memory,
            "cuda": torch.version.cuda,
        }
    return described


def _commit(folder: Path) -> dict[str, Any] | None:
    # An installed package may lie inside the checkout of another project: only a tracked file counts.
    if _git(folder, "ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"hash": commit.strip(), "modified": None if changes is None else bool(changes.strip())}


def _git(folder: Path, *arguments: str) -> str | None:
    # Inside a git hook these variables point at another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=10, env=environment, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
