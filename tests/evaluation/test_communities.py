"""Groups of states between which moves are frequent."""

import numpy as np

from discrete_vae.evaluation.diagnostics import communities


def test_groups_that_nothing_joins_stay_apart_whatever_their_sizes():
    counts = np.zeros((9, 9))
    for members in ([0, 3, 6], [1, 4], [2, 5, 7, 8]):
        counts[np.ix_(members, members)] = 5.0
    groups, modularity = communities(counts)
    assert groups.tolist() == [1, 2, 0, 1, 2, 0, 1, 0, 0]
    share = np.array([9, 4, 16]) / 29
    assert np.isclose(modularity, 1 - (share**2).sum())


def test_what_moves_freely_is_one_group():
    groups, modularity = communities(np.ones((6, 6)))
    assert groups.tolist() == [0] * 6
    assert abs(modularity) < 1e-12


def test_modularity_is_that_of_the_groups():
    random = np.random.default_rng(0)
    counts = random.poisson(1.0, (12, 12)) + 20.0 * np.kron(np.eye(3), np.ones((4, 4)))
    groups, modularity = communities(counts)
    flow = (counts + counts.T) / (2 * counts.sum())
    visits = flow.sum(1)
    same = groups[:, None] == groups
    assert np.isclose(modularity, (flow - np.outer(visits, visits))[same].sum())
    assert len(set(groups.tolist())) == 3


def test_one_state_is_one_group():
    groups, modularity = communities(np.array([[4.0]]))
    assert groups.tolist() == [0]
    assert modularity == 0.0
