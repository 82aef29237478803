from .base import Hierarchy as Hierarchy
from .gaussian import AutoregressiveGaussianPrior as AutoregressiveGaussianPrior
from .gaussian import CompleteSharing as CompleteSharing
from .gaussian import GaussianHierarchy as GaussianHierarchy
from .gaussian import GroupSharing as GroupSharing
from .gaussian import NoSharing as NoSharing
