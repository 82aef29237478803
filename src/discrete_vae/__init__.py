"""Variational autoencoders with a Boltzmann-machine prior over binary latents (Rolfe, 2017).

Public names load their modules on first use, so importing the package costs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from discrete_vae._version import __version__

if TYPE_CHECKING:
    from discrete_vae.boltzmann.factorial import FactorialBernoulli
    from discrete_vae.boltzmann.graph import GraphBoltzmann
    from discrete_vae.boltzmann.log_partition import LogPartition
    from discrete_vae.boltzmann.rbm import RBM
    from discrete_vae.contention import yielding_threads
    from discrete_vae.data.load import load_dataset
    from discrete_vae.experiments import load_experiment
    from discrete_vae.experiments.own_experiment import own_experiment
    from discrete_vae.hierarchy.gaussian_hierarchy import GaussianHierarchy
    from discrete_vae.hierarchy.group_sharing import CompleteSharing, GroupSharing
    from discrete_vae.hierarchy.no_sharing import NoSharing
    from discrete_vae.inference.denoise import denoise_rows
    from discrete_vae.inference.encode import encode_rows
    from discrete_vae.inference.interpolate import interpolate
    from discrete_vae.inference.reconstruct import reconstruct_rows
    from discrete_vae.inference.score import elbo_rows, p_values, score_rows
    from discrete_vae.likelihoods.bernoulli import BernoulliLikelihood
    from discrete_vae.likelihoods.categorical import CategoricalLikelihood
    from discrete_vae.likelihoods.gaussian import GaussianLikelihood
    from discrete_vae.likelihoods.negative_binomial import NegativeBinomialLikelihood
    from discrete_vae.log_partition.annealed import annealed_log_partition
    from discrete_vae.log_partition.bennett import bennett_log_partition
    from discrete_vae.log_partition.estimate import CheckedLogPartition, estimate_log_partition
    from discrete_vae.log_partition.exact import exact_log_partition
    from discrete_vae.model import DiscreteVAE
    from discrete_vae.objectives.elbo import Elbo
    from discrete_vae.objectives.gradients.disarm import DisARM
    from discrete_vae.objectives.gradients.learned_baseline import LearnedBaseline
    from discrete_vae.objectives.gradients.leave_one_out import LeaveOneOut
    from discrete_vae.objectives.gradients.naive_kl import NaiveKL
    from discrete_vae.objectives.gradients.no_baseline import NoBaseline
    from discrete_vae.objectives.gradients.reinforce import Reinforce
    from discrete_vae.objectives.gradients.reparameterized import Reparameterized
    from discrete_vae.objectives.gradients.running_mean import RunningMean
    from discrete_vae.objectives.kl_boltzmann import kl_to_boltzmann
    from discrete_vae.posteriors.hierarchical import HierarchicalPosterior
    from discrete_vae.posteriors.latent_group import LatentGroup
    from discrete_vae.runs.shipped import pretrained_names
    from discrete_vae.samplers.block_gibbs import BlockGibbs
    from discrete_vae.samplers.moments import Moments, RunningMoments
    from discrete_vae.samplers.parallel_tempering import ParallelTempering
    from discrete_vae.samplers.trajectory_tempering import TrajectoryTempering
    from discrete_vae.smoothing.overlapping_exponential import OverlappingExponential
    from discrete_vae.smoothing.overlapping_power import OverlappingPower
    from discrete_vae.smoothing.ramps import MixtureOfRamps
    from discrete_vae.smoothing.spike import SpikeSmoothing
    from discrete_vae.smoothing.spike_exponential import SpikeExponential
    from discrete_vae.smoothing.spike_gaussian import SpikeGaussian
    from discrete_vae.smoothing.spike_slab import SpikeSlab
    from discrete_vae.training.load import LoadedRun, load_pretrained, load_run
    from discrete_vae.training.loop import TrainingResult
    from discrete_vae.training.run import train

_LAZY_EXPORTS = {
    "BernoulliLikelihood": "likelihoods.bernoulli",
    "CategoricalLikelihood": "likelihoods.categorical",
    "GaussianLikelihood": "likelihoods.gaussian",
    "NegativeBinomialLikelihood": "likelihoods.negative_binomial",
    "RBM": "boltzmann.rbm",
    "BlockGibbs": "samplers.block_gibbs",
    "CheckedLogPartition": "log_partition.estimate",
    "CompleteSharing": "hierarchy.group_sharing",
    "DiscreteVAE": "model",
    "Elbo": "objectives.elbo",
    "FactorialBernoulli": "boltzmann.factorial",
    "GaussianHierarchy": "hierarchy.gaussian_hierarchy",
    "GroupSharing": "hierarchy.group_sharing",
    "GraphBoltzmann": "boltzmann.graph",
    "Reparameterized": "objectives.gradients.reparameterized",
    "Reinforce": "objectives.gradients.reinforce",
    "LeaveOneOut": "objectives.gradients.leave_one_out",
    "DisARM": "objectives.gradients.disarm",
    "NaiveKL": "objectives.gradients.naive_kl",
    "NoBaseline": "objectives.gradients.no_baseline",
    "RunningMean": "objectives.gradients.running_mean",
    "LearnedBaseline": "objectives.gradients.learned_baseline",
    "HierarchicalPosterior": "posteriors.hierarchical",
    "LatentGroup": "posteriors.latent_group",
    "LoadedRun": "training.load",
    "LogPartition": "boltzmann.log_partition",
    "MixtureOfRamps": "smoothing.ramps",
    "Moments": "samplers.moments",
    "NoSharing": "hierarchy.no_sharing",
    "OverlappingExponential": "smoothing.overlapping_exponential",
    "OverlappingPower": "smoothing.overlapping_power",
    "RunningMoments": "samplers.moments",
    "ParallelTempering": "samplers.parallel_tempering",
    "SpikeExponential": "smoothing.spike_exponential",
    "SpikeGaussian": "smoothing.spike_gaussian",
    "SpikeSlab": "smoothing.spike_slab",
    "SpikeSmoothing": "smoothing.spike",
    "TrainingResult": "training.loop",
    "TrajectoryTempering": "samplers.trajectory_tempering",
    "annealed_log_partition": "log_partition.annealed",
    "bennett_log_partition": "log_partition.bennett",
    "estimate_log_partition": "log_partition.estimate",
    "exact_log_partition": "log_partition.exact",
    "kl_to_boltzmann": "objectives.kl_boltzmann",
    "load_dataset": "data.load",
    "load_experiment": "experiments",
    "load_pretrained": "training.load",
    "load_run": "training.load",
    "own_experiment": "experiments.own_experiment",
    "train": "training.run",
    "denoise_rows": "inference.denoise",
    "elbo_rows": "inference.score",
    "encode_rows": "inference.encode",
    "interpolate": "inference.interpolate",
    "p_values": "inference.score",
    "pretrained_names": "runs.shipped",
    "reconstruct_rows": "inference.reconstruct",
    "score_rows": "inference.score",
    "yielding_threads": "contention",
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
