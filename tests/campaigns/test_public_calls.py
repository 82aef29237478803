"""The table of public calls has an entry for everything that is exported."""

from inspect import isabstract

import pytest

import discrete_vae
from tests.campaigns.public_calls import public_calls

RESULTS = {
    "CheckedLogPartition",
    "LoadedRun",
    "LogPartition",
    "Moments",
    "TrainingResult",
}  # made by functions
WITHOUT_ARGUMENTS = {"pretrained_names", "yielding_threads"}


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    return public_calls(tmp_path_factory.mktemp("calls"))


def uncovered(exported, calls):
    found = {name: getattr(discrete_vae, name) for name in exported}
    callables = {name for name, value in found.items() if callable(value) and not isabstract(value)}
    return callables - {call.exported for call in calls} - RESULTS - WITHOUT_ARGUMENTS


def test_every_exported_callable_has_an_entry(calls):
    assert uncovered(discrete_vae.__all__, calls) == set()
    assert {call.exported for call in calls} <= set(discrete_vae.__all__)


def test_what_is_left_out_is_still_exported_and_has_no_entry(calls):
    assert set(discrete_vae.__all__) >= RESULTS | WITHOUT_ARGUMENTS
    assert not (RESULTS | WITHOUT_ARGUMENTS) & {call.exported for call in calls}


def test_a_missing_entry_is_found(calls):
    fewer = [call for call in calls if call.exported != "own_experiment"]
    assert uncovered(discrete_vae.__all__, fewer) == {"own_experiment"}


def test_names_are_unique(calls):
    names = [call.name for call in calls]
    assert sorted(set(names)) == sorted(names)
