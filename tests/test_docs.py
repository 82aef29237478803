"""The documents and docstrings promise only what is there: paths, names, options, make targets, runnable blocks."""

import ast
import contextlib
import functools
import importlib
import importlib.util
import inspect
import re
import shlex
import tempfile
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread

from discrete_vae.cli import main
from discrete_vae.cli.options import VERBS
from discrete_vae.config.overrides import settings, slots

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src/discrete_vae"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
# the history names what is gone
DOCUMENTS = [str(page.relative_to(ROOT)) for page in PAGES if page.name != "CHANGELOG.md"]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


# The paper map.

# Numbered equations, sections with appendices, figures with panels and tables of the paper.
PAPER = {"Equations": 31, "Sections and appendices": 29, "Figures and tables": 28}


def map_rows(text: str) -> dict[str, list[list[str]]]:
    """The rows of the paper map's tables by heading: number, label, what, code, test, status."""
    tables = {}
    for section in text.split("\n## ")[1:]:
        lines = [line for line in section.splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
        tables[section.splitlines()[0]] = cells[2:]
    return tables


def row_problem(row: list[str]) -> str | None:
    """What is wrong with a row of the paper map, or None."""
    if len(row) != 6:
        return "has not six cells"
    *_, code, tests, status = row

    def named(cell: str, folder: str) -> list[Path]:
        paths = re.findall("`(.*?)`", cell)
        return [ROOT / ("" if path.startswith("reproduction/") else folder) / path for path in paths]

    paths, tested = named(code, "src/discrete_vae"), named(tests, "tests")
    if status not in {"done", "part", "open", "prose"}:
        return f"has the status {status!r}"
    if (status in {"done", "part"}) != bool(paths and tested):
        return f"is {status} and names {len(paths)} files and {len(tested)} tests"
    missing = [str(path.relative_to(ROOT)) for path in paths + tested if not path.exists()]
    return f"names {', '.join(missing)}, which does not exist" if missing else None


@pytest.mark.parametrize("table", [*PAPER, "Beyond the paper"])
def test_paper_map_is_true_and_complete(table):
    rows = map_rows(text_of("docs/paper-map.md"))[table]
    problems = [f"{row[0]} {row[1]} {problem}" for row in rows if (problem := row_problem(row))]
    assert not problems, "\n".join(problems)
    if table in PAPER:
        assert len({row[0] for row in rows}) == len(rows) == PAPER[table]
        labels = [row[1] for row in rows if row[1] != "—"]
        assert len(set(labels)) == len(labels)


def test_a_false_row_is_found():
    for cells in (
        "`errors.py` | `test_docs.py` | later",
        "`no_such_file.py` | `test_docs.py` | done",
        "`errors.py` | `test_no_such_file.py` | part",
        "`errors.py` | — | done",
        "`errors.py` | `test_docs.py` | open",
        "`errors.py` | done",
    ):
        table = f"\n## Equations\n| No. |\n| --- |\n| 1 | `eq:x` | r(ζ\\|z) | {cells} |\n"
        ((row,),) = map_rows(table).values()
        assert row_problem(row), cells


# Names, files, options and targets.

# Of Python, torch, Lightning, scikit-learn, numba, make and a user's file; of the campaigns, pip-tools, click and git;
# and keys of the log that are put together.
FOREIGN = set(
    """DataLoader TensorDataset LightningModule BernoulliRBM get_feature_names_out set_params estimator_checks
    check_estimator max_epochs n_iter set_float32_matmul_precision __pycache__ y_train LOCK_ARGS CAMPAIGN_ARGS
    _DVAE_COMPLETE zsh_source given_others_NAME given_others_age
    save_npz dvae_log_likelihood chains_share networks_share optimizer_share validation_elbo_std_error
    OMP_WAIT_POLICY NUMBA_CACHE_DIR CUDA_VISIBLE_DEVICES NUMBA_THREADING_LAYER THREADING_LAYER
    --case --cases --upgrade --help --version --error-unmatch --untracked-files --porcelain --logdir --nproc-per-node
    zsh_source fish_source --repository-url --extra-index-url
    --nnodes --rdzv-backend --rdzv-endpoint --minutes --measures --seeds --steps --threads""".split()  # noqa: SIM905
)


def code_spans(text: str) -> list[str]:
    """Texts between single backticks, outside of blocks, which other tests run."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose)


def docstrings(path: Path) -> list[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]
    return [text for node in nodes if (text := ast.get_docstring(node))]


@pytest.fixture(scope="module")
def known():
    """All identifiers of the package and of `reproduction`, the strings that are identifiers, and all files."""
    folders = ("src", "reproduction", "tests", "benchmarks", "docs")
    names = {"discrete_vae"} | {path.name for folder in folders for path in ROOT.glob(f"{folder}/**/*.py")}
    for path in (*PACKAGE.rglob("*.py"), *ROOT.glob("reproduction/*.py")):
        names.add(path.stem)
        for node in ast.walk(ast.parse(path.read_text())):
            found = [getattr(node, field, None) for field in ("name", "id", "attr", "arg", "asname", "value")]
            for text in (text for text in found if isinstance(text, str)):
                if re.fullmatch(r"[\w.:]+", text):
                    names.update(re.split(r"[.:]", text))
    return names


@pytest.fixture(scope="module")
def options():
    found = {f"--{path}" for path in [*settings(), *slots()]}
    places = [f"discrete_vae.cli.{place}" for place, _ in VERBS.values()]
    for place in (*places, "reproduction.__main__:command"):
        module, _, function = place.partition(":")
        command = getattr(importlib.import_module(module), function)
        found.update(word for option in command.params for word in option.opts)
    return found


def unknown_names(spans: list[str], known: set[str]) -> list[str]:
    """Identifiers with an underscore or with capitals inside that occur nowhere, and files that are not there."""
    unknown = []
    for word, suffix in re.findall(r"([A-Za-z_]\w*)(\.py\b)?", "\n".join(spans)):
        named = re.search(r"[a-z\d]_[a-z\d]|[a-z][A-Z]|[A-Z]{2}[a-z]|[A-Z]_[A-Z]", word)
        if (suffix or named) and word + suffix not in known | FOREIGN:
            unknown.append(word + suffix)
    return unknown


def unknown_dotted_names(text: str) -> set[str]:
    """Names below `discrete_vae` that cannot be imported."""
    unknown = set()
    for dotted in set(re.findall(r"\bdiscrete_vae(?:\.\w+)+", text)):
        here = importlib.import_module("discrete_vae")
        for part in dotted.split(".")[1:]:
            try:
                here = getattr(here, part, None) or importlib.import_module(f"{here.__name__}.{part}")
            except (ImportError, AttributeError):
                unknown.add(dotted)
                break
    return unknown


def unknown_options(text: str, options: set[str]) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z\d.-]*[a-z\d](?![.\w-])", text)) - options - FOREIGN


def unknown_targets(text: str) -> set[str]:
    """Targets of make in code spans and console blocks that are not there."""
    targets = re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE)
    return set(re.findall(r"(?:`|^\$ )make ([a-z-]+)", text, re.MULTILINE)) - set(targets)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_pages_name_what_is_there(name, known, options):
    text = text_of(name)
    assert unknown_names(code_spans(text), known) == []
    assert unknown_dotted_names(text) == set()
    assert unknown_options(text, options) == set()
    assert unknown_targets(text) == set()
    links = re.findall(r"(?:\]\(|src=\")(?!https:)([^)#:\"]+)", text)
    assert [link for link in links if not (ROOT / name).parent.joinpath(link).exists()] == []


def test_the_sources_name_what_is_there(known, options):
    for path in sorted(PACKAGE.rglob("*.py")):
        assert unknown_names(code_spans("\n".join(docstrings(path))), known) == [], path
        assert unknown_options(path.read_text(), options) == set(), path


def test_what_is_gone_is_found(known, options):
    gone = ["BoltzmannEnergy", "marginal_energy", "no_such_file.py"]
    assert unknown_names(["BoltzmannEnergy.marginal_energy", "no_such_file.py"], known) == gone
    dotted = {"discrete_vae.boltzmann.energy", "discrete_vae.GaussianPrior"}
    assert unknown_dotted_names(" ".join(dotted)) == dotted
    assert unknown_options("`--training.optimiser.learning-rate 1`", options)
    text = "text `make paint X=1`\n$ make varnish # shine\nto make do"
    assert unknown_targets(text) == {"paint", "varnish"}


# Blocks that run.


def run_blocks(blocks: list[str], name: str) -> dict[str, object]:
    """Run a page's blocks, which build on each other; returns the names that they leave."""
    names: dict[str, object] = {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for block in blocks:
            exec(compile(block, name, "exec"), names)
    return names


@functools.cache
def ran(name: str) -> tuple[dict[str, object], set[str]]:
    """The names that a page's Python blocks leave, and the packages that they said they need and lack."""
    pattern = r"^(?:<!-- needs (\w+) -->\n)?```python\n(.*?)^```"
    blocks = re.findall(pattern, text_of(name), re.DOTALL | re.MULTILINE)
    missing = {need for need, _ in blocks if need and not importlib.util.find_spec(need)}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        return run_blocks([block for need, block in blocks if need not in missing], name), missing


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")  # of Lightning's import
@pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning")  # of Lightning, on many cores
@pytest.mark.parametrize("name", DOCUMENTS)
def test_python_blocks_run(name):
    names, missing = ran(name)
    tensors = {key: value for key, value in names.items() if isinstance(value, torch.Tensor)}
    assert [key for key, value in tensors.items() if not bool(value.isfinite().all())] == []
    if missing:
        pytest.skip(f"{missing} is not installed: the blocks of {name} that need it were not run")


def test_the_readme_example_gives_what_its_comments_say():
    names, _ = ran("README.md")
    assert names["x"].shape == (1297, 64)
    assert names["likelihood"].std_error.shape == (100,)
    assert names["likelihood"].value.mean() > -32.0  # -28 or so; independent pixels reach -35


def test_the_readme_command_draws_its_picture(tmp_path, monkeypatch):
    """Another seed differs by four times the bound; on another processor a bit may be drawn otherwise."""
    text = text_of("README.md")
    (words,) = re.findall(r"^\$ dvae (sample .*)$", text, re.MULTILINE)[:1]
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(words)) == 0
    shown = imread(ROOT / re.findall(r'<img src="(.*?)"', text)[0])
    drawn = imread(tmp_path / shlex.split(words)[-1])
    assert drawn.shape == shown.shape
    assert abs(drawn - shown).mean() < 0.01


def test_a_block_that_fails_is_found():
    with pytest.raises(NameError):
        run_blocks(["x = 1", "y"], "page")


def shown_commands(name: str) -> list[tuple[list[str], str]]:
    """The dvae commands of a page's console blocks, each with the output that is shown for it."""
    blocks = re.findall(r"^```console\n(.*?)^```", text_of(name), re.DOTALL | re.MULTILINE)
    commands = [each for block in blocks for each in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    lines = [command.partition("\n")[::2] for command in commands]
    return [(shlex.split(line, comments=True), output) for line, output in lines]


@pytest.mark.filterwarnings("ignore")
def test_the_commands_of_the_command_line_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    commands = shown_commands("docs/command-line.md")
    assert commands
    for (program, *words), output in commands:
        assert program == "dvae"
        status = main(words)
        out, err = capsys.readouterr()
        assert (status, err) == (2, output) if output.startswith("error: ") else status == 0, err
        assert output in out + err
    run = tmp_path / "runs/first"
    assert (run / "figures/samples.png").exists()
    for file in ("metrics.jsonl", "evaluation.json"):
        section = text_of("docs/files.md").partition(f"## {file}")[2].partition("\n## ")[0]
        cells = " ".join(re.findall(r"^\| (`.*?) \|", section, re.MULTILINE))
        keys = set(re.findall(r'"(\w+)":', (run / file).read_text()))
        assert set(re.findall(r"`(\w+)`", cells)) <= keys


def test_the_command_line_page_names_every_exit_status(capsys):
    main(["--help"])
    statuses = capsys.readouterr().out.partition("Exit status:")[2]
    listed = re.findall(r"^\| (\d+) \|", text_of("docs/command-line.md"), re.MULTILINE)
    assert sorted(listed) == sorted(re.findall(r"\b\d+\b", statuses))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["docs/training.md", "docs/your-own-data.md", "docs/file-formats.md"])
def test_the_commands_of_guides_run_in_order(name, tmp_path, monkeypatch, capsys):
    """Commands run between the Python blocks, with models of size smoke; those of files that no block writes do not."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = re.findall(r"^```(python|console)\n(.*?)^```", text_of(name), re.DOTALL | re.MULTILINE)
    for language, block in blocks:
        if language == "python":
            exec(compile(block, name, "exec"), names)
            continue
        for line in re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
            program, *words = shlex.split(line)
            data = words[words.index("--data") + 1] if "--data" in words else ""
            if program != "dvae" or not Path(data).exists():
                continue
            if words[0] in {"train", "validate"} and "--resume" not in words:
                words += ["--size", "smoke"]
            assert main(words) == 0, (line, capsys.readouterr().err)
    assert list(tmp_path.glob("runs/*/best.json"))


# The reference.

STUBS = sorted(PACKAGE.rglob("__init__.pyi"))
PACKAGES = [str(stub.parent.relative_to(ROOT / "src")).replace("/", ".") for stub in STUBS]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_loads_and_is_described(package):
    module = importlib.import_module(package)
    assert package == "discrete_vae" or package in text_of("docs/api.md").split()
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        exported = getattr(module, name)
        assert inspect.getdoc(exported) or not callable(exported), name
        for method, value in vars(exported).items() if inspect.isclass(exported) else ():
            if not method.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                assert inspect.getdoc(getattr(exported, method)), f"{name}.{method}"
    with pytest.raises(AttributeError):
        module.Nonsense  # noqa: B018


@pytest.mark.parametrize("path", sorted((ROOT / "docs/images").glob("*.py")), ids=lambda path: path.stem)
def test_figures_are_drawn_by_their_scripts(path, tmp_path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    (picture,) = path.parent.glob(f"{path.stem.replace('_', '-')}.[ps][nv]g")
    script.draw(tmp_path / picture.name)
    beginning = b"\x89PNG" if picture.suffix == ".png" else b"<?xml"
    assert (tmp_path / picture.name).read_bytes().startswith(beginning)
