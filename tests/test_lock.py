"""The lock pins what pyproject.toml asks for, with hashes and without addresses; setup starts over where it must."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from hatchling.builders.sdist import SdistBuilder
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from packaging.requirements import Requirement

import discrete_vae

ROOT = Path(__file__).resolve().parents[1]
FILES = ("Makefile", "requirements.lock", "pyproject.toml")
LOCK = (ROOT / "requirements.lock").read_text()
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = DECLARED["project"]


def test_every_declared_package_is_pinned_with_hashes_and_without_addresses():
    extras = PROJECT["optional-dependencies"]
    lists = [PROJECT["dependencies"], DECLARED["dependency-groups"]["dev"]]
    lists += [extras[name] for name in extras if name != "formats"]  # which the lock leaves out
    for requirement in (Requirement(line) for lines in lists for line in lines):
        pins = re.findall(rf"^{requirement.name}==(\S+)[^\n]*\\\n    --hash=sha256:", LOCK, re.MULTILINE)
        assert pins, f"{requirement.name} is not in requirements.lock: run make lock"
        assert all(requirement.specifier.contains(pin) for pin in pins)
    assert not re.search(r"://|--(extra-)?index-url|--find-links| @ |(^|\s)/\w", LOCK)


def test_the_conda_recipe_is_of_this_version_and_needs_the_same_packages():
    recipe = yaml.safe_load((ROOT / "conda/recipe.yaml").read_text())
    names = {"pytorch": "torch", "matplotlib-base": "matplotlib"}
    run = [Requirement(line) for line in recipe["requirements"]["run"]]
    found = {names.get(each.name, each.name): each.specifier for each in run}
    wanted = {each.name: each.specifier for each in map(Requirement, PROJECT["dependencies"])}
    assert found == wanted | {"python": Requirement(f"python{PROJECT['requires-python']}").specifier}
    assert recipe["context"]["version"] == discrete_vae.__version__


def test_the_readme_of_a_package_has_only_links_that_lead_somewhere_without_a_checkout():
    """As the build writes it, which takes out what leads into the checkout; badges name the versions declared."""
    text = ProjectMetadata(str(ROOT), PluginManager()).core.readme
    links = re.findall(r"\]\(([^)\s]+)\)|\bsrc=\"([^\"]+)", text)
    assert len(links) >= 5
    assert all("".join(each).startswith("https://") for each in links)
    assert "Prior**: a restricted Boltzmann machine" in text
    assert "( " not in text
    versions = [each.rsplit(" ", 1)[1] for each in PROJECT["classifiers"] if "Python ::" in each]
    assert f"badge/python-{'%20|%20'.join(versions)}-" in text


def test_the_sdist_holds_what_its_tests_and_its_documentation_read():
    held = {file.distribution_path for file in SdistBuilder(str(ROOT)).recurse_included_files()}
    assert {"conftest.py", "CONTRIBUTING.md", "conda/recipe.yaml", "docs/conf.py", "Makefile"} <= held
    assert not any(path.startswith("reproduction/weights") for path in held)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_setup_starts_over_in_a_checkout_that_was_copied_or_moved(tmp_path):
    """With stand-ins for Python and uv that write down where they run."""
    first, log = tmp_path / "first place", tmp_path / "calls"
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin/python3"
    python.write_text(
        '#!/bin/sh\necho "$PWD $*" >> "$CALLS"\n'
        'if [ "$2" = venv ]; then mkdir -p "$4/bin" && cp "$0" "$4/bin/python" && cp "$0" "$4/bin/uv"; fi\n'
    )
    python.chmod(0o755)
    first.mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, first)
    env = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "CALLS": str(log)}

    def make(place, *words):
        return subprocess.run(["make", *words, "setup"], cwd=place, env=env, capture_output=True).returncode

    assert make(first) == 0
    assert make(first, "--question") == 0
    copied, moved = tmp_path / "copied", tmp_path / "moved"
    shutil.copytree(first, copied)
    assert make(copied, "--question") == 1
    assert make(copied) == 0
    assert f"{copied} -m venv --clear .venv" in log.read_text()
    assert make(copied, "--question") == make(first, "--question") == 0
    first.rename(moved)
    assert make(moved, "--question") == 1
    (tmp_path / "linked").mkdir()
    for name in FILES:
        shutil.copy2(copied / name, tmp_path / "linked")
    (tmp_path / "linked/.venv").symlink_to(copied / ".venv")
    assert make(tmp_path / "linked", "--question") == 0  # what a link names has not moved
