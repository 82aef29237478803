"""A trained model in use on rows of data: codes, scores, gaps filled, new rows, neighbors, its evaluation."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
