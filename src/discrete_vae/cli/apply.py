"""Verbs that take examples through a trained model: encode, score, reconstruct, denoise, impute and others."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from discrete_vae.cli.options import (
    PictureFile,
    examples_progress,
    number,
    one_of,
    option,
    verb,
    whole_number,
)
from discrete_vae.cli.trained import (
    EXPLAINED,
    AskedRows,
    AskedRun,
    feature_columns,
    headline,
    identity,
    say_written,
    takes_rows,
    write_examples,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.records import with_error

if TYPE_CHECKING:
    from torch import Tensor

    from discrete_vae.data.rows import Rows
    from discrete_vae.inference.evaluate_run import KnownLogPartition
    from discrete_vae.inference.generate import ClassModel
    from discrete_vae.inference.impute import Imputed
    from discrete_vae.inference.interpolate import LatentPath, PathKind
    from discrete_vae.inference.score import Scores
    from discrete_vae.load import LoadedRun
    from discrete_vae.model import DiscreteVAE, Statistic
    from discrete_vae.runs.output import OutputFile


# dvae denoise: examples freed of noise by a trained model.


@verb("denoise", EXPLAINED, divides=True)
@takes_rows
@option(
    "--noise P",
    "probability with which each bit was flipped. Of --data FILE it says what is known of its noise; without a file "
    "the run's own bits are flipped, and the error is shown before and after",
    number,
)
@option("--num-draws K", "draws of the latents per example; default: 20", whole_number(), default="20")
@option(
    "--out FILE", "where the means go: .npz, .npy, or a table with the features as columns, .csv or .parquet"
)
@option("--picture FILE", "examples before and after: .png, .pdf or .svg")
def run_denoise(
    asked: AskedRun,
    rows: AskedRows,
    seed: int | None,
    noise: float | None,
    num_draws: int,
    out: str | None,
    picture: str | None,
) -> int:
    """Denoise examples; returns the exit status."""
    from discrete_vae.cli.options import say_device
    from discrete_vae.distributed import rank
    from discrete_vae.figures.results import draw_denoised
    from discrete_vae.inference.encode import check_flips, denoise_rows, flip_bits
    from discrete_vae.inference.score import guess_error

    if noise is None and rows.data is None:
        repair = "For example: --noise 0.1, which flips bits of the run's own test part."
        raise InvalidInputError("--data", "or --noise must be given", "neither", repair)
    output, drawing = rows.output(asked, out), PictureFile.of(picture)
    loaded = asked.load()
    model = loaded.model
    if noise is not None:
        check_flips(model, noise, argument="--noise")
    found = rows.read(asked, loaded)
    clean = found.x if rows.data is None else None
    noisy = found.x
    if clean is not None:
        noisy = flip_bits(clean, noise or 0.0, seed=seed or 0, numbers=found.index.tolist())
    say_device(asked.device)
    with examples_progress(len(found), "denoising") as progress:
        x = denoise_rows(
            model,
            noisy,
            noise=noise,
            num_draws=num_draws,
            seed=seed or 0,
            numbers=found.index,
            report=progress,
        )
    if rank() > 0:
        return 0
    print(headline(asked, loaded, found))
    if clean is not None:
        for when, guess in (("Before", noisy.nan_to_num(0.0).numpy()), ("After", x)):
            print(f"{when}: {guess_error(clean.numpy(), guess, is_share=True)}")
    write_examples(output, found, x, {"x": x, "noisy": noisy.numpy().reshape(x.shape)})
    if drawing is not None:
        drawing.save(draw_denoised(clean, noisy, x, model.event_shape), loaded)
    return 0


# dvae encode: codes of examples.


_ARRAYS = ("bits", "probabilities", "zeta", "packed", "continuous")


@verb("encode", EXPLAINED, divides=True)
@takes_rows
@option(
    "--out FILE",
    "where the codes go: .npz holds all of bits, packed, probabilities, zeta and, where there are layers, continuous; "
    ".npy, .csv and .parquet one of them",
    required=True,
)
@option(
    "--what bits|probabilities|zeta|packed|continuous",
    "which of them a .npy, .csv or .parquet file holds; default: bits",
    one_of(*_ARRAYS),
    default="bits",
)
@option("--draw", "draw codes from the posterior; without it the most probable one, group after group")
@option(
    "--picture FILE", "a picture of what the units say of each label, or of each example: .png, .pdf or .svg"
)
def run_encode(
    asked: AskedRun, rows: AskedRows, seed: int | None, out: str, what: str, draw: bool, picture: str | None
) -> int:
    """Write the codes of examples; returns the exit status."""
    from discrete_vae.cli.options import PictureFile, say_device
    from discrete_vae.distributed import rank
    from discrete_vae.errors import InvalidInputError
    from discrete_vae.figures.results import draw_codes
    from discrete_vae.inference.encode import encode_rows

    output, drawing = rows.output(asked, out), PictureFile.of(picture)
    loaded = asked.load()
    if what == "continuous" and loaded.model.hierarchy.num_layers == 0:
        raise InvalidInputError(
            "--what", "must be an array of this run, which has no layers", what, "Take zeta."
        )
    found = rows.read(asked, loaded)
    say_device(asked.device)
    with examples_progress(len(found), "encoding") as progress:
        codes = encode_rows(
            loaded.model, found.x, draw=draw, seed=seed or 0, numbers=found.index, report=progress
        )
    if rank() > 0:
        return 0
    print(headline(asked, loaded, found))
    num_units, active = codes.bits.shape[1], codes.bits.mean()
    distinct = len(np.unique(codes.packed, axis=0))
    print(f"{num_units} units, {100 * active:.0f} % of them on; {distinct} different codes")
    arrays = codes.arrays()
    chosen = arrays[what].reshape(len(found), -1)
    table = {f"{_word(what)}_{number}": column for number, column in enumerate(chosen.T)}
    assert output is not None
    say_written(output.write(identity(found) | arrays, array=arrays[what], columns=identity(found) | table))
    if drawing is not None:
        drawing.save(draw_codes(codes, found.labels), loaded)
    return 0


def _word(what: str) -> str:
    """What a column of an array is called."""
    return {"bits": "bit", "probabilities": "probability", "packed": "byte"}.get(what, what)


# dvae generate: new examples of a trained run.


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
    from discrete_vae.cli.options import PictureFile, say_device
    from discrete_vae.distributed import rank
    from discrete_vae.inference.generate import PriorStates, check_clamps, generate

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
        from discrete_vae.figures.results import draw_new_examples

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

    from discrete_vae.data.arrays import read_npy
    from discrete_vae.system import user_path

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

    from discrete_vae.inference.encode import encode_rows
    from discrete_vae.inference.generate import fit_class_model, latents_of_classes

    assert found.labels is not None
    with examples_progress(len(found), "encoding labeled examples") as progress:
        codes = encode_rows(loaded.model, found.x, draw=True, seed=seed, numbers=found.index, report=progress)
    latents = latents_of_classes(torch.from_numpy(codes.bits).float(), torch.from_numpy(codes.continuous))
    return fit_class_model(latents.numpy(), found.labels, seed=seed)


def _places(label: str, classes: np.ndarray) -> list[int]:
    """Places of the classes that are asked for."""
    from discrete_vae.inference.generate import place_of

    if label == "all":
        return list(range(len(classes)))
    return list(dict.fromkeys(place_of(word.strip(), classes) for word in label.split(",")))


def _columns(asked: AskedRun, x: np.ndarray, names: np.ndarray | None) -> dict[str, np.ndarray]:
    """Columns of a table that --data reads again, behind that of the labels."""
    from discrete_vae.inference.rows import known_columns

    flat = x.reshape(len(x), -1)
    known = known_columns(asked.directory) or [f"x_{number}" for number in range(flat.shape[1])]
    labels = {} if names is None else {"label": names}
    return labels | {name: flat[:, place] for place, name in enumerate(known)}


# dvae impute: gaps in examples filled.


@verb(
    "impute",
    f"{EXPLAINED} Gaps are NaN or empty cells. What fills them is the mean given what is observed, for bits a "
    "probability, for codes the most probable one. A .csv file comes back as it was, with its gaps filled.",
    divides=True,
)
@takes_rows
@option(
    "--out FILE",
    "where the result goes: .npz holds filled, gaps, std_error, effective_samples and draws; .npy, .csv and .parquet "
    "the examples alone; with --draws a file for each draw: FILE-1, FILE-2, ...",
    required=True,
)
@option(
    "--mask FILE", "a .npy file of the data's shape, true (or 1) where a value is to be taken for a gap too"
)
@option("--mode", "fill with the most probable value; bits and codes alone have one")
@option("--draws N", "draw N whole examples given what is observed, for multiple imputation", whole_number())
@option("--std-errors FILE", "standard errors of what fills the gaps: .npz, .npy, .csv or .parquet")
@option(
    "--method importance|chains",
    "importance (default): weighted draws of the latents, exact as samples grow; chains: Markov chains over the "
    "latents, exact as steps grow",
    one_of("importance", "chains"),
    default="importance",
)
@option("--num-samples N", "draws of the latents per example; default: 1000", whole_number(), default="1000")
@option(
    "--num-rounds N",
    "rounds in which the draws learn from earlier ones what to read in the gaps; default: 10",
    whole_number(),
    default="10",
)
@option(
    "--truncated",
    "truncate importance weights: smoother means, a little off, where effective samples are few",
)
@option("--num-steps N", "steps of the chains; default: 100", whole_number(), default="100")
@option("--picture FILE", "a picture of the first examples with gaps, filled: .png, .pdf or .svg")
def run_impute(
    asked: AskedRun,
    rows: AskedRows,
    seed: int | None,
    out: str,
    mask: str | None,
    mode: bool,
    draws: int | None,
    std_errors: str | None,
    picture: str | None,
    **settings: Any,
) -> int:
    """Fill gaps; returns the exit status."""
    from discrete_vae.cli.options import PictureFile, say_device
    from discrete_vae.distributed import rank
    from discrete_vae.inference.impute import ImputationSettings, filling_for, impute

    outputs = [rows.output(asked, name, mask=mask, std_errors=std_errors) for name in _names(out, draws)]
    errors, drawing = (
        rows.output(asked, std_errors, argument="--std-errors", mask=mask),
        PictureFile.of(picture),
    )
    is_csv = rows.data is not None and rows.data.lower().endswith(".csv") and out.lower().endswith(".csv")
    if is_csv and rows.num_examples is not None:
        rule, repair = "must be left out where a .csv file is filled", "Write a .npz file for a few examples."
        raise InvalidInputError("--num-examples", rule, rows.num_examples, repair)
    chosen = ImputationSettings(filling="mode" if mode else None, num_draws=draws or 0, **settings)
    loaded = asked.load()
    found = rows.read(asked, loaded, missing=True)
    x, model = found.x, loaded.model
    if mask is not None:
        x = x.masked_fill(_read_mask(mask, found, is_choice=rows.num_examples is not None), np.nan)
    gaps = x.isnan().numpy()
    if not gaps.any():
        received, repair = "none", "Give a file with NaN or empty cells, or say where: --mask FILE."
        raise InvalidInputError("--data", "must hold gaps to be filled", received, repair)
    try:
        filling_for(model.likelihood, chosen)
    except InvalidInputError as error:  # of a filling, which is what --mode says
        rule = "must be left out for values that are neither bits nor codes"
        raise InvalidInputError("--mode", rule, "it", error.repair) from None
    say_device(asked.device)
    with examples_progress(len(found), "imputing") as progress:
        imputed = impute(
            model,
            x.to(asked.device),
            settings=chosen,
            seed=seed or 0,
            numbers=found.index,
            report=progress,
        )
    if rank() > 0:
        return 0
    print(headline(asked, loaded, found))
    ess = imputed.effective_samples[~np.isnan(imputed.effective_samples)]
    print(
        f"{gaps.sum():,} gaps in {len(ess)} examples; effective samples per example: median {np.median(ess):.1f}"
    )
    tables = [imputed.filled] if not draws or out.lower().endswith(".npz") else _unstacked(imputed)
    for output, table in zip(outputs, tables, strict=True):
        if is_csv and output is not None:
            whole = _is_whole(model, mode, draws)
            say_written(_fill_csv(output, Path(rows.data or ""), found, gaps, table, whole=whole))
        else:
            write_examples(output, found, table, _arrays(imputed, gaps))
    write_examples(errors, found, imputed.std_error, {"std_error": imputed.std_error})
    if drawing is not None:
        from discrete_vae.figures.results import draw_imputed

        shape = model.event_shape
        image_shape = (shape[0] * shape[1], shape[2]) if len(shape) == 3 else None
        drawing.save(draw_imputed(x, imputed, image_shape), loaded)
    return 0


def _names(out: str, draws: int | None) -> list[str]:
    """The files to be written: one, or one per draw where a file has room for one table alone."""
    if not draws or out.lower().endswith(".npz"):
        return [out]
    path = Path(out)
    return [str(path.with_name(f"{path.stem}-{number + 1}{path.suffix}")) for number in range(draws)]


def _unstacked(imputed: Imputed) -> list[np.ndarray]:
    assert imputed.draws is not None
    return list(np.moveaxis(imputed.draws, 1, 0))


def _arrays(imputed: Imputed, gaps: np.ndarray) -> dict[str, np.ndarray]:
    """What a .npz file holds."""
    arrays = {
        "filled": imputed.filled,
        "gaps": gaps.reshape(imputed.filled.shape),
        "std_error": imputed.std_error,
        "effective_samples": imputed.effective_samples,
    }
    return arrays if imputed.draws is None else arrays | {"draws": imputed.draws}


def _read_mask(word: str, found: Rows, *, is_choice: bool) -> Any:
    """Where the mask's gaps are, (row, feature) bool, of the rows that were chosen."""
    import torch

    from discrete_vae.data.arrays import read_npy
    from discrete_vae.system import user_path

    mask = read_npy(user_path("--mask", word))
    size, repair = found.x.shape[1], "Save a boolean array of the data's shape, true in gaps."
    least = int(found.index.max()) + 1
    fits = mask.ndim >= 2 and mask.size == len(mask) * size
    if not fits or (len(mask) < least if is_choice else len(mask) != least):
        examples = f"at least {least}" if is_choice else str(least)
        rule = f"must have the data's shape, {examples} examples of {size} values"
        raise InvalidInputError("--mask", rule, f"shape {mask.shape}", repair)
    if mask.dtype.kind not in "buif" or not ((mask == 0) | (mask == 1)).all():
        received = f"other values, of {mask.dtype}"
        raise InvalidInputError("--mask", "must hold true and false, or 1 and 0", received, repair)
    return torch.from_numpy(mask.reshape(len(mask), -1)[found.index].astype(bool))


def _is_whole(model: DiscreteVAE, mode: bool, draws: int | None) -> bool:
    """Whether what fills the gaps are values of whole numbers, and no means."""
    from discrete_vae.likelihoods.families import CategoricalLikelihood

    values = mode or bool(draws) or isinstance(model.likelihood, CategoricalLikelihood)
    return values and model.likelihood.domain(exact=True).whole


def _fill_csv(
    output: OutputFile, source: Path, found: Rows, gaps: np.ndarray, table: np.ndarray, *, whole: bool
) -> Path:
    """Write the .csv file that was read with its gaps filled, each number with the digits that float32 has."""
    from discrete_vae.data.tables import filled_csv

    values = table.reshape(len(table), -1)
    words = np.full(values.shape, "", dtype=object)
    words[gaps] = [str(int(value)) if whole else str(value) for value in values[gaps].astype(np.float32)]
    return output.write_text(filled_csv(source.expanduser(), list(found.columns), gaps, words))


# dvae interpolate: paths between examples in the latents of a trained model.


_STREAM = 0x70616972


@verb("interpolate", EXPLAINED)
@takes_rows
@option(
    "--from I", "number of the example to start at, from 0; default: random pairs", whole_number(at_least=0)
)
@option("--to J", "number of the example to end at", whole_number(at_least=0))
@option("--num-pairs N", "random pairs; default: 8", whole_number())
@option(
    "--path flips|straight",
    "flips: from code to code by single bits, in an order that keeps the energy low (default); straight: evenly "
    "through the smoothed latents",
    one_of("flips", "straight"),
    default="flips",
)
@option(
    "--num-steps K",
    "steps of a straight path, and images of a picture; default: 11",
    whole_number(2),
    default="11",
)
@option("--out FILE", "a row per step: pair, step, flipped unit, energy, and x; .npz, .csv, ...")
@option("--picture FILE", "the paths, of a run of images: .png, .pdf or .svg")
def run_interpolate(
    asked: AskedRun,
    rows: AskedRows,
    seed: int | None,
    to: int | None,
    num_pairs: int | None,
    path: PathKind,
    num_steps: int,
    out: str | None,
    picture: str | None,
    **more: int | None,
) -> int:
    """Interpolate between examples; returns the exit status."""
    from discrete_vae.cli.options import say_device
    from discrete_vae.figures.results import draw_latent_paths
    from discrete_vae.inference.interpolate import interpolate

    start = more["from"]
    if (start is None) != (to is None) or (start is not None and num_pairs is not None):
        received = f"{start}, {to} and {num_pairs}".replace("None", "nothing")
        rule = "and --to must be given together, and without --num-pairs"
        raise InvalidInputError("--from", rule, received, "Give both, or neither.")
    output, drawing = rows.output(asked, out), PictureFile.of(picture)
    loaded = asked.load()
    if drawing is not None and len(loaded.model.event_shape) != 3:
        rule, repair = "needs a run of images", "Write a table: --out FILE.csv."
        raise InvalidInputError("--picture", rule, "one of a table", repair)
    found = rows.read(asked, loaded)
    pairs = _interpolate_pairs(found, start, to, num_pairs or 8, seed or 0)
    say_device(asked.device)
    paths = []
    with examples_progress(len(pairs), "interpolating") as progress:
        for done, (first, last) in enumerate(pairs, start=1):
            ends = found.x[first : first + 1], found.x[last : last + 1]
            paths.append(interpolate(loaded.model, *ends, path=path, num_steps=num_steps))
            progress(done)
    print(headline(asked, loaded, found))
    numbers = [(int(found.index[first]), int(found.index[last])) for first, last in pairs]
    for (first, last), way in zip(numbers, paths, strict=True):
        print(f"{first} to {last}: {_shown(way, path)}")
    if output is not None:
        arrays, columns = _interpolate_arrays(found, numbers, paths)
        say_written(output.write(arrays, array=arrays["x"], columns=columns))
    if drawing is not None:
        ends = [(found.x[first], found.x[last]) for first, last in pairs]
        drawing.save(draw_latent_paths(paths, ends, numbers, num_frames=num_steps), loaded)
    return 0


def _interpolate_pairs(
    rows: Rows, start: int | None, end: int | None, count: int, seed: int
) -> list[tuple[int, int]]:
    """Places of the pairs' examples."""
    from discrete_vae.data.splits import fixed_permutation

    if start is not None and end is not None:
        places = [np.flatnonzero(rows.index == number) for number in (start, end)]
        for option_name, number, place in zip(("--from", "--to"), (start, end), places, strict=True):
            if len(place) == 0:
                rule = f"must be the number of one of the {len(rows)} examples, from {rows.index[0]}"
                raise InvalidInputError(option_name, rule, number, f"The last one is {rows.index[-1]}.")
        return [(int(places[0][0]), int(places[1][0]))]
    if 2 * count > len(rows):
        rule = f"must be at most {len(rows) // 2} for {len(rows)} examples"
        raise InvalidInputError("--num-pairs", rule, count, "Give fewer, or a pair by --from and --to.")
    order = fixed_permutation(len(rows), seed, _STREAM)
    return [(int(a), int(b)) for a, b in order[: 2 * count].reshape(-1, 2)]


def _shown(way: LatentPath, path: str) -> str:
    differ = int((way.bits[0] != way.bits[-1]).sum())
    bits = f"{differ} bit{'s' * (differ != 1)} differ{'s' * (differ == 1)}"
    if path == "straight":
        return bits
    return (
        f"{bits}, energies {way.energy[0]:.1f} and {way.energy[-1]:.1f} nats at the ends, "
        f"{way.energy.max():.1f} at most on the way"
    )


def _interpolate_arrays(
    rows: Rows, numbers: list[tuple[int, int]], paths: list[LatentPath]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """What a .npz file holds, and what a table does."""
    steps = [len(way.energy) for way in paths]
    along = {
        "from": np.repeat([first for first, _ in numbers], steps),
        "to": np.repeat([last for _, last in numbers], steps),
        "step": np.concatenate([np.arange(count) for count in steps]),
        "flipped": np.concatenate([way.flipped for way in paths]),
        "energy": np.concatenate([way.energy for way in paths]),
    }
    means = np.concatenate([way.mean for way in paths])
    arrays = along | {"bits": np.concatenate([way.bits for way in paths]), "x": means}
    arrays["zeta"] = np.concatenate([way.zeta for way in paths])
    if paths[0].continuous.shape[1]:
        arrays["continuous"] = np.concatenate([way.continuous for way in paths])
    return arrays, along | feature_columns(rows, means)


# dvae neighbors: examples with the nearest codes.


_PARTS = ("train", "valid", "test")


@verb(
    "neighbors",
    f"{EXPLAINED} Codes are the most probable ones of the posterior; the search is exact, and of codes equally far "
    "the one with the lower index comes first.",
    divides=True,
)
@takes_rows
@option(
    "--among FILE|train|valid|test",
    "examples that are searched: a file, or a part of the run's own data; default: train",
    default="train",
)
@option("-k K", "neighbors of each example; default: 10", whole_number(), default="10")
@option(
    "--others", "leave out the example of the same number, where --data and --among are the same examples"
)
@option(
    "--out FILE",
    "where they go: .npz holds neighbors and distances, .csv and .parquet a column for each, .npy the neighbors",
    required=True,
)
@option("--picture FILE", "the first examples beside their neighbors: .png, .pdf or .svg")
def run_neighbors(
    asked: AskedRun,
    rows: AskedRows,
    seed: int | None,
    among: str,
    k: int,
    others: bool,
    out: str,
    picture: str | None,
) -> int:
    """Find neighbors; returns the exit status."""
    from discrete_vae.cli.options import PictureFile, say_device
    from discrete_vae.distributed import rank
    from discrete_vae.inference.encode import encode_rows
    from discrete_vae.inference.neighbors import nearest_codes

    searched = replace(
        rows,
        data=None if among in _PARTS else among,
        part=among if among in _PARTS else None,
        label_column=rows.label_column if among not in _PARTS else None,
        num_examples=None,
        argument="--among",
    )
    output, drawing = rows.output(asked, out, among=among), PictureFile.of(picture)
    loaded = asked.load()
    queries, pool = rows.read(asked, loaded), searched.read(asked, loaded)
    most = len(pool) - others
    if k > most:
        raise InvalidInputError("-k", f"must be at most {most}, the examples searched", k, "Ask for fewer.")
    say_device(asked.device)
    codes = {}
    for name, examples, what in (("own", queries, "encoding"), ("pool", pool, "encoding those searched")):
        with examples_progress(len(examples), what) as progress:
            found = encode_rows(loaded.model, examples.x, numbers=examples.index, report=progress)
        codes[name] = found.packed
    if rank() > 0:
        return 0
    own = queries.index if others else None
    with examples_progress(len(pool), "searching") as progress:
        nearest = nearest_codes(codes["own"], codes["pool"], k, excluded=own, report=progress)
    print(headline(asked, loaded, queries))
    print(
        f"searched: {pool.name.rstrip(',')}, {len(pool)} examples; units that differ from the nearest: "
        f"median {np.median(nearest.distances[:, 0]):g}, from the last of {k}: {np.median(nearest.distances[:, -1]):g}"
    )
    if (same := _same_labels(queries.labels, pool.labels, nearest.indices)) is not None:
        print(f"{100 * same.mean():.1f} % of the neighbors have the label of their example")
    assert output is not None
    table = {f"neighbor_{place + 1}": column for place, column in enumerate(nearest.indices.T)}
    table |= {f"distance_{place + 1}": column for place, column in enumerate(nearest.distances.T)}
    arrays = {"neighbors": nearest.indices, "distances": nearest.distances}
    say_written(
        output.write(identity(queries) | arrays, array=nearest.indices, columns=identity(queries) | table)
    )
    if drawing is not None:
        from discrete_vae.figures.results import draw_neighbors

        shape = loaded.model.event_shape
        image_shape = (shape[0] * shape[1], shape[2]) if len(shape) == 3 else None
        drawing.save(draw_neighbors(queries.x, pool.x, nearest, image_shape), loaded)
    return 0


def _same_labels(
    own: np.ndarray | None, of_pool: np.ndarray | None, neighbors: np.ndarray
) -> np.ndarray | None:
    """Which neighbors have their example's label, (row, neighbor); None where labels cannot be compared."""
    if own is None or of_pool is None or own.ndim != 1 or of_pool.ndim != 1:
        return None
    if (own.dtype.kind == "U") != (of_pool.dtype.kind == "U"):  # words, and numbers
        return None
    return of_pool[neighbors] == own[:, None]


# dvae reconstruct: examples as a trained model gives them back.


@verb("reconstruct", EXPLAINED, divides=True)
@takes_rows
@option("--out FILE", "where they go: .npz, .npy, or a table with the features as columns, .csv or .parquet")
@option(
    "--statistic mean|mode|sample",
    "of p(x | latents): the mean (of bits the probabilities; default), the most probable values, or a draw",
    one_of("mean", "mode", "sample"),
    default="mean",
)
@option(
    "--num-draws K",
    "draws of the latents, over which means are averaged; default: 1",
    whole_number(),
    default="1",
)
@option("--code", "from the most probable code, as dvae encode gives it, and not from draws")
@option("--picture FILE", "examples and their reconstructions: .png, .pdf or .svg")
def run_reconstruct(
    asked: AskedRun,
    rows: AskedRows,
    seed: int | None,
    out: str | None,
    statistic: Statistic,
    num_draws: int,
    code: bool,
    picture: str | None,
) -> int:
    """Reconstruct examples; returns the exit status."""
    import torch

    from discrete_vae.cli.options import PictureFile, say_device
    from discrete_vae.data.splits import picture_shape
    from discrete_vae.distributed import rank
    from discrete_vae.figures.run import ReconstructionTable, draw_reconstructions
    from discrete_vae.inference.encode import check_reconstruction, reconstruct_rows
    from discrete_vae.inference.score import guess_error

    check_reconstruction(statistic, num_draws, code, argument="--num-draws")
    output, drawing = rows.output(asked, out), PictureFile.of(picture)
    loaded = asked.load()
    found = rows.read(asked, loaded)
    say_device(asked.device)
    with examples_progress(len(found), "reconstructing") as progress:
        x = reconstruct_rows(
            loaded.model,
            found.x,
            statistic=statistic,
            num_draws=num_draws,
            code=code,
            seed=seed or 0,
            numbers=found.index,
            report=progress,
        )
    if rank() > 0:
        return 0
    print(headline(asked, loaded, found))
    kind = loaded.config.model.likelihood.kind
    if not bool(found.x.isnan().all()) and (kind, statistic) != ("categorical", "mean"):  # names have no mean
        print(f"Error: {guess_error(found.x.numpy(), x, is_share=kind in ('bernoulli', 'categorical'))}")
    write_examples(output, found, x, {"x": x})
    if drawing is not None:
        shown = np.arange(min(100, len(x))) * len(x) // min(100, len(x))
        means = torch.from_numpy(x.reshape(len(x), -1)[shown])
        table = ReconstructionTable(found.x[shown], means, torch.from_numpy(shown))
        drawing.save(draw_reconstructions(table, picture_shape(loaded.model.event_shape)), loaded)
    return 0


# dvae score: how probable a trained model finds each example.


_SAMPLES, _ELBO_DRAWS = 100, 10


@verb("score", EXPLAINED, divides=True)
@takes_rows
@option(
    "--out FILE", "a row per example: index, score, std_error, and p_value with a reference; .csv, .npz, ..."
)
@option(
    "--num-samples K",
    f"importance samples per example, or draws of the ELBO; default: {_SAMPLES}, {_ELBO_DRAWS} of the ELBO",
    whole_number(),
)
@option(
    "--elbo",
    "the ELBO in place of the log-likelihood: lower, but good enough to compare, and many times cheaper",
)
@option(
    "--threshold-from valid|test|train|FILE",
    "familiar examples, a part of the run's data or a file: each score gets a p-value by theirs. Parts that were "
    "trained on are no fair reference",
)
@option("--picture FILE", "histograms of the scores: .png, .pdf or .svg")
def run_score(
    asked: AskedRun,
    rows: AskedRows,
    seed: int | None,
    out: str | None,
    num_samples: int | None,
    elbo: bool,
    threshold_from: str | None,
    picture: str | None,
) -> int:
    """Score examples; returns the exit status."""
    from discrete_vae.cli.options import PictureFile, say_device
    from discrete_vae.distributed import rank
    from discrete_vae.figures.results import draw_scores
    from discrete_vae.inference.evaluate_run import log_partition_of_run
    from discrete_vae.inference.score import p_values, reference_numbers

    output, drawing = rows.output(asked, out, threshold_from=threshold_from), PictureFile.of(picture)
    loaded = asked.load()
    found = rows.read(asked, loaded)
    familiar = None if threshold_from is None else _reference(rows, threshold_from).read(asked, loaded)
    say_device(asked.device)
    log_z = log_partition_of_run(asked.directory, loaded, seed=seed or 0)
    settings = {"num_samples": num_samples, "elbo": elbo, "seed": seed or 0}
    scores = _scores(loaded, found, log_z, found.index, "scores", **settings)
    reference = None
    if familiar is not None:
        numbers = reference_numbers(familiar.index)
        reference = _scores(loaded, familiar, log_z, numbers, "reference", **settings)
    if rank() > 0:
        return 0
    columns = identity(found) | {scores.name: scores.value, "std_error": scores.std_error}
    if scores.ess is not None:
        columns["ess"] = scores.ess
    print(headline(asked, loaded, found))
    print(f"log Z: {log_z}")
    print(_summary(scores))
    if reference is not None and familiar is not None:
        columns["p_value"] = p_values(scores.value, reference.value)
        print(_compared(columns["p_value"], scores, reference, familiar))
    if output is not None:
        say_written(output.write(columns))
    if drawing is not None:
        drawing.save(draw_scores(scores, reference), loaded)
    return 0


def _reference(rows: AskedRows, word: str) -> AskedRows:
    """The reference's examples: at most as many as are scored."""
    if word in _PARTS:
        return replace(rows, data=None, part=word, label_column=None, at_most=True)
    return replace(rows, data=word, part=None, at_most=True, argument="--threshold-from")


def _scores(
    loaded: LoadedRun, rows: Rows, log_z: KnownLogPartition, numbers: np.ndarray, what: str, **settings: Any
) -> Scores:
    from discrete_vae.inference.score import elbo_rows, score_rows

    is_bound = settings.pop("elbo")
    function, default = (elbo_rows, _ELBO_DRAWS) if is_bound else (score_rows, _SAMPLES)
    settings["num_samples"] = settings["num_samples"] or default
    with examples_progress(len(rows), what) as progress:
        return function(
            loaded.model, rows.x, log_partition=log_z.value, numbers=numbers, report=progress, **settings
        )


def _summary(scores: Scores) -> str:
    name = "ELBO" if scores.is_bound else "log-likelihood"
    lines = [f"{name}: {with_error(scores.mean, scores.mean_std_error, 3)} nats per example"]
    low, middle, high = np.quantile(scores.value, [0.01, 0.5, 0.99])
    lines.append(f"  1 %, 50 %, 99 % of the examples are below {low:.1f}, {middle:.1f}, {high:.1f} nats")
    own = np.median(scores.std_error)
    error = f"  an example's own error is {own:.2f} nats (median), of {scores.num_samples} draws"
    if scores.num_samples == 1:
        error = "  an example's own error is not known of one draw"
    if scores.ess is not None:
        error += f"; effective number {np.median(scores.ess):.1f}"
    return "\n".join([*lines, error])


def _compared(p_value: np.ndarray, scores: Scores, reference: Scores, familiar: Rows) -> str:
    from discrete_vae.inference.score import roc_area

    area = roc_area(reference.value, scores.value)
    shares = ", ".join(f"{100 * np.mean(p_value <= level):.1f} % at most {level}" for level in (0.01, 0.05))
    return (
        f"Reference: {familiar.name.rstrip(',')}: {len(familiar)} examples, mean "
        f"{with_error(reference.mean, reference.mean_std_error, 3)} nats\n"
        f"  p-values: {shares}, of examples like the reference as many per cent\n"
        f"  area under the ROC curve: {with_error(area.value, area.std_error, 4)} (1 tells all apart, 0.5 none)"
    )
