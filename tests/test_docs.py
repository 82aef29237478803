"""The documents promise only what is there: paths, make targets, public names, runnable blocks."""

import importlib
import importlib.util
import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from discrete_vae.cli import main

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "GOVERNANCE.md",
    "RELEASING.md",
    "CODE_OF_CONDUCT.md",
]
DOCUMENTS += sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))
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
    paths = [_place("src/discrete_vae", path) for path in re.findall("`(.*?)`", code)]
    tested = [_place("tests", path) for path in re.findall("`(.*?)`", tests)]
    if status not in {"done", "part", "open", "prose"}:
        return f"has the status {status!r}"
    if (status in {"done", "part"}) != bool(paths and tested):
        return f"is {status} and names {len(paths)} files and {len(tested)} tests"
    missing = [str(path.relative_to(ROOT)) for path in paths + tested if not path.exists()]
    return f"names {', '.join(missing)}, which does not exist" if missing else None


def _place(folder: str, path: str) -> Path:
    """A file of the library or its tests; that of the reproductions stands at the root."""
    return ROOT / path if path.startswith("reproduction/") else ROOT / folder / path


def blocks_with_needs(name: str) -> list[tuple[str, str]]:
    """The Python blocks of a page, each with the package that the comment before it says it needs."""
    pattern = r"^(?:<!-- needs (\w+) -->\n)?```python\n(.*?)^```"
    return re.findall(pattern, (ROOT / name).read_text(), re.DOTALL | re.MULTILINE)


def python_blocks(name: str) -> list[str]:
    """The blocks of a page that can run here."""
    return [block for need, block in blocks_with_needs(name) if not need or importlib.util.find_spec(need)]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def promised_targets(text: str) -> set[str]:
    """Targets in code spans and console blocks."""
    return set(re.findall(r"(?:`|^\$ )make ([a-z-]+)", text, re.MULTILINE))


@pytest.mark.parametrize("table", [*PAPER, "Beyond the paper"])
def test_paper_map_is_true(table):
    rows = map_rows((ROOT / "docs/paper-map.md").read_text())[table]
    problems = [f"{row[0]} {row[1]} {problem}" for row in rows if (problem := row_problem(row))]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("table", PAPER)
def test_paper_map_is_complete(table):
    rows = map_rows((ROOT / "docs/paper-map.md").read_text())[table]
    assert len({row[0] for row in rows}) == len(rows) == PAPER[table]
    labels = [row[1] for row in rows if row[1] != "—"]
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize(
    ("cells", "problem"),
    [
        ("`errors.py` | `test_docs.py` | ", "status"),
        ("`errors.py` | `test_docs.py` | later", "status"),
        ("`no_such_file.py` | `test_docs.py` | done", "does not exist"),
        ("`errors.py` | `test_no_such_file.py` | part", "does not exist"),
        ("`errors.py` | — | done", "names 1 files and 0 tests"),
        ("`errors.py` | `test_docs.py` | open", "is open"),
        ("`errors.py` | done", "six cells"),
    ],
)
def test_a_false_row_is_found(cells, problem):
    table = f"\n## Equations\n| No. |\n| --- |\n| 1 | `eq:x` | r(ζ\\|z) | {cells} |\n"
    ((row,),) = map_rows(table).values()
    assert problem in row_problem(row)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_promised_make_targets_exist(name):
    assert promised_targets((ROOT / name).read_text()) <= make_targets()


def test_a_missing_make_target_is_found():
    assert promised_targets("text `make paint X=1`\n$ make varnish # shine\nto make do") == {
        "paint",
        "varnish",
    }
    assert "paint" not in make_targets()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_to_files_lead_somewhere(name):
    links = re.findall(r"(?:\]\(|src=\")([^)#:\"]+)", (ROOT / name).read_text())
    assert [link for link in links if not (ROOT / name).parent.joinpath(link).exists()] == []


def run_blocks(blocks: list[str], name: str) -> dict[str, object]:
    """Run a page's blocks, which build on each other; returns the names that they leave."""
    names: dict[str, object] = {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for block in blocks:
            exec(compile(block, name, "exec"), names)
    return names


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")  # of Lightning's import
@pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning")  # of Lightning, on many cores
@pytest.mark.parametrize("name", DOCUMENTS)
def test_python_blocks_run(name):
    names = run_blocks(python_blocks(name), name)
    tensors = {key: value for key, value in names.items() if isinstance(value, torch.Tensor)}
    assert [key for key, value in tensors.items() if not bool(value.isfinite().all())] == []


@pytest.mark.parametrize(
    ("name", "need"),
    [
        (name, need)
        for name in DOCUMENTS
        for need in sorted({need for need, _ in blocks_with_needs(name) if need})
    ],
)
def test_blocks_that_need_a_package_run_where_it_is(name, need):
    pytest.importorskip(
        need, reason=f"{need} is not installed: the blocks of {name} that need it were not run"
    )
    assert {block for each, block in blocks_with_needs(name) if each == need} <= set(python_blocks(name))


def shown_commands(name: str) -> list[tuple[list[str], str]]:
    """The dvae commands of a page's console blocks, each with the output that is shown for it."""
    blocks = re.findall(r"^```console\n(.*?)^```", (ROOT / name).read_text(), re.DOTALL | re.MULTILINE)
    commands = [each for block in blocks for each in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    lines = [command.partition("\n")[::2] for command in commands]
    return [(shlex.split(line, comments=True), output) for line, output in lines]


@pytest.mark.filterwarnings("ignore")
def test_the_commands_of_the_command_line_page_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    commands = shown_commands("docs/command-line.md")
    assert len(commands) == 11
    for (program, *words), output in commands:
        assert program == "dvae"
        status = main(words)
        out, err = capsys.readouterr()
        assert (status, err) == (2, output) if output.startswith("error: ") else status == 0, err
        assert output in out + err
    assert (tmp_path / "runs/first/figures/samples.png").exists()


def test_the_command_line_page_names_every_verb_and_exit_status(capsys):
    from discrete_vae.cli.options import VERBS

    page = (ROOT / "docs/command-line.md").read_text()
    assert set(re.findall(r"^\| `dvae ([a-z-]+)", page, re.MULTILINE)) == set(VERBS)
    main(["--help"])
    statuses = capsys.readouterr().out.partition("Exit status:")[2]
    listed = re.findall(r"^\| (\d+) \|", page, re.MULTILINE)
    assert sorted(listed) == sorted(re.findall(r"\b\d+\b", statuses))


def test_a_block_that_fails_is_found():
    with pytest.raises(NameError):
        run_blocks(["x = 1", "y"], "page")


def test_the_readme_example_gives_what_its_comments_say():
    names = run_blocks(python_blocks("README.md"), "README.md")
    assert names["x"].shape == (1297, 64)
    assert names["likelihood"].std_error.shape == (100,)
    assert names["likelihood"].value.mean() > -32.0  # -28 or so; independent pixels reach -35


def test_readme_has_a_block_that_runs_and_a_picture():
    assert python_blocks("README.md")
    assert 'src="docs/images/demo-samples.png"' in (ROOT / "README.md").read_text()


PACKAGES = sorted(
    str(stub.parent.relative_to(ROOT / "src")).replace("/", ".")
    for stub in (ROOT / "src/discrete_vae").rglob("__init__.pyi")
)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_loads_and_is_described(package):
    module = importlib.import_module(package)
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        exported = getattr(module, name)
        assert inspect.getdoc(exported) or not callable(exported), name
        for method, value in vars(exported).items() if inspect.isclass(exported) else ():
            if not method.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                assert inspect.getdoc(getattr(exported, method)), f"{name}.{method}"
    with pytest.raises(AttributeError):
        module.Nonsense  # noqa: B018


def test_the_reference_has_a_page_for_every_package_that_exports_names():
    page = (ROOT / "docs/api.md").read_text().split()
    assert set(PACKAGES) - {"discrete_vae"} <= set(page)


@pytest.mark.parametrize("path", sorted((ROOT / "docs/images").glob("*.py")), ids=lambda path: path.stem)
def test_figures_are_drawn_by_their_scripts(path, tmp_path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.draw(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert path.with_name(f"{path.stem.replace('_', '-')}.png").exists()


def test_the_documentation_builds_without_a_warning(tmp_path):
    pytest.importorskip("sphinx", reason="Sphinx, of the extra docs, is not installed")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-E",
        "-b",
        "html",
        ROOT / "docs",
        tmp_path,
    ]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "index.html").is_file()
