"""Errors and records cross the border of a process, and can be copied and compared."""

import copy
import dataclasses
import importlib
import pickle
import pkgutil

import pytest
import torch

import discrete_vae
from discrete_vae import RBM, BlockGibbs, RunningMoments, load_experiment
from discrete_vae.data.splits import DatasetDescription, DataSplits
from discrete_vae.errors import (
    DiscreteVAEError,
    InvalidInputError,
    NonFiniteLossError,
    PeerLostError,
    SolverError,
)
from discrete_vae.kernels.gibbs import SweepCall
from discrete_vae.runs.checkpoints import Checkpoint
from discrete_vae.runs.load import LoadedRun
from tests.models import small_model

WAYS = {"pickle": lambda x: pickle.loads(pickle.dumps(x)), "copy": copy.copy, "deepcopy": copy.deepcopy}


def subclasses(kind):
    return {kind}.union(*(subclasses(sub) for sub in kind.__subclasses__()))


def an_error(kind):
    for base, arguments in (
        (InvalidInputError, ("num_left", "must be a positive integer", -3, "Give at least 1.")),
        (NonFiniteLossError, (7, "reconstruction", float("-inf"), None)),
        (PeerLostError, (1, 2, "connection closed")),
        (SolverError, ("qpu", "PollingTimeout: no answer")),
    ):
        if issubclass(kind, base):
            return kind(*arguments)
    return kind("one message")


def test_every_error_survives_copies():
    for found in pkgutil.walk_packages(discrete_vae.__path__, "discrete_vae."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    kinds = {kind for kind in subclasses(DiscreteVAEError) if kind.__module__.startswith("discrete_vae.")}
    names = {kind.__name__ for kind in kinds}
    assert {"DamagedCheckpointError", "CheckpointWriteError", "DownloadError"} <= names
    for kind in kinds:
        error = an_error(kind)
        error.add_note("seen in a worker")
        for way, copied in WAYS.items():
            again = copied(error)
            assert type(again) is kind, way
            assert str(again) == str(error) != "", way
            assert again.args == error.args, way
            assert vars(again) == vars(error), way


def test_messages_are_built_from_the_parts():
    error = an_error(InvalidInputError)
    assert isinstance(error, ValueError)
    assert str(error) == "num_left must be a positive integer; received -3. Give at least 1."
    assert (error.argument, error.rule, error.received, error.repair) == error.args
    assert str(NonFiniteLossError(7, "kl", 1.5, 4)).startswith("kl is 1.5 at step 7; ")
    error = InvalidInputError("report", "must be None", lambda: 0, "Leave it out.")  # which has no pickle
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def moments():
    rbm = RBM(2, 2)
    sums = RunningMoments(rbm, num_chains=40)
    BlockGibbs(rbm, num_chains=40, seed=0).step(3, moments=sums)
    return sums.value()


def elbo():
    with torch.no_grad():
        return small_model(4).elbo(torch.ones(3, 4), log_partition=1.0)


NOTHING = DatasetDescription("", "", "", "", None)
RECORDS = {
    "DataSplits": lambda: DataSplits("own", *(torch.zeros(2, 4),) * 3, (4,), False, NOTHING),
    "Moments": moments,
    "Checkpoint": lambda: Checkpoint(3, {"bias": torch.ones(2)}, {"epoch": 1}),
    "SweepCall": lambda: SweepCall(1, 0, 1, 0, torch.ones(2), None),
    "Elbo": elbo,
    "ModelSample": lambda: small_model(4).sample(2, num_sweeps=2),
}


@pytest.mark.parametrize("way", ["pickle", "deepcopy"])
def test_a_loaded_run_stays_whole(way):
    """The chains of the copy are of the copy's own prior, and go on as the original's."""
    model = small_model(4)
    run = LoadedRun(load_experiment("digits", size="smoke"), model, BlockGibbs(model.prior, 3, seed=0), 5)
    again = WAYS[way](run)
    assert again.chains.energy is again.model.prior is not run.model.prior
    assert again.config == run.config
    assert torch.equal(again.chains.step(3), run.chains.step(3))
    assert again != run


def assert_same(a, b):
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    else:
        assert a == b


@pytest.mark.parametrize("name", RECORDS)
def test_records_survive_copies(name):
    record = RECORDS[name]()
    for copied in WAYS.values():
        again = copied(record)
        assert type(again) is type(record)
        for field in dataclasses.fields(record):
            assert_same(getattr(record, field.name), getattr(again, field.name))
        assert (again == record) is False
        assert record == record


def test_a_message_is_one_line_that_can_be_shown():
    strange = torch.ones(2, 2), "a\x1b[31m\u202e\udcff", "x" * 10_000
    for received in strange:
        text = str(InvalidInputError(f"file {received}", "must be good", received, f"Repair {received}."))
        assert text.isprintable()
        assert len(text) < 4000
        text.encode()
    assert str(InvalidInputError("a  b", "must be", "c", "D.")).startswith("a  b must be")
