from .base import Likelihood as Likelihood
from .families import BernoulliLikelihood as BernoulliLikelihood
from .families import CategoricalLikelihood as CategoricalLikelihood
from .families import GaussianLikelihood as GaussianLikelihood
from .families import NegativeBinomialLikelihood as NegativeBinomialLikelihood
from .table import TableLikelihood as TableLikelihood
