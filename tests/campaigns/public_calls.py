"""The public callables with arguments that are right, as a start for wrong ones."""

from __future__ import annotations

from pathlib import Path
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
from tests.campaigns.disk_calls import calls_on_disk
from tests.campaigns.gradient_calls import gradient_calls
from tests.campaigns.inference_calls import inference_calls
from tests.campaigns.machine_calls import Call, calls_of_machine, right_call, some_bits
from tests.campaigns.part_calls import part_calls


def public_calls(folder: Path) -> list[Call]:
    """All of them, on small machines and models.

    Args:
        folder: Empty; for what is on a disk.
    """
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
        right_call("RBM()", lambda **k: dv.RBM(**k).energy(some_bits(2, 5)), num_left=2, num_right=3),
        right_call(
            "FactorialBernoulli()",
            lambda **k: dv.FactorialBernoulli(**k).energy(some_bits(2, 5)),
            num_units=5,
        ),
        right_call(
            "GraphBoltzmann()",
            lambda **k: dv.GraphBoltzmann(**k).energy(some_bits(2, 7)),
            num_units=7,
            edges=graph_edges,
        ),
        right_call(
            "RBM.free_energy of the left side",
            machines["RBM"].free_energy,
            left=some_bits(10, 4),
            _free=("left",),
        ),
    ]
    for name, machine in machines.items():
        calls += calls_of_machine(name, machine)
    rbm = machines["RBM"]
    return [
        *calls,
        *part_calls(rbm),
        *_of_smoothing(),
        *_of_model(),
        *inference_calls(),
        *gradient_calls(),
        *_others(rbm),
        *calls_on_disk(folder),
    ]


def _of_smoothing() -> list[Call]:
    calls = []
    logits = torch.randn(10, 7, generator=torch.Generator().manual_seed(1))
    zeta, both, one = some_bits(10, 7) * 0.5, ("zeta", "logits", "rho"), ("logits", "z")
    laws = (
        dv.SpikeExponential(),
        dv.SpikeSlab(),
        dv.MixtureOfRamps(),
        dv.OverlappingExponential(),
        dv.OverlappingPower(),
    )
    for law in laws:
        name = type(law).__name__
        calls += [
            right_call(
                f"{name}.icdf",
                law.icdf,
                rho=some_bits(10, 7) * 0.6,
                logits=logits,
                _free=both,
                _real=("logits",),
            ),
            right_call(
                f"{name}.cdf", law.cdf, zeta=zeta, logits=logits, _free=both, _real=("logits", "zeta")
            ),
            right_call(
                f"{name}.log_prob",
                law.log_prob,
                zeta=zeta,
                logits=logits,
                _free=both,
                _real=("logits", "zeta"),
            ),
            right_call(
                f"{name}.bits", law.bits, zeta=zeta, logits=logits, _free=both, _real=("logits", "zeta")
            ),
            right_call(
                f"{name}.rsample", law.rsample, logits=logits, _free=one, _real=("logits",), _optional=()
            ),
            right_call(f"{name}.sample_zeta", law.sample_zeta, z=some_bits(10, 7), _free=one),
        ]
    law = dv.SpikeGaussian(prior_loc=0.5)
    of_x = {"loc": logits / 4, "scale": (logits / 4).exp()}
    real = ("logits", "loc", "scale")
    calls += [
        right_call(
            "SpikeGaussian.icdf",
            lambda rho, logits, loc, scale: law.icdf(rho, logits, loc, scale),
            rho=some_bits(10, 7) * 0.6,
            logits=logits,
            **of_x,
            _free=("rho", *real),
            _real=real,
        ),
        right_call(
            "SpikeGaussian.cdf",
            lambda zeta, logits, loc, scale: law.cdf(zeta, logits, loc, scale),
            zeta=zeta,
            logits=logits,
            **of_x,
            _free=("zeta", *real),
            _real=("zeta", *real),
        ),
        right_call(
            "SpikeGaussian.log_prob",
            lambda zeta, logits, loc, scale: law.log_prob(zeta, logits, loc, scale),
            zeta=zeta,
            logits=logits,
            **of_x,
            _free=("zeta", *real),
            _real=("zeta", *real),
        ),
        right_call(
            "SpikeGaussian.rsample",
            lambda logits, loc, scale: law.rsample(logits, loc, scale),
            logits=logits,
            **of_x,
            _free=real,
            _real=real,
            _optional=(),
        ),
        right_call("SpikeGaussian.sample_zeta", law.sample_zeta, z=some_bits(10, 7), _free=("z",)),
        right_call(
            "SpikeGaussian()", lambda **k: dv.SpikeGaussian(**k).max_ratio, prior_loc=0.3, max_ratio=2.0
        ),
    ]
    return [
        *calls,
        right_call("SpikeExponential()", lambda **k: dv.SpikeExponential(**k).beta, beta=3.0, max_beta=6.0),
        right_call(
            "OverlappingExponential()",
            lambda **k: dv.OverlappingExponential(**k).beta,
            beta=3.0,
            max_beta=6.0,
        ),
        right_call("OverlappingPower()", lambda **k: dv.OverlappingPower(**k).b, b=30.0),
    ]


def _of_model() -> list[Call]:
    posterior = HierarchicalPosteriorConfig(groups=2, hidden=(5,))
    small, below = (
        RBMConfig(num_left=4, num_right=3),
        GaussianHierarchyConfig(num_layers=2, num_units=3, posterior_hidden=(5,), prior_hidden=(5,)),
    )
    graph = GraphBoltzmannConfig(num_units=7, edges=((0, 1), (1, 2), (4, 6)))
    calls = []
    x, z = some_bits(10, 12), some_bits(10, 7)
    for name, prior, hierarchy in (
        ("RBM", small, NoHierarchyConfig()),
        ("graph", graph, NoHierarchyConfig()),
        ("layers", small, below),
    ):
        config = ModelConfig(
            num_features=12, prior=prior, posterior=posterior, hierarchy=hierarchy, missing=True
        )
        model = dv.DiscreteVAE.from_config(config).eval()
        calls += [
            right_call(
                f"DiscreteVAE({name}).elbo",
                lambda model=model, **k: model.elbo(**k).loss,
                x=x,
                negative_phase=z,
                log_partition=5.0,
                observed=some_bits(10, 12) > 0,
                _optional=("log_partition", "observed"),
                _gaps=("x",),
            ),
            right_call(f"DiscreteVAE({name}).initialize_", model.initialize_, x=x, _gaps=("x",)),
            right_call(
                f"DiscreteVAE({name}).log_likelihood",
                model.log_likelihood,
                x=x,
                observed=some_bits(10, 12) > 0,
                num_samples=10,
                log_partition=5.0,
                chunk_size=4,
                _optional=("log_partition", "observed"),
                _gaps=("x",),
                _sizes=("num_samples", "chunk_size"),
            ),
            right_call(f"DiscreteVAE({name}).encode", model.encode, x=x, _gaps=("x",)),
            right_call(
                f"DiscreteVAE({name}).reconstruct", model.reconstruct, x=x, statistic="mode", _gaps=("x",)
            ),
            right_call(
                f"DiscreteVAE({name}).decode", model.decode, zeta=z * 0.5, statistic="sample", _free=("zeta",)
            ),
            right_call(
                f"DiscreteVAE({name}).sample",
                model.sample,
                n=10,
                z=z,
                zeta=z * 0.5,
                _optional=("z", "zeta", "n"),
            ),
            right_call(
                f"DiscreteVAE({name}).sample at random",
                model.sample,
                n=10,
                num_sweeps=2,
                seed=1,
                _optional=("n", "seed"),
                _sizes=("n", "num_sweeps", "seed"),
            ),
        ]
        calls.append(
            right_call(
                f"Elbo({name}).weighted_loss",
                model.elbo(x, negative_phase=z).weighted_loss,
                discrete=0.5,
                continuous=0.5,
                _sizes=("discrete", "continuous"),
            )
        )
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
        right_call(
            "kl_to_boltzmann",
            divergence,
            logits=logits,
            bits=(zeta != 0).float().detach(),
            units=torch.arange(7),
            log_partition=3.0,
            _optional=("units",),
            _real=("logits",),
            _free=("bits",),
            _gaps=("bits",),
        ),
        right_call(
            "HierarchicalPosterior",
            posterior,
            x=some_bits(10, 12),
            num_samples=3,
            num_features=12,
            groups=2,
            hidden=[5],
            num_units=8,
            _real=("x",),
            _optional=("num_samples",),
            _sizes=("num_samples", "num_units", "groups"),
        ),
        right_call(
            "GaussianHierarchy",
            hierarchy,
            x=some_bits(10, 12),
            zeta=zeta,
            hidden=[5],
            num_latents=7,
            num_layers=2,
            num_units=3,
            num_groups=1,
            _sizes=("num_layers", "num_units", "num_groups"),
            _real=("x", "zeta"),
            _free=("zeta",),
        ),
    ]
