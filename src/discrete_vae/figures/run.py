"""Pictures of a run's samples: chains, features, reconstructions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from scipy.special import ndtri, stdtrit
from torch import Tensor

from discrete_vae.checks import check_finite, check_positive_int, check_tensor
from discrete_vae.data.splits import subset_indices
from discrete_vae.errors import InvalidInputError, plot_text
from discrete_vae.figures.style import (
    BLUE,
    MAX_WIDTH,
    Drawing,
    FigureRequest,
    FigureRun,
    Grayscale,
    GridText,
    Picture,
    cell_shape,
    draw_image_grid,
    grayscale_for,
    in_rows,
)
from discrete_vae.model import DiscreteVAE
from discrete_vae.rng import keyed_generator
from discrete_vae.samplers.gibbs import Sampler
from discrete_vae.sparse import Examples


def check_prior_chains(model: DiscreteVAE, chains: Sampler, num_chains: int, **counts: int) -> None:
    """Refuse chains of another machine than the model's prior, and numbers that they cannot give."""
    for name, value in counts.items():
        check_positive_int(name, value)
    if chains.energy is not model.prior:
        repair = "Build them with energy=model.prior."
        raise InvalidInputError("chains", "must sample the model's own prior", "another machine's", repair)
    if check_positive_int("num_chains", num_chains) > chains.num_chains:
        rule = f"must be at most {chains.num_chains}, the number of chains"
        raise InvalidInputError("num_chains", rule, num_chains, "Build a sampler with more chains.")


# Samples of a model along the Markov chains of its prior.


_STREAM = 0x65766F6C
DEFAULT_CHAINS = 5


@dataclass(frozen=True, eq=False)
class EvolutionTable:
    """Samples along chains.

    Attributes:
        means: E[x | zeta, h] of each draw, (row, chain, draw, feature).
        z: The chains' states, (row, chain, unit), in {0,1}; a row's draws share them.
        num_sweeps: Sweeps from one row to the next.
        varies: The latents in which the draws of a group differ, in words.
    """

    means: Tensor
    z: Tensor
    num_sweeps: int
    varies: str = "their draw of ζ"

    def columns(self) -> dict[str, np.ndarray]:
        """A row per draw: its place in the picture, then its means, mean_0 and so on."""
        means = self.means.numpy()
        row, chain, draw = (index.ravel() for index in np.indices(means.shape[:3]))
        columns = {"row": row, "sweeps": row * self.num_sweeps, "chain": chain, "draw": draw}
        flat = means.reshape(len(row), -1)
        return columns | {f"mean_{feature}": flat[:, feature] for feature in range(flat.shape[1])}


@torch.no_grad()
def evolution_table(
    model: DiscreteVAE,
    chains: Sampler,
    *,
    num_rows: int = 20,
    num_sweeps: int = 100,
    num_draws: int = 5,
    num_chains: int | None = None,
    condition: Tensor | None = None,
    seed: int = 0,
) -> EvolutionTable:
    """Decode what the chains of a model's prior visit.

    For each row the chains take ``num_sweeps`` sweeps to a state z. The draws of that row share z and zeta and differ
    in their continuous layers; without such layers each takes a zeta of its own from r(zeta|z). Modes of the prior show
    as columns that keep their meaning over many rows, what the prior leaves to the layers below shows as differences
    inside a group.

    Source: Rolfe 2017, figure mnist-evolution and its three siblings.

    Args:
        model: The model; its networks use their running statistics.
        chains: Chains of the model's prior, which this call advances by ``num_rows * num_sweeps`` sweeps, unless an
            argument is refused: fresh ones after as many sweeps as they need to forget their start, or those of
            training.
        num_rows: Rows.
        num_sweeps: Sweeps before each row.
        num_draws: Draws per state.
        num_chains: How many of the chains to show, from the first; None means five, or all where there are fewer.
        condition: c of p(x | c), (chain, column), or (1, column) for all, of a model that has one.
        seed: Seed of zeta and of the continuous layers; the chains have their own.

    Examples:
        >>> from discrete_vae import BlockGibbs, DiscreteVAE
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
        >>> evolution_table(model, BlockGibbs(model.prior, 3, seed=0), num_rows=4).means.shape
        torch.Size([4, 3, 5, 6])
    """
    shown = min(DEFAULT_CHAINS, chains.num_chains) if num_chains is None else num_chains
    check_prior_chains(model, chains, shown, num_rows=num_rows, num_sweeps=num_sweeps, num_draws=num_draws)
    c = model.check_condition(condition, shown)
    c = c if c is None else c.repeat_interleave(num_draws, 0)
    states, means = [], []
    for row in range(num_rows):
        z = chains.step(num_sweeps)[:shown]
        generator = keyed_generator(seed, _STREAM, row, device=z.device)
        # as in the paper, draws that differ in continuous layers share zeta too
        own = 1 if model.hierarchy.num_layers else num_draws
        zeta = model.smoothing.sample_zeta(z[:, None].expand(-1, own, -1), generator=generator)
        zeta = zeta.expand(-1, num_draws, -1).flatten(0, 1)
        states.append(z.cpu())
        mean = model.decode(zeta, condition=c, generator=generator)
        means.append(mean.flatten(1).unflatten(0, (shown, num_draws)).cpu())
    varies = "their continuous layers" if model.hierarchy.num_layers else "their draw of ζ"
    return EvolutionTable(torch.stack(means), torch.stack(states), num_sweeps, varies)


def draw_evolution(
    table: EvolutionTable, image_shape: tuple[int, int] | None = None, *, grayscale: Grayscale | None = None
) -> Picture:
    """Draw samples along chains: time runs down, chains stand side by side.

    Examples without an image shape (height, width) are strips. Without a scale of gray, that of the data for example,
    the means get one.
    """
    num_rows, num_chains, num_draws, _ = table.means.shape
    kind = "strip" if image_shape is None else "image"
    gray = grayscale or grayscale_for(table.means.flatten(0, 2), per_feature=image_shape is None)
    caption = f"Samples along {num_chains} independent chain{'s' * (num_chains > 1)} of the prior"
    caption += f", {table.num_sweeps} sweeps from row to row. "
    if num_draws > 1:
        caption += f"The {num_draws} {kind}s of a group share the state z and differ in {table.varies}. "
    caption += f"A{'n' * (kind == 'image')} {kind} is the mean of x given its latents; {gray.words}."
    text = GridText(
        caption=caption,
        row_title="sweeps since the top row",
        row_labels=[f"{row * table.num_sweeps}" for row in range(num_rows)],
        group_labels=[f"chain {chain + 1}" for chain in range(num_chains)],
    )
    return draw_image_grid(gray(table.means), image_shape, text=text)


def make_evolution(request: FigureRequest, chains: Sampler | None = None, **sizes: int | None) -> Drawing:
    """The figure of a run, in the sizes of `evolution_table`; without chains those of training go on."""
    run = request.run
    model, image_shape = run.loaded.model, run.recorded.image_shape
    chains = chains or run.loaded.chains
    c = run.condition_of_samples(sizes.get("num_chains") or min(DEFAULT_CHAINS, chains.num_chains))
    table = evolution_table(model, chains, condition=c, seed=request.seed, **sizes)  # pyright: ignore[reportArgumentType]
    return Drawing(table, draw_evolution(table, image_shape, grayscale=run.grayscale), run.note)


# Draws of x along the chains of a model's prior.


_GENERATED_STREAM = 0x7461626C
_MAX_VALUES = 20_000_000  # of samples of a run, 80 MB, and of the data beside them


@torch.no_grad()
def generated_examples(
    model: DiscreteVAE,
    chains: Sampler,
    *,
    num_rows: int = 20,
    num_sweeps: int = 100,
    num_chains: int | None = None,
    condition: Tensor | None = None,
    exposed_as: Tensor | None = None,
    seed: int = 0,
) -> Tensor:
    """Draw examples from the generative model, the noise of its likelihood included: (row, chain, feature) on the CPU.

    The arguments are those of `evolution_table`; without a number of chains all are used. ``exposed_as`` are examples,
    (chain, feature), whose exposures the draws of a chain have; None is the reference.
    """
    used = chains.num_chains if num_chains is None else num_chains
    check_prior_chains(model, chains, used, num_rows=num_rows, num_sweeps=num_sweeps)
    rows, c = [], model.check_condition(condition, used)
    given = None if exposed_as is None else model.preprocess(exposed_as, None)
    for row in range(num_rows):
        z = chains.step(num_sweeps)[:used].to(model.dtype)
        generator = keyed_generator(seed, _GENERATED_STREAM, row, device=z.device)
        zeta = model.smoothing.sample_zeta(z, generator=generator)
        drawn = model._decode(zeta, None, c, "sample", generator, rows=given)[0]
        rows.append(drawn.flatten(1).cpu())
    return torch.stack(rows)


def num_chains_that_fit(num_chains: int, num_features: int, num_rows: int) -> int:
    """Number of a run's chains to draw from, so often each, for samples that take 80 MB at most."""
    return min(num_chains, max(1, _MAX_VALUES // (num_rows * num_features)))


# Feature means and pair correlations, in the data against a model's samples.


_MAX_FEATURES = 256  # whose pairs are looked at, evenly spaced over all
_BLOCKS = 20  # of samples, at most, whose spread gives their error


@dataclass(frozen=True, eq=False)
class Comparison:
    """One kind of quantity, estimated from the data and from the samples."""

    data: np.ndarray  # (quantity,) float64
    samples: np.ndarray  # (quantity,) float64
    std_error: np.ndarray  # of the difference, if the model were right, (quantity,) float64

    @property
    def distance(self) -> float:
        """Root mean square of the differences."""
        return float(np.sqrt(((self.data - self.samples) ** 2).mean()))

    @property
    def share_inside(self) -> float:
        """Share of the quantities that differ by at most two standard errors; 0.95 in a model that is right."""
        return float((np.abs(self.data - self.samples) <= 2 * self.std_error).mean())


@dataclass(frozen=True, eq=False)
class FeatureStatistics:
    """Means and correlations of data beside those of a model's samples.

    Attributes:
        means: Mean of each feature.
        correlations: Pearson's correlation of each pair of features that both vary, at most those of 256 features.
        num_examples: Rows of the data.
        num_samples: Draws of x.
        in_unit_interval: Whether all data lie in [0, 1]; means count in standard deviations of the data otherwise.
    """

    means: Comparison
    correlations: Comparison
    num_examples: int
    num_samples: int
    in_unit_interval: bool = True

    def columns(self) -> dict[str, np.ndarray]:
        """A row per quantity: its kind, what it is in data and samples, and the error of the difference."""
        both = (self.means, self.correlations)
        columns = {"kind": np.repeat(["mean", "correlation"], [len(found.data) for found in both])}
        for part in ("data", "samples", "std_error"):
            columns[part] = np.concatenate([getattr(found, part) for found in both])
        return columns


def feature_statistics_table(
    x: Tensor, samples: Tensor, *, weights: np.ndarray | None = None
) -> FeatureStatistics:
    """Compare data with what a model generates.

    Means count in standard deviations of their feature in the data, unless all data lie in [0, 1]. Missing values count
    nowhere: a correlation is the mean product, over the examples that have both features, of each standardized by all
    that have it.

    Args:
        x: Data that the model was not trained on, (example, feature); NaN marks missing values.
        samples: At least two draws of x, (row, chain, feature), as those of `generated_examples`; chains are
            independent.
        weights: How often the population has each example, (example,) above 0; None counts all alike.
    """
    check_tensor("x", x, ("example", "feature"))
    check_tensor("samples", samples, ("row", "chain", x.shape[1]))
    for name, value in (("x", x.masked_fill(x.isnan(), 0)), ("samples", samples)):
        check_finite(name, value, repair="Remove infinite entries.")
    data = x.detach().cpu().double().numpy()
    drawn = samples.detach().cpu().double().numpy().reshape(-1, x.shape[1])
    # the draws of a chain depend on each other, so the chains are dealt to blocks; one chain is cut into pieces
    num_chains, place = samples.shape[1], np.arange(len(drawn))
    groups = (
        place % num_chains % _BLOCKS if num_chains > 1 else place * min(_BLOCKS, len(drawn)) // len(drawn)
    )
    for name, what, count, least in (("x", "example", len(data), 1), ("samples", "samples", len(drawn), 2)):
        if count < least:
            raise InvalidInputError(name, f"must hold at least {least} {what}", count, "Give more of them.")
    seen = ~np.isnan(data)
    there = seen.any(0)
    data, drawn, seen = data[:, there], drawn[:, there], seen[:, there]
    blocks = [groups != group for group in range(groups.max() + 1)]  # each without one of them
    weight = np.ones(len(data)) if weights is None else weights / weights.mean()
    total, counts = weight @ seen, (weight @ seen) ** 2 / (weight**2 @ seen)
    mean = weight @ np.where(seen, data, 0) / total
    deviation = np.sqrt(weight @ np.where(seen, data - mean, 0) ** 2 / total)
    deviation[np.nanmin(data, 0) == np.nanmax(data, 0)] = 0  # rounding of the mean would leave some
    in_unit_interval = bool(((data >= 0) & (data <= 1) | ~seen).all())
    unit = 1.0 if in_unit_interval else np.where(deviation > 0, deviation, 1.0)
    error = np.sqrt(drawn.var(0) / counts + _variance(drawn, blocks, lambda kept: kept.mean(0)))
    means = Comparison(mean / unit, drawn.mean(0) / unit, error / unit)
    standard = np.where(seen, (data - mean) / np.where(deviation > 0, deviation, 1.0), 0.0)
    varies = np.flatnonzero(deviation > 0)
    count = min(len(varies), _MAX_FEATURES)
    shown = varies[np.arange(count) * len(varies) // max(count, 1)]
    correlations = _correlations(
        standard[:, shown], seen[:, shown].astype(np.float64), weight[:, None], drawn[:, shown], blocks
    )
    return FeatureStatistics(means, correlations, len(data), len(drawn), in_unit_interval)


def _variance(
    drawn: np.ndarray, blocks: list[np.ndarray], statistic: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Jackknife variance of a statistic of all draws; a block is a mask of those that are left without one group.

    It is widened by Student's t, so that two errors cover 95 % however few groups there are.
    """
    widened = stdtrit(len(blocks) - 1, 0.975) / ndtri(0.975)
    return widened**2 * (len(blocks) - 1) * np.var([statistic(drawn[left]) for left in blocks], 0)


def _correlations(
    z: np.ndarray, seen: np.ndarray, weight: np.ndarray, drawn: np.ndarray, blocks: list[np.ndarray]
) -> Comparison:
    """Of standardized data, 0 where they are missing, with weights (example, 1), and of draws, (example, feature)."""
    first, second = np.triu_indices(z.shape[1], 1)
    kept = (seen.T @ seen)[first, second] > 1
    pairs = first[kept], second[kept]
    total = (weight * seen).T @ seen
    count = np.where(total > 0, total, 1)
    in_data = (weight * z).T @ z / count
    # the spread of a correlation's influence function, z_i z_j - r (z_i^2 + z_j^2) / 2
    square, mixed, fourth = z**2, (weight * z**3).T @ z / count, (weight * z**4).sum(0) / count.diagonal()
    both = (weight * square).T @ square / count
    variance = both - in_data * (mixed + mixed.T) + in_data**2 / 4 * (fourth + fourth[:, None] + 2 * both)
    of_draws = _variance(drawn, blocks, lambda kept: _correlation(kept)[pairs])
    effective = count**2 / np.where(total > 0, (weight**2 * seen).T @ seen, 1)
    error = np.sqrt((variance / effective)[pairs].clip(0) + of_draws)
    return Comparison(in_data[pairs], _correlation(drawn)[pairs], error)


def _correlation(x: np.ndarray) -> np.ndarray:
    """Correlations of the columns, (feature, feature); 0 for those of a constant column."""
    centered = x - x.mean(0)
    deviation = centered.std(0)
    standard = centered / np.where(deviation > 0, deviation, 1.0)
    return standard.T @ standard / len(x)


def draw_feature_statistics(table: FeatureStatistics, *, name: str = "") -> Picture:
    """Draw means and correlations as clouds of points around the diagonal; the run's name is for the title."""
    figure = Picture((7.6, 4.35), layout="constrained")
    of = f"Samples of {plot_text(name)}" if name else "Samples"
    text = f"{of} against the data: {table.num_samples:,} samples, {table.num_examples:,} test examples."
    text += "\nA point is a feature or a pair of features; the band is ± 2 standard errors around equality."
    figure.suptitle(text, fontsize=9, x=0.01, ha="left")
    left, right = figure.subplots(1, 2)
    quantity, limits = "mean", (0.0, 1.0)
    if not table.in_unit_interval:
        both = np.concatenate([table.means.data, table.means.samples])
        margin = max(0.06 * float(np.ptp(both)), 0.1)
        quantity, limits = "mean / deviation", (float(both.min()) - margin, float(both.max()) + margin)
    _draw(left, table.means, quantity, "features", limits)
    _draw(right, table.correlations, "correlation", "pairs of features", None)
    return figure


def samples_of_run(
    run: FigureRun,
    chains: Sampler | None = None,
    *,
    num_rows: int = 20,
    num_sweeps: int = 100,
    num_chains: int | None = None,
    seed: int,
) -> Tensor:
    """Draw `generated_examples` by a run's chains of training and as many as fit, if not told, under a condition."""
    chains = chains or run.loaded.chains
    used = num_chains or num_chains_that_fit(chains.num_chains, run.dataset.num_features, num_rows)
    sizes = {"num_rows": num_rows, "num_sweeps": num_sweeps, "num_chains": used, "seed": seed}
    condition, examples = run.condition_of_samples(used), run.exposed_as(used)
    return generated_examples(run.loaded.model, chains, condition=condition, exposed_as=examples, **sizes)


def make_feature_statistics(request: FigureRequest) -> Drawing:
    """The figure of a run, samples by its chains of training against its test data."""
    run = request.run
    samples, weights = samples_of_run(run, seed=request.seed), run.dataset.weights.get("test")
    samples = run.shown(samples.flatten(0, 1)).unflatten(0, samples.shape[:2])
    count = len(run.dataset.test)
    chosen = subset_indices(count, min(count, max(1, _MAX_VALUES // samples.shape[-1])))
    x = run.shown(run.dataset.test[torch.from_numpy(chosen)])
    table = feature_statistics_table(x, samples, weights=None if weights is None else weights[chosen])
    return Drawing(table, draw_feature_statistics(table, name=run.title), run.note)


def _draw(
    axes: Axes, found: Comparison, quantity: str, things: str, limits: tuple[float, float] | None
) -> None:
    """One cloud, with the diagonal and a band of two standard errors."""
    count = len(found.data)
    axes.set(xlabel=f"{quantity}, samples", ylabel=f"{quantity}, test data", box_aspect=1)
    if count == 0:
        axes.text(0.5, 0.5, f"no {things} that vary", transform=axes.transAxes, ha="center")
        return
    if limits is None:
        reach = max(0.1, 1.1 * float(np.abs([found.data, found.samples]).max()))
        limits = (-min(reach, 1.0), min(reach, 1.0))
    # the band at a place is that of the quantities there
    groups = np.array_split(np.argsort(found.samples), min(max(count // 20, 1), 25))
    place = np.array([found.samples[group].mean() for group in groups])
    half = 2 * np.array([np.sqrt((found.std_error[group] ** 2).mean()) for group in groups])
    place = np.concatenate([limits[:1], place, limits[1:]])
    half = np.pad(half, 1, mode="edge")
    axes.fill_between(place, place - half, place + half, color="0.88", linewidth=0)
    axes.plot(limits, limits, color="0.45", linewidth=0.8)
    size, alpha = 14.0 if count <= 500 else 4.0, float(np.clip(800 / count, 0.08, 0.7))
    axes.scatter(found.samples, found.data, size, BLUE, alpha=alpha, linewidths=0, rasterized=True)
    title = f"{count:,} {things}; RMS difference {found.distance:.3f}\n"
    title += f"{100 * found.share_inside:.0f} % in the band; a perfect model: 95 %"
    axes.set_title(title, fontsize=8, loc="left")
    axes.set(xlim=limits, ylim=limits)
    axes.grid(color="0.93")
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)


# Examples beside what the model makes of them.


_RECONSTRUCTIONS_STREAM = 0x7265636F
_DEFAULT_EXAMPLES = 100
_MAX_COLUMNS, _MIN_SCALE, _STRIP_ROWS = 20, 2, 20
_STRIPS = 20  # of a run, in one column, each with its label


@dataclass(frozen=True, eq=False)
class ReconstructionTable:
    """Examples and their reconstructions.

    Attributes:
        examples: (example, feature); NaN marks missing values.
        means: E[x | zeta, h] for one draw of both from the posterior of each example, (example, feature).
        indices: Where the examples stood in what they were taken from, (example,) int64.
    """

    examples: Tensor
    means: Tensor
    indices: Tensor

    def columns(self) -> dict[str, np.ndarray]:
        """A row per example: its index, its values x_0 and so on, and their means mean_0 and so on."""
        columns = {"index": self.indices.numpy()}
        for name, values in (("x", self.examples.numpy()), ("mean", self.means.numpy())):
            columns |= {f"{name}_{feature}": values[:, feature] for feature in range(values.shape[1])}
        return columns


def reconstructions_table(
    model: DiscreteVAE,
    x: Examples,
    *,
    num_examples: int | None = None,
    condition: Tensor | None = None,
    seed: int = 0,
) -> ReconstructionTable:
    """Encode examples and decode them again.

    Args:
        model: The model; its networks use their running statistics.
        x: (example, feature) or (example, *event), for example the test part of a data set.
        num_examples: How many of them to take, evenly spaced, so that sorted data show all of their kinds;
            None means 100, or all where there are fewer.
        condition: c of p(x | c), (example, column), or (1, column) for all, of a model that has one.
        seed: Seed of the posterior's noise.
    """
    count = min(_DEFAULT_EXAMPLES, len(x)) if num_examples is None else num_examples
    if check_positive_int("num_examples", count) > len(x):
        rule = f"must be at most {len(x)}, the number of examples in x"
        raise InvalidInputError("num_examples", rule, count, "Ask for fewer, or give more.")
    indices = torch.arange(count) * len(x) // count
    examples, c = x[indices.to(x.device)], model.check_condition(condition, len(x))
    c = c if c is None else c[indices.to(c.device)]
    noise = keyed_generator(seed, _RECONSTRUCTIONS_STREAM, device=x.device)
    means = model.reconstruct(examples, condition=c, generator=noise)
    return ReconstructionTable(examples.flatten(1).cpu(), means.flatten(1).cpu(), indices)


_OF_ONE_DRAW = "mean E[x | ζ, h] for one draw of ζ and h from its posterior"


def draw_reconstructions(
    table: ReconstructionTable, image_shape: tuple[int, int] | None = None, *, what: str = _OF_ONE_DRAW
) -> Picture:
    """Draw pairs: each example with its reconstruction below it, as strips where there is no (height, width)."""
    num_examples, num_features = table.examples.shape
    _, width = cell_shape(num_features, image_shape)
    # Strips are flat and wide: they fill rows of the grid before columns.
    wanted = -(-num_examples // _STRIP_ROWS) if image_shape is None else num_examples
    columns = min(_MAX_COLUMNS, wanted, max(1, MAX_WIDTH // (_MIN_SCALE * width)))
    gray = grayscale_for(table.examples, per_feature=image_shape is None)
    pairs = torch.stack([gray(table.examples), gray(table.means.to(table.examples.dtype))], 1)
    grid = in_rows(pairs, columns)
    gaps = " Tinted places of an input are missing values." if bool(table.examples.isnan().any()) else ""
    kind = "strip" if image_shape is None else "image"
    text = GridText(
        caption=f"Examples and their reconstructions: the upper {kind} of a pair is the input x, the lower one the "
        f"{what}; {gray.words}.{gaps}",
        row_labels=["input", "reconstruction"] * len(grid),
    )
    return draw_image_grid(grid, image_shape, text=text, stacked=True)


def make_reconstructions(request: FigureRequest) -> Drawing:
    """The figure of a run: test examples, as many as fit a picture."""
    run, model, dataset = request.run, request.run.loaded.model, request.run.dataset
    shown = min(_STRIPS, len(dataset.test)) if dataset.image_shape is None else None
    x, c = dataset.test.to(model.prior.bias.device), run.condition_of("test")
    table = reconstructions_table(model, x, num_examples=shown, condition=c, seed=request.seed)
    return Drawing(table, draw_reconstructions(table, dataset.image_shape), run.note)
