from .base import BernoulliLikelihood as BernoulliLikelihood
from .base import Likelihood as Likelihood
from .counts import NegativeBinomialLikelihood as NegativeBinomialLikelihood
from .families import CategoricalLikelihood as CategoricalLikelihood
from .families import GaussianLikelihood as GaussianLikelihood
from .table import TableLikelihood as TableLikelihood
