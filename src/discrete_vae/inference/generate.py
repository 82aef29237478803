"""New examples of a trained model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from discrete_vae.checks import check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.generative import GenerativeModel, Statistic, check_statistic
from discrete_vae.inference.class_model import ClassModel
from discrete_vae.inference.prior_states import PriorStates
from discrete_vae.memory import check_memory
from discrete_vae.nets.eval_mode import eval_mode
from discrete_vae.noise import keyed_generator
from discrete_vae.records import ShowsShapes

_STREAM = 0x67656E65
_BLOCK = 256  # states that are decoded together


@dataclass(frozen=True, eq=False, repr=False)
class Generated(ShowsShapes):
    """New examples.

    Attributes:
        x: (example, *event) float32.
        z: The states of the prior behind them, (example, unit) uint8.
        places: Place of each example's class in the class model, (example,) int64; None without one.
        num_states: States of the prior that were looked at.
    """

    x: np.ndarray
    z: np.ndarray
    places: np.ndarray | None
    num_states: int


@torch.no_grad()
def generate(
    model: GenerativeModel,
    states: PriorStates,
    count: int,
    *,
    classes: ClassModel | None = None,
    wanted: Sequence[int] = (),
    statistic: Statistic = "sample",
    num_sweeps: int = 100,
    max_rounds: int = 2000,
    seed: int = 0,
    report: Callable[[int], None] | None = None,
) -> Generated:
    """Draw states, and x from p(x | zeta, h) with zeta and h drawn given each.

    With classes the law is p(z, zeta, h | class), proportional to p(z, zeta, h) p(class | z, h), by rejection: to each
    state, its zeta and its h a class is drawn from p(class | z, h), and those of a wanted class are kept. That is exact
    given chains in equilibrium. Fields W_class on the prior would not be: p(class | z) has a normalizer that depends on
    z, which such fields leave out.

    Args:
        model: The model.
        states: Its prior's chains, started already.
        count: Examples; of each wanted class, if there are classes.
        classes: What class latents are of: z and h side by side, see `latents_of_classes`; or z alone, by its size.
        wanted: Places of the classes that are wanted.
        statistic: "sample" draws x; "mean" and "mode" are those of p(x | zeta, h).
        num_sweeps: Sweeps from one round of all chains to the next, and before the first.
        max_rounds: Rounds after which a class that has not come up often enough is given up.
        seed: Seed of the noise.
        report: Called after each round with the number of examples so far.

    Returns:
        The examples; those of the first wanted class come first.

    Raises:
        InvalidInputError: If a number breaks its rule, there is no such statistic, or a class does not come up.
    """
    check_positive_int("count", count)
    check_statistic(statistic)
    groups = list(wanted) if classes is not None else [0]
    size, units = model.likelihood.num_features, model.prior.num_units
    check_memory("count", (4 * size + units) * count * len(groups), "Ask for fewer examples.")
    kept: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {group: [] for group in groups}
    found = dict.fromkeys(groups, 0)
    looked_at = 0
    for number in range(max_rounds):
        z = states.step(num_sweeps)
        looked_at += len(z)
        for first in range(0, len(z), _BLOCK):
            block = z[first : first + _BLOCK].to(model.dtype)
            noise = keyed_generator(seed, _STREAM, number, first, device=block.device)
            zeta = model.smoothing.sample_zeta(block, generator=noise)
            with eval_mode(model) as still:
                h = still.hierarchy.sample(zeta, generator=noise)
            if classes is None:
                drawn = torch.zeros(len(block), dtype=torch.long, device=block.device)
            else:
                law = classes.probabilities(latents_of_classes(block, h, classes))
                drawn = torch.multinomial(law, 1, generator=noise)[:, 0]
            for group in groups:
                places = (drawn == group).nonzero().flatten()[: count - found[group]]
                if len(places):
                    decoded = model.decode(zeta[places], h[places], statistic=statistic, generator=noise)
                    kept[group].append(
                        (decoded.float().cpu().numpy(), block[places].cpu().numpy().astype(np.uint8))
                    )
                    found[group] += len(places)
        if report is not None:
            report(sum(found.values()))
        if all(number_found == count for number_found in found.values()):
            break
    short = [group for group in groups if found[group] < count]
    if short:
        assert classes is not None or looked_at  # without classes every state is kept
        name = "" if classes is None else f" of class {classes.classes[short[0]]}"
        rule, repair = (
            f"must come up among {looked_at:,} states{name}",
            "Ask for fewer, or for another class.",
        )
        raise InvalidInputError("count", rule, f"{found[short[0]]} of {count}", repair)
    x, codes = (np.concatenate([part[i] for group in groups for part in kept[group]]) for i in (0, 1))
    places = None if classes is None else np.repeat(np.array(groups), count)
    return Generated(x, codes, places, looked_at)


def latents_of_classes(z: Tensor, h: Tensor, classes: ClassModel | None = None) -> Tensor:
    """What classes are read off: z, and h behind it unless the class model reads z alone, (row, latent).

    Args:
        z: (row, unit).
        h: (row, layer, unit).
        classes: The class model; None takes both.
    """
    if classes is not None and classes.weight.shape[1] == z.shape[1]:
        return z
    return torch.cat([z, h.flatten(1).to(z.dtype)], 1)
