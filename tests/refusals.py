"""What the error of a call names."""

import pytest

from discrete_vae.errors import InvalidInputError


def refused_argument(call, *arguments, **named):
    """The argument that a call refuses."""
    with pytest.raises(InvalidInputError) as caught:
        call(*arguments, **named)
    return caught.value.argument
