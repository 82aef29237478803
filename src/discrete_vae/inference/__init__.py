"""What people do with a trained model and their own rows: codes, scores, gaps filled, new rows, neighbors."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
