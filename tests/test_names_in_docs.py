"""The documents and docstrings name only what is there: identifiers, files, dotted names and options."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from discrete_vae.cli.options import VERBS
from discrete_vae.overrides import settings, slots

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src/discrete_vae"
REPRODUCTION = ROOT / "reproduction"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
PAGES = [page for page in PAGES if page.name != "CHANGELOG.md"]  # it names what is gone
# Of Python, torch, Lightning, scikit-learn, numba, make and a user's file; of the campaigns, pip-tools, click and git.
FOREIGN_NAMES = {
    "DataLoader",
    "TensorDataset",
    "LightningModule",
    "BernoulliRBM",
    "get_feature_names_out",
    "set_params",
    "estimator_checks",
    "check_estimator",
    "max_epochs",
    "n_iter",
    "set_float32_matmul_precision",
    "__pycache__",
    "y_train",
    "LOCK_ARGS",
    "CAMPAIGN_ARGS",
}
FOREIGN_NAMES |= {
    "OMP_WAIT_POLICY",
    "NUMBA_CACHE_DIR",
    "CUDA_VISIBLE_DEVICES",
    "NUMBA_THREADING_LAYER",
    "THREADING_LAYER",
}
FOREIGN_OPTIONS = {"--case", "--cases", "--upgrade", "--help", "--version"}
FOREIGN_OPTIONS |= {"--error-unmatch", "--untracked-files", "--porcelain"}
FOREIGN_OPTIONS |= {"--logdir", "--nproc-per-node", "--nnodes", "--rdzv-backend", "--rdzv-endpoint"}
FOREIGN_OPTIONS |= {"--minutes", "--measures", "--seeds", "--steps", "--threads"}  # of the benchmarks


def code_spans(text: str) -> list[str]:
    """Texts between single backticks, outside of blocks, which other tests run."""
    return re.findall(
        r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    )


def docstrings(path: Path) -> list[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]
    return [text for node in nodes if (text := ast.get_docstring(node))]


def known_names() -> set[str]:
    """All identifiers of the package and of `reproduction`, and the strings that are identifiers."""
    names = {"discrete_vae"}
    for path in (*PACKAGE.rglob("*.py"), *REPRODUCTION.glob("*.py")):
        names.add(path.stem)
        for node in ast.walk(ast.parse(path.read_text())):
            found = [getattr(node, field, None) for field in ("name", "id", "attr", "arg", "asname", "value")]
            for text in (text for text in found if isinstance(text, str)):
                if re.fullmatch(r"[\w.:]+", text):
                    names.update(re.split(r"[.:]", text))
    return names


def unknown_names(spans: list[str], known: set[str]) -> list[str]:
    """Identifiers with an underscore or with capitals inside that occur nowhere, and files that are not there."""
    unknown = []
    for span in spans:
        for word, suffix in re.findall(r"([A-Za-z_]\w*)(\.py\b)?", span):
            if suffix:
                unknown += [word + suffix] * (not any(ROOT.glob(f"*/**/{word}.py")))
            elif re.search(r"[a-z\d]_[a-z\d]|[a-z][A-Z]|[A-Z]{2}[a-z]|[A-Z]_[A-Z]", word):
                unknown += [word] * (word not in known | FOREIGN_NAMES)
    return unknown


def unknown_dotted_names(text: str) -> list[str]:
    """Names below `discrete_vae` that cannot be imported."""
    unknown = []
    for dotted in set(re.findall(r"\bdiscrete_vae(?:\.\w+)+", text)):
        parts = dotted.split(".")
        here, rest = importlib.import_module(parts[0]), parts[1:]
        while rest and here is not None:
            try:
                here = getattr(here, rest[0], None) or importlib.import_module(f"{here.__name__}.{rest[0]}")
            except (ImportError, AttributeError):
                here = None
            rest = rest[1:]
        unknown += [dotted] * (here is None)
    return unknown


def options_of_text(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z\d.-]*[a-z\d]", text))


@pytest.fixture(scope="module")
def known():
    return known_names()


@pytest.fixture(scope="module")
def options():
    found = {f"--{path}" for path in [*settings(), *slots()]} | FOREIGN_OPTIONS
    places = [f"discrete_vae.cli.{place}" for place, _ in VERBS.values()]
    for place in (*places, "reproduction.__main__:command"):
        module, _, function = place.partition(":")
        command = getattr(importlib.import_module(module), function)
        found.update(word for option in command.params for word in option.opts)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_what_is_there(page, known, options):
    text = page.read_text()
    assert unknown_names(code_spans(text), known) == []
    assert unknown_dotted_names(text) == []
    assert options_of_text(text) - options == set()


def test_docstrings_name_what_is_there(known):
    unknown = {
        path.name: names
        for path in sorted(PACKAGE.rglob("*.py"))
        if (names := unknown_names(code_spans("\n".join(docstrings(path))), known))
    }
    assert unknown == {}


def test_options_in_the_sources_are_there(options):
    unknown = {
        path.name: names
        for path in sorted(PACKAGE.rglob("*.py"))
        if (names := options_of_text(path.read_text()) - options)
    }
    assert unknown == {}


def test_names_that_are_gone_are_found(known, options):
    assert unknown_names(["BoltzmannEnergy.marginal_energy", "no_such_file.py"], known) == [
        "BoltzmannEnergy",
        "marginal_energy",
        "no_such_file.py",
    ]
    gone = ["discrete_vae.boltzmann.energy", "discrete_vae.GaussianPrior"]
    assert sorted(unknown_dotted_names(" ".join(gone))) == sorted(gone)
    assert options_of_text("`--training.optimiser.learning-rate 1`") - options
