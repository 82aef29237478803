"""Pictures: model, data or a run's metrics -> table -> matplotlib figure -> file.

A picture has two functions: NAME_table makes a frozen record of the numbers, which `save_table` writes, and
draw_NAME makes a figure of it, which `save_figure` writes. Neither uses pyplot: drawing changes nothing but what it
returns, and a notebook shows the figure. What `dvae figure` draws by name is in `registry`, each made by make_NAME.
Public names load their modules on first use, so that a list of the figures costs no torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
