import pytest

from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.run_directory import RunDirectory


def test_the_file_names_are_fixed(tmp_path):
    run = RunDirectory.create(tmp_path / "a" / "run")
    paths = {
        "config.json": run.config_path,
        "environment.json": run.environment_path,
        "metrics.jsonl": run.metrics_path,
        "checkpoints": run.checkpoints_path,
        "best.json": run.best_path,
        "evaluation.json": run.evaluation_path,
        "figures": run.figures_path,
        "profile.json": run.profile_path,
    }
    assert paths == {name: tmp_path / "a" / "run" / name for name in paths}
    assert run.metrics().path == run.metrics_path
    assert run.checkpoints(keep_last=3).folder(7) == run.checkpoints_path / "step-7"
    assert list(run.path.iterdir()) == []


def test_a_new_run_takes_an_empty_folder(tmp_path):
    assert RunDirectory.create(tmp_path).path == tmp_path


def test_a_new_run_takes_a_folder_whose_only_content_is_an_interrupted_write(tmp_path):
    (tmp_path / ".tmp-config.json-ab").touch()
    assert RunDirectory.create(tmp_path).path == tmp_path


def test_a_new_run_refuses_a_folder_that_holds_anything(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InvalidInputError, match=r"thesis\.tex\. Give another --run-dir"):
        RunDirectory.create(tmp_path)
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("thesis.tex", "mine")]


def test_a_new_run_refuses_a_file_and_what_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match="run_dir must be a folder; received the file"):
        RunDirectory.create(tmp_path / "file")
    with pytest.raises(InvalidInputError, match="run_dir must be a folder that can be made"):
        RunDirectory.create(tmp_path / "file" / "run")


def test_only_a_run_can_be_opened(tmp_path):
    with pytest.raises(InvalidInputError, match="run_dir must be an existing folder"):
        RunDirectory.open(tmp_path / "none")
    with pytest.raises(
        InvalidInputError, match=r"run_dir must be the folder of a run.*holds no config\.json"
    ):
        RunDirectory.open(tmp_path)
    RunDirectory.create(tmp_path).write_config("{}")
    assert RunDirectory.open(str(tmp_path)).read_config() == "{}"


def test_an_unreadable_config_is_named(tmp_path):
    run = RunDirectory.create(tmp_path)
    run.config_path.write_bytes(b"\xff")
    with pytest.raises(InvalidInputError, match=r"config\.json must be a readable text file"):
        RunDirectory.open(tmp_path).read_config()
