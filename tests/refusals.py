"""The error of a call that is refused."""

import pytest

from discrete_vae.errors import InvalidInputError


def refused(call, *arguments, **named):
    """The error with which a call refuses what it is given."""
    with pytest.raises(InvalidInputError) as caught:
        call(*arguments, **named)
    return caught.value


def refused_argument(call, *arguments, **named):
    """The argument that a call refuses."""
    return refused(call, *arguments, **named).argument
