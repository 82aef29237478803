import pytest

from discrete_vae.system import in_words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.0001, "0 s"),
        (0.25, "0.25 s"),
        (3.14159, "3.1 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.7, "1 min"),
        (61, "1 min 1 s"),
        (3599.9, "1 h"),
        (7260, "2 h 1 min"),
        (86399, "1 day"),
        (90000, "1 day 1 h"),
        (573.9 * 3600, "23 days 22 h"),
    ],
)
def test_two_units_and_no_sixty_of_one(seconds, words):
    assert in_words(seconds) == words
