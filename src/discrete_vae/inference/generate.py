"""New examples: of the prior, with units or fields set, of classes, or on a path between two others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import count as count_on
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor

from discrete_vae.boltzmann.base import BoltzmannMachine
from discrete_vae.checks import check_examples, check_positive_int, check_states, check_tensor
from discrete_vae.data.splits import effective_number
from discrete_vae.errors import InvalidInputError
from discrete_vae.inference.encode import Latents, encode_rows, most_probable
from discrete_vae.inference.rows import Report
from discrete_vae.inference.score import share_error
from discrete_vae.likelihoods.base import Statistic, check_statistic
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.modes import eval_mode
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import DrawnNoise, key_to_seed, keyed_generator
from discrete_vae.samplers.gibbs import BlockGibbs
from discrete_vae.sparse import Examples
from discrete_vae.system import check_memory

_STREAM = 0x70726973


class PriorStates:
    """Chains whose law is p(z | units that are set) with p(z) proportional to exp(-E(z) + field^T z).

    A field is added to the machine's biases; a unit that is set keeps its value while block Gibbs draws the others.
    Chains start at given states of p(z), picked with probabilities proportional to exp(field^T z) among those that
    have the wanted units most nearly as wanted: sweeps alone may not cross between modes.

    Args:
        prior: The machine; it is not changed.
        pool: States of p(z) to start from, (state, unit), such as those of the chains of training.
        clamped: Values, 0 or 1, by unit.
        field: What is added to the biases, (unit,); None adds nothing.
        num_chains: Chains.
        seed: Seed of the noise.

    Examples:
        >>> from discrete_vae import RBM
        >>> states = PriorStates(RBM(2, 1), torch.zeros(4, 3), {1: 1}, num_chains=5)
        >>> states.step(10)[:, 1].tolist()
        [1.0, 1.0, 1.0, 1.0, 1.0]
    """

    def __init__(
        self,
        prior: BoltzmannMachine,
        pool: Tensor,
        clamped: Mapping[int, int] | None = None,
        field: Tensor | None = None,
        *,
        num_chains: int,
        seed: int = 0,
    ) -> None:
        clamped, num_units = clamped or {}, prior.num_units
        check_states("pool", pool, ("state", num_units))
        check_positive_int("num_chains", num_chains)
        for unit, value in clamped.items():
            if not 0 <= unit < num_units:
                rule = f"must name units from 0 to {num_units - 1}"
                raise InvalidInputError("clamped", rule, unit, "Give another unit.")
            if value not in (0, 1):
                received = f"{value} for unit {unit}"
                raise InvalidInputError("clamped", "must set units to 0 or 1", received, "Give 0 or 1.")
        if len(clamped) == num_units:
            rule, repair = "must leave at least one unit free", "Set fewer, or decode the state itself."
            raise InvalidInputError("clamped", rule, f"all {num_units} units", repair)
        machine, log_weights = prior, pool.new_zeros(len(pool), dtype=torch.float64)
        if field is not None:
            field = check_tensor("field", field, (num_units,)).to(prior.bias)
            machine = deepcopy(prior)
            with torch.no_grad():
                machine.bias.add_(field)
            log_weights = pool.double() @ field.double().to(pool.device)
        wanted = pool.new_tensor([clamped.get(unit, math.nan) for unit in range(num_units)])
        is_set = ~wanted.isnan()
        missed = (is_set & (pool != wanted)).sum(1)
        log_weights = log_weights.masked_fill(missed > missed.min(), -torch.inf)
        noise = keyed_generator(seed, _STREAM, device=pool.device)
        picked = torch.softmax(log_weights, 0).multinomial(num_chains, replacement=True, generator=noise)
        start, device = torch.where(is_set, wanted, pool[picked]), prior.bias.device
        mask = is_set.to(device) if clamped else None
        seed = key_to_seed(seed, _STREAM)
        self.chains = BlockGibbs(machine, num_chains, seed=seed, start=start.to(device), clamped=mask)

    def step(self, num_sweeps: int) -> Tensor:
        """Sweep on by block Gibbs; returns the states, (chain, unit) float32 in {0,1}."""
        return self.chains.step(num_sweeps)


# What class an example is of, read off its latents.


_REGULARIZATION = 0.1  # inverse strength, in units of standardized latents
_HELD_OUT = 0.2


@dataclass(frozen=True, eq=False, repr=False)
class ClassModel(ShowsShapes):
    """p(class | latents) = softmax(W latents + b), a multinomial logistic regression.

    Attributes:
        classes: Labels in ascending order, (class,).
        weight: W, (class, latent) float32.
        bias: b, (class,) float32.
        accuracy: Share of labeled examples that were held out whose class it finds.
        accuracy_std_error: Its standard error over these.
    """

    classes: np.ndarray
    weight: Tensor
    bias: Tensor
    accuracy: float
    accuracy_std_error: float

    def probabilities(self, latents: Tensor) -> Tensor:
        """p(class | latents), (row, class), of (row, latent)."""
        weight, bias = self.weight.to(latents), self.bias.to(latents)
        return torch.softmax(latents @ weight.T + bias, 1)


def fit_class_model(
    latents: np.ndarray, labels: np.ndarray, *, weights: np.ndarray | None = None, seed: int = 0
) -> ClassModel:
    """Fit classes to latents of labeled examples.

    A fifth of the examples, chosen at random, is held out and tells the accuracy; the others are fitted, and at least
    one of each class.

    Args:
        latents: (row, latent), draws from the posterior: states of the prior are alike.
        labels: (row,) numbers or words, of at least two classes.
        weights: How often the population has each row, (row,), up to a common factor; None counts all alike.
        seed: Seed of the choice.

    Examples:
        >>> codes = np.repeat(np.eye(2), 50, axis=0)
        >>> fitted = fit_class_model(codes, np.repeat(["cat", "dog"], 50))
        >>> fitted.classes.tolist(), fitted.accuracy
        (['cat', 'dog'], 1.0)
    """
    from sklearn.linear_model import LogisticRegression

    if labels.shape != (len(latents),):
        rule = f"must be a label for each of the {len(latents)} examples"
        raise InvalidInputError("labels", rule, f"shape {labels.shape}", "Give one per example.")
    order = np.random.default_rng(seed).permutation(len(labels))
    held_out, fitted = np.split(order, [max(1, int(_HELD_OUT * len(labels)))])
    # one example at least of each class is fitted
    classes, first = np.unique(labels[held_out], return_index=True)
    only = first[~np.isin(classes, labels[fitted])]
    fitted, held_out = np.append(fitted, held_out[only]), np.delete(held_out, only)
    if len(np.unique(labels[fitted])) < 2 or not len(held_out):
        rule = "must name at least two classes, and examples to hold out"
        received = f"{len(np.unique(labels))} in {len(labels)} examples"
        raise InvalidInputError("labels", rule, received, "Give more labeled examples.")
    mean, scale = latents[fitted].mean(0), np.maximum(latents[fitted].std(0), 1e-3)
    model = LogisticRegression(C=_REGULARIZATION, max_iter=1000)
    given = np.ones(len(labels)) if weights is None else weights / weights.mean()
    model.fit((latents[fitted] - mean) / scale, labels[fitted], sample_weight=given[fitted])
    accuracy = model.score((latents[held_out] - mean) / scale, labels[held_out], given[held_out])
    weight, bias = model.coef_ / scale, model.intercept_ - model.coef_ @ (mean / scale)
    if len(weight) == 1:  # two classes: the log-odds of the second
        weight, bias = np.concatenate([0 * weight, weight]), np.concatenate([0 * bias, bias])
    tensors = (torch.from_numpy(values.astype(np.float32)) for values in (weight, bias))
    error = share_error(accuracy, effective_number(given[held_out]))
    return ClassModel(model.classes_, *tensors, accuracy=float(accuracy), accuracy_std_error=error)


def fit_classes(
    model: DiscreteVAE,
    x: Examples,
    labels: np.ndarray,
    *,
    weights: np.ndarray | None = None,
    condition: Tensor | None = None,
    seed: int = 0,
    numbers: Sequence[int] | np.ndarray | None = None,
    report: Report | None = None,
) -> ClassModel:
    """Fit classes to the latents of labeled examples, a draw of each from its posterior.

    The arguments are those of `discrete_vae.encode_rows`, and labels and weights as of `fit_class_model`. The seed is
    that of the draws, and of the examples that are held out.
    """
    codes = encode_rows(model, x, condition=condition, draw=True, seed=seed, numbers=numbers, report=report)
    latents = latents_of_classes(torch.from_numpy(codes.bits).float(), torch.from_numpy(codes.continuous))
    return fit_class_model(latents.numpy(), labels, weights=weights, seed=seed)


# New examples of a trained model.


_GENERATE_STREAM, _LABEL_STREAM = 0x67656E65, 0x6C61626C
_BLOCK = 256  # states that are decoded together


@dataclass(frozen=True, eq=False, repr=False)
class Generated(ShowsShapes):
    """New examples.

    Attributes:
        x: (example, *event) float32.
        z: The states of the prior behind them, (example, unit) uint8.
        places: Place of each example's class in the class model, or number of the model's own class, (example,) int64;
            None without.
        num_states: States of the prior that were looked at.
    """

    x: np.ndarray
    z: np.ndarray
    places: np.ndarray | None
    num_states: int


@torch.no_grad()
def generate(
    model: DiscreteVAE,
    states: PriorStates,
    count: int,
    *,
    classes: ClassModel | None = None,
    wanted: Sequence[int] = (),
    condition: Tensor | None = None,
    statistic: Statistic = "sample",
    num_sweeps: int = 100,
    max_rounds: int = 2000,
    seed: int = 0,
    report: Callable[[int], None] | None = None,
) -> Generated:
    """Draw states, and x from p(x | zeta, h) with zeta and h drawn given each.

    With classes the law is p(z, zeta, h | class), proportional to p(z, zeta, h) p(class | z, h), by rejection: to each
    state, its zeta and its h a class is drawn from p(class | z, h), and those of a wanted class are kept. That is exact
    given chains in equilibrium.

    Args:
        model: The model.
        states: Its prior's chains, started already.
        count: Examples; of each wanted class, if there are classes.
        classes: What class latents are of: z and h side by side, see `latents_of_classes`; or z alone, by its size.
        wanted: Places of the classes that are wanted.
        condition: c of p(x | c), (1, column), of a model that has one; states of the prior do not depend on it.
        statistic: "sample" draws x; "mean" and "mode" are those of p(x | zeta, h). Of codes, and the columns of a
            table that are words, the mean is the mode.
        num_sweeps: Sweeps from one round of all chains to the next, and before the first.
        max_rounds: Rounds after which a class that has not come up often enough is an error.
        seed: Seed of the noise.
        report: Called after each round with the number of examples so far.

    Returns:
        The examples; those of the first wanted class come first.
    """
    check_positive_int("count", count)
    check_statistic(statistic)
    c = model.check_condition(None if condition is None else condition.to(model.prior.bias.device), 1)
    groups = list(wanted) if classes is not None else [0]
    _check_wanted(groups, 1 if classes is None else len(classes.classes))
    size, units = model.likelihood.num_features, model.prior.num_units
    check_memory("count", (4 * size + units) * count * len(groups), "Ask for fewer examples.")
    kept: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {group: [] for group in groups}
    found, looked_at = dict.fromkeys(groups, 0), 0
    for number in count_on() if classes is None else range(max_rounds):  # without classes each state counts
        z = states.step(num_sweeps)
        looked_at += len(z)
        for first in range(0, len(z), _BLOCK):
            block = z[first : first + _BLOCK].to(model.dtype)
            noise = keyed_generator(seed, _GENERATE_STREAM, number, first, device=block.device)
            zeta = model.smoothing.sample_zeta(block, generator=noise)
            with eval_mode(model) as still:
                h = still.hierarchy.sample(still.with_condition(zeta, c), generator=noise)
            if classes is None:
                drawn = torch.zeros(len(block), dtype=torch.long, device=block.device)
            else:
                law = classes.probabilities(latents_of_classes(block, h, classes))
                drawn = torch.multinomial(law, 1, generator=noise)[:, 0]
            for group in groups:
                places = (drawn == group).nonzero().flatten()[: count - found[group]]
                if len(places):
                    asked = "expected" if statistic == "mean" else statistic
                    decoded = model._decode(zeta[places], h[places], c, asked, noise)[0]
                    if statistic == "mean":  # of tables and codes the mode of what has none
                        decoded = model.likelihood.point_estimate(decoded, decoded)[0]
                    codes = block[places].cpu().numpy().astype(np.uint8)
                    kept[group].append((decoded.float().cpu().numpy(), codes))
                    found[group] += len(places)
        if report is not None:
            report(sum(found.values()))
        if all(each == count for each in found.values()):
            break
    for group in groups:
        if found[group] < count:
            assert classes is not None  # or all are found
            rule = f"must come up among {looked_at:,} states of class {classes.classes[group]}"
            repair = "Ask for fewer or another class."
            raise InvalidInputError("count", rule, f"{found[group]} of {count}", repair)
    x, codes = (np.concatenate([part[i] for group in groups for part in kept[group]]) for i in (0, 1))
    places = None if classes is None else np.repeat(np.array(groups), count)
    return Generated(x, codes, places, looked_at)


def generate_of_labels(
    model: DiscreteVAE,
    pool: Tensor,
    count: int,
    wanted: Sequence[int],
    *,
    clamped: Mapping[int, int] | None = None,
    field: Tensor | None = None,
    num_chains: int,
    seed: int = 0,
    report: Callable[[int], None] | None = None,
    **settings: Any,
) -> Generated:
    """Draw examples of the classes that a model has, from p(x | y): the units of the label are set to each class.

    That is exact given chains in equilibrium, see the comment on labels in `discrete_vae.objectives.elbo`.

    The classes are ``wanted`` by their numbers, and each gets ``count`` examples. Pool, field, number of chains and
    other units that are set (``clamped``) are those of `PriorStates`, seed, report and the settings those of
    `generate`: condition, statistic, num_sweeps.

    Returns:
        The examples, those of the first class first; `places` are the classes' numbers.

    Examples:
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> prior = RBMConfig(num_left=5, num_right=2)
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=prior, num_classes=3))
        >>> made = generate_of_labels(model, torch.zeros(4, 7), 5, [2, 0], num_chains=5)
        >>> made.places.tolist(), made.z[0, :3].tolist()
        ([2, 2, 2, 2, 2, 0, 0, 0, 0, 0], [0, 0, 1])
    """
    model.check_labels(torch.tensor(list(wanted), dtype=torch.int64), len(wanted))
    num_classes, clamped = model.posterior.num_classes, dict(clamped or {})
    _check_wanted(wanted, num_classes)
    if of_label := sorted(unit for unit in clamped if unit < num_classes):
        rule = f"must leave the first {num_classes} units, which are those of the label"
        raise InvalidInputError("clamped", rule, of_label[0], "Name the class alone.")
    made: list[Generated] = []
    for label in wanted:
        units = {unit: int(unit == label) for unit in range(num_classes)} | clamped
        own, done = key_to_seed(seed, _LABEL_STREAM, label), count * len(made)
        states = PriorStates(model.prior, pool, units, field, num_chains=num_chains, seed=own)
        told = None if report is None else lambda number, done=done: report(done + number)
        made.append(generate(model, states, count, seed=own, report=told, **settings))
    x, z = (np.concatenate([getattr(each, name) for each in made]) for name in ("x", "z"))
    return Generated(x, z, np.repeat(list(wanted), count), sum(each.num_states for each in made))


def _check_wanted(wanted: Sequence[int], num_classes: int) -> None:
    if not len(wanted) or not all(0 <= label < num_classes for label in wanted):
        rule, received = f"must name classes by places from 0 to {num_classes - 1}", f"{list(wanted)}"
        raise InvalidInputError("wanted", rule, received, "Name at least one.")
    if twice := [label for place, label in enumerate(wanted) if label in wanted[:place]]:
        repair = "Ask for a larger count of it."
        raise InvalidInputError("wanted", "must name each class once", twice[0], repair)


def latents_of_classes(z: Tensor, h: Tensor, classes: ClassModel | None = None) -> Tensor:
    """Latents that classes are read off, (row, latent): z and h side by side, or z alone as the class model says."""
    if classes is not None and classes.weight.shape[1] == z.shape[1]:
        return z
    return torch.cat([z, h.flatten(1).to(z.dtype)], 1)


# From one code to another, a bit at a time, without climbing higher than needed.


@torch.no_grad()
def order_of_flips(
    machine: BoltzmannMachine, start: Tensor, end: Tensor, *, width: int = 64
) -> tuple[list[int], np.ndarray]:
    """An order in which to flip the bits that two states differ in, whose highest energy is low.

    Of the orders the one with the lowest highest energy is sought, among equals that with the lowest mean energy, by
    a beam search: of the sets of flipped bits of each size the best are kept. It is exact where all are.

    Args:
        machine: The prior.
        start: The first state, (unit,), in {0,1}.
        end: The last state, (unit,), in {0,1}.
        width: Sets of each size that are kept.

    Returns:
        The units in the order of their flips, and the energies of the states on the way, both ends included.

    Examples:
        >>> from discrete_vae import FactorialBernoulli
        >>> machine = FactorialBernoulli(3)
        >>> with torch.no_grad():
        ...     _ = machine.bias.copy_(torch.tensor([-1.0, 2.0, 0.5]))
        >>> order_of_flips(machine, torch.zeros(3), torch.ones(3))  # the probable bits first
        ([1, 2, 0], array([ 0. , -2. , -2.5, -1.5]))
    """
    check_positive_int("width", width)
    first, last = (
        check_states(name, z[None], ("state", machine.num_units))[0].to(machine.bias.dtype)
        for name, z in (("start", start), ("end", end))
    )
    units = (first != last).nonzero().flatten()
    masks = np.zeros((1, len(units)), bool)  # (set, bit that differs): which are flipped
    begin = machine.compute_energy(first[None]).double().cpu().numpy()
    peak, total, parents, energies = begin, begin, [], [begin]
    for _ in range(len(units)):
        owner, bit = np.nonzero(~masks)
        grown = masks[owner]
        grown[np.arange(len(owner)), bit] = True
        _, unique = np.unique(np.packbits(grown, axis=1), axis=0, return_inverse=True)
        states = first.repeat(len(grown), 1)
        states[:, units] = torch.where(torch.from_numpy(grown).to(first.device), last[units], first[units])
        energy = machine.compute_energy(states).double().cpu().numpy()
        new_peak, new_total = np.maximum(peak[owner], energy), total[owner] + energy
        best = np.lexsort((new_total, new_peak))
        _, firsts = np.unique(unique.ravel()[best], return_index=True)  # each set by its best way
        kept = best[np.sort(firsts)][:width]
        parents.append((owner[kept], bit[kept]))
        energies.append(energy[kept])
        masks, peak, total = grown[kept], new_peak[kept], new_total[kept]
    order, along, place = [], [energies[-1][0]], 0
    for step in range(len(units) - 1, -1, -1):
        owner, bit = parents[step]
        order.append(int(units[bit[place]]))
        place = owner[place]
        along.append(energies[step][place])
    return order[::-1], np.array(along[::-1]) + 0.0  # no negative zero


# Between two examples: a path of codes, and what the model makes of each.


PathKind: TypeAlias = Literal["flips", "straight"]


@dataclass(frozen=True, eq=False, repr=False)
class LatentPath(ShowsShapes):
    """A path between two examples.

    Attributes:
        mean: E[x | zeta, h], (step, *event) float32, of categories the most probable; the first and the last are the
            examples' reconstructions.
        zeta: (step, unit) float32.
        continuous: The Gaussian layers, (step, layer, unit) float32.
        bits: The codes, (step, unit) uint8; those of a straight path are the nearer end's.
        flipped: The unit that was flipped last, (step,) int64; -1 for the first step, and along a straight path.
        energy: Energy of the code under the prior, -log p(z) - log Z, (step,) float64, nats.
    """

    mean: np.ndarray
    zeta: np.ndarray
    continuous: np.ndarray
    bits: np.ndarray
    flipped: np.ndarray
    energy: np.ndarray

    @property
    def barrier(self) -> float:
        """By how much the highest energy on the way exceeds that of the higher end, nats."""
        return float(self.energy.max() - max(self.energy[0], self.energy[-1]))


@torch.no_grad()
def interpolate(
    model: DiscreteVAE,
    start: Tensor,
    end: Tensor,
    *,
    condition: Tensor | None = None,
    path: PathKind = "flips",
    num_steps: int = 11,
) -> LatentPath:
    """A path of latents from one example to another, and the means of x along it.

    The path goes from code to code by flips of single bits, in the order whose highest energy is lowest, as far as a
    beam search finds it (`order_of_flips`). Each code has the medians of r(zeta|z) as its zeta. Gaussian layers keep
    their place in p(h | zeta): the ends' h are turned into the standard normal numbers that p(h | zeta) makes them of,
    direction and length of these go evenly from one to the other, and h is made of them anew for the zeta of each step.

    A straight path goes evenly from the one zeta to the other, through values that the model has hardly seen.

    Args:
        model: The model.
        start: The first example, (1, feature) or (1, *event).
        end: The last example.
        condition: c of p(x | c), for a model that has one: (1, column) of the whole path, or (2, column) of the two
            examples, where the means are those under the first one's.
        path: "flips", with as many steps as bits differ, and the first; or "straight".
        num_steps: Steps of a straight path, or of one between examples of the same code; at least 2, the ends.

    Examples:
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
        >>> found = interpolate(model, torch.zeros(1, 6), torch.ones(1, 6), path="straight", num_steps=5)
        >>> found.mean.shape
        (5, 6)
    """
    if not isinstance(path, str) or path not in get_args(PathKind):
        raise InvalidInputError("path", "must be 'flips' or 'straight'", f"{path!r}"[:80], "Take flips.")
    if check_positive_int("num_steps", num_steps) < 2:
        raise InvalidInputError("num_steps", "must be at least 2", num_steps, "Both ends are steps.")
    with eval_mode(model) as model:
        both = model.check_condition(None if condition is None else condition.to(model.prior.bias.device), 2)
        c, of_last = (None, None) if both is None else both.split(1)
        ends = first, last = _end(model, "start", start, c), _end(model, "end", end, of_last)
        order = order_of_flips(model.prior, first.z[0], last.z[0])[0] if path == "flips" else []
        bits, zeta = _codes(first, last, order, num_steps)
        latents = model.with_condition(zeta, c)
        h = _layers(model, ends, latents)
        parameters = model.parameters_of(model.hierarchy.decoder_input(latents, h))
        expected = model.likelihood.expected_statistics(parameters)
        mean = model.likelihood.point_estimate(expected, expected)[0]
        energy = model.prior.compute_energy(bits.to(model.prior.bias.dtype)).double()
    shown = model._check_finite("the decoder's mean", mean)
    return LatentPath(
        mean=shown.float().cpu().numpy(),
        zeta=zeta.float().cpu().numpy(),
        continuous=h.float().cpu().numpy(),
        bits=bits.to(torch.uint8).cpu().numpy(),
        flipped=np.array([-1, *order] if order else [-1] * num_steps, np.int64),
        energy=energy.cpu().numpy(),
    )


def _end(model: DiscreteVAE, name: str, x: Tensor, c: Tensor | None) -> Latents:
    """The most probable code of the one example."""
    examples = check_examples(name, x)
    opened, observed = model.preprocess(examples.to(model.prior.bias.device), None)
    if len(opened) != 1:
        raise InvalidInputError(name, "must be one example, (1, ...)", f"{len(opened)}", "Give x[:1].")
    return most_probable(model, model.features_of(opened, observed, c))


def _codes(first: Latents, last: Latents, order: Sequence[int], num_steps: int) -> tuple[Tensor, Tensor]:
    """Codes, and their zeta, (step, unit): those of flips in an order, or evenly from end to end where there is none.

    A unit that flips has the zeta of the end whose bit it has.
    """
    steps = len(order) + 1 if order else num_steps
    at = torch.linspace(0, 1, steps, dtype=first.zeta.dtype, device=first.zeta.device)[:, None]
    even = first.zeta + at * (last.zeta - first.zeta)
    if not order:
        return torch.where(at < 0.5, first.z, last.z), even
    flipped = torch.zeros(steps, first.z.shape[1], dtype=torch.bool, device=first.z.device)
    for step, unit in enumerate(order, start=1):
        flipped[step:, unit] = True
    # what does not flip goes evenly too, for transformations whose r(zeta|z) depends on x
    zeta = torch.where(first.z == last.z, even, torch.where(flipped, last.zeta, first.zeta))
    return torch.where(flipped, last.z, first.z), zeta


def _layers(model: DiscreteVAE, ends: Sequence[Latents], zeta: Tensor) -> Tensor:
    """The Gaussian layers at each step, (step, layer, unit), of zeta with a condition beside it if there is one."""
    if model.hierarchy.num_layers == 0:
        return model.hierarchy.sample(zeta)
    laws = [each.layers_given_zeta for each in ends]
    first, last = ((each.h - law.mean) / law.log_std.exp() for each, law in zip(ends, laws, strict=True))
    noise: Any = DrawnNoise(list(_evenly(first, last, len(zeta)).unbind(-2)))
    return model.hierarchy.sample(zeta, generator=noise)


def _evenly(start: Tensor, end: Tensor, steps: int) -> Tensor:
    """From one vector to another, (1, layer, unit) each, with even steps of angle and of length."""
    a, b = start.flatten().double(), end.flatten().double()
    at = torch.linspace(0, 1, steps, dtype=a.dtype, device=a.device)[:, None]
    lengths = a.norm(), b.norm()
    straight = a + at * (b - a)
    if min(lengths) > 0:
        angle = torch.arccos((a @ b / (lengths[0] * lengths[1])).clamp(-1, 1))
        if 1e-4 < angle < torch.pi - 1e-4:
            weights = torch.sin((1 - at) * angle), torch.sin(at * angle)
            turned = (weights[0] * a / lengths[0] + weights[1] * b / lengths[1]) / torch.sin(angle)
            straight = turned * (lengths[0] + at * (lengths[1] - lengths[0]))
    return straight.to(start.dtype).reshape(steps, *start.shape[1:])
