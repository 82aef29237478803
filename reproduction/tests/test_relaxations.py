"""The relaxations' table: of made-up records, and the gradient of one trained model."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from reproduction import relaxations
from reproduction.budget import with_epochs
from reproduction.display import Options
from reproduction.records import Scale, as_changes, plan_run
from reproduction.relaxations import RELAXATIONS
from reproduction.sweep import FailedRunError, Places, StoppedError, Sweep
from reproduction.tests.made_up import TINY, completed, make_up, sweep

TABLE = RELAXATIONS["relaxations"]
OPTIONS = Options("short", num_seeds=2, budget=30.0)
PART = replace(OPTIONS, only=("mnist-static", "rbm", "width-200"))
BEST = 0.009  # of the made-up screens


def make_up_screens(folder, planned, best):
    """Records of short runs, the better the nearer their step size is to the best."""
    for number, each in enumerate(planned):
        rate = each.config.training.optimizer.learning_rate
        make_up(each, folder, -120.0 - abs(rate - best), seed=number)


def make_up_sharpness(folder, options, case, way, *, best):
    """Likewise for the sharpness at the best step size, up to one beyond the best."""
    for factor in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0) if way in relaxations._SHARPNESS_OF else ():
        if min(0.5, best / 2) <= factor <= max(2.0, 2 * best):
            value = -119.0 - 0.001 * abs(factor - best)
            make_up(case.screen(options, way, BEST, factor), folder, value)


def make_up_runs(folder, options, values):
    """Records of screens and runs where ways have these log-likelihoods, and others -110; the table's sweep."""
    work = Sweep(TABLE.plan(options), Places(folder / "runs", folder), say=lambda text: None)
    make_up_screens(folder, work.planned, BEST)
    for case, way in relaxations._grid(options):
        make_up_sharpness(folder, options, case, way, best=1.0)
        for seed, planned in enumerate(case.runs(options, way, BEST)):
            make_up(planned, folder, values.get(way, -110.0), seed=seed, log_partition_error=0.003)
            make_up_variance(folder, planned)
    return work


def make_up_variance(folder, planned):
    """That of the model of the record."""
    record = json.loads((folder / f"runs/{planned.name}.json").read_text())
    found = {"variance": 2.0, "std_error": 0.1} | {key: record[key] for key in ("step", "validation_elbo")}
    (folder / f"runs/{planned.name}.gradient.json").write_text(json.dumps(found))


def test_each_way_trains_with_its_best_step_size_and_is_compared_in_pairs(tmp_path):
    values = {"disarm": -100.0, "spike-exponential": -101.0, "ramps": -101.04}
    result = TABLE.make(PART, make_up_runs(tmp_path, PART, values))
    numbers = result.table.numbers()
    assert (numbers.learning_rate == f"{BEST:g}").all()
    assert numbers.way[:3].tolist() == ["disarm", "spike-exponential", "ramps"]
    found = numbers.set_index("way")
    assert found.difference["disarm"] == pytest.approx(1.0)
    assert found.difference["leave-one-out"] == pytest.approx(-9.0)
    assert found.difference_from_above["spike-exponential"] == pytest.approx(-1.0)
    assert found.apart["spike-exponential"] == "yes"
    # 0.04 nats, with a smaller error, are less than the last doubling of the samples brought
    assert 2 * found.difference_from_above_std_error["ramps"] < 0.04 < found.doubling_gain["ramps"]
    assert found.apart["ramps"] == "no"
    assert (found.apart[4:] == "no").all()  # equal ones
    assert found.steps_per_second["ramps"] == pytest.approx(1000 / 3600)
    assert (found.log_likelihood_limit_std_error > 0).all()
    assert (found.spread == 0).all()
    assert len(numbers) == 14
    assert "Equal time" in result.notes[0]


def test_short_runs_are_as_long_as_the_first_and_long_ones_as_fast_as_the_best(tmp_path):
    work = make_up_runs(tmp_path, PART, {})
    for case, way in relaxations._grid(PART):
        first, *others = [case.screen(PART, way, rate) for rate in relaxations._RATES]
        assert first.like is None
        assert {each.like for each in others} == {first}
        chosen = relaxations._chosen(PART, work, case, way, trains=True)
        assert {run.like for run in chosen} == {case.screen(PART, way, BEST)}


def test_a_way_whose_run_diverged_is_named_and_the_others_are_kept(tmp_path):
    asked = replace(PART, only=(*PART.only, "ramps", "disarm"))
    work = make_up_runs(tmp_path, asked, {})
    ((case, way), _) = relaxations._grid(asked)
    diverge(case.runs(asked, way, BEST)[1], tmp_path)
    result = TABLE.make(asked, work)
    assert result.table.numbers().way.tolist() == ["disarm"]
    assert "ramps" in result.notes[-1]


def test_a_step_size_without_a_finite_loss_is_not_taken(tmp_path):
    asked = replace(PART, only=(*PART.only, "disarm"))
    work = make_up_runs(tmp_path, asked, {})
    ((case, _),) = relaxations._grid(asked)
    beyond = case.screen(asked, "disarm", 0.001)
    make_up_screens(tmp_path, [beyond], BEST)
    for planned in work.planned:
        if planned.config.training.optimizer.learning_rate == BEST:
            diverge(planned, tmp_path)
    for seed, planned in enumerate(case.runs(asked, "disarm", 0.003)):
        make_up(planned, tmp_path, -105.0, seed=seed)
        make_up_variance(tmp_path, planned)
    assert TABLE.make(asked, work).table.numbers().learning_rate.tolist() == ["0.003"]
    for planned in (*work.planned, beyond):
        diverge(planned, tmp_path)
    work.stored.clear()
    with pytest.raises(FailedRunError, match="disarm"):
        TABLE.make(asked, work)


def diverge(planned, folder):
    """Let the record be that of a run whose loss is not finite."""
    (folder / f"runs/{planned.name}.json").unlink(missing_ok=True)
    config = planned.config.model_dump(mode="json", exclude={"evaluation"})
    (folder / f"runs/{planned.name}.diverged.json").write_text(json.dumps({"config": config}))


@pytest.mark.parametrize(
    ("best", "tried"), [(0.081, (0.081, 0.243)), (0.001, (0.001, 0.000333333)), (0.009, ())]
)
def test_step_sizes_go_on_beyond_the_smallest_and_the_largest(tmp_path, best, tried):
    asked = replace(PART, only=(*PART.only, "disarm"))
    ((case, way),) = relaxations._grid(asked)
    work = Sweep(TABLE.plan(asked), Places(tmp_path / "runs", tmp_path), stop=lambda: True, may_diverge=True)
    beyond = [case.screen(asked, way, rate) for rate in tried]
    make_up_screens(tmp_path, (*work.planned, *beyond), best)
    for trains in (True, False):
        chosen = relaxations._chosen(asked, work, case, way, trains=trains)
        assert [run.config.training.optimizer.learning_rate for run in chosen] == [best, best]
    if tried:
        diverge(beyond[1], tmp_path)
        assert relaxations._chosen(asked, work, case, way, trains=True) == chosen
        (tmp_path / f"runs/{beyond[0].name}.json").unlink()
        assert relaxations._chosen(asked, work, case, way, trains=False) is None


def test_no_more_than_three_values_are_tried_beyond(tmp_path):
    asked = replace(PART, only=(*PART.only, "disarm"))
    ((case, way),) = relaxations._grid(asked)
    work = Sweep(TABLE.plan(asked), Places(tmp_path / "runs", tmp_path), stop=lambda: True, may_diverge=True)
    beyond = [case.screen(asked, way, rate) for rate in (0.081, 0.243, 0.729)]
    make_up_screens(tmp_path, (*work.planned, *beyond), 1.0)
    (first, _) = relaxations._chosen(asked, work, case, way, trains=True)
    assert first.config.training.optimizer.learning_rate == 0.729


@pytest.mark.parametrize(
    ("way", "best", "sharpness"),
    [
        ("overlapping-exponential-1", 2.0, "16"),
        ("overlapping-power-5", 0.5, "15"),
        ("spike-exponential", 4.0, "32"),
        ("spike-gaussian", 0.5, "1"),
        ("ramps", 1.0, ""),
    ],
)
def test_the_sharpness_is_chosen_at_the_best_step_size(tmp_path, way, best, sharpness):
    asked = replace(PART, only=(*PART.only, way))
    ((case, _),) = relaxations._grid(asked)
    work = make_up_runs(tmp_path, asked, {})
    make_up_sharpness(tmp_path, asked, case, way, best=best)
    for planned in case.runs(asked, way, BEST, best):
        make_up(planned, tmp_path, -100.0)
        make_up_variance(tmp_path, planned)
    (row,) = TABLE.make(asked, work).table.numbers().to_dict("records")
    assert (row["sharpness"], row["log_likelihood"], row["learning_rate"]) == (sharpness, -100.0, f"{BEST:g}")


def test_the_table_has_what_was_asked_for_and_what_is_complete_besides(tmp_path):
    asked = replace(PART, only=(*PART.only, "ramps", "disarm"))
    others = replace(OPTIONS, only=("omniglot", "independent", "width-400", "reinforce", "disarm"))
    make_up_runs(tmp_path, others, {})
    ((case, first), (_, second)) = relaxations._grid(others)
    for way, seed in (first, 1), (second, 0):
        (tmp_path / f"runs/{case.runs(others, way, BEST)[seed].name}.json").unlink()
    numbers = TABLE.make(asked, make_up_runs(tmp_path, asked, {"disarm": -100.0})).table.numbers()
    assert list(zip(numbers.case, numbers.way, strict=True)) == [
        ("mnist-static, rbm, width-200", "disarm"),
        ("mnist-static, rbm, width-200", "ramps"),
        ("omniglot, independent, width-400", "disarm"),
    ]
    assert numbers.difference.isna().all()  # from a way that is not there
    assert numbers.num_seeds.tolist() == [2, 2, 1]
    assert len(TABLE.plan(asked)) == 6
    assert len(TABLE.plan(OPTIONS)) == 3 * 14 * 8


def test_kept_records_make_the_kept_table(tmp_path):
    """Without a step of training, which would be stopped."""
    kept = Path(relaxations.__file__).parent / "results/relaxations"
    out = shutil.copytree(kept, tmp_path / "out")
    table = pd.read_csv(kept / "relaxations-short-8-minutes-3-seeds.csv")
    parts = "mnist-static", "rbm", "width-200", "straight-through", "disarm"
    options = Options("short", num_seeds=3, budget=8.0, only=parts)
    work = Sweep(TABLE.plan(options), Places(tmp_path / "runs", out), stop=lambda: True)
    work.complete()
    found = TABLE.make(options, work).table.numbers()
    assert found.way.tolist() == table.way.tolist()
    assert found.log_likelihood.to_numpy() == pytest.approx(table.log_likelihood.to_numpy())


def test_a_budget_shortens_the_warm_up_of_each_way_in_proportion():
    for planned in TABLE.plan(PART):
        for epochs in (8, 800):
            warm_up = with_epochs(planned.config, epochs, 100, 100).training.warm_up
            assert (warm_up.epochs, warm_up.prior_epochs) == pytest.approx((epochs / 4, epochs / 4))


@pytest.mark.parametrize(("budget", "minutes"), [(1.0, 1.0), (6.0, 2.0), (60.0, 10.0)])
def test_a_budget_leaves_short_runs_room_for_an_epoch(budget, minutes):
    planned = TABLE.plan(replace(PART, budget=budget))
    assert [run.budget for run in planned] == [minutes] * (3 * 14)


def test_size_smoke_takes_few_steps():
    smoke = Options("smoke", only=("disarm",))
    for case, way in relaxations._grid(smoke):
        for planned in (case.screen(smoke, way, BEST), *case.runs(smoke, way, BEST)):
            training = planned.config.training
            assert training.num_examples * training.num_epochs <= 30 * training.batch_size


def test_a_stop_is_heard_before_a_gradient_is_measured(tmp_path):
    planned = plan_run("digits", "smoke", changes=TINY)
    (stored,) = completed(tmp_path, planned)
    with pytest.raises(StoppedError):
        relaxations._variance(stored, sweep(tmp_path, planned, stop=lambda: True))


def test_the_gradient_of_a_trained_model_is_measured_once_and_kept(tmp_path):
    learned = {"training.gradient": ["reinforce"], "training.gradient.baseline": ["learned"]}
    planned = plan_run("digits", "smoke", changes=TINY, scale=Scale("reinforce", as_changes(learned)))
    (stored,) = completed(tmp_path, planned)
    work = sweep(tmp_path, planned)
    assert relaxations._lacks_variance(planned, work)
    found = relaxations._variance(stored, work)
    assert found["variance"] > found["std_error"] > 0
    assert not relaxations._lacks_variance(planned, work)
    assert relaxations._variance(stored, work) == found
    another = json.dumps(found | {"validation_elbo": 0.0})  # model under the same name
    relaxations._variance_path(planned, work).write_text(another)
    assert relaxations._lacks_variance(planned, work)
