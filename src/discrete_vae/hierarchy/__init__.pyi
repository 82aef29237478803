from .gaussian import AutoregressiveGaussianPrior as AutoregressiveGaussianPrior
from .gaussian import GaussianHierarchy as GaussianHierarchy
from .gaussian import Hierarchy as Hierarchy
from .sharing import CompleteSharing as CompleteSharing
from .sharing import GroupSharing as GroupSharing
from .sharing import NoSharing as NoSharing
