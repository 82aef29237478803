"""The models that come with the library: small, whole, and part of the wheel; names of the hub."""

import zipfile
from pathlib import Path

import pytest

from discrete_vae import load_pretrained, pretrained_names
from discrete_vae.data.splits import DataMetadata
from discrete_vae.errors import InvalidInputError
from discrete_vae.runs import io, load
from discrete_vae.runs.io import read_json
from discrete_vae.runs.run_directory import RunDirectory

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "reproduction" / "models"
LARGEST = 3 * 2**20  # bytes, all files of a model


def size(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", pretrained_names())
def test_a_model_is_small_and_complete_and_the_page_has_its_figures(name):
    folder, page = io.shipped_folder(name), (ROOT / "docs" / "pretrained.md").read_text()
    assert folder == MODELS / name
    assert size(folder) <= LARGEST
    run, loaded = RunDirectory.open(folder), load_pretrained(name)
    assert run.quoted == f"--pretrained {name}"
    release, evaluation = read_json(run.release_path), read_json(run.evaluation_path)
    assert release["step"] == evaluation["step"] == loaded.step
    assert abs(release["difference"]) + 2 * release["difference_std_error"] <= 0.1
    found = evaluation["log_likelihood"]
    assert found["std_error"] > 0
    recorded = DataMetadata.read(run.read_environment())
    assert recorded.num_features == loaded.config.model.num_values
    card = (folder / "README.md").read_text()
    assert f"{found['value']:.3f}" in card
    assert f"{release['difference']:+.4f}" in card
    assert loaded.changed_config is None
    (row,) = (line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
    row = row.replace("\N{NO-BREAK SPACE}", " ")
    assert f"| {found['value']:.2f} ± {found['std_error']:.2f} | {size(folder) / 1e6:.1f} MB |" in row


def test_each_folder_is_a_model_and_another_name_lists_them(monkeypatch, tmp_path):
    assert {path.name for path in MODELS.iterdir() if path.is_dir()} == set(pretrained_names())
    for name in ("digit", "x", "../models/digits", None):
        with pytest.raises(InvalidInputError, match="name .*digits"):
            load_pretrained(name)
    for name in (".tmp-a", "b"):  # the first is what a killed release leaves
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").touch()
    monkeypatch.setattr(io, "FOLDERS", (tmp_path,))
    assert pretrained_names() == ("b",)
    monkeypatch.setattr(io, "FOLDERS", (tmp_path / "none",))
    assert pretrained_names() == ()
    with pytest.raises(InvalidInputError, match="name"):
        load_pretrained("digits")


def test_the_wheel_has_them_and_an_editable_install_no_copies(tmp_path, monkeypatch):
    build = pytest.importorskip("hatchling.build")
    monkeypatch.chdir(ROOT)
    files = {}
    for make in (build.build_wheel, build.build_editable):
        into = tmp_path / make.__name__
        into.mkdir()
        with zipfile.ZipFile(into / make(str(into))) as wheel:
            files[make.__name__] = set(wheel.namelist())
    wanted = set()
    for folder, place in ((MODELS, "discrete_vae/models"), (ROOT / "src" / "discrete_vae", "discrete_vae")):
        found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        wanted |= {f"{place}/{path.relative_to(folder).as_posix()}" for path in found}
    assert {name for name in files["build_wheel"] if name.startswith("discrete_vae/")} == wanted
    assert not any(name.startswith("discrete_vae/") for name in files["build_editable"])


def test_names_of_the_hub_are_told_from_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    others = ["runs/digits", "digits", "/ada/digits", "~/digits", "a/b/c", "../digits", Path("ada/digits")]
    assert load.is_hub_name("ada/digits")
    assert not any(load.is_hub_name(name) for name in others)
