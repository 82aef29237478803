"""Records: those in the repository are of today's experiments; damage is named; estimates follow from records."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from discrete_vae import load_run
from discrete_vae.config import instantiate
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.evaluate import evaluate_log_likelihood
from discrete_vae.nets.modes import precision_of_products
from reproduction.__main__ import REPRODUCTIONS
from reproduction.display import Options
from reproduction.records import (
    StoredRun,
    mean_log_likelihood,
    paired_difference,
    read_record,
    spread,
    thin_history,
)
from reproduction.tests.made_up import make_up, tiny

FOLDER = Path(__file__).parents[1] / "results" / "runs"
RECORDS = [path for path in sorted(FOLDER.glob("*.json")) if not path.stem.endswith("-log-partition")]
WEIGHTS = sorted((Path(__file__).parents[1] / "weights").glob("*"))
BUDGETS = {json.loads(path.read_text())["budget_minutes"] for path in RECORDS}


@pytest.fixture(scope="module")
def all_planned():
    return {
        run.name: run
        for entry in REPRODUCTIONS.values()
        if entry.trains
        for size in entry.sizes
        if any(f"-{size}-" in path.stem for path in RECORDS)
        for budget in BUDGETS
        for run in entry.plan(Options(size, num_seeds=entry.num_seeds or 3, budget=budget))
    }


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_kept_record_is_that_of_its_run(all_planned, path):
    planned = all_planned[path.stem]
    settings = [f"--{name} {' '.join(values)}" for name, values in planned.overrides]
    assert json.loads(path.read_text())["settings"] == settings
    stored = read_record(FOLDER, planned)  # refuses another config
    assert stored is not None  # evaluated as its size asks
    assert not stored.record.modified
    assert stored.examples.index.is_unique
    found = stored.record.log_likelihood
    assert stored.examples.mean() == pytest.approx(found.value, abs=1e-4)
    assert stored.examples.sem() == pytest.approx(found.std_error, rel=0.01)
    # a released run has the log up to its checkpoint
    assert stored.record.step <= stored.history.step.iloc[-1] <= stored.record.num_steps
    assert stored.history.validation_elbo.max() >= stored.record.validation_elbo - 1e-4


@pytest.mark.parametrize("folder", WEIGHTS, ids=lambda path: path.name)
def test_kept_weights_repeat_their_record(all_planned, folder):
    """The mean of five test images, with the record's own noise: only rounding may differ, by some 0.06 nats."""
    data_dir = os.environ.get("DISCRETE_VAE_DATA", "")
    if not Path(data_dir or "nowhere").is_dir():
        pytest.skip("DISCRETE_VAE_DATA does not name a folder with the published data sets")
    run, stored = load_run(folder), read_record(FOLDER, all_planned[f"{folder.name}-seed-0"])
    assert stored is not None
    assert (run.step, run.config.model) == (stored.record.step, stored.record.config.model)
    examples = stored.examples.iloc[:5]
    places = examples.index.tolist()
    x = instantiate(run.config.data, data_dir=data_dir).test[places]
    given = {"log_partition": stored.record.log_partition.value, "num_samples": stored.record.num_samples}
    with precision_of_products(run.model, torch.bfloat16):
        found = evaluate_log_likelihood(run.model, x, indices=places, **given)
    assert found.examples is not None
    assert float(found.examples.value.mean()) == pytest.approx(examples.mean(), abs=0.3)


HEAD = b"step,seconds,elbo,validation_elbo\n"


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        *((".csv", content) for content in (None, b"", HEAD + b"1,2,x,3\n", b"step\n1\n", b"\xff")),
        *((".npz", content) for content in (None, b"", b"PK", b"\x93NUMPY")),
    ],
)
def test_damage_is_named(tmp_path, kind, content):
    stored = make_up(tiny(), tmp_path, -80.0)
    path = stored.path.with_suffix(kind)
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=f"{tiny().name}{kind}"):
        _ = stored.history if kind == ".csv" else stored.examples


def test_any_flipped_bit_of_the_examples_is_named_or_harmless(tmp_path):
    stored = make_up(tiny(), tmp_path, -80.0)
    path = stored.path.with_suffix(".npz")
    whole, expected, refused = path.read_bytes(), stored.examples, 0
    for place in range(0, 8 * len(whole), 7):
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            assert StoredRun(stored.planned, stored.record, stored.path).examples.equals(expected)
        except InvalidInputError:
            refused += 1
    assert refused > 100


def test_a_history_in_few_rows_keeps_the_last_step_and_validations():
    lines = [
        {"step": step, "epoch": step / 10, "seconds": 2.0 * step, "elbo": -step} for step in range(1, 31)
    ]
    lines += [
        {"step": step, "epoch": step / 10, "seconds": 1.0, "validation_elbo": -1.0} for step in (7, 14, 21)
    ]
    whole, thin = thin_history(lines), thin_history(lines, max_rows=8)
    assert len(whole) == 30
    assert whole.step.is_monotonic_increasing
    assert len(thin) == 8
    assert {7, 14, 21, 30} <= set(thin.step)
    assert thin[thin.step == 14].to_dict("records") == [
        {"step": 14, "epoch": 1.4, "seconds": 1.0, "elbo": -14.0, "validation_elbo": -1.0}
    ]
    pd.testing.assert_frame_equal(thin, whole[whole.step.isin(thin.step)])


def test_a_paired_difference_by_hand(tmp_path):
    runs = [
        make_up(tiny(seed=seed), tmp_path, value, seed=seed, log_partition_error=0.3)
        for seed, value in enumerate([-80.0, -81.0, -79.0, -79.5])
    ]
    found = paired_difference(runs[:2], runs[2:])
    examples = [run.examples.to_numpy() for run in runs]
    differences = np.array([examples[2] - examples[0], examples[3] - examples[1]])
    over_examples = differences.mean(0).std(ddof=1) / math.sqrt(20)
    over_seeds = abs(1.0 - 1.5) / 2
    assert found.value == pytest.approx(1.25, abs=1e-5)
    assert found.std_error == pytest.approx(math.hypot(over_examples, over_seeds), rel=1e-4)
    single = paired_difference(runs[:1], runs[2:3])
    of_examples = (examples[2] - examples[0]).std(ddof=1) / math.sqrt(20)
    assert single.std_error == pytest.approx(math.hypot(of_examples, 0.3, 0.3), rel=1e-4)
    assert mean_log_likelihood(runs[:2]).value == -80.5
    assert spread(runs[:2]) == pytest.approx(math.sqrt(0.5))
    assert math.isnan(spread(runs[:1]))
    other = make_up(tiny(seed=9), tmp_path, -80.0, num_examples=19)
    with pytest.raises(InvalidInputError, match=tiny(seed=9).name):
        paired_difference(runs[:1], [other])
