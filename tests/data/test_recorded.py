"""What a run keeps of its data for pictures."""

import json

import pytest
import torch

from discrete_vae.data.datasets import load_dataset
from discrete_vae.data.splits import DatasetDescription, DataSplits, RecordedData, describe_data
from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.io import EnvironmentSchema, check_fields


def dataset(test, shape=(4,)):
    x = torch.arange(8.0).reshape(2, 4)
    return DataSplits("mine", x, x, test, shape, False, DatasetDescription("s", "v", "c", "w", None))


@pytest.mark.parametrize(
    ("test", "low", "high"),
    [
        (torch.tensor([[-3.0, 0.5, torch.nan, 7.25]]), -3.0, 7.25),
        (torch.full((1, 4), torch.nan), 0.0, 1.0),
    ],
)
def test_the_range_is_that_of_the_test_part(test, low, high):
    assert RecordedData.of(dataset(test)) == RecordedData((4,), low, high)


@pytest.mark.parametrize("data", [dataset(torch.ones(1, 4), (1, 2, 2)), load_dataset("digits")])
def test_it_comes_back_from_json(data):
    environment = {"data": json.loads(json.dumps(describe_data(data)))}
    found = RecordedData.read(environment)
    assert found == RecordedData.of(data)
    assert found is not None
    assert (found.image_shape, found.num_features) == (data.image_shape, data.num_features)


def test_a_run_of_before_keeps_nothing():
    assert RecordedData.read({}) is RecordedData.read({"data": {"name": "x"}}) is None


@pytest.mark.parametrize(
    "picture",
    [
        5,
        {},
        {"event_shape": [4]},
        {"event_shape": [2, 2], "low": 0, "high": 1},
        {"event_shape": [0], "low": 0, "high": 1},
        {"event_shape": [True], "low": 0, "high": 1},
        {"event_shape": "4", "low": 0, "high": 1},
        {"event_shape": [4], "low": None, "high": 1},
        {"event_shape": [4], "low": "nan", "high": 1},
    ],
)
def test_another_form_is_refused_by_name(picture):
    with pytest.raises(InvalidInputError, match=r"e.json, field 'data\.picture"):
        check_fields("e.json", {"data": {"picture": picture}}, EnvironmentSchema, repair="Restore it.")
