"""Refusals of all estimates of log Z name the argument."""

import math

import pytest
import torch

from discrete_vae import (
    RBM,
    annealed_log_partition,
    bennett_log_partition,
    estimate_log_partition,
    exact_log_partition,
)
from discrete_vae.log_partition.exact import log_partition_surrogate
from tests.log_partition.machines import random_rbm
from tests.refusals import refused_argument

SMALL = random_rbm(2, 2)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("num_temperatures", lambda: annealed_log_partition(SMALL, num_temperatures=0)),
        ("num_chains", lambda: annealed_log_partition(SMALL, num_chains=1)),
        ("start", lambda: annealed_log_partition(SMALL, start=torch.zeros(5, 3))),
        ("start", lambda: annealed_log_partition(SMALL, start=torch.full((5, 4), 0.5))),
        ("start", lambda: annealed_log_partition(SMALL, start=torch.zeros(1, 4))),
        ("std_error", lambda: bennett_log_partition(SMALL, std_error=0.0)),
        ("num_chains", lambda: bennett_log_partition(SMALL, num_chains=5)),
        ("max_sweeps", lambda: bennett_log_partition(SMALL, max_sweeps=0)),
        ("seed", lambda: bennett_log_partition(SMALL, seed=-1)),
        ("start", lambda: bennett_log_partition(SMALL, start=torch.zeros(0, 4))),
        (
            "energy.weight",
            lambda: bennett_log_partition(random_rbm(3, 3, 1e30), num_chains=40, max_sweeps=1000),
        ),
        ("energy", lambda: exact_log_partition(random_rbm(25, 25, 0.1))),
        ("energy", lambda: estimate_log_partition(None)),
        ("num_chains", lambda: estimate_log_partition(SMALL, num_chains=1)),
        ("max_enumerated", lambda: estimate_log_partition(SMALL, max_enumerated=25)),
        ("chains", lambda: estimate_log_partition(SMALL, chains=torch.zeros(5, 3))),
        ("chains", lambda: estimate_log_partition(SMALL, chains=torch.zeros(0, 4), max_enumerated=0)),
        ("z", lambda: log_partition_surrogate(SMALL, torch.zeros(5, 3))),
        ("z", lambda: log_partition_surrogate(SMALL, torch.zeros(0, 4))),
    ],
)
def test_refusals_name_the_argument(name, call):
    assert refused_argument(call) == name


@pytest.mark.parametrize(("name", "value"), [("weight", math.nan), ("weight", math.inf), ("bias", -math.inf)])
def test_a_machine_that_is_not_finite(name, value):
    rbm = RBM(2, 2)
    with torch.no_grad():
        rbm.get_parameter(name).view(-1)[-1] = value
    for estimate in (exact_log_partition, annealed_log_partition, bennett_log_partition):
        assert refused_argument(estimate, rbm) == f"energy.{name}"
