"""The relaxations' table: of made-up records, and the gradient of one trained model."""

import json

import pytest

from reproduction import relaxations
from reproduction.display import Options
from reproduction.records import Scale, as_changes, plan_run
from reproduction.relaxations import RELAXATIONS
from reproduction.sweep import Places, Sweep
from reproduction.tests.made_up import TINY, completed, make_up, sweep

TABLE = RELAXATIONS["relaxations"]
OPTIONS = Options("short", num_seeds=2, budget=30.0)
BEST = 0.003  # of the made-up screens


def made(folder, values):
    """The table where ways have these log-likelihoods, and others -110."""
    work = Sweep(TABLE.plan(OPTIONS), Places(folder / "runs", folder), say=lambda text: None)
    for number, planned in enumerate(work.planned):
        rate = planned.config.training.optimizer.learning_rate
        work.stored[planned] = make_up(planned, folder, -120.0 - abs(rate - BEST), seed=number)
    for case in relaxations._CASES:
        for way in relaxations._WAYS:
            for seed in OPTIONS.seeds:
                planned = case.run(OPTIONS, way, BEST, seed=seed)
                make_up(planned, folder, values.get(way, -110.0), seed=seed, log_partition_error=0.003)
                path = folder / f"runs/{planned.name}.gradient.json"
                path.write_text(json.dumps({"variance": 2.0, "std_error": 0.1}))
    return TABLE.make(OPTIONS, work)


def test_each_way_trains_with_its_best_step_size_and_is_compared_in_pairs(tmp_path):
    result = made(tmp_path, {"disarm": -100.0, "spike-exponential": -101.0})
    numbers = result.table.numbers()
    assert (numbers.learning_rate == f"{BEST:g}").all()
    for _, rows in numbers.groupby("case"):
        assert rows.way[:2].tolist() == ["disarm", "spike-exponential"]
        found = rows.set_index("way")
        assert found.difference["disarm"] == pytest.approx(1.0)
        assert found.difference["ramps"] == pytest.approx(-9.0)
        assert found.difference_from_above["spike-exponential"] == pytest.approx(-1.0)
        assert found.apart["spike-exponential"] == "yes"
        assert (found.apart[3:] == "no").all()  # equal ones
    assert len(numbers) == len(relaxations._CASES) * len(relaxations._WAYS)
    assert "Equal time" in result.notes[0]


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
