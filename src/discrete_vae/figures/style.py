"""Parts of all pictures: scales of gray, grids of images, saving; the run of a figure."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from discrete_vae.checks import check_tensor, check_unit_interval
from discrete_vae.config import BinaryColumnConfig, TableLikelihoodConfig
from discrete_vae.data.splits import DataMetadata, fixed_permutation, load_run_data, training_subset
from discrete_vae.errors import InvalidInputError, plot_text, printable
from discrete_vae.likelihoods.table import TableLikelihood
from discrete_vae.runs.results import OutputFile
from discrete_vae.system import check_memory

if TYPE_CHECKING:
    from discrete_vae.data.splits import DataSplits
    from discrete_vae.runs.load import LoadedRun
    from discrete_vae.runs.run_directory import RunDirectory


# From values to gray: 0 is white, 1 is black.


@dataclass(frozen=True, eq=False)
class Grayscale:
    """A scale of gray for values of some range."""

    low: Tensor  # what is white, a value or one per feature
    high: Tensor  # what is black, likewise
    words: str  # what black is, for captions

    def __call__(self, values: Tensor) -> Tensor:
        """Grayscale in [0, 1], values beyond the range cut off, (..., feature); NaN stays."""
        span = self.high - self.low
        return ((values - self.low) / torch.where(span > 0, span, 1.0)).clamp(0, 1)


def grayscale_for(x: Tensor, *, per_feature: bool) -> Grayscale:
    """The scale for given examples: as they are where all lie in [0, 1], otherwise from the least to the greatest.

    They are (example, feature), NaN for what is missing; features of a table need a scale each.

    Examples:
        >>> grayscale_for(torch.tensor([[-1.0], [3.0]]), per_feature=False)(torch.tensor([1.0, 7.0]))
        tensor([0.5000, 1.0000])
    """
    low = torch.where(x.isnan(), torch.inf, x)
    high = torch.where(x.isnan(), -torch.inf, x)
    least, greatest = float(low.min()), float(high.max())
    if not per_feature or (least >= 0 and greatest <= 1):
        return grayscale_of_range(least, greatest)
    low, high = low.amin(0), high.amax(0)
    seen = low <= high
    words = "white is a feature's least value among the examples, black its greatest"
    return Grayscale(torch.where(seen, low, 0.0), torch.where(seen, high, 1.0), words)


def grayscale_of_range(low: float, high: float) -> Grayscale:
    """The scale for values of a range: as they are where it lies in [0, 1], otherwise from its one end to the other.

    Examples:
        >>> grayscale_of_range(0.0, 1.0).words, grayscale_of_range(-1.0, 3.0).words
        ('black is 1', 'white is -1, black is 3')
    """
    if low >= 0 and high <= 1:
        return Grayscale(torch.tensor(0.0), torch.tensor(1.0), "black is 1")
    return Grayscale(torch.tensor(low), torch.tensor(high), f"white is {low:g}, black is {high:g}")


# Examples as a raster: rows of groups, where every feature is a rectangle of whole pixels.


MAX_WIDTH, MAX_HEIGHT = 1500, 1600  # pixels that a grid is scaled up to; one with more cells gets larger
_LARGEST_SIDE = 50_000  # of what matplotlib can draw, 2^16, with room for the text
_PER_PIXEL = 24  # bytes: the values, the canvas, and what matplotlib makes of it
_STRIP_WIDTH = 256  # features in a line of a strip
_MAX_SCALE, _MAX_STRIP_SCALE = 12, 24  # pixels per feature; a line of a strip is as high as its label needs
_THIN, _ROW, _WIDE = 1, 4, 7  # pixels between the members of a group, rows of images, and groups
_GAP = 256  # what has no value, and its color: tinted, so that it cannot be taken for gray
_PALETTE = np.array([[gray] * 3 for gray in range(_GAP)] + [(205, 218, 234)], np.uint8)


@dataclass(frozen=True, eq=False)
class RasterGrid:
    """A painted grid."""

    canvas: np.ndarray  # (height, width, 3) uint8
    rows: list[float]  # where the centers of rows are, in pixels from the top
    lines: list[float]  # the same for the lines of all rows
    groups: list[float]  # where the centers of groups are, in pixels from the left


def cell_shape(num_features: int, image_shape: tuple[int, int] | None) -> tuple[int, int]:
    """Height and width of one example, in features; what is no image is a strip with 256 features in a line."""
    if image_shape is None:
        return -(-num_features // _STRIP_WIDTH), min(num_features, _STRIP_WIDTH)
    sides = tuple(image_shape)
    whole = all(isinstance(side, int) and not isinstance(side, bool) and side > 0 for side in sides)
    if len(sides) != 2 or not whole or sides[0] * sides[1] != num_features:
        rule = f"must be (height, width) with a product of {num_features}, the number of features"
        raise InvalidInputError("image_shape", rule, repr(image_shape), "Give None for what is no image.")
    return sides[0], sides[1]


def check_grid(
    shape: tuple[int, int, int, int], image_shape: tuple[int, int] | None, *, stacked: bool = False
) -> None:
    """Check that a grid of examples makes a picture that can be drawn and fits the memory, one pixel per feature.

    The shape is that of the images of `paint`: rows, groups, members of a group, features.

    Examples:
        >>> check_grid((2, 3, 40_000, 64), (8, 8))
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: images must make a picture of at most 50000 pixels per side; ...
    """
    num_rows, num_groups, num_members, num_features = shape
    cell = cell_shape(num_features, image_shape)
    below, beside = (num_members, 1) if stacked or image_shape is None else (1, num_members)
    width = num_groups * (beside * (cell[1] + _THIN) + _WIDE)
    height = num_rows * (below * (cell[0] + _THIN) + _WIDE)
    repair = "Show fewer rows, groups or members of a group."
    if max(width, height) > _LARGEST_SIDE:
        rule = f"must make a picture of at most {_LARGEST_SIDE} pixels per side"
        raise InvalidInputError("images", rule, f"{width} x {height}", repair)
    check_memory("images", _PER_PIXEL * width * height, repair, what="for the picture")


def paint(images: Tensor, image_shape: tuple[int, int] | None, *, stacked: bool = False) -> RasterGrid:
    """Paint examples, as large as the bounds of a grid allow; the arguments are those of `draw_image_grid`."""
    num_rows, num_groups, num_members, num_features = images.shape
    strips, cell = image_shape is None, cell_shape(num_features, image_shape)
    lines, columns = (num_members, 1) if stacked or strips else (1, num_members)
    row_gap, group_gap = (_WIDE if many > 1 or strips else _ROW for many in (lines, columns))
    down = (MAX_HEIGHT - num_rows * (row_gap + lines)) // (num_rows * lines * cell[0])
    across = (MAX_WIDTH - num_groups * (group_gap + columns)) // (num_groups * columns * cell[1])
    scales = (down, across) if strips else (min(down, across),) * 2
    largest = _MAX_STRIP_SCALE if strips else _MAX_SCALE
    y, x = (max(1, min(scale, largest)) for scale in scales)

    gray = images.detach().cpu().double().numpy()
    codes = np.where(np.isnan(gray), _GAP, np.rint(255 * (1 - np.nan_to_num(gray)))).astype(np.uint16)
    codes = np.pad(codes, [(0, 0)] * 3 + [(0, cell[0] * cell[1] - num_features)], constant_values=_GAP)
    codes = codes.reshape(num_rows, num_groups, lines, columns, *cell).repeat(y, 4).repeat(x, 5)
    codes = codes.transpose(0, 2, 4, 1, 3, 5)  # row, line, pixel down; group, column, pixel across
    tops = _starts(num_rows, lines, cell[0] * y, row_gap)
    lefts = _starts(num_groups, columns, cell[1] * x, group_gap)
    ys = (tops[..., None] + np.arange(cell[0] * y)).ravel()
    xs = (lefts[..., None] + np.arange(cell[1] * x)).ravel()
    canvas = np.full((ys[-1] + 1, xs[-1] + 1), _GAP, codes.dtype)
    canvas[np.ix_(ys, xs)] = codes.reshape(len(ys), len(xs))
    tops, lefts = tops + cell[0] * y / 2, lefts + cell[1] * x / 2
    return RasterGrid(_PALETTE[canvas], tops.mean(1).tolist(), tops.ravel().tolist(), lefts.mean(1).tolist())


def _starts(num_groups: int, num_members: int, size: int, gap: int) -> np.ndarray:
    """First pixel of each member, (group, member)."""
    pitch = num_members * size + (num_members - 1) * _THIN + gap
    return np.arange(num_groups)[:, None] * pitch + np.arange(num_members) * (size + _THIN)


# A grid of examples with what is written around it.


_MIN_FIGURE_WIDTH, _FIGURE_INCHES = 560, 7.8
_FONT, _CAPTION_FONT = 7.5, 8.5  # points
_PAD = 8  # pixels


@dataclass(frozen=True)
class GridText:
    """The text around a grid."""

    caption: str  # what rows and columns are, in a sentence or two; stands above
    row_title: str = ""  # what the row labels count, written upwards at the left
    row_labels: Sequence[str] = ()  # one per row, or one per line of a row; none leaves them out
    group_labels: Sequence[str] = ()  # one per group; none leaves them out


def in_rows(groups: Tensor, columns: int) -> Tensor:
    """Groups, (group, member, feature), as (row, column, member, feature) of a grid; NaN fills the last row."""
    whole = torch.nn.functional.pad(groups, (0, 0, 0, 0, 0, -len(groups) % columns), value=torch.nan)
    return whole.unflatten(0, (-1, columns))


def draw_image_grid(
    images: Tensor, image_shape: tuple[int, int] | None, *, text: GridText, stacked: bool = False
) -> Picture:
    """Draw examples in rows of groups: 0 is white, 1 is black, and every feature is a rectangle of whole pixels.

    Images are (row, group, member, feature), in [0, 1]; NaN leaves a feature's place empty. Without a (height, width)
    each example is a strip, one mark per feature. Members of a group stand side by side, or below each other if stacked
    and as strips, which can then be compared feature by feature. Saved with its own dots per inch, the figure has the
    grid pixel by pixel.
    """
    check_tensor("images", images, ("row", "group", "member", "feature"))
    if images.numel() == 0:
        received = f"shape {tuple(images.shape)}"
        raise InvalidInputError("images", "must hold at least one example", received, "Give more examples.")
    check_unit_interval("images", images.nan_to_num(0.0))
    rows, groups, members, features = images.shape
    check_grid((rows, groups, members, features), image_shape, stacked=stacked)
    return _with_text(paint(images, image_shape, stacked=stacked), text)


def _with_text(grid: RasterGrid, text: GridText) -> Picture:
    row_labels, group_labels = ([*map(plot_text, each)] for each in (text.row_labels, text.group_labels))
    row_title, written = plot_text(text.row_title), plot_text(text.caption)
    height, width = grid.canvas.shape[:2]
    dpi = max(150.0, width / _FIGURE_INCHES)  # text grows with the picture
    em, caption_em = _FONT * dpi / 72, _CAPTION_FONT * dpi / 72
    per_line = len(row_labels) not in (0, len(grid.rows))
    rows = _thinned(grid.lines if per_line else grid.rows, row_labels, 1.2 * em, all_or_none=per_line)
    longest = max(map(len, group_labels), default=0)
    groups = _thinned(grid.groups, group_labels, 0.62 * em * longest + em)
    of_rows = max((len(label) for _, label in rows), default=0) * 0.62 * em + (0.6 * em if rows else 0)
    left = round(_PAD + (1.6 * em if row_title else 0) + of_rows)
    total_width = max(left + width + _PAD, _MIN_FIGURE_WIDTH)
    if 0.6 * em * len(row_title) > height:  # too long to stand beside so low a grid
        row_title, written = "", f"{written} Rows are labeled with {row_title}."
    caption = _wrap(written, int((total_width - 2 * _PAD) / (0.58 * caption_em)))
    top = round(_PAD + len(caption) * 1.3 * caption_em + (1.7 * em if groups else 0.4 * em))
    total_height = top + height + _PAD

    # The excess keeps the number of pixels when inches are turned back into pixels and rounded down.
    figure = Picture(((total_width + 1e-3) / dpi, (total_height + 1e-3) / dpi), dpi=dpi)
    x, y = (lambda pixels: pixels / total_width), (lambda pixels: pixels / total_height)
    axes = figure.add_axes((x(left), y(_PAD), x(width), y(height)))
    axes.imshow(grid.canvas, interpolation="nearest", aspect="auto", extent=(0, width, height, 0))
    axes.set_yticks([place for place, _ in rows], [label for _, label in rows], fontsize=_FONT)
    axes.set_xticks([place for place, _ in groups], [label for _, label in groups], fontsize=_FONT)
    axes.tick_params(length=0, pad=0.25 * _FONT, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    if row_title:
        middle = x(_PAD + 0.6 * em), y(_PAD + height / 2)
        figure.text(*middle, row_title, fontsize=_FONT, rotation=90, ha="center", va="center")
    figure.text(x(_PAD), 1 - y(_PAD), "\n".join(caption), fontsize=_CAPTION_FONT, ha="left", va="top")
    return figure


def _wrap(text: str, width: int) -> list[str]:
    """Lines of about equal length, as few as fit the width in letters; terms like E[x | z] stay whole."""
    text = text.replace(" | ", "\N{NO-BREAK SPACE}|\N{NO-BREAK SPACE}")
    lines = textwrap.wrap(text, width)
    while len(narrower := textwrap.wrap(text, width - 1)) == len(lines) > 1:
        lines, width = narrower, width - 1
    return lines


def _thinned(
    places: Sequence[float], labels: Sequence[str], room: float, *, all_or_none: bool = False
) -> list[tuple[float, str]]:
    """Places with their labels, every k-th where there is no room for all of them."""
    pairs = list(zip(places, labels, strict=True)) if labels else []
    if len(pairs) < 2 or room <= places[1] - places[0]:
        return pairs
    return [] if all_or_none else pairs[:: int(-(-room // (places[1] - places[0])))]


# Matplotlib's figure without pyplot.


# Okabe and Ito's colors: told apart with any color vision.
BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"


class Picture(Figure):
    """A figure, (width, height) in inches, that no pyplot knows of: it switches no backend, and notebooks show it."""

    def __init__(
        self, size: tuple[float, float], *, dpi: float = 150, layout: Literal["constrained"] | None = None
    ) -> None:
        super().__init__(figsize=size, dpi=dpi, facecolor="white", layout=layout)
        FigureCanvasAgg(self)

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.savefig(content, format="png", dpi=self.dpi)
        return content.getvalue()


def tidy(axes: Axes) -> None:
    """Draw a light grid behind the data, small numbers and no frame."""
    axes.grid(color="0.92")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


# Pictures and their tables in files.


# By ending, the fields of metadata that are left out, so that the same table gives the same file, and that of notes.
_METADATA = {
    ".png": ("Software", "Description"),
    ".pdf": ("CreationDate", "Subject"),
    ".svg": ("Date", "Description"),
}
_SALT = "discrete-vae"  # of the names of an SVG's parts, which are random without one


class FigureTable(Protocol):
    """The numbers that a picture shows."""

    def columns(self) -> Mapping[str, np.ndarray]:
        """The numbers as (row,) arrays of one length, by name."""
        ...


def picture_file(path: str | Path, *, argument: str = "path") -> OutputFile:
    """The file of a picture, .png, .pdf or .svg, if one can be written there; it makes its folders."""
    return OutputFile(path, argument=argument, endings=tuple(_METADATA))


def save_figure(figure: Figure, path: str | Path, *, note: str | None = None) -> Path:
    """Write a figure so that the file is either the old one or the new one, never a part; returns the path.

    Any of matplotlib's figures, in its own dots per inch, as .png, .pdf or .svg; a note goes into the file's metadata.
    """
    file, content = picture_file(path), io.BytesIO()
    changing, of_note = _METADATA[file.ending]
    metadata = {changing: None} | ({} if note is None else {of_note: printable(note, keep="\n")})
    with matplotlib.rc_context({"svg.hashsalt": _SALT}):
        figure.savefig(content, format=file.ending[1:], dpi=figure.dpi, metadata=metadata)
    return file.write_bytes(content.getvalue())


def save_table(table: FigureTable, path: str | Path) -> Path:
    """Write the numbers that a picture shows, with all their digits, to a .csv or .npz file; returns the path."""
    return OutputFile(path, argument="path", endings=(".csv", ".npz")).write(table.columns())


# Figures of a run: the run, what is asked for, and the result.


@dataclass(frozen=True)
class Drawing:
    """A figure.

    Attributes:
        table: The numbers that it shows.
        picture: The picture of them.
        note: A sentence for the metadata of its file.
    """

    table: FigureTable
    picture: Figure
    note: str | None = None


_CONDITIONS = 0x636F6E64


class FigureRun:
    """A run that a figure is drawn of; model and data are loaded once, when a figure wants them."""

    def __init__(
        self, directory: RunDirectory, load: Callable[[], LoadedRun], *, data_dir: str | Path | None = None
    ) -> None:
        self.directory = directory
        self._load, self._data_dir = load, data_dir

    @cached_property
    def loaded(self) -> LoadedRun:
        """The model and its chains."""
        return self._load()

    @cached_property
    def whole_dataset(self) -> DataSplits:
        """The data of the run's config; warns if they are not those that it was trained on."""
        return load_run_data(self.directory, self.loaded.config, self._data_dir)

    @cached_property
    def dataset(self) -> DataSplits:
        """The same, of the training and validation parts what the run sees."""
        return training_subset(self.whole_dataset, self.loaded.config.training)

    @cached_property
    def _statistics(self) -> list[tuple[int, int, int | None, str]] | None:
        """Of a table what is shown: place among its likelihood's statistics, column, code and name; else None.

        A column of codes has a statistic for each of its words, and none where a column of its kind has more. An
        exposure is given, not generated, and is not shown.
        """
        likelihood, of_config = self.loaded.model.likelihood, self.loaded.config.model.likelihood
        if not isinstance(likelihood, TableLikelihood) or not isinstance(of_config, TableLikelihoodConfig):
            return None
        found = []
        for place, (number, code) in enumerate(likelihood.statistic_columns):
            column = of_config.columns[number]
            words = getattr(column, "values", ())
            if column.kind != "exposure" and (code is None or code < len(words)):
                word = 1 if isinstance(column, BinaryColumnConfig) else code
                name = column.name if word is None else f"{column.name} = {words[word]}"
                found.append((place, number, code, name))
        return found

    def shown(self, x: Tensor) -> Tensor:
        """Examples as they are compared, (example, shown): of a column of words 1 at its word and 0 at the others.

        NaN stays. Data other than a table of columns stay as they are.
        """
        if self._statistics is None:
            return x
        found = []
        for _, number, code, _ in self._statistics:
            values = x[:, number]
            if code is not None:
                values = (values == code).to(x.dtype).masked_fill(values.isnan(), torch.nan)
            found.append(values)
        return torch.stack(found, 1)

    def condition_of(self, part: str, indices: np.ndarray | None = None) -> Tensor | None:
        """c of p(x | c) of examples of a part, (example, column); None for a model or data without one."""
        model = self.loaded.model
        known = None if model.condition is None else self.dataset.conditions.get(part)
        if known is None:
            return None
        return (known if indices is None else known[torch.from_numpy(indices)]).to(model.prior.bias.device)

    def condition_of_samples(self, count: int) -> Tensor | None:
        """c for draws of the prior, that of training examples of a fixed random choice, (draw, column).

        Where these are not at hand every column is missing, with a warning. None for a model without a condition.
        """
        model = self.loaded.model
        if model.condition is None:
            return None
        if not self._has_conditions:
            text = "samples are drawn with every column of the condition missing: the run's data are not at hand."
            warnings.warn(text, stacklevel=2)
            return model.condition.unknown
        return self.condition_of("train", self._chosen(count))

    def exposed_as(self, count: int) -> Tensor | None:
        """Training examples, (draw, feature), chosen likewise, whose exposures draws of the prior have.

        None for a model without exposures.
        """
        model = self.loaded.model
        if not model.likelihood.has_exposure:
            return None
        return self.dataset.train[torch.from_numpy(self._chosen(count))].to(model.prior.bias.device)

    def _chosen(self, count: int) -> np.ndarray:
        """Numbers of training examples in an order of chance, (draw,), each as often as its weight says."""
        chosen = fixed_permutation(len(self.dataset.train), 0, _CONDITIONS)
        weights = self.dataset.weights.get("train")
        if weights is not None:
            ends = np.cumsum(np.asarray(weights, np.float64)[chosen])
            places = np.searchsorted(ends, (np.arange(count) + 0.5) / count * ends[-1])
            chosen = chosen[places][fixed_permutation(count, 0, _CONDITIONS)]
        return np.resize(chosen, count)

    @cached_property
    def _has_conditions(self) -> bool:
        """Whether the training examples and their conditions are at hand."""
        try:
            return "train" in self.dataset.conditions
        except InvalidInputError:
            return False

    @property
    def note(self) -> str | None:
        """What readers must know of the run: the condition of its model, and the note of `LoadedRun`."""
        condition = self.loaded.model.condition
        if condition is None:
            return self.loaded.note
        known, unknown = "those of training examples chosen at random", "all of its columns missing"
        text = (
            f"A model of p(x | c), with c the columns {', '.join(condition.names)}: the prior, and so what a code "
            "stands for, does not depend on c. Examples are read with their own c; samples are decoded with "
            f"{known if self._has_conditions else unknown}."
        )
        return " ".join([text, *filter(None, [self.loaded.note])])

    @cached_property
    def recorded(self) -> DataMetadata:
        """Image shape and range of the data: as the run keeps them, of a run that keeps nothing from the data."""
        return DataMetadata.read(self.directory.read_environment()) or DataMetadata.of(self.dataset)

    @property
    def grayscale(self) -> Grayscale:
        """The scale of gray of the test data; that of a table takes these, since each feature has its own."""
        if self.recorded.image_shape is None:
            return grayscale_for(self.dataset.test[:], per_feature=True)
        return grayscale_of_range(self.recorded.low, self.recorded.high)

    @cached_property
    def title(self) -> str:
        """The experiment, its data where they have another name, size and seed."""
        config = self.directory.read_experiment()
        data = self.directory.read_environment().get("data", {}).get("name", config.name)
        of = config.name if config.name == data else f"{config.name} on {data}"
        return f"{of}, size {config.size}, seed {config.seed}"


@dataclass(frozen=True)
class FigureRequest:
    """The run that a figure is drawn of, and the seed of all noise."""

    run: FigureRun
    seed: int = 0
