"""dvae generate: new examples of a trained run."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
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


@verb(
    "generate",
    f"{EXPLAINED} States of the prior come from block Gibbs chains that start where those of training ended. With "
    "--label a classifier of latents is fitted to labeled examples (--data, --labels), and states are kept with the "
    "probability of the class: draws from p(latents | class).",
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
    "labels of the examples of --data (default: the run's training part): .npy, or a .csv column",
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
    if labels is not None and label is None:
        raise InvalidInputError("--labels", "needs --label", repr(labels)[:80], "Add --label all.")
    output, drawing = rows.output(asked, out, labels=labels, bias=bias), PictureFile.of(picture)
    loaded = asked.load()
    prior = loaded.model.prior
    clamped = {unit: int(value) for unit, value in _pairs("--clamp", clamp, "[01]").items()}
    check_clamps(clamped, prior.num_units, argument="--clamp")
    field = _field(bias, prior.num_units)
    labeled = None if label is None else _labeled(asked, rows, loaded, labels)
    if labeled is not None and label is not None:
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


def _pairs(argument: str, word: str | None, value: str) -> dict[int, float]:
    """Values by unit, of "3=1,17=0"."""
    found: dict[int, float] = {}
    for part in [] if word is None else word.split(","):
        match = re.fullmatch(rf"\s*(\d{{1,9}})\s*=\s*({value})\s*", part)
        if match is None or int(match[1]) in found:
            rule, repair = "must be pairs UNIT=VALUE, each unit once", "Give 3=1,17=0, say."
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
    for unit, value in _pairs("--bias", word, r"[+-]?\d{1,9}(?:\.\d{0,9})?").items():
        if unit >= num_units:
            rule = f"must name units from 0 to {num_units - 1}"
            raise InvalidInputError("--bias", rule, unit, "Give another unit.")
        field[unit] = value
    return field


@dataclass(frozen=True, eq=False)
class _Labeled:
    rows: Rows
    labels: np.ndarray


def _labeled(asked: AskedRun, rows: AskedRows, loaded: LoadedRun, labels: str | None) -> _Labeled:
    """Read labeled examples."""
    from discrete_vae.data.label_file import read_label_file

    part = rows.part or ("train" if rows.data is None else None)
    found = replace(rows, part=part).read(asked, loaded)
    of_rows = found.labels
    if labels is not None:
        all_labels, least = read_label_file(labels, argument="--labels"), int(found.index.max()) + 1
        if len(all_labels) < least:
            rule = f"must hold a label for each of {least} examples"
            raise InvalidInputError(
                "--labels", rule, len(all_labels), "Give one per example, in their order."
            )
        of_rows = all_labels[found.index]
    if of_rows is None or of_rows.ndim != 1:
        rule, repair = "needs a label per example", "Give --labels FILE, or a file with labels: --data FILE."
        raise InvalidInputError("--label", rule, f"none for {found.name.rstrip(',')}", repair)
    return _Labeled(found, of_rows)


def _fitted(loaded: LoadedRun, labeled: _Labeled, seed: int) -> ClassModel:
    """Fit classes to the latents of labeled examples."""
    import torch

    from discrete_vae.inference.class_model import fit_class_model
    from discrete_vae.inference.encode import encode_rows
    from discrete_vae.inference.generate import latents_of_classes

    found = labeled.rows
    with examples_progress(len(found), "encoding labeled examples") as progress:
        codes = encode_rows(loaded.model, found.x, draw=True, seed=seed, numbers=found.index, report=progress)
    latents = latents_of_classes(torch.from_numpy(codes.bits).float(), torch.from_numpy(codes.continuous))
    return fit_class_model(latents.numpy(), labeled.labels, seed=seed)


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
