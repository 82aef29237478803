"""What CONTRIBUTING says of the layers is what the contracts in pyproject.toml enforce."""

import re
import tomllib
from pathlib import Path

import discrete_vae

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(discrete_vae.__file__).parent


def contracts():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def modules():
    """Every module and package directly below the package, except those that stand outside the layers."""
    files, packages = PACKAGE.glob("*.py"), PACKAGE.glob("*/__init__.py")
    names = {path.stem for path in files} | {path.parent.name for path in packages}
    return names - {"__init__", "testing"}


def enforced_layers():
    """The layers of the contract, the highest first, without what does not exist yet."""
    layers = [set(re.findall(r"\w+", layer)) & modules() for layer in contracts()[0]["layers"]]
    return [layer for layer in layers if layer]


def described_layers():
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("| Layer | Holds |")[2].partition("\n\n")[0]
    rows = [row.split("|")[1] for row in table.splitlines()[2:]]
    return [{name.removesuffix(".py").rstrip("/") for name in re.findall(r"`([^`]+)`", row)} for row in rows]


def test_the_described_layers_are_the_enforced_ones():
    described, enforced = described_layers(), enforced_layers()
    assert described[0] == enforced[0] | {"__main__"}  # which only calls cli
    assert described[1:] == enforced[1:]


def test_nothing_may_import_the_oracles():
    named = {name.removeprefix("discrete_vae.") for name in contracts()[1]["source_modules"]}
    assert named == modules()
