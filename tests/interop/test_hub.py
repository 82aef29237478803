"""Models for the hub, without the network: a local folder, the hub's cache, and uploads caught at their boundary."""

import json
import shutil
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from discrete_vae import DiscreteVAE
from discrete_vae.cli import main
from discrete_vae.interop.hub import push_to_hub, save_for_hub
from discrete_vae.runs.run_directory import RunDirectory
from tests.models import small_model
from tests.refusals import refused, refused_argument
from tests.training.tiny import start_run, train_quietly

hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub, an extra, is not installed")
REPO = "ada/digits"
small = partial(small_model, 6, groups=4)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    made = start_run(tmp_path_factory.mktemp("hub") / "run")
    train_quietly(made)
    assert main(["evaluate", str(made.path), "--num-examples", "5"]) == 0
    return made


def test_a_run_becomes_a_folder_with_a_card_and_comes_back(run, tmp_path, monkeypatch):
    folder = save_for_hub(run.path, tmp_path / "model", name=REPO, license="apache-2.0")
    files = ["README.md", "config.json", "evaluation.json", "model.safetensors"]
    assert sorted(path.name for path in folder.iterdir()) == files
    text = (folder / "README.md").read_text()
    monkeypatch.setattr(hub, "snapshot_download", lambda name, **keywords: {REPO: str(folder)}[name])
    names = {}
    exec(text.split("```python\n")[1].split("```")[0], names)
    loaded, wanted = names["model"], DiscreteVAE.from_pretrained(run)
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), wanted.parameters(), strict=True))

    evaluation, card = json.loads(run.evaluation_path.read_text()), hub.ModelCard(text)
    assert (card.data.license, card.data.library_name) == ("apache-2.0", "discrete-vae")
    found = {result.metric_type: result for result in card.data.eval_results}
    # a baseline is no result of the model
    assert found.keys() == {"log_likelihood", "log_likelihood_limit", "elbo"}
    for kind, value, error in (
        ("log_likelihood", "value", "std_error"),
        ("elbo", "elbo", "elbo_std_error"),
        ("independent_features", "value", "std_error"),
    ):
        wanted = evaluation[kind]
        if kind in found:
            assert found[kind].metric_value == wanted[value]
            assert found[kind].metric_args == {"std_error": wanted[error]}
        assert f"| {wanted[value]:.3f} | {wanted[error]:.3f} |" in text
    assert "0 (exact)" in text  # log Z of 5 + 4 units
    for word in ("## License", "## Limits", "## Training", "Rolfe", '"num_left": 5', "digits", "seed 0"):
        assert word in text


def test_a_disk_that_refuses_leaves_nothing(run, tmp_path, monkeypatch):
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(shutil, "copyfile", Mock(side_effect=full))
    with pytest.raises(OSError, match="No space"):
        save_for_hub(run.path, tmp_path / "model", name=REPO, license="apache-2.0")
    assert list(tmp_path.iterdir()) == []


def test_an_evaluation_of_other_weights_is_refused(run, tmp_path):
    copy = RunDirectory(shutil.copytree(run.path, tmp_path / "copy"))
    evaluation = json.loads(copy.evaluation_path.read_text())
    evaluation.pop("sha256")
    copy.evaluation_path.write_text(json.dumps(evaluation | {"step": 1}))
    error = refused(save_for_hub, copy, tmp_path / "model", name=REPO, license="mit")
    assert (error.argument.endswith("evaluation.json"), "step 1" in error.received) == (True, True)
    copy.evaluation_path.unlink()
    folder = save_for_hub(copy, tmp_path / "model", name=REPO, license="mit")
    card = hub.ModelCard((folder / "README.md").read_text())
    assert "It was not evaluated." in card.text
    assert card.data.eval_results is None


def test_a_model_alone_has_a_card_without_results_that_lists_no_edges_of_a_graph(tmp_path):
    prior = {"kind": "graph", "num_units": 3, "edges": ((0, 1), (1, 2)), "nodes": (30, 40, 50)}
    model = small_model(6, groups=2, prior=prior)
    folder = save_for_hub(model, tmp_path / "model", name=REPO, license="mit")
    card, loaded = (folder / "README.md").read_text(), DiscreteVAE.from_pretrained(folder)
    assert "without an evaluation" in card
    assert "(graph, num_units 3)" in card
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), model.parameters(), strict=True))


class NoAnswerError(Exception):
    """An error of an HTTP client: a base of its own, and no text."""


@pytest.fixture
def uploads(monkeypatch):
    """What the library asks of the hub, answered without a network."""
    calls = []

    class Api:
        def __init__(self, token=None):
            calls.append(("token", token))

        def create_repo(self, name, **keywords):
            if name == "not/mine":
                raise OSError("401 Unauthorized\nlog in first")
            if name == "no/network":
                raise NoAnswerError
            calls.append(("create", name, keywords))

        def upload_folder(self, *, repo_id, folder_path, commit_message, delete_patterns):
            assert delete_patterns == ["evaluation.json"]
            names = sorted(path.name for path in Path(folder_path).iterdir())
            calls.append(("upload", repo_id, names, DiscreteVAE.from_pretrained(folder_path), commit_message))
            return SimpleNamespace(commit_url=f"hub/{repo_id}/commit/1")

    monkeypatch.setattr(hub, "HfApi", Api)
    return calls


def test_push_makes_the_repository_and_uploads_what_loads(uploads):
    address = push_to_hub(small(), REPO, license="mit", private=True, token="secret")
    assert address == "hub/ada/digits/commit/1"
    token, create, upload = uploads
    assert token == ("token", "secret")
    assert create == ("create", REPO, {"private": True, "exist_ok": True})
    assert upload[1:3] == (REPO, ["README.md", "config.json", "model.safetensors"])
    assert torch.equal(upload[3].prior.weight, small().prior.weight)
    assert upload[4] == "Upload a discrete-vae model"
    error = refused(push_to_hub, small(), "not/mine", license="mit")
    assert (error.argument, error.received.endswith("401 Unauthorized)")) == ("name", True)
    assert refused_argument(push_to_hub, small(), "no/network", license="mit") == "name"


def test_a_name_is_fetched_into_the_cache_and_a_folder_wins(tmp_path, monkeypatch):
    saved, asked = small().save_pretrained(tmp_path / "cache"), []

    def snapshot_download(name, *, revision, allow_patterns):
        asked.append((name, revision, allow_patterns))
        return str(saved)

    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    monkeypatch.chdir(tmp_path)
    loaded = DiscreteVAE.from_pretrained(REPO, revision="v1")
    assert torch.equal(loaded.prior.weight, small().prior.weight)
    assert asked == [(REPO, "v1", ["model.safetensors", "config.json"])]
    (tmp_path / "ada").mkdir()
    # a slip in a local path asks nobody
    assert refused_argument(DiscreteVAE.from_pretrained, "ada/digit") == "path"
    small().save_pretrained("ada/digits")
    DiscreteVAE.from_pretrained(REPO)
    assert len(asked) == 1
    assert refused_argument(DiscreteVAE.from_pretrained, REPO, revision="v1") == "revision"


def test_the_hubs_own_cache_serves_without_a_network(tmp_path, monkeypatch):
    """The layout of huggingface_hub's cache: models--OWNER--NAME, refs/main, snapshots/COMMIT."""
    commit = "1" * 40
    root = tmp_path / "models--ada--digits"
    small().save_pretrained(root / "snapshots" / commit)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(commit)
    offline = partial(hub.snapshot_download, cache_dir=tmp_path, local_files_only=True)
    monkeypatch.setattr(hub, "snapshot_download", offline)
    assert torch.equal(DiscreteVAE.from_pretrained(REPO).prior.weight, small().prior.weight)
    error = refused(DiscreteVAE.from_pretrained, "ada/other")
    assert (error.argument, "ada/other" in error.received) == ("path", True)
    monkeypatch.setattr(hub, "snapshot_download", Mock(side_effect=NoAnswerError))
    assert refused_argument(DiscreteVAE.from_pretrained, "ada/other") == "path"


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for call in (
        lambda: push_to_hub(small(), REPO, license="mit"),
        lambda: DiscreteVAE.from_pretrained("nobody/nothing"),
    ):
        assert "pip install 'discrete-vae[hub]'" in refused(call).repair


def test_wrong_arguments_are_named(tmp_path):
    (tmp_path / "notes.txt").touch()
    right = {"path": tmp_path / "model", "name": REPO, "license": "mit"}
    for name, value in {"name": "", "license": None, "path": tmp_path}.items():
        assert refused_argument(save_for_hub, small(), **right | {name: value}) == name
