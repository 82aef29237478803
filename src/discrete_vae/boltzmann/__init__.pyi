from .base import BoltzmannMachine as BoltzmannMachine
from .base import FactorialBernoulli as FactorialBernoulli
from .base import LogPartition as LogPartition
from .graph import GraphBoltzmann as GraphBoltzmann
from .ising import InverseTemperature as InverseTemperature
from .ising import IsingModel as IsingModel
from .ising import fit_inverse_temperature as fit_inverse_temperature
from .rbm import RBM as RBM
