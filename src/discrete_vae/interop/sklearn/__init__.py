"""scikit-learn estimators: binary codes by a discrete VAE, and a density over bits by an RBM."""

from discrete_vae.interop.sklearn.boltzmann_density import BoltzmannDensity
from discrete_vae.interop.sklearn.transformer import DiscreteVAETransformer

__all__ = ["BoltzmannDensity", "DiscreteVAETransformer"]
