"""Agreement of groups with labels."""

import numpy as np
import pytest

from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.latents import label_agreement


def test_groups_that_are_the_labels_under_other_names():
    kinds = np.random.default_rng(0).integers(0, 4, 400)
    found = label_agreement((kinds + 1) % 4, np.array(["a", "b", "c", "d"])[kinds])
    assert found.purity == found.adjusted_mutual_information == 1.0
    assert found.mutual_information == pytest.approx(found.label_entropy)
    assert found.num_labels == 4


def test_groups_that_tell_nothing():
    random = np.random.default_rng(0)
    found = label_agreement(random.integers(0, 50, 2000), random.integers(0, 4, 2000))
    assert abs(found.adjusted_mutual_information) < 5 * found.adjusted_mutual_information_std_error
    assert found.mutual_information > 0.01  # by chance alone, which the adjusted one takes off


def test_errors_are_those_of_repeated_draws():
    """The jackknife against the spread of the measures of many samples."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(25):
        kinds = random.integers(0, 3, 300)
        groups = np.where(random.random(300) < 0.8, kinds, random.integers(0, 3, 300))
        found.append(label_agreement(groups, kinds))
    for name in ("purity", "adjusted_mutual_information", "mutual_information"):
        spread = np.std([getattr(each, name) for each in found], ddof=1)
        stated = np.mean([getattr(each, f"{name}_std_error") for each in found])
        assert 0.5 < stated / spread < 1.8, name


def test_errors_do_not_depend_on_the_order():
    """Labels that recur after each ten examples: blocks of every twentieth would hold one label each."""
    random = np.random.default_rng(0)
    labels = np.arange(2000) % 10
    groups = np.where(random.random(2000) < labels / 10, labels, 10)
    order = random.permutation(2000)
    cyclic, mixed = label_agreement(groups, labels), label_agreement(groups[order], labels[order])
    for name in ("purity", "mutual_information"):
        assert 0.5 < getattr(cyclic, f"{name}_std_error") / getattr(mixed, f"{name}_std_error") < 2, name


@pytest.mark.parametrize("labels", [np.zeros(30), np.zeros((40, 2)), np.zeros(0)])
def test_as_many_labels_as_groups(labels):
    with pytest.raises(InvalidInputError, match="labels must be one per example"):
        label_agreement(np.zeros(40), labels)


def test_too_few():
    with pytest.raises(InvalidInputError, match="of at least 20"):
        label_agreement(np.zeros(19), np.zeros(19))
