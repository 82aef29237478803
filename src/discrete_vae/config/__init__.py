"""Frozen configs of every component; a union per kind of component is the list of what there is.

A setting's meaning is the description of its field, a component's the first line of its class's docstring: help texts,
``dvae train EXPERIMENT --settings`` and reference pages are made of these. Nothing here imports torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
