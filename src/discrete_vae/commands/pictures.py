"""A picture that a verb draws beside its result, if one is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from discrete_vae.training.load import LoadedRun


class PictureFile:
    """Where the picture goes, checked before the work.

    Args:
        path: As `discrete_vae.figures.saving.picture_file` takes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, word: str | None) -> Self | None:
        """The file that --picture names; None for none.

        Raises:
            InvalidInputError: If it cannot be written.
        """
        from discrete_vae.figures.saving import picture_file

        return None if word is None else cls(picture_file(word, argument="--picture").path)

    def save(self, figure: Figure, loaded: LoadedRun) -> None:
        """Write the picture and say where it is.

        Raises:
            InvalidInputError: If it cannot be written.
        """
        from discrete_vae.figures.saving import save_figure

        print(f"Picture: {save_figure(figure, self.path, note=loaded.note)}")
