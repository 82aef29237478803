"""Checks name the argument, the rule, what came, and the repair."""

import math
import re

import numpy as np
import torch
from scipy.sparse import csr_matrix

from discrete_vae import checks
from discrete_vae.rng import key_to_seed
from tests.refusals import refused, refused_argument

NAN = math.nan
OTHERS = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.float8_e4m3fn), [1.0]
OTHERS += torch.ones(2, 3).to_sparse(), torch.ones(2, 3, device="meta")
REFUSED = [  # a check, values, and what else it is given
    (checks.check_positive_int, (0, -1, 1.0, True, np.True_, np.float64(1), None, "3"), {}),
    (
        checks.check_number,
        (NAN, math.inf, "1", None, True, 0.0, 2.5),
        {"above": 0, "at_most": 2, "repair": "Choose 1."},
    ),
    *(
        (checks.check_tensor, (torch.zeros(2, 3),), {"shape": shape})
        for shape in ((..., 4), (3,), (2, "a", "b"), (..., 5, 2, 3))
    ),
    (checks.check_tensor, OTHERS, {"shape": (...,)}),
    (checks.check_unit_interval, [torch.tensor([0.5, value]) for value in (-0.1, 255.0, NAN)], {}),
    (checks.check_binary, [torch.tensor([0.0, value]) for value in (0.5, 2.0, -1.0, NAN)], {}),
]


def test_the_argument_is_named():
    for check, values, settings in REFUSED:
        for value in values:
            assert refused_argument(check, "x", value, **settings) == "x", (check, value, settings)


def test_the_repair_of_an_array_is_code_that_makes_it_a_tensor():
    for x in (np.eye(3), csr_matrix(np.eye(3))):
        code = re.search(r"torch\.as_tensor\(.*\)", refused(checks.check_tensor, "x", x, (3, 3)).repair)
        assert torch.equal(eval(code[0]), torch.eye(3))


def test_what_fits_is_returned():
    assert checks.check_positive_int("n", 5) == 5
    assert checks.check_number("a", 1, above=0, at_least=1, repair="") == 1.0
    for of_numpy in (np.int64(3), np.uint8(3), np.float32(3)):
        assert type(checks.check_number("a", of_numpy, repair="")) is float
    assert type(checks.check_positive_int("n", np.int64(3))) is int
    assert key_to_seed(np.uint64(2**63), np.int8(3)) == key_to_seed(2**63, 3)
    value = torch.zeros(2, 3)
    for shape in ((2, 3), ("batch", 3), (..., 3), (...,)):
        assert checks.check_tensor("x", value, shape) is value
    inside, bits = torch.tensor([0.0, 0.5, 1.0]), torch.tensor([0.0, 1.0])
    assert checks.check_unit_interval("x", inside) is inside
    assert checks.check_binary("x", bits) is bits
