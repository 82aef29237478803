"""Scales of gray."""

import torch

from discrete_vae.figures.style import ink_for

NAN = torch.nan


def test_probabilities_stay_as_they_are():
    x = torch.tensor([[0.0, 0.25], [NAN, 0.5]])
    ink = ink_for(x, per_feature=True)
    assert torch.equal(ink(x).nan_to_num(9.0), x.nan_to_num(9.0))
    assert ink.words == "black is 1"


def test_each_feature_of_a_table_has_its_own_range():
    x = torch.tensor([[-5.0, 100.0, NAN, 7.0], [5.0, NAN, NAN, 7.0], [0.0, 300.0, NAN, 7.0]])
    ink = ink_for(x, per_feature=True)
    wanted = torch.tensor([[0.0, 0.0, NAN, 0.0], [1.0, NAN, NAN, 0.0], [0.5, 1.0, NAN, 0.0]])
    assert torch.equal(ink(x).nan_to_num(9.0), wanted.nan_to_num(9.0))
    beyond = ink(torch.tensor([-99.0, 999.0, 0.5, 8.0]))
    assert bool(((beyond >= 0) & (beyond <= 1)).all())


def test_nothing_observed_is_no_fault():
    assert ink_for(torch.full((2, 3), NAN), per_feature=True).words == "black is 1"
