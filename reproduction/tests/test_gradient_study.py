"""The gradient study: what it measures, how it goes on, what it says of the numbers."""

import math
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest

from discrete_vae.config import GradientConfig, SmoothingConfig, members
from discrete_vae.errors import InvalidInputError
from reproduction.gradient_study import (
    METHODS,
    SIZES,
    GradientStudy,
    StudySettings,
    draw_gradient_study,
    gradient_study_table,
    mean_and_error,
    study_cases,
)

SETTINGS = StudySettings(num_units=(4, 8), betas=(1.0, 3.0), beta_units=4, num_repeats=2)
TINY = StudySettings(
    num_units=(4,),
    betas=(3.0, 5.0),
    beta_units=4,
    num_repeats=1,
    num_draws=4,
    num_epochs=1,
    num_baseline_steps=2,
    batch_size=10,
    hidden=(4,),
)
FEW = ("spike-exponential", "spike-slab", "naive KL", "REINFORCE, learned baseline", "DisARM")


@contextmanager
def few_methods():
    with pytest.MonkeyPatch.context() as patch:
        for name in METHODS.keys() - set(FEW):
            patch.delitem(METHODS, name)
        yield


@pytest.fixture(scope="module")
def measured_once(tmp_path_factory):
    folder, notes = tmp_path_factory.mktemp("study"), []
    path = folder / "new" / "study.csv"
    with few_methods():
        study = gradient_study_table(TINY, path=path, runs=folder / "runs", report=notes.append)
    return study, path, notes


@pytest.fixture
def measured(measured_once):
    """A study, where its table is, and the notes that it gave."""
    with few_methods():
        yield measured_once


def made_up_study(settings=SETTINGS, seed=0):
    """A study with results at random, which takes no time."""
    random = np.random.default_rng(seed)
    rows = []
    for case in study_cases(settings):
        for name in case.methods:
            variance, seconds = random.gamma(4.0, size=2)
            evaluations = 2 if name in ("DisARM", "leave-one-out") else 1
            results = {"variance": variance, "seconds": seconds, "evaluations": evaluations}
            rows.append(case.row(name, settings, seed) | results | {"squared_norm": 2.0})
    return GradientStudy(pd.DataFrame(rows), settings)


def without_times(study):
    return study.rows.drop(columns="seconds").fillna({"beta": 0.0}).to_dict("records")


def test_every_transformation_and_every_estimator_is_a_method():
    smoothings = [config for config in members(SmoothingConfig) if config.trains and config.unbiased]
    kinds = {config.model_fields["kind"].default for config in smoothings}
    assert kinds == {name for name, method in METHODS.items() if name == method.kind}
    estimators = {config.model_fields["kind"].default for config in members(GradientConfig)}
    gradients = [method.gradient for method in METHODS.values()]
    assert {gradient.kind for gradient in gradients} == estimators
    baselines = {gradient.baseline.kind for gradient in gradients if hasattr(gradient, "baseline")}
    assert baselines == {"none", "running-mean", "learned"}


def test_a_case_that_both_sweeps_have_is_measured_once():
    cases = [(c.prior, c.state, c.num_units, c.beta, c.repeat, c.smoothing) for c in study_cases(SETTINGS)]
    shown = [tuple(None if value != value else value for value in case) for case in cases]
    assert len(shown) == len(set(shown))
    betas = {case[3] for case in shown if case[5] == "spike-exponential" and case[2] == 4}
    assert betas == {1.0, 3.0}


def test_every_case_has_a_row_of_numbers(measured):
    study, _, notes = measured
    rows = study.rows
    assert len(notes) == len(list(study_cases(TINY))) == 12
    assert set(rows.method) == set(FEW)
    assert (rows[["variance", "std_error", "seconds"]] > 0).all(axis=None)
    costs = rows.groupby(["prior", "method"]).evaluations.first()
    assert costs["factorial", "DisARM"] == 2
    assert costs["rbm", "DisARM"] == 5  # four groups
    assert {costs[prior, name] for prior in ("factorial", "rbm") for name in FEW[:4]} == {1}
    for case in study_cases(TINY):
        cells = (rows[["prior", "state", "repeat"]] == [case.prior, case.state, case.repeat]).all(axis=1)
        beta = rows.beta.isna() if math.isnan(case.beta) else rows.beta == case.beta
        of_model = rows[cells & beta & (rows.num_units == case.num_units) & rows.method.isin(case.methods)]
        assert len(of_model) == len(case.methods)
        assert (of_model.distance == 0).sum() == 1  # the others are compared with the best
        assert of_model.variance.idxmin() == of_model.distance.idxmin()
        assert of_model.squared_norm.nunique() == 1
    assert 0.3 < rows.distance[rows.distance > 0].mean() < 3  # 1 on average where all have one expectation


def test_a_study_that_was_stopped_goes_on_and_a_finished_one_is_read(measured, tmp_path):
    study, whole, _ = measured
    path, runs = tmp_path / "study.csv", tmp_path / "runs"
    lines = whole.read_text().splitlines(keepends=True)

    def stop(note):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gradient_study_table(TINY, path=path, runs=runs, report=stop)
    first = path.read_text().splitlines()
    assert lines[0].strip() == first[0]
    assert len(first) == 1 + len(next(iter(study_cases(TINY))).methods)
    last = len(list(study_cases(TINY))[-1].methods)
    path.write_text("".join(lines[:-last]))
    for file, left in ((path, 1), (whole, 0)):
        notes = []
        again = gradient_study_table(TINY, path=file, runs=runs, report=notes.append)
        assert [note.partition(" ")[0] for note in notes] == ["12/12"] * left
        assert without_times(again) == without_times(study)
    assert again.rows.seconds.tolist() == study.rows.seconds.tolist()
    assert whole.read_text().count("\n") == 1 + len(study.rows)


def test_other_settings_are_measured_anew(measured, tmp_path, monkeypatch):
    _, path, _ = measured
    counted = []
    monkeypatch.setattr("reproduction.gradient_study.measure_case", lambda *_: counted.append(1) or [])
    with pytest.raises(KeyError):  # since this measures nothing
        gradient_study_table(TINY.model_copy(update={"num_draws": 6}), path=path, runs=tmp_path)
    assert len(counted) == 12


@pytest.mark.parametrize(
    ("content", "received"),
    [("step,elbo\n1,2\n", "other columns"), ("{header}\nfactorial,trained,many\n", ""), ("", "")],
)
def test_another_file_is_left_alone(measured, tmp_path, content, received):
    path = tmp_path / "other.csv"
    path.write_text(content.format(header=measured[1].read_text().splitlines()[0]))
    before = path.read_text()
    with pytest.raises(InvalidInputError, match=f"other.csv .*{received}"):
        gradient_study_table(TINY, path=path, runs=tmp_path)
    assert path.read_text() == before


def test_costs_are_equal_costs():
    """Variance times evaluations, in units of the squared gradient; the best rival is the one that costs least."""
    study = made_up_study()
    numbers = {
        "spike-exponential": (1.0, 2.0),
        "DisARM": (3.0, 3.0),
        "REINFORCE, learned baseline": (5.0, 10.0),
        "naive KL": (0.1, 0.1),
    }
    pairs = zip(study.rows.method, study.rows.repeat, strict=True)
    rows = study.rows.assign(variance=[numbers.get(name, (100.0, 100.0))[repeat] for name, repeat in pairs])
    changed = GradientStudy(rows, study.settings)
    assert changed.costs("rbm", "trained", "DisARM", 8, 3.0).tolist() == [3.0, 3.0]
    assert changed.costs("rbm", "trained", "spike-slab", 8, 3.0).tolist() == [50.0, 50.0]
    name, ratio, error = changed.rival("rbm", "trained", 8, 3.0)
    assert name == "DisARM"
    assert ratio == pytest.approx(math.sqrt(6.0 * 3.0))
    assert error == pytest.approx(math.log(2) / 2)
    slow = GradientStudy(rows.assign(seconds=np.where(rows.method == "DisARM", 100.0, 1.0)), study.settings)
    name, ratio, _ = slow.rival("rbm", "trained", 8, 3.0, "seconds")
    assert (name, ratio) == ("REINFORCE, learned baseline", pytest.approx(5.0))
    assert len(changed.summary()) == 4 * 3  # priors, states; two widths and another beta
    assert mean_and_error(np.array([3.0])) == (pytest.approx(3.0), 0.0)
    for values in (np.array([]), np.array([1.0, -1.0])):  # what is not positive has no mean
        assert all(map(math.isnan, mean_and_error(values)))


def test_a_column_per_prior_and_state_a_row_per_family():
    study = made_up_study()
    picture = draw_gradient_study(study)
    assert len(picture.axes) == 3 * 4
    smoothings = {name for name, method in METHODS.items() if method.kind == name}
    families = [METHODS.keys() - smoothings] * 2 + [smoothings - {"spike-exponential"}]
    for row, family in zip(range(0, 12, 4), families, strict=True):
        for axes in picture.axes[row : row + 4]:
            assert {line.get_label() for line in axes.containers} == family
            looks = {(line.lines[0].get_color(), line.lines[0].get_marker()) for line in axes.containers}
            assert len(looks) == len(family)
        written = {text.get_text().replace("…", "REINFORCE") for text in picture.axes[row + 3].texts}
        assert written == family | {"default"}
    names = ("spike-exponential", "DisARM")
    ours, theirs = (study.costs("factorial", "untrained", name, 8, 3.0) for name in names)
    (line,) = [each.lines[0] for each in picture.axes[0].containers if each.get_label() == "DisARM"]
    assert line.get_ydata()[-1] == pytest.approx(float(np.exp(np.log(theirs / ours).mean())))


def test_another_seed_keeps_what_is_measured(cli, measured, tmp_path, monkeypatch):
    study, path, _ = measured
    monkeypatch.setitem(SIZES, "smoke", TINY)
    table = tmp_path / "gradient-study-smoke.csv"
    table.write_text(path.read_text())
    words = ("gradient-study", "--size", "smoke", "--seed", 1, "--runs", tmp_path, "--out", tmp_path)
    assert cli(*words)[0] == 0
    assert pd.read_csv(table).seed.value_counts().to_dict() == {0: len(study.rows), 1: len(study.rows)}


@pytest.mark.slow
def test_the_command_draws_it(cli, tmp_path):
    assert cli("gradient-study", "--size", "smoke", "--runs", tmp_path, "--out", tmp_path)[0] == 0
    assert (tmp_path / "gradient-study-smoke.svg").read_bytes().startswith(b"<?xml")
    assert (tmp_path / "gradient-study-smoke.csv").read_text().count("\n") == 1 + 256
