"""The records in the repository are those of today's experiments, and hold what tables are made of."""

from pathlib import Path

import numpy as np
import pytest

from discrete_vae.presets import SIZES
from discrete_vae.runs.io import read_json
from reproduction.record import RecordStore
from reproduction.registry import REPRODUCTIONS
from reproduction.wanted import Wanted

FOLDER = Path(__file__).parents[1] / "results" / "runs"
RECORDS = [path for path in sorted(FOLDER.glob("*.json")) if not path.stem.endswith("-log-partition")]
BUDGETS = {read_json(path, repair="Make it again.")["budget_minutes"] for path in RECORDS}
PLANNED = {
    run.name: run
    for entry in REPRODUCTIONS.values()
    if entry.needs
    for size in SIZES
    for budget in BUDGETS
    for run in entry.load().plan(Wanted(size, num_seeds=entry.num_seeds, budget=budget))
}


def test_there_are_some():
    assert RECORDS


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_kept_record_is_that_of_its_run(path):
    planned = PLANNED[path.stem]
    assert read_json(path, repair="Make it again.")["settings"] == [
        f"--{name} {' '.join(values)}" for name, values in planned.overrides
    ]
    stored = RecordStore(FOLDER).read(planned)  # refuses another config
    assert stored is not None  # evaluated as its size asks
    assert not stored.record.modified
    index, values = stored.examples
    assert len(np.unique(index)) == stored.record.num_examples
    found = stored.record.log_likelihood
    assert values.mean() == pytest.approx(found.value, abs=1e-4)
    assert values.std(ddof=1) / len(values) ** 0.5 == pytest.approx(found.std_error, rel=0.01)
    assert stored.course["step"][-1] == stored.record.num_steps
    assert np.nanmax(stored.course["validation_elbo"]) >= stored.record.validation_elbo - 1e-4
