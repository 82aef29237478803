"""The lock pins what pyproject.toml asks for, with hashes and without addresses."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
LOCK = (ROOT / "requirements.lock").read_text()


def declared() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    lists = [project["project"]["dependencies"], extras["docs"], extras["tables"]]
    lists.append(project["dependency-groups"]["dev"])
    return [Requirement(line) for lines in lists for line in lines]


@pytest.mark.parametrize("requirement", declared(), ids=lambda requirement: requirement.name)
def test_every_declared_package_is_pinned_with_hashes(requirement):
    pins = re.findall(rf"^{requirement.name}==(\S+)[^\n]*\\\n    --hash=sha256:", LOCK, re.MULTILINE)
    assert pins, f"{requirement.name} is not in requirements.lock: run make lock"
    assert all(requirement.specifier.contains(pin) for pin in pins)


def test_no_address_or_local_path_is_in_the_lock():
    assert not re.search(r"://|--(extra-)?index-url|--find-links| @ |(^|\s)/\w", LOCK)
