"""Frozen configs of every component; a union per kind of component is the list of what there is.

A setting's meaning is the description of its field, a component's the first line of its class's docstring: help texts,
``dvae train EXPERIMENT --settings`` and reference pages are made of these. Nothing here imports torch.
"""

from discrete_vae.config.base import *  # noqa: F403 (a new config is exported where it is written)
from discrete_vae.config.data import *  # noqa: F403
from discrete_vae.config.experiment import *  # noqa: F403
from discrete_vae.config.model import *  # noqa: F403
from discrete_vae.config.training import *  # noqa: F403
