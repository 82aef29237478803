"""A picture that a verb draws beside its result, if one is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

from discrete_vae.runs.writable import check_writable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from discrete_vae.training.load import LoadedRun


class PictureFile:
    """Where the picture goes, checked before the work.

    Args:
        path: As `discrete_vae.figures.saving.check_picture_path` returned it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, word: str | None) -> Self | None:
        """The file that the command line names; None for none.

        Raises:
            InvalidInputError: If it cannot be written.
        """
        from discrete_vae.figures.saving import check_picture_path

        if word is None:
            return None
        path = check_picture_path(word, argument="--picture")
        check_writable(path)
        return cls(path)

    def save(self, figure: Figure, loaded: LoadedRun) -> None:
        """Write the picture and say where it is.

        Raises:
            InvalidInputError: If it cannot be written.
        """
        from discrete_vae.figures.saving import save_figure

        print(f"Picture: {save_figure(figure, self.path, note=loaded.note)}")
