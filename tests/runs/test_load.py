"""Models in folders: saved and loaded the same, damage and forgery found; those that come with the library."""

import json
import shutil
import zipfile
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from discrete_vae import DiscreteVAE, load_pretrained, load_run, pretrained_names
from discrete_vae.config import ModelConfig
from discrete_vae.data.splits import DataMetadata
from discrete_vae.runs import io, load
from discrete_vae.runs.io import read_json, sha256_fields, sha256_file, write_json
from discrete_vae.runs.run_directory import RunDirectory
from tests.cli.conftest import snapshot
from tests.models import small_config
from tests.refusals import refused, refused_argument
from tests.training.tiny import CONFIG as TINY
from tests.training.tiny import start_run, train_quietly

small = partial(small_config, 6, units=(3, 2), groups=2, hidden=(5,))
IMAGES = {
    "event_shape": (1, 28, 28),
    "encoder": {"kind": "convolutional", "num_features": 4, "widths": (2, 2)},
    "decoder": {"kind": "convolutional", "widths": (2, 2)},
}
CONFIGS = {
    "plain": small(),
    "layers": small(hierarchy={"kind": "gaussian", "num_layers": 2, "num_units": 2}),
    "graph": small(prior={"kind": "graph", "num_units": 4, "edges": "complete"}),
    "independent": small(prior={"kind": "factorial", "num_units": 4}),
    "gaps": small(missing=True, likelihood={"kind": "gaussian"}),
    "images": small_config(None, units=(3, 2), groups=2, hidden=(5,), **IMAGES),
}


def build(name="plain", **parts):
    torch.manual_seed(1)
    model = DiscreteVAE.from_config(CONFIGS[name], **parts)
    with torch.no_grad():
        for value in model.state_dict().values():
            value.add_(0.01 * torch.rand(value.shape, dtype=value.dtype))
    return model


def same(a, b):
    one, other = a.state_dict(), b.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def seal(folder):
    """Give a folder's files the sums that they should have, as a forger would."""
    fields = json.loads((folder / "config.json").read_text())
    fields.pop("sha256", None)
    sums = {"weights": sha256_file(folder / "model.safetensors"), "config": sha256_fields("", fields)}
    (folder / "config.json").write_text(json.dumps(fields | {"sha256": sums}))


@pytest.fixture
def saved(tmp_path):
    return build().save_pretrained(tmp_path / "model")


@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_saved_is_loaded(name, tmp_path):
    model = build(name).eval()
    before = torch.random.get_rng_state()
    loaded = DiscreteVAE.from_pretrained(model.save_pretrained(tmp_path / "new" / "model"))
    assert torch.equal(before, torch.random.get_rng_state())
    assert loaded.config == model.config
    assert same(loaded, model)
    assert not loaded.training
    x = torch.ones(2, *model.event_shape)
    assert torch.equal(loaded.encode(x, seed=0).logits, model.encode(x, seed=0).logits)
    files = sorted(path.name for path in (tmp_path / "new/model").iterdir())
    assert files == ["config.json", "model.safetensors"]
    double = DiscreteVAE.from_pretrained(model.double().save_pretrained(tmp_path / "double"))
    assert double.dtype == torch.float64
    assert same(double, model)


def test_a_saved_model_gives_way_and_other_files_do_not(saved):
    other = build("layers")
    other.save_pretrained(saved)
    assert same(DiscreteVAE.from_pretrained(saved), other)
    (saved / "notes.txt").write_text("mine")
    error = refused(other.save_pretrained, saved)
    assert (error.argument, "notes.txt" in error.received) == ("path", True)
    assert (saved / "notes.txt").read_text() == "mine"


def test_a_write_that_fails_leaves_the_model_that_was_there(saved, monkeypatch):
    before = snapshot(saved)
    full = OSError(28, "No space left on device")
    monkeypatch.setattr("discrete_vae.runs.load.write_summed", Mock(side_effect=full))
    with pytest.raises(OSError, match="No space"):
        build("layers").save_pretrained(saved)
    assert snapshot(saved) == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_every_flipped_bit_is_found(saved, name):
    content = bytearray((saved / name).read_bytes())
    for place in range(0, len(content), max(1, len(content) // 40)):
        damaged = bytearray(content)
        damaged[place] ^= 1
        (saved / name).write_bytes(damaged)
        refused(DiscreteVAE.from_pretrained, saved)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda x: x | {"prior.bias": torch.zeros(3)}, "prior.bias"),
        (lambda x: x | {"prior.bias": torch.zeros(5).double()}, "prior.bias"),
        (lambda x: x | {"more": torch.zeros(1)}, "more"),
        (lambda x: {name: value for name, value in x.items() if name != "prior.bias"}, "prior.bias"),
        (lambda x: x | {"prior.bias": torch.full((5,), torch.nan)}, "prior.bias"),
    ],
)
def test_forged_weights_are_named(saved, change, name):
    save_file(change(load_file(saved / "model.safetensors")), saved / "model.safetensors")
    seal(saved)
    assert refused_argument(DiscreteVAE.from_pretrained, saved) == f"{saved}: {name}"


def test_forged_configs_are_refused(saved):
    file = saved / "config.json"
    right = read_json(file)
    for wrong in (
        {"format": 2},
        {"dtype": "int64"},
        {"own": 3},
        {"model": {"num_features": -1}},
        {"model": 3},
    ):
        file.write_text(json.dumps(right | wrong))
        seal(saved)
        refused(DiscreteVAE.from_pretrained, saved)


def test_files_that_do_not_say_what_the_mask_is_are_of_models_that_read_what_is_observed(tmp_path):
    wanted = CONFIGS["gaps"].model_copy(update={"mask": "observed"})
    model = DiscreteVAE.from_config(wanted).eval()
    folder = model.save_pretrained(tmp_path / "old")
    fields = read_json(folder / "config.json")
    del fields["model"]["mask"]
    write_json(folder / "config.json", fields)
    seal(folder)
    loaded = DiscreteVAE.from_pretrained(folder)
    x = torch.tensor([[1.0, torch.nan, 0.0, 2.0, torch.nan, 1.0]])
    assert torch.equal(loaded.encode(x, seed=0).logits, model.encode(x, seed=0).logits)
    again = DiscreteVAE.from_pretrained(loaded.save_pretrained(tmp_path / "new"))
    assert again.config == loaded.config == wanted


def test_runs_that_do_not_say_what_the_mask_is_go_on_as_they_began(tmp_path):
    model = TINY.model.model_copy(update={"missing": True, "mask": "observed"})
    config = TINY.model_copy(update={"model": model})
    whole = start_run(tmp_path / "whole", config)
    train_quietly(whole, config)
    fields = config.model_dump(mode="json")
    del fields["model"]["mask"]
    old = RunDirectory.create(tmp_path / "old")
    old.write_config(json.dumps(fields))
    with pytest.raises(KeyboardInterrupt):
        train_quietly(old, old.read_experiment(), stop_at=20)
    train_quietly(old, old.read_experiment())
    assert old.read_experiment() == config
    assert same(DiscreteVAE.from_pretrained(old.path), DiscreteVAE.from_pretrained(whole.path))
    assert DiscreteVAE.from_pretrained(old.path).mask == "observed"


def own_parts():
    return {"encoder": nn.Sequential(nn.Linear(6, 4), nn.Tanh()), "decoder": nn.Linear(5, 6)}


@pytest.mark.parametrize("names", [("encoder",), ("decoder",), ("encoder", "decoder")])
def test_modules_of_ones_own_are_asked_for(names, tmp_path):
    model = build(**{name: own_parts()[name] for name in names})
    folder = model.save_pretrained(tmp_path / "model")
    assert same(DiscreteVAE.from_pretrained(folder, **{name: own_parts()[name] for name in names}), model)
    for given in ({}, own_parts() | {"encoder": nn.Linear(6, 4), "decoder": nn.Linear(5, 6)}):
        if given.keys() != set(names):
            assert refused_argument(DiscreteVAE.from_pretrained, folder, **given) in ("encoder", "decoder")


class Named(nn.Linear):
    """A module whose state is more than tensors."""

    def get_extra_state(self):
        return "a name"

    def set_extra_state(self, state):
        pass


def by_hand():
    model = build()
    return DiscreteVAE(prior=model.prior, posterior=model.posterior, likelihood=model.likelihood)


def exchanged(name):
    """A model with another part of the same class, whose weights have the same shapes."""
    pairs = [[[0, 1], [2, 3]], [[0, 2], [1, 3]]]
    posterior = {"kind": "hierarchical", "hidden": (3,)}
    model, other = (
        DiscreteVAE.from_config(
            ModelConfig(
                num_features=6,
                prior={"kind": "graph", "num_units": 4, "edges": each},
                posterior=posterior | {"groups": each},
            )
        )
        for each in pairs
    )
    setattr(model, name, getattr(other, name))
    return model


def changed(change):
    model = build()
    with torch.no_grad():
        change(model)
    return model


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (by_hand, "model.config"),
        # without weights whose names would give it away
        (lambda: changed(lambda model: setattr(model, "encoder", nn.Sequential(nn.ReLU()))), "model.encoder"),
        (lambda: exchanged("prior"), "model.prior"),
        (lambda: exchanged("posterior"), "model.posterior"),
        (lambda: DiscreteVAE.from_config(CONFIGS["independent"], encoder=Named(6, 4)), "_extra_state"),
        (lambda: changed(lambda model: model.prior.bias.fill_(torch.inf)), "model.prior.bias"),
        (lambda: changed(lambda model: model.prior.double()), "prior."),
    ],
)
def test_what_cannot_be_built_again_is_not_saved(tmp_path, make, name):
    assert name in refused_argument(make().save_pretrained, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_run_gives_its_best_checkpoint_and_folders_of_something_else_are_refused(tmp_path):
    run = start_run(tmp_path / "best")
    train_quietly(run)
    best = load_run(run.path)
    for source in (run, run.path, str(run.path)):
        assert same(DiscreteVAE.from_pretrained(source), best.model)
    file = shutil.copytree(run.path, tmp_path / "run") / "config.json"
    file.write_text(file.read_text().replace('"name":"tiny"', '"name":"other"'))
    assert refused_argument(DiscreteVAE.from_pretrained, file.parent) == str(file)
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    for source in (tmp_path, tmp_path / "none"):
        assert refused_argument(DiscreteVAE.from_pretrained, source) == "path"
    for target in (run.path, tmp_path / "file", tmp_path / "loop"):
        assert refused_argument(build().save_pretrained, target) == "path"


# Models that come with the library, and names of the hub.


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
        error = refused(load_pretrained, name)
        assert (error.argument, "digits" in error.rule) == ("name", True)
    for name in (".tmp-a", "b"):  # the first is what a killed release leaves
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").touch()
    monkeypatch.setattr(io, "FOLDERS", (tmp_path,))
    assert pretrained_names() == ("b",)
    monkeypatch.setattr(io, "FOLDERS", (tmp_path / "none",))
    assert pretrained_names() == ()
    assert refused_argument(load_pretrained, "digits") == "name"


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
