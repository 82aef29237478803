"""The public callables with arguments that are right, as a start for wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import discrete_vae as dv
from discrete_vae.config import (
    GaussianHierarchyConfig,
    GraphBoltzmannConfig,
    HierarchicalPosteriorConfig,
    ModelConfig,
    NoHierarchyConfig,
    RBMConfig,
)


@dataclass(frozen=True)
class Call:
    """A public callable.

    Attributes:
        name: Its name.
        function: Takes the arguments by name; what it returns is compared.
        arguments: Right ones.
        optional: Those that may be None.
        free: Tensors that may have another shape, which the result then follows.
        real: Tensors that may hold any finite number.
        sizes: Numbers that the shape of the result, or its values, depend on.
    """

    name: str
    function: Callable[..., Any]
    arguments: dict[str, Any]
    optional: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()
    real: frozenset[str] = frozenset()
    sizes: frozenset[str] = field(default=frozenset())


def public_calls() -> list[Call]:
    """All of them, on small machines and models."""
    torch.manual_seed(0)
    graph_edges = [[0, 1], [1, 2], [2, 3], [3, 4], [0, 4], [5, 6]]
    machines = {
        "RBM": dv.RBM(4, 3),
        "GraphBoltzmann": dv.GraphBoltzmann(7, graph_edges),
        "FactorialBernoulli": dv.FactorialBernoulli(7),
    }
    with torch.no_grad():
        for machine in machines.values():
            for parameter in machine.parameters():
                parameter.normal_()
    calls = [
        _call("RBM()", lambda **k: dv.RBM(**k).energy(_bits(2, 5)), num_left=2, num_right=3),
        _call(
            "FactorialBernoulli()", lambda **k: dv.FactorialBernoulli(**k).energy(_bits(2, 5)), num_units=5
        ),
        _call(
            "GraphBoltzmann()",
            lambda **k: dv.GraphBoltzmann(**k).energy(_bits(2, 7)),
            num_units=7,
            edges=graph_edges,
        ),
        _call("RBM.free_energy", machines["RBM"].free_energy, left=_bits(10, 4), _free=("left",)),
    ]
    for name, machine in machines.items():
        calls += _of_machine(name, machine)
    return [*calls, *_of_smoothing(), *_of_model(), *_others(machines["RBM"])]


def _call(name: str, function: Callable[..., Any], /, **arguments: Any) -> Call:
    options = {
        kind: frozenset(arguments.pop(f"_{kind}", ())) for kind in ("optional", "free", "real", "sizes")
    }
    return Call(name, function, arguments, **options)


def _bits(*shape: int) -> Tensor:
    return torch.bernoulli(torch.full(shape, 0.4), generator=torch.Generator().manual_seed(0))


def _of_machine(name: str, machine: Any) -> list[Call]:
    z = _bits(10, 7)
    sampler = {"energy": machine, "num_chains": 6, "seed": 3}
    sizes = ("num_chains", "seed", "num_sweeps", "num_temperatures", "max_sweeps")
    quick = {"energy": machine, "num_chains": 20, "seed": 0}

    def moments(energy: Any, num_chains: int, every: int) -> Any:
        running = dv.RunningMoments(energy, num_chains, every=every)
        for number in range(8):
            running.add(_bits(6, 7) if number % 2 else 1 - _bits(6, 7))
        return running.value()

    return [
        _call(f"{name}.energy", machine.energy, z=z, _free=("z",)),
        _call(f"{name}.block_logits", machine.block_logits, z=z, block=0, _free=("z",), _sizes=("block",)),
        _call(
            f"{name}.block_free_energy",
            machine.block_free_energy,
            z=z,
            block=0,
            inverse_temperature=0.5,
            _free=("z",),
            _sizes=("block",),
        ),
        _call(f"{name}.marginal_energy", machine.marginal_energy, z=z, inverse_temperature=0.5, _free=("z",)),
        _call(
            f"BlockGibbs({name})",
            lambda num_sweeps, **k: dv.BlockGibbs(**k).step(num_sweeps),
            num_sweeps=2,
            **sampler,
            _sizes=sizes,
        ),
        _call(
            f"ParallelTempering({name})",
            lambda num_sweeps, **k: dv.ParallelTempering(**k).step(num_sweeps),
            num_sweeps=2,
            inverse_temperatures=[0.0, 0.5, 1.0],
            **sampler,
            _sizes=(*sizes, "inverse_temperatures"),
            _optional=("inverse_temperatures",),
        ),
        _call(f"RunningMoments({name})", moments, energy=machine, num_chains=6, every=1, _sizes=("every",)),
        _call(f"exact_log_partition({name})", dv.exact_log_partition, energy=machine),
        _call(
            f"annealed_log_partition({name})",
            dv.annealed_log_partition,
            **quick,
            num_temperatures=10,
            start=_bits(20, 7),
            _optional=("start",),
            _sizes=sizes,
        ),
        _call(
            f"bennett_log_partition({name})",
            dv.bennett_log_partition,
            **quick,
            std_error=0.5,
            max_sweeps=200,
            start=_bits(20, 7),
            _optional=("start",),
            _sizes=(*sizes, "std_error"),
        ),
    ]


def _of_smoothing() -> list[Call]:
    calls = []
    logits = torch.randn(10, 7, generator=torch.Generator().manual_seed(1))
    zeta, both, one = _bits(10, 7) * 0.5, ("zeta", "logits", "rho"), ("logits", "z")
    for law in (dv.SpikeExponential(), dv.SpikeSlab()):
        name = type(law).__name__
        calls += [
            _call(
                f"{name}.icdf", law.icdf, rho=_bits(10, 7) * 0.6, logits=logits, _free=both, _real=("logits",)
            ),
            _call(f"{name}.cdf", law.cdf, zeta=zeta, logits=logits, _free=both, _real=("logits", "zeta")),
            _call(f"{name}.bits", law.bits, zeta=zeta, logits=logits, _free=both, _real=("logits", "zeta")),
            _call(f"{name}.rsample", law.rsample, logits=logits, _free=one, _real=("logits",), _optional=()),
            _call(f"{name}.sample_zeta", law.sample_zeta, z=_bits(10, 7), _free=one),
        ]
    return [
        *calls,
        _call("SpikeExponential()", lambda **k: dv.SpikeExponential(**k).beta, beta=3.0, max_beta=6.0),
    ]


def _of_model() -> list[Call]:
    posterior = HierarchicalPosteriorConfig(groups=2, hidden=(5,))
    small, below = (
        RBMConfig(num_left=4, num_right=3),
        GaussianHierarchyConfig(num_layers=2, num_units=3, posterior_hidden=(5,), prior_hidden=(5,)),
    )
    graph = GraphBoltzmannConfig(num_units=7, edges=((0, 1), (1, 2), (4, 6)))
    calls = []
    x, z = _bits(10, 12), _bits(10, 7)
    for name, prior, hierarchy in (
        ("model", small, NoHierarchyConfig()),
        ("graph model", graph, NoHierarchyConfig()),
        ("deep model", small, below),
    ):
        config = ModelConfig(num_features=12, prior=prior, posterior=posterior, hierarchy=hierarchy)
        model = dv.DiscreteVAE.from_config(config).eval()
        calls += [
            _call(f"{name}.elbo", model.elbo, x=x, log_partition=5.0, _optional=("log_partition",)),
            _call(
                f"{name}.log_likelihood",
                model.log_likelihood,
                x=x,
                num_samples=10,
                log_partition=5.0,
                chunk_size=4,
                _optional=("log_partition",),
                _sizes=("num_samples", "chunk_size"),
            ),
            _call(f"{name}.encode", model.encode, x=x),
            _call(f"{name}.reconstruct", model.reconstruct, x=x),
            _call(f"{name}.decode", model.decode, zeta=z * 0.5, _free=("zeta",)),
            _call(f"{name}.sample", model.sample, n=10, z=z, zeta=z * 0.5, _optional=("z", "zeta", "n")),
            _call(
                f"{name}.sample at random",
                model.sample,
                n=10,
                num_sweeps=2,
                seed=1,
                _optional=("n", "seed"),
                _sizes=("n", "num_sweeps", "seed"),
            ),
        ]
    return calls


def _others(prior: Any) -> list[Call]:
    law = dv.SpikeExponential()
    logits = torch.randn(10, 7, generator=torch.Generator().manual_seed(2))
    zeta = law.icdf(torch.full((10, 7), 0.5), logits)

    def divergence(logits: Any, bits: Any, units: Any, log_partition: Any) -> Tensor:
        group = dv.LatentGroup(logits=logits, zeta=zeta, bits=bits, units=units)
        return dv.kl_to_boltzmann(prior, [group], log_partition)

    def posterior(x: Any, num_samples: Any, **arguments: Any) -> Any:
        made = dv.HierarchicalPosterior(smoothing=law, **arguments)
        return made.rsample(x, num_samples=num_samples)

    def hierarchy(x: Any, zeta: Any, hidden: Any, **arguments: Any) -> Any:
        made = dv.GroupSharing(hidden=[5], **arguments)
        return dv.GaussianHierarchy(12, made, hidden).rsample(x, zeta)

    return [
        _call(
            "kl_to_boltzmann",
            divergence,
            logits=logits,
            bits=(zeta != 0).float().detach(),
            units=torch.arange(7),
            log_partition=3.0,
            _optional=("units",),
            _real=("logits",),
            _free=("bits",),
        ),
        _call(
            "HierarchicalPosterior",
            posterior,
            x=_bits(10, 12),
            num_samples=3,
            num_features=12,
            groups=2,
            hidden=[5],
            num_units=8,
            _optional=("num_samples",),
            _sizes=("num_samples", "num_units", "groups"),
        ),
        _call(
            "GaussianHierarchy",
            hierarchy,
            x=_bits(10, 12),
            zeta=zeta,
            hidden=[5],
            num_latents=7,
            num_layers=2,
            num_units=3,
            num_groups=1,
            _sizes=("num_layers", "num_units", "num_groups"),
            _real=("x",),
        ),
        _call("load_experiment", dv.load_experiment, name="digits", size="smoke"),
        _call("load_dataset", dv.load_dataset, name="digits", data_dir=None, _optional=("data_dir",)),
    ]
