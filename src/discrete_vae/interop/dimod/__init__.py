"""dimod, both ways: priors as binary quadratic models, our chains as its samplers, its samplers as our chains.

Names load their modules on first use, so that a run which was trained with a solver opens where dimod is missing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
