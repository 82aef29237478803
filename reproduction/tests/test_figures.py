"""Figures of the models themselves: samples along the chains, repeated estimates of log Z."""

import json
import shutil
import warnings

import pytest

from discrete_vae.boltzmann.base import LogPartition
from discrete_vae.figures.curves import draw_log_partition_histograms, log_partition_histogram_table
from reproduction import log_partition_figure, sample_figures
from reproduction.campaign import Places, StoppedError
from reproduction.log_partition_figure import FIGURE_10
from reproduction.registry import REPRODUCTIONS
from reproduction.tests.made_up import campaign, tiny
from reproduction.wanted import Made, Wanted

WANTED = Wanted("smoke")


@pytest.fixture(scope="module")
def done_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("done")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        campaign(folder).complete()
    return folder


@pytest.fixture
def made(done_once, tmp_path, monkeypatch):
    """A figure's runs, of which there is one."""
    folder = shutil.copytree(done_once, tmp_path / "done")
    monkeypatch.setattr(log_partition_figure, "main_runs", lambda wanted: [tiny()])
    monkeypatch.setattr(sample_figures, "main_runs_of", lambda experiment, wanted: [tiny()])
    (stored,) = campaign(folder).complete()
    said = []

    def make(check=lambda: None):
        return Made({tiny(): stored}, Places(folder / "runs", folder / "out"), check, said.append)

    make.said = said
    return make


def test_samples_are_drawn_of_the_run(made):
    reproduction = REPRODUCTIONS["figure-5"].load()
    result = reproduction.make(WANTED, made())
    assert (result.table, reproduction.needs_model(tiny(), made().places)) == (None, True)
    assert len(result.picture.axes) > 0


def test_estimates_of_log_z_are_made_once_and_go_on(made):
    left = iter(range(2))

    def check():
        if next(left, None) is None:
            raise StoppedError

    assert FIGURE_10.needs_model(tiny(), made().places)
    with pytest.raises(StoppedError):
        FIGURE_10.make(WANTED, made(check))
    assert len(made.said) == 2
    assert FIGURE_10.needs_model(tiny(), made().places)
    first = FIGURE_10.make(WANTED, made()).table
    assert len(made.said) == 3
    assert not FIGURE_10.needs_model(tiny(), made().places)
    shutil.rmtree(made().places.runs)  # the estimates are enough now
    assert FIGURE_10.make(WANTED, made()).table == first
    path = log_partition_figure._path(tiny(), made().places)
    estimates = json.loads(path.read_text())["estimates"]
    assert all(None not in (each["num_sweeps"], each["seconds"], each["converged"]) for each in estimates)
    kept = [each["value"] for each in estimates]
    assert len(set(kept)) == 3
    (row,) = first.rows
    assert row[1].value == pytest.approx(sum(kept) / 3)


@pytest.fixture
def quick_estimates(monkeypatch):
    """Estimates that are a function of the seed alone."""

    def estimate(prior, *, seed, **settings):
        return LogPartition(seed / 2**64, 0.1, "made up", 1, converged=False)

    monkeypatch.setattr(log_partition_figure, "bennett_log_partition", estimate)


def test_estimates_that_went_on_are_those_of_one_piece(made, quick_estimates):
    calls = iter([None, StoppedError()])

    def check():
        error = next(calls, None)
        if error is not None:
            raise error

    with pytest.raises(StoppedError):
        FIGURE_10.make(WANTED, made(check))
    path = log_partition_figure._path(tiny(), made().places)
    stopped, file = FIGURE_10.make(WANTED, made()), path.read_bytes()
    assert "to 0.1 nats, 3 of them have not reached it" in stopped.notes[0]
    path.unlink()
    assert FIGURE_10.make(WANTED, made()).table == stopped.table
    assert path.read_bytes() == file


@pytest.mark.parametrize("key", ["step", "validation_elbo", "std_error"])
def test_estimates_of_another_checkpoint_run_or_error_do_not_count(made, quick_estimates, key):
    FIGURE_10.make(WANTED, made())
    path = log_partition_figure._path(tiny(), made().places)
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields | {key: fields[key] + 1}))
    assert FIGURE_10.needs_model(tiny(), made().places)
    made.said.clear()
    FIGURE_10.make(WANTED, made())
    assert len(made.said) == 3


def test_nothing_else_needs_models():
    own = [name for name, entry in REPRODUCTIONS.items() if entry.needs and name != "figure-10"]
    needs = {name for name in own if REPRODUCTIONS[name].load().needs_model(tiny(), None)}
    assert needs == {"figure-5", "figure-11", "figure-12", "figure-13"}


@pytest.mark.parametrize("number", [1, 2, 4])
def test_histograms_stand_in_panels(number):
    table = log_partition_histogram_table([1.0 + 0.01 * i for i in range(25)], [0.05] * 25)
    picture = draw_log_partition_histograms({f"run {i}": table for i in range(number)})
    titles = [axes.get_title(loc="left") for axes in picture.axes if axes.axison]
    assert [title.splitlines()[0] for title in titles] == [f"log Z of run {i}" for i in range(number)]
