"""dvae generate: new examples of a trained run."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from discrete_vae.commands.options import one_of, option, whole_number
from discrete_vae.commands.progress import examples_progress
from discrete_vae.commands.rows import AskedRows, say_written, takes_rows
from discrete_vae.commands.trained import EXPLAINED, AskedRun
from discrete_vae.commands.verbs import verb
from discrete_vae.errors import InvalidInputError

if TYPE_CHECKING:
    from torch import Tensor

    from discrete_vae.data.rows import Rows
    from discrete_vae.inference.class_model import ClassModel
    from discrete_vae.training.load import LoadedRun

_MOST_CHAINS = 2000
_NUMBER = r"[+-]?(?:\d{1,9}\.?\d{0,20}|\.\d{1,20})(?:[eE][+-]?\d)?"


@verb(
    "generate",
    f"{EXPLAINED} States of the prior come from block Gibbs chains that start where those of training ended. With "
    "--label a classifier of latents is fitted to labeled examples (--data, --labels), and states are kept with the "
    "probability of the class: draws from p(latents | class).",
    divides=True,
    typed={"count": "-n"},
)
@takes_rows
@option("-n N", "how many; of each class, with --label", whole_number(), required=True)
@option("--out FILE", "where they go: .npz holds x, z and labels; .npy, .csv and .parquet the examples")
@option("--clamp UNIT=BIT,...", "units of the prior that are set: --clamp 3=1,17=0")
@option(
    "--bias FILE|UNIT=VALUE,...",
    "fields that are added to the prior's biases, nats: some units, or a .npy file with one per unit",
)
@option(
    "--label LABEL,...|all", "classes to draw, by their labels; the labels are those of --data, or --labels"
)
@option(
    "--labels FILE",
    "labels of the examples of --data (default: of the run's training part, one per example or per row of its file): "
    ".npy, or a .csv column",
)
@option(
    "--statistic sample|mean|mode",
    "what of p(x | latents) is written; default: sample",
    one_of("sample", "mean", "mode"),
    default="sample",
)
@option(
    "--num-sweeps N", "sweeps of the chains from draw to draw; default: 1000", whole_number(), default="1000"
)
@option("--picture FILE", "a picture of the first examples, a row per class: .png, .pdf or .svg")
def run_generate(
    asked: AskedRun,
    rows: AskedRows,
    seed: int | None,
    n: int,
    out: str | None,
    clamp: str | None,
    bias: str | None,
    label: str | None,
    labels: str | None,
    statistic: Any,
    num_sweeps: int,
    picture: str | None,
) -> int:
    """Write new examples; returns the exit status."""
    from discrete_vae.commands.device import say_device
    from discrete_vae.commands.pictures import PictureFile
    from discrete_vae.distributed import rank
    from discrete_vae.inference.generate import generate
    from discrete_vae.inference.prior_states import PriorStates, check_clamps

    if out is None and picture is None:
        raise InvalidInputError(
            "--out", "or --picture must be given", "neither", "For example --out new.npz."
        )
    if label is None:
        _check_no_examples(rows, labels)
    output, drawing = rows.output(asked, out, labels=labels, bias=bias), PictureFile.of(picture)
    loaded = asked.load()
    prior = loaded.model.prior
    clamped = {unit: int(value) for unit, value in _pairs("--clamp", clamp, "UNIT=BIT", "[01]").items()}
    check_clamps(clamped, prior.num_units, argument="--clamp")
    field = _field(bias, prior.num_units)
    labeled = None if label is None else _labeled(asked, rows, loaded, labels)
    if labeled is not None and label is not None:
        assert labeled.labels is not None
        _places(label, np.unique(labeled.labels))
    say_device(asked.device)
    classes = None if labeled is None else _fitted(loaded, labeled, seed or 0)
    wanted = [] if label is None or classes is None else _places(label, classes.classes)
    if rank() > 0:
        return 0
    total = n * max(1, len(wanted))
    states = PriorStates(
        prior,
        loaded.chains.z.to(prior.bias.device),
        clamped,
        field,
        num_chains=_MOST_CHAINS if classes is not None else min(n, _MOST_CHAINS),
        seed=seed or 0,
    )
    with examples_progress(total, "generating") as progress:
        made = generate(
            loaded.model,
            states,
            n,
            classes=classes,
            wanted=wanted,
            statistic=statistic,
            num_sweeps=num_sweeps,
            seed=seed or 0,
            report=progress,
        )
    print(f"{asked.name}, checkpoint of step {loaded.step}: {total} new examples")
    names = None
    if classes is not None and made.places is not None:
        names = classes.classes[made.places]
        print(
            f"classes are read off the latents: right for {100 * classes.accuracy:.1f} % of labeled examples held "
            f"out; {made.num_states:,} states were drawn"
        )
    if output is not None:
        arrays = {"x": made.x, "z": made.z} | ({} if names is None else {"labels": names})
        say_written(output.write(arrays, array=made.x, columns=_columns(asked, made.x, names)))
    if drawing is not None:
        from discrete_vae.figures.new_examples import draw_new_examples

        image_shape = None
        if len(shape := loaded.model.event_shape) == 3:
            image_shape = shape[0] * shape[1], shape[2]
        drawing.save(draw_new_examples(made.x, names, image_shape, statistic), loaded)
    return 0


def _check_no_examples(rows: AskedRows, labels: str | None) -> None:
    """Refuse options that say which examples are labeled, and how, where no class is asked for."""
    given = {
        "--data": rows.data,
        "--part": rows.part,
        "--label-column": rows.label_column,
        "--num-examples": rows.num_examples,
        "--labels": labels,
    }
    for name, value in given.items():
        if value is not None:
            repair = "Add --label all, or leave it out: new examples of the prior read no others."
            raise InvalidInputError(name, "needs --label", repr(value)[:80], repair)


def _pairs(argument: str, word: str | None, form: str, value: str) -> dict[int, float]:
    """Values by unit, of "3=1,17=0"; `value` is the pattern of one."""
    found: dict[int, float] = {}
    for part in [] if word is None else word.split(","):
        match = re.fullmatch(rf"\s*(\d{{1,9}})\s*=\s*({value})\s*", part)
        if match is None or int(match[1]) in found:
            rule, repair = f"must be pairs {form}, each unit once", "Give 3=1,17=0, say."
            raise InvalidInputError(argument, rule, repr(part)[:80], repair)
        found[int(match[1])] = float(match[2])
    return found


def _field(word: str | None, num_units: int) -> Tensor | None:
    """Fields of all units; None for none."""
    import torch

    from discrete_vae.data.read_arrays import read_npy
    from discrete_vae.paths import user_path

    if word is None:
        return None
    if "=" not in word:
        values = read_npy(user_path("--bias", word))
        if values.shape != (num_units,) or values.dtype.kind not in "buif" or not np.isfinite(values).all():
            rule = f"must hold a finite number for each of the {num_units} units"
            received = f"shape {values.shape} of {values.dtype}"
            raise InvalidInputError("--bias", rule, received, "Save such an array with numpy.save.")
        return torch.from_numpy(values.astype(np.float32))
    field = torch.zeros(num_units)
    for unit, value in _pairs("--bias", word, "UNIT=VALUE", _NUMBER).items():
        if unit >= num_units:
            rule = f"must name units from 0 to {num_units - 1}"
            raise InvalidInputError("--bias", rule, unit, "Give another unit.")
        field[unit] = value
    return field


def _labeled(asked: AskedRun, rows: AskedRows, loaded: LoadedRun, labels: str | None) -> Rows:
    """Read labeled examples."""
    part = rows.part or ("train" if rows.data is None else None)
    found = replace(rows, part=part).read(asked, loaded, labels=labels)
    if found.labels is None or found.labels.ndim != 1:
        rule, repair = "needs a label per example", "Give --labels FILE, or a file with labels: --data FILE."
        raise InvalidInputError("--label", rule, f"none for {found.name.rstrip(',')}", repair)
    return found


def _fitted(loaded: LoadedRun, found: Rows, seed: int) -> ClassModel:
    """Fit classes to the latents of labeled examples."""
    import torch

    from discrete_vae.inference.class_model import fit_class_model
    from discrete_vae.inference.encode import encode_rows
    from discrete_vae.inference.generate import latents_of_classes

    assert found.labels is not None
    with examples_progress(len(found), "encoding labeled examples") as progress:
        codes = encode_rows(loaded.model, found.x, draw=True, seed=seed, numbers=found.index, report=progress)
    latents = latents_of_classes(torch.from_numpy(codes.bits).float(), torch.from_numpy(codes.continuous))
    return fit_class_model(latents.numpy(), found.labels, seed=seed)


def _places(label: str, classes: np.ndarray) -> list[int]:
    """Places of the classes that are asked for."""
    from discrete_vae.inference.class_model import place_of

    if label == "all":
        return list(range(len(classes)))
    return list(dict.fromkeys(place_of(word.strip(), classes) for word in label.split(",")))


def _columns(asked: AskedRun, x: np.ndarray, names: np.ndarray | None) -> dict[str, np.ndarray]:
    """Columns of a table that --data reads again, behind that of the labels."""
    from discrete_vae.inference.run_rows import known_columns

    flat = x.reshape(len(x), -1)
    known = known_columns(asked.directory) or [f"x_{number}" for number in range(flat.shape[1])]
    labels = {} if names is None else {"label": names}
    return labels | {name: flat[:, place] for place, name in enumerate(known)}
