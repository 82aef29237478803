"""Laws of components to be run on parts of your own, with enumeration and goodness of fit."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
