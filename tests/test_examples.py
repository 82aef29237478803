"""The notebooks in examples/ run from top to bottom, offline and quickly, and what they assert holds."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted(ROOT.glob("examples/*.md"))
CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LIMIT = 120  # seconds


def code_of(text: str) -> str:
    """The code of all cells of a MyST notebook, on the lines where they stand; options of a cell are comments."""
    lines = [""] * (text.count("\n") + 1)
    for cell in CELL.finditer(text):
        first = text.count("\n", 0, cell.start(1))
        for number, line in enumerate(cell[1].splitlines(), first):
            lines[number] = re.sub(r"^(:[a-z-]+:)", r"# \1", line)
    return "\n".join(lines)


def run(path: Path, folder: Path) -> subprocess.CompletedProcess:
    """Run a notebook's cells in a process of its own, in an empty folder, with one thread and no window."""
    script = folder / "cells.py"
    script.write_text(code_of(path.read_text(encoding="utf-8")), encoding="utf-8")
    one = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    found = {"MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT / "src"), "http_proxy": "http://offline.invalid"}
    found["https_proxy"] = found["http_proxy"]  # whoever asks the network is refused
    return subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:__main__", script.name],
        cwd=folder,
        env=os.environ | one | found,
        capture_output=True,
        text=True,
        timeout=10 * LIMIT,  # the machine may be busy; the limit is on the processor's time
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_and_makes_a_claim(path, tmp_path):
    code = code_of(path.read_text(encoding="utf-8"))
    assert "assert " in code, "nothing shows that the notebook worked"
    assert "print(" in code
    before = os.times()
    found = run(path, tmp_path)
    assert found.returncode == 0, f"{path.name}\n{found.stdout[-1500:]}\n{found.stderr[-3000:]}"
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    assert used < LIMIT, f"{path.name} took {used:.0f} s of processor time"


def test_a_failing_cell_is_found(tmp_path):
    notebook = tmp_path / "wrong.md"
    notebook.write_text("Text.\n\n```{code-cell} python\n:tags: [hide-input]\nassert 1 + 1 == 3\n```\n")
    found = run(notebook, tmp_path)
    assert found.returncode == 1
    assert "line 5" in found.stderr
