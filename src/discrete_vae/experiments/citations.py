"""What to cite for a model: the papers behind the parts that are in use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from discrete_vae._version import __version__
from discrete_vae.config import ExperimentConfig, FactorialBernoulliConfig
from discrete_vae.config.base import ComponentConfig, Record

LIBRARY = f"""% This library
@software{{discrete-vae,
  title   = {{discrete-vae: variational autoencoders with a {{Boltzmann}}-machine prior}},
  author  = {{{{The discrete-vae developers}}}},
  version = {{{__version__}}}
}}"""


@cache
def references() -> dict[str, str]:
    """Every reference by its key, as BibTeX."""
    text = files("discrete_vae.experiments").joinpath("references.bib").read_text(encoding="utf-8")
    return {re.findall(r"@\w+\{([^,]+),", entry)[0]: entry for entry in text.strip().split("\n\n")}


def cited_keys(config: ExperimentConfig) -> list[str]:
    """Keys of the papers behind an experiment, each once: that of the model, those of its parts, those of settings.

    Examples:
        >>> from discrete_vae import load_experiment
        >>> cited_keys(load_experiment("digits"))
        ['rolfe2017', 'alpaydin1998', 'loshchilov2017', 'tieleman2008', 'kingma2015', 'burda2016', 'bennett1976']
    """
    training = config.training
    keys = ["rolfe2017", *_keys_of_parts(config), "kingma2015"]
    if training.averaging.decay > 0:
        keys.append("polyak1992")
    if training.num_importance_samples > 1:
        keys.append("tucker2019")
    keys.append("burda2016")  # log p(x) of an evaluation is their bound of many samples
    if not isinstance(config.model.prior, FactorialBernoulliConfig):
        keys.append("bennett1976")
    return list(dict.fromkeys(keys))


def cite(config: ExperimentConfig | None = None) -> str:
    """BibTeX of the library and of the papers behind an experiment; of the model's paper alone without one."""
    keys = ["rolfe2017"] if config is None else cited_keys(config)
    return "\n\n".join([LIBRARY, *(references()[key] for key in keys)])


def _keys_of_parts(record: Record) -> Iterator[str]:
    """The keys that components name, the record's own and those within."""
    if isinstance(record, ComponentConfig):
        yield from record.references
    for name in type(record).model_fields:
        value = getattr(record, name)
        if isinstance(value, Record):
            yield from _keys_of_parts(value)
