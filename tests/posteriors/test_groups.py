"""The division of units into groups."""

import pytest

from discrete_vae.errors import InvalidInputError
from discrete_vae.posterior import check_groups, contiguous_groups


def test_four_groups_of_the_papers_machine_are_two_on_each_side():
    groups = contiguous_groups(128, 4)
    assert [len(group) for group in groups] == [32, 32, 32, 32]
    assert max(groups[1]) == 63
    assert min(groups[2]) == 64


@pytest.mark.parametrize(("units", "groups"), [(7, 3), (5, 5), (9, 1), (128, 8)])
def test_sizes_differ_by_at_most_one_and_cover_in_order(units, groups):
    made = contiguous_groups(units, groups)
    assert [unit for group in made for unit in group] == list(range(units))
    assert max(map(len, made)) - min(map(len, made)) <= 1
    assert check_groups(made) == made


def test_more_groups_than_units():
    with pytest.raises(InvalidInputError, match="num_groups must be at most the 3 units; received 4"):
        contiguous_groups(3, 4)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([], "groups must be a list of lists"),
        ("01", "groups must be a list of lists"),
        ([[0], []], r"groups\[1\] must be a list of at least one unit index"),
        ([[0, 1], [1, 2]], "received unit 1 twice"),
        ([[0, 2]], "received no unit 1 but a unit 2"),
        ([[0, -1]], "must hold non-negative integers; received -1"),
        ([[0, 1.0]], "must hold non-negative integers; received 1.0"),
        ([0, 1], r"groups\[0\] must be a list"),
    ],
)
def test_wrong_groups(groups, message):
    with pytest.raises(InvalidInputError, match=message):
        check_groups(groups)
