"""Frozen configs of every component; a union per kind of component is the list of what there is.

Nothing here imports torch.
"""

from typing import get_args

from discrete_vae.config.base import ComponentConfig, Record, instantiate
from discrete_vae.config.data import (
    Caltech101SilhouettesConfig,
    DataConfig,
    DigitsConfig,
    FileDataConfig,
    MNISTDynamicConfig,
    MNISTStaticConfig,
    OmniglotConfig,
)
from discrete_vae.config.experiment import ExperimentConfig
from discrete_vae.config.gradient import (
    BaselineConfig,
    DisARMConfig,
    GradientConfig,
    LearnedBaselineConfig,
    LeaveOneOutConfig,
    NaiveKLConfig,
    NoBaselineConfig,
    ReinforceConfig,
    ReparameterizedConfig,
    RunningMeanConfig,
)
from discrete_vae.config.hierarchy import (
    CompleteSharingConfig,
    GaussianHierarchyConfig,
    GroupSharingConfig,
    HierarchyConfig,
    NoHierarchyConfig,
    NoSharingConfig,
    SharingConfig,
)
from discrete_vae.config.likelihood import (
    BernoulliLikelihoodConfig,
    CategoricalLikelihoodConfig,
    GaussianLikelihoodConfig,
    LikelihoodConfig,
    NegativeBinomialLikelihoodConfig,
)
from discrete_vae.config.model import ModelConfig
from discrete_vae.config.networks import (
    ConvolutionalDecoderConfig,
    ConvolutionalEncoderConfig,
    DecoderConfig,
    EncoderConfig,
    FlattenEncoderConfig,
    MLPDecoderConfig,
)
from discrete_vae.config.optimizer import (
    AveragingConfig,
    ConstantRateConfig,
    CosineRateConfig,
    ExponentialRateConfig,
    OptimizerConfig,
    RateConfig,
    StepRateConfig,
)
from discrete_vae.config.posterior import HierarchicalPosteriorConfig, PosteriorConfig
from discrete_vae.config.prior import (
    FactorialBernoulliConfig,
    GraphBoltzmannConfig,
    PriorConfig,
    RBMConfig,
)
from discrete_vae.config.sampler import (
    BlockGibbsConfig,
    DimodSamplerConfig,
    ParallelTemperingConfig,
    SamplerConfig,
    TrajectoryTemperingConfig,
)
from discrete_vae.config.smoothing import (
    MixtureOfRampsConfig,
    OverlappingExponentialConfig,
    OverlappingPowerConfig,
    SharpLimitConfig,
    SmoothingConfig,
    SpikeExponentialConfig,
    SpikeGaussianConfig,
    SpikeSlabConfig,
)
from discrete_vae.config.training import (
    BetaBoundConfig,
    EvaluationConfig,
    TrainingConfig,
    WarmUpConfig,
)

__all__ = [
    "AveragingConfig",
    "BaselineConfig",
    "BernoulliLikelihoodConfig",
    "BetaBoundConfig",
    "BlockGibbsConfig",
    "Caltech101SilhouettesConfig",
    "CategoricalLikelihoodConfig",
    "CompleteSharingConfig",
    "ComponentConfig",
    "ConstantRateConfig",
    "ConvolutionalDecoderConfig",
    "ConvolutionalEncoderConfig",
    "CosineRateConfig",
    "DataConfig",
    "DecoderConfig",
    "DigitsConfig",
    "DimodSamplerConfig",
    "DisARMConfig",
    "EncoderConfig",
    "EvaluationConfig",
    "ExperimentConfig",
    "ExponentialRateConfig",
    "FactorialBernoulliConfig",
    "FileDataConfig",
    "FlattenEncoderConfig",
    "GaussianHierarchyConfig",
    "GaussianLikelihoodConfig",
    "GradientConfig",
    "GraphBoltzmannConfig",
    "GroupSharingConfig",
    "HierarchicalPosteriorConfig",
    "HierarchyConfig",
    "LearnedBaselineConfig",
    "LeaveOneOutConfig",
    "LikelihoodConfig",
    "MLPDecoderConfig",
    "MNISTDynamicConfig",
    "MNISTStaticConfig",
    "MixtureOfRampsConfig",
    "ModelConfig",
    "NaiveKLConfig",
    "NegativeBinomialLikelihoodConfig",
    "NoBaselineConfig",
    "NoHierarchyConfig",
    "NoSharingConfig",
    "OmniglotConfig",
    "OptimizerConfig",
    "OverlappingExponentialConfig",
    "OverlappingPowerConfig",
    "ParallelTemperingConfig",
    "PosteriorConfig",
    "PriorConfig",
    "RBMConfig",
    "RateConfig",
    "Record",
    "ReinforceConfig",
    "ReparameterizedConfig",
    "RunningMeanConfig",
    "SamplerConfig",
    "SharingConfig",
    "SharpLimitConfig",
    "SmoothingConfig",
    "SpikeExponentialConfig",
    "SpikeGaussianConfig",
    "SpikeSlabConfig",
    "StepRateConfig",
    "TrainingConfig",
    "TrajectoryTemperingConfig",
    "WarmUpConfig",
    "instantiate",
    "members",
]


def members(union: object) -> tuple[type[ComponentConfig], ...]:
    """The config classes of one kind of component.

    Args:
        union: One of the unions of this package, for example `SmoothingConfig`.

    Examples:
        >>> [config.__name__ for config in members(PriorConfig)]
        ['RBMConfig', 'FactorialBernoulliConfig', 'GraphBoltzmannConfig']
    """
    inner = get_args(union)[0]
    return get_args(inner) or (inner,)
