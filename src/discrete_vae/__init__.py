"""Variational autoencoders with a Boltzmann-machine prior over binary latents (Rolfe, 2017).

Public names load their modules on first use, so importing the package costs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from discrete_vae._version import __version__

if TYPE_CHECKING:
    from discrete_vae.boltzmann.base import FactorialBernoulli, LogPartition
    from discrete_vae.boltzmann.graph import GraphBoltzmann
    from discrete_vae.boltzmann.rbm import RBM
    from discrete_vae.data.datasets import load_dataset
    from discrete_vae.hierarchy.gaussian import GaussianHierarchy
    from discrete_vae.hierarchy.sharing import CompleteSharing, GroupSharing, NoSharing
    from discrete_vae.inference.encode import denoise_rows, encode_rows, reconstruct_rows
    from discrete_vae.inference.interpolate import interpolate
    from discrete_vae.inference.score import elbo_rows, p_values, score_rows
    from discrete_vae.likelihoods.families import (
        BernoulliLikelihood,
        CategoricalLikelihood,
        GaussianLikelihood,
        NegativeBinomialLikelihood,
    )
    from discrete_vae.load import LoadedRun, load_pretrained, load_run
    from discrete_vae.log_partition.annealed import annealed_log_partition
    from discrete_vae.log_partition.bridge import bennett_log_partition
    from discrete_vae.log_partition.estimate import CheckedLogPartition, estimate_log_partition
    from discrete_vae.log_partition.exact import exact_log_partition
    from discrete_vae.model import DiscreteVAE
    from discrete_vae.objectives.elbo import Elbo, kl_to_boltzmann
    from discrete_vae.objectives.gradients import (
        DisARM,
        LearnedBaseline,
        LeaveOneOut,
        NaiveKL,
        NoBaseline,
        Reinforce,
        Reparameterized,
        RunningMean,
    )
    from discrete_vae.own_data import own_experiment
    from discrete_vae.posterior import HierarchicalPosterior, LatentGroup
    from discrete_vae.presets import load_experiment
    from discrete_vae.runs.hub import pretrained_names
    from discrete_vae.samplers.gibbs import BlockGibbs
    from discrete_vae.samplers.moments import Moments, RunningMoments
    from discrete_vae.samplers.tempering import ParallelTempering
    from discrete_vae.samplers.trajectory import TrajectoryTempering
    from discrete_vae.smoothing.overlapping import MixtureOfRamps, OverlappingExponential, OverlappingPower
    from discrete_vae.smoothing.spike import SpikeExponential, SpikeGaussian, SpikeSlab, SpikeSmoothing
    from discrete_vae.system import yielding_threads
    from discrete_vae.training.loop import TrainingResult
    from discrete_vae.training.run import train

_LAZY_EXPORTS = {
    "BernoulliLikelihood": "likelihoods.families",
    "CategoricalLikelihood": "likelihoods.families",
    "GaussianLikelihood": "likelihoods.families",
    "NegativeBinomialLikelihood": "likelihoods.families",
    "RBM": "boltzmann.rbm",
    "BlockGibbs": "samplers.gibbs",
    "CheckedLogPartition": "log_partition.estimate",
    "CompleteSharing": "hierarchy.sharing",
    "DiscreteVAE": "model",
    "Elbo": "objectives.elbo",
    "FactorialBernoulli": "boltzmann.base",
    "GaussianHierarchy": "hierarchy.gaussian",
    "GroupSharing": "hierarchy.sharing",
    "GraphBoltzmann": "boltzmann.graph",
    "Reparameterized": "objectives.gradients",
    "Reinforce": "objectives.gradients",
    "LeaveOneOut": "objectives.gradients",
    "DisARM": "objectives.gradients",
    "NaiveKL": "objectives.gradients",
    "NoBaseline": "objectives.gradients",
    "RunningMean": "objectives.gradients",
    "LearnedBaseline": "objectives.gradients",
    "HierarchicalPosterior": "posterior",
    "LatentGroup": "posterior",
    "LoadedRun": "load",
    "LogPartition": "boltzmann.base",
    "MixtureOfRamps": "smoothing.overlapping",
    "Moments": "samplers.moments",
    "NoSharing": "hierarchy.sharing",
    "OverlappingExponential": "smoothing.overlapping",
    "OverlappingPower": "smoothing.overlapping",
    "RunningMoments": "samplers.moments",
    "ParallelTempering": "samplers.tempering",
    "SpikeExponential": "smoothing.spike",
    "SpikeGaussian": "smoothing.spike",
    "SpikeSlab": "smoothing.spike",
    "SpikeSmoothing": "smoothing.spike",
    "TrainingResult": "training.loop",
    "TrajectoryTempering": "samplers.trajectory",
    "annealed_log_partition": "log_partition.annealed",
    "bennett_log_partition": "log_partition.bridge",
    "estimate_log_partition": "log_partition.estimate",
    "exact_log_partition": "log_partition.exact",
    "kl_to_boltzmann": "objectives.elbo",
    "load_dataset": "data.datasets",
    "load_experiment": "presets",
    "load_pretrained": "load",
    "load_run": "load",
    "own_experiment": "own_data",
    "train": "training.run",
    "denoise_rows": "inference.encode",
    "elbo_rows": "inference.score",
    "encode_rows": "inference.encode",
    "interpolate": "inference.interpolate",
    "p_values": "inference.score",
    "pretrained_names": "runs.hub",
    "reconstruct_rows": "inference.encode",
    "score_rows": "inference.score",
    "yielding_threads": "system",
}

__all__ = [
    "RBM",
    "BernoulliLikelihood",
    "BlockGibbs",
    "CategoricalLikelihood",
    "CheckedLogPartition",
    "CompleteSharing",
    "DisARM",
    "DiscreteVAE",
    "Elbo",
    "FactorialBernoulli",
    "GaussianHierarchy",
    "GaussianLikelihood",
    "GraphBoltzmann",
    "GroupSharing",
    "HierarchicalPosterior",
    "LatentGroup",
    "LearnedBaseline",
    "LeaveOneOut",
    "LoadedRun",
    "LogPartition",
    "MixtureOfRamps",
    "Moments",
    "NaiveKL",
    "NegativeBinomialLikelihood",
    "NoBaseline",
    "NoSharing",
    "OverlappingExponential",
    "OverlappingPower",
    "ParallelTempering",
    "Reinforce",
    "Reparameterized",
    "RunningMean",
    "RunningMoments",
    "SpikeExponential",
    "SpikeGaussian",
    "SpikeSlab",
    "SpikeSmoothing",
    "TrainingResult",
    "TrajectoryTempering",
    "__version__",
    "annealed_log_partition",
    "bennett_log_partition",
    "denoise_rows",
    "elbo_rows",
    "encode_rows",
    "estimate_log_partition",
    "exact_log_partition",
    "interpolate",
    "kl_to_boltzmann",
    "load_dataset",
    "load_experiment",
    "load_pretrained",
    "load_run",
    "own_experiment",
    "p_values",
    "pretrained_names",
    "reconstruct_rows",
    "score_rows",
    "train",
    "yielding_threads",
]


def __getattr__(name: str) -> object:
    if name not in _LAZY_EXPORTS:
        raise AttributeError(f"module 'discrete_vae' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"discrete_vae.{_LAZY_EXPORTS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
