"""Run folders: files written atomically, checkpoints, metrics, results; trained models out of them, or by name."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
