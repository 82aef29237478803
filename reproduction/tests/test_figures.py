"""Figures of the models themselves: samples along the chains, repeated estimates of log Z."""

import json
import shutil

import pytest

from discrete_vae.boltzmann.base import LogPartition
from discrete_vae.figures.curves import log_partition_histogram_table
from reproduction import figures
from reproduction.__main__ import REPRODUCTIONS
from reproduction.display import Options
from reproduction.sweep import StoppedError
from reproduction.tests.made_up import sweep, tiny

OPTIONS = Options("smoke")
FIGURE_10 = REPRODUCTIONS["figure-10"]


@pytest.fixture
def work(done_once, tmp_path):
    """A complete sweep of one run, which may be asked to stop after a number of estimates."""
    folder, said = shutil.copytree(done_once, tmp_path / "done"), []

    def make(stop_after=10**6):
        asked = iter(range(stop_after))
        found = sweep(folder, say=said.append, stop=lambda: next(asked, None) is None)
        found.complete()
        return found

    make.said = said
    return make


def kept(work):
    return work().records / f"{tiny().name}-log-partition.json"


def test_estimates_of_log_z_are_made_once_and_go_on(work):
    assert FIGURE_10.needs_model(tiny(), work())
    with pytest.raises(StoppedError):
        FIGURE_10.make(OPTIONS, work(2))
    assert len(work.said) == 2
    first = FIGURE_10.make(OPTIONS, work()).table
    assert len(work.said) == 3
    assert not FIGURE_10.needs_model(tiny(), work())
    samples = REPRODUCTIONS["figure-5"]
    assert samples.needs_model(tiny(), work())
    assert len(samples.make(OPTIONS, work()).picture.axes) > 0
    shutil.rmtree(work().places.runs)  # the estimates are enough now
    assert FIGURE_10.make(OPTIONS, work()).table == first
    estimates = json.loads(kept(work).read_text())["estimates"]
    assert all(None not in (each["num_sweeps"], each["seconds"], each["converged"]) for each in estimates)
    values = [each["value"] for each in estimates]
    assert len(set(values)) == 3
    (row,) = first.rows
    assert row[1].value == pytest.approx(sum(values) / 3)


def test_estimates_that_went_on_are_those_of_one_piece_and_others_do_not_count(work, monkeypatch):
    def estimate(prior, *, seed, **settings):
        return LogPartition(seed / 2**64, 0.1, "made up", 1, converged=False)

    monkeypatch.setattr(figures, "bennett_log_partition", estimate)
    with pytest.raises(StoppedError):
        FIGURE_10.make(OPTIONS, work(1))
    stopped, file = FIGURE_10.make(OPTIONS, work()), kept(work).read_bytes()
    assert "to 0.1 nats, 3 of them have not reached it" in stopped.notes[0]
    kept(work).unlink()
    assert FIGURE_10.make(OPTIONS, work()).table == stopped.table
    assert kept(work).read_bytes() == file
    for key in ("step", "validation_elbo", "std_error"):  # of another checkpoint, run or error
        fields = json.loads(file)
        kept(work).write_text(json.dumps(fields | {key: fields[key] + 1}))
        assert FIGURE_10.needs_model(tiny(), work())
        work.said.clear()
        FIGURE_10.make(OPTIONS, work())
        assert len(work.said) == 3


def test_nothing_else_needs_models():
    own = [name for name, entry in REPRODUCTIONS.items() if entry.trains and name != "figure-10"]
    needs = {name for name in own if REPRODUCTIONS[name].needs_model(tiny(), None)}
    assert needs == {"figure-5", "figure-11", "figure-12", "figure-13"}


@pytest.mark.parametrize("number", [1, 4])
def test_every_run_has_a_row_and_every_estimate_a_dot(number):
    table = log_partition_histogram_table([1.0 + 0.01 * i for i in range(25)], [0.05] * 25)
    picture = figures.draw_repeats({f"run {i}": table for i in range(number)})
    (axes,) = picture.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"run {i}" for i in range(number)]
    dots = [tuple(dot) for line in axes.lines for dot in line.get_xydata()]
    assert len(dots) == len(set(dots)) == 25 * number  # none covers another
