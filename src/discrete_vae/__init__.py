"""Variational autoencoders with a Boltzmann-machine prior over binary latents (Rolfe, 2017).

`__init__.pyi` lists the public names, here and in each package; their modules load on first use, so that importing the
package costs no torch.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, _, _names = lazy_loader.attach_stub(__name__, __file__)
__all__ = [*_names, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return sorted(__all__)
