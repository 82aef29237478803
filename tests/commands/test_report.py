"""dvae report: the file, and refused input."""

import numpy as np
import pytest


def test_writes_one_file_into_the_run(cli, trained):
    before = set(trained.rglob("*"))
    status, out, _ = cli("report", trained)
    assert status == 0
    assert set(trained.rglob("*")) - before == {trained / "report.html"}
    assert out.startswith(f"Report: {trained / 'report.html'} (")
    assert (trained / "report.html").read_text().startswith("<!doctype html>")


def test_out_takes_another_place_and_replaces_what_is_there(cli, trained, tmp_path):
    place = tmp_path / "mine.html"
    place.write_text("old")
    status, _, _ = cli("report", trained, "--out", place, "--num-examples", "20", "--seed", "3")
    assert status == 0
    assert place.read_text().endswith("</html>\n")
    assert not (trained / "report.html").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--out", "page.pdf"],
            "--out must end in one of .html, .htm; received 'page.pdf'. Did you mean page.html?",
        ),
        (
            ["--out", "few.npy/page.html"],
            "few.npy/page.html must be writable; received few.npy, which is no folder",
        ),
        (["--out", "taken.html"], "taken.html must be writable; received a folder of that name"),
        (["--labels", "few.npy"], "--labels must be as many as the 48 training examples or the 60 rows of"),
        (["--labels", "wide.npy"], "--labels must hold one number or word per example"),
        (["--labels", "two.csv"], "--labels must hold one label in each line; received 2 in line 1 of"),
        (["--labels", "none.npy"], "none.npy"),
        (["--labels", "labels.txt"], "--labels must name a .npy or .csv file"),
        (["--num-examples", "0"], "--num-examples must be a whole number of at least 1"),
    ],
)
def test_wrong_input_costs_nothing(refused, trained, tmp_path, monkeypatch, words, message):
    def made(*_):
        raise AssertionError("made before the check")

    monkeypatch.setattr("discrete_vae.report.latents.generated_examples", made)
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "few.npy", np.zeros(3))
    np.save(tmp_path / "wide.npy", np.zeros((60, 2)))
    (tmp_path / "two.csv").write_text("a,b\n1,2\n")
    (tmp_path / "labels.txt").write_text("1\n")
    (tmp_path / "taken.html").mkdir()
    assert message in refused("report", trained, *words)


def test_a_disk_that_fails_leaves_the_page_that_was_there(cli, trained, monkeypatch):
    (trained / "report.html").write_text("old")

    def fails(path, fill):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("discrete_vae.runs.output.write_stream", fails)
    status, out, err = cli("report", trained)
    assert (status, out) == (2, "")
    assert "report.html must be writable; received No space left on device" in err
    assert (trained / "report.html").read_text() == "old"
