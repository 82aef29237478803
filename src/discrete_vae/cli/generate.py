"""Verbs that make examples, built as those of `apply` are: reconstruct, denoise, impute, generate, interpolate."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from discrete_vae.cli.options import number, option, verb, whole_number
from discrete_vae.cli.trained import (
    EXPLAINED,
    TrainedRun,
    beside_features,
    feature_columns,
    say_written,
    takes_rows,
    write_rows,
)
from discrete_vae.config.columns import word_of
from discrete_vae.errors import InvalidInputError
from discrete_vae.records import some, with_error
from discrete_vae.system import user_path

if TYPE_CHECKING:
    from torch import Tensor

    from discrete_vae.config import ColumnConfig
    from discrete_vae.data.rows import Rows
    from discrete_vae.data.schema import TableSchema
    from discrete_vae.data.tables import TextFormat
    from discrete_vae.inference.generate import LatentPath, PathKind


@verb("reconstruct", EXPLAINED, divides=True)
@takes_rows
@option("--out FILE", "where they go: .npz, .npy, or a table with the features as columns, .csv or .parquet")
@option(
    "--statistic mean|mode|sample",
    "of p(x | latents): mean (default), most probable values, or a draw",
    default="mean",
)
@option("--num-draws K", "draws of the latents, over which means are averaged", whole_number(), default="1")
@option("--code", "from the most probable code, as dvae encode gives it, and not from draws")
@option(
    "--condition NAME=VALUE,...", "as the rows would be under this condition; what is not named is their own"
)
@option("--picture FILE", "examples and their reconstructions: .png, .pdf or .svg")
def run_reconstruct(run: TrainedRun, condition: str | None, **settings: Any) -> None:
    """Reconstruct examples."""
    import torch

    from discrete_vae.figures.run import ReconstructionTable, draw_reconstructions
    from discrete_vae.inference.encode import reconstruct_rows

    output, drawing = run.outputs(more=run.sequence_endings)
    examples = run.rows()
    if condition is not None:
        named, own = run.condition(condition), examples.condition
        assert named is not None
        settings["decoder_condition"] = named if own is None else torch.where(named.isnan(), own, named)
    x = run.compute(reconstruct_rows, examples, "reconstructing", seed=run.seed, **settings)
    if not run.is_first_process:
        return
    print(run.headline(examples))
    write_rows(run, output, examples, {"x": x}, x, in_words=True)
    given = examples.x[:]
    if condition is None:  # else the rows were observed under another
        kind = run.loaded.config.model.likelihood.kind
        _print_errors(kind, examples.schema, given, x, settings["statistic"])
    if drawing is not None:
        shown = np.arange(min(100, len(x))) * len(x) // min(100, len(x))
        means = torch.from_numpy(x.reshape(len(x), -1)[shown])
        table = ReconstructionTable(given[shown], means, torch.from_numpy(shown))
        picture = draw_reconstructions(table, run.image_shape, what=_what(condition, settings))
        run.save_picture(picture, drawing)


def _print_errors(
    kind: str, schema: TableSchema | None, given: Tensor, x: np.ndarray, statistic: str
) -> None:
    """The mean errors of reconstructions, of a table those of words and of numbers apart."""
    if schema is not None:
        is_guess = np.array([column.kind not in ("constant", "exposure") for column in schema.columns])
        of_words = np.array([hasattr(column, "values") for column in schema.columns])
        for name, chosen in (("words", of_words & is_guess), ("numbers", ~of_words & is_guess)):
            places = np.flatnonzero(chosen).tolist()
            own = given[:, places]
            if not bool(own.isnan().all()):
                print(f"Error of {name}: {_error(own, x[:, places], is_share=name == 'words')}")
    # names have no mean
    elif (kind, statistic) != ("categorical", "mean") and not bool(given.isnan().all()):
        print(f"Error: {_error(given, x, is_share=kind in ('bernoulli', 'categorical'))}")


def _what(condition: str | None, settings: dict[str, Any]) -> str:
    """What a reconstruction is, for the caption."""
    what = {"mean": "mean E[x | ζ, h]", "mode": "mode of p(x | ζ, h)", "sample": "draw of p(x | ζ, h)"}
    draws = "one draw" if settings["num_draws"] == 1 else f"{settings['num_draws']} draws"
    how = "at its most probable code" if settings["code"] else f"for {draws} of ζ and h from its posterior"
    return f"{what[settings['statistic']]} {how}" + (f", under {condition}" if condition else "")


def _error(truth: Tensor, guess: np.ndarray, *, is_share: bool) -> str:
    """The mean error of guesses, in words."""
    from discrete_vae.inference.score import mean_error

    value, std_error = mean_error(truth.numpy(), guess, is_share=is_share)
    if np.isnan(value):
        return "unknown, since nothing that was observed varies"
    if is_share:
        return f"{with_error(100 * value, 100 * std_error, 2, ' %')} of the values are wrong"
    return f"{with_error(value, std_error, 4)} standard deviations of a feature (root mean square)"


@verb("denoise", EXPLAINED, divides=True, typed={"share": "--noise"})
@takes_rows
@option(
    "--noise P",
    "probability with which bits were flipped; without --data the run's own are flipped now",
    number,
)
@option("--num-draws K", "draws of the latents per example", whole_number(), default="20")
@option("--out FILE", "where the means go: .npz, .npy, or a table, .csv or .parquet")
@option("--picture FILE", "examples before and after: .png, .pdf or .svg")
def run_denoise(run: TrainedRun, noise: float | None, num_draws: int) -> None:
    """Denoise examples."""
    from discrete_vae.figures.results import draw_denoised
    from discrete_vae.inference.encode import denoise_rows, flip_bits

    if noise is None and run.row_options["data"] is None:
        if run.loaded.config.model.likelihood.kind != "bernoulli":
            rule, repair = "must be given for other values than bits", "Name a file of noisy examples."
            raise InvalidInputError("--data", rule, "nothing", repair)
        repair = "--noise 0.1 flips bits of the run's own test part."
        raise InvalidInputError("--data", "or --noise must be given", "neither", repair)
    output, drawing = run.outputs()
    examples = run.rows()
    noisy = examples.x[:]
    clean = noisy if run.row_options["data"] is None else None
    if clean is not None:
        noisy = flip_bits(clean, noise or 0.0, seed=run.seed, numbers=examples.index.tolist())
    settings = {"noise": noise, "num_draws": num_draws, "seed": run.seed}
    x = run.compute(denoise_rows, examples, "denoising", x=noisy, **settings)
    if not run.is_first_process:
        return
    print(run.headline(examples))
    write_rows(run, output, examples, {"x": x, "noisy": noisy.numpy().reshape(x.shape)}, x, in_words=True)
    if clean is not None:
        print(f"Before: {_error(clean, noisy.nan_to_num(0.0).numpy(), is_share=True)}")
        print(f"After: {_error(clean, x, is_share=True)}")
    if drawing is not None:
        run.save_picture(draw_denoised(clean, noisy, x, run.image_shape), drawing)


@verb(
    "impute",
    f"{EXPLAINED} Gaps are NaN or empty cells. What fills them is the mean given what is observed, for bits a "
    "probability, for codes, words and columns of two values the most probable one. A .csv or .parquet file comes back "
    "as it was, with its gaps filled.",
    divides=True,
    typed={"filling": "--mode"},
)
@takes_rows
@option("--out FILE", "all in .npz, else the examples; with --draws FILE-1, FILE-2, ...", required=True)
@option(
    "--mask FILE", "a .npy file, (row, column), true where a value is to be a gap too; columns as in training"
)
@option("--mode", "fill with the most probable value; bits and codes alone have one")
@option("--draws N", "draw N whole examples given what is observed, for multiple imputation", whole_number())
@option("--std-errors FILE", "standard errors of what fills the gaps: .npz, .npy, .csv or .parquet")
@option(
    "--method importance|chains",
    "weighted draws of the latents (default) or Markov chains: exact as samples, or steps, grow",
    default="importance",
)
@option("--num-samples N", "draws of the latents per example", whole_number(), default="1000")
@option("--num-rounds N", "rounds in which draws learn from earlier ones", whole_number(), default="10")
@option("--truncated", "truncate importance weights: smoother means, a little off")
@option("--num-steps N", "steps of the chains; default: 100", whole_number())
@option("--picture FILE", "a picture of the first examples with gaps, filled: .png, .pdf or .svg")
def run_impute(
    run: TrainedRun,
    mask: str | None,
    mode: bool,
    draws: int | None,
    std_errors: str | None,
    num_steps: int | None,
    **settings: Any,
) -> None:
    """Fill gaps."""
    from discrete_vae.data.tables import READERS, TEXT_ENDINGS, filled_parquet, filled_text
    from discrete_vae.figures.results import draw_imputed
    from discrete_vae.inference.impute import ImputationSettings, impute
    from discrete_vae.runs.results import ENDINGS

    data = run.row_options["data"]
    files = {"--mask": mask}
    out = str(run.out)
    names, path = [out], Path(out)
    if draws and path.suffix.lower() != ".npz":  # a file has room for one table alone
        names = [str(path.with_name(f"{path.stem}-{number + 1}{path.suffix}")) for number in range(draws)]
    errors, drawing = run.output(std_errors, files, argument="--std-errors"), run.picture_path()
    ending = path.suffix.lower()
    is_table = ending in READERS and ending == Path(data or "").suffix.lower()
    endings = (*ENDINGS, ending) if is_table else (*ENDINGS, *run.sequence_endings)
    outputs = [run.output(name, files | {"--std-errors": std_errors}, endings=endings) for name in names]
    if is_table and run.row_options["num_examples"] is not None:
        rule = f"must be left out where a {ending} file is filled"
        repair = "Write a .npz file for a few examples."
        raise InvalidInputError("--num-examples", rule, run.row_options["num_examples"], repair)
    if num_steps is not None:
        if settings["method"] != "chains":
            raise InvalidInputError("--num-steps", "needs --method chains", num_steps, "Leave it out.")
        settings["num_steps"] = num_steps
    how = ImputationSettings(filling="mode" if mode else None, num_draws=draws or 0, **settings)
    examples, model = run.rows(missing=True), run.loaded.model
    x = examples.x[:]
    if mask is not None:
        is_choice = run.row_options["num_examples"] is not None
        x = x.masked_fill(_read_mask(mask, examples, is_choice=is_choice), np.nan)
    gaps = x.isnan().numpy()
    if not gaps.any():
        repair = "Give a file with NaN or empty cells, or say where: --mask FILE."
        raise InvalidInputError("--data", "must hold gaps to be filled", "none", repair)
    imputed = run.compute(impute, examples, "imputing", x=x.to(run.device), settings=how, seed=run.seed)
    if not run.is_first_process:
        return
    print(run.headline(examples))
    ess = imputed.effective_samples[~np.isnan(imputed.effective_samples)]
    median = f"effective samples per example: median {np.median(ess):.1f}"
    print(f"{gaps.sum():,} gaps in {len(ess)} examples; {median}")
    are_values = mode or draws or run.loaded.config.model.likelihood.kind == "categorical"
    whole = bool(are_values) and examples.schema is None and model.likelihood.domain(exact=True).whole
    drawn = None if names == [out] else imputed.draws
    tables = [imputed.filled] if drawn is None else np.moveaxis(drawn, 1, 0)
    arrays = {"filled": imputed.filled, "gaps": gaps.reshape(imputed.filled.shape)}
    arrays |= {"std_error": imputed.std_error, "effective_samples": imputed.effective_samples}
    arrays |= {} if imputed.draws is None else {"draws": imputed.draws}
    for output, table in zip(outputs, tables, strict=True):
        if not is_table or output is None:
            write_rows(run, output, examples, arrays, table, in_words=True)
            continue
        filled, path = feature_columns(table, examples.columns, examples.schema), user_path("data", str(data))
        if ending in TEXT_ENDINGS:
            words, form = np.full(gaps.shape, "", dtype=object), run.text_format
            configs = [None] * len(filled) if examples.schema is None else examples.schema.columns
            for place, (config, column) in enumerate(zip(configs, filled.values(), strict=True)):
                own = gaps[:, place]
                words[own, place] = [_word(value, config, form, whole=whole) for value in column[own]]
            content = filled_text(path, [*filled], gaps, words, form).encode(form.encoding)
        else:
            content = filled_parquet(path, filled, gaps)
        say_written(output.write_bytes(content))
    write_rows(run, errors, examples, {"std_error": imputed.std_error}, imputed.std_error)
    if drawing is not None:
        run.save_picture(draw_imputed(x, imputed, run.image_shape), drawing)


def _word(value: Any, config: ColumnConfig | None, form: TextFormat, *, whole: bool) -> str:
    """A value of a table as its text has it; numbers that a model gives with the digits of float32."""
    if isinstance(value, str | bool | np.bool_):
        return str(value)
    if whole or isinstance(value, int | np.integer):
        return str(int(value))
    is_own = hasattr(config, "values")  # one that the column has, to the last digit
    return (word_of(value) if is_own else str(np.float32(value))).replace(".", form.decimal)


def _read_mask(word: str, examples: Rows, *, is_choice: bool) -> Tensor:
    """Gaps that the mask makes in the examples, (row, feature) bool."""
    import torch

    from discrete_vae.data.arrays import read_npy

    mask = read_npy(user_path("--mask", word))
    size, repair = examples.x.shape[1], "Save a boolean array of the data's shape, true in gaps."
    least = int(examples.index.max()) + 1
    fits = mask.ndim >= 2 and mask.size == len(mask) * size
    if not fits or (len(mask) < least if is_choice else len(mask) != least):
        count = f"{'at least ' * is_choice}{least}"
        rule = f"must have the data's shape, {count} examples of {size} values"
        raise InvalidInputError("--mask", rule, f"shape {mask.shape}", repair)
    if mask.dtype.kind not in "buif" or not ((mask == 0) | (mask == 1)).all():
        received = f"other values, of {mask.dtype}"
        raise InvalidInputError("--mask", "must hold true and false, or 1 and 0", received, repair)
    return torch.from_numpy(mask.reshape(len(mask), -1)[examples.index].astype(bool))


_MOST_CHAINS = 2000
_NUMBER = r"[+-]?(?:\d{1,9}\.?\d{0,20}|\.\d{1,20})(?:[eE][+-]?\d)?"


@verb(
    "generate",
    f"{EXPLAINED} States of the prior come from block Gibbs chains that start where those of training ended. With "
    "--label a model with classes draws from p(example | class): the units of the label are set. For another "
    "model a classifier of latents is fitted to labeled examples (--data, --labels), and states are kept with the "
    "probability of the class: draws from p(latents | class).",
    divides=True,
    typed={"count": "-n", "clamped": "--clamp"},
)
@takes_rows
@option("-n N", "how many; of each class, with --label", whole_number(), required=True)
@option(
    "--out FILE", "where they go: .npz holds x, z and labels; .npy, .csv, .parquet and .fasta the examples"
)
@option("--clamp UNIT=BIT,...", "units of the prior that are set: --clamp 3=1,17=0")
@option("--bias FILE|UNIT=VALUE,...", "fields added to the prior's biases, nats: some units, or a .npy file")
@option("--label LABEL,...|all", "classes to draw: the model's own, or by their labels in --data or --labels")
@option("--labels FILE", "labels, .npy or .csv, of the examples of --data; default: the training part")
@option("--statistic sample|mean|mode", "what of p(x | latents) is written", default="sample")
@option("--condition NAME=VALUE,...", "c of a model of p(x | c); what is not named is missing")
@option("--num-sweeps N", "sweeps of the chains from draw to draw", whole_number(), default="1000")
@option("--picture FILE", "a picture of the first examples, a row per class: .png, .pdf or .svg")
def run_generate(
    run: TrainedRun,
    n: int,
    clamp: str | None,
    bias: str | None,
    label: str | None,
    labels: str | None,
    condition: str | None,
    **settings: Any,
) -> None:
    """Write new examples."""
    from discrete_vae.data.rows import labeled
    from discrete_vae.figures.results import draw_new_examples
    from discrete_vae.inference.generate import PriorStates, fit_classes, generate, generate_of_labels
    from discrete_vae.inference.rows import known_columns

    if run.out is None and run.picture is None:
        repair = "For example --out new.npz."
        raise InvalidInputError("--out", "or --picture must be given", "neither", repair)
    of_rows = run.row_options | {"data_dir": None, "labels": labels}
    for name, value in of_rows.items():
        if label is None and value is not None:
            repair = "Add --label all, or leave it out: new examples of the prior read no others."
            raise InvalidInputError(name, "needs --label", repr(value)[:80], repair)
    output, drawing = run.outputs({"--labels": labels, "--bias": bias}, more=run.sequence_endings)
    clamped = {unit: int(bit) for unit, bit in _pairs("--clamp", clamp, "UNIT=BIT", "[01]").items()}
    model, chains = run.loaded.model, run.loaded.chains.z
    field = _field(bias, model.prior.num_units)
    classes, wanted, own = None, [], np.array(run.loaded.config.model.classes)
    if label is not None and len(own):
        for name, value in of_rows.items():
            if value is not None:
                rule, repair = "must be left out for a model with classes of its own", "Leave it out."
                raise InvalidInputError(name, rule, repr(value)[:80], repair)
        wanted = _places(label, own)
    elif label is not None:
        part = run.row_options["part"] or ("train" if run.row_options["data"] is None else None)
        examples = run.rows(part=part, labels=labels)
        names = examples.labels
        if names is None or names.ndim != 1 or not labeled(names).any():
            rule, repair = "needs a label per example", "Give --labels FILE, or --data FILE with labels."
            raise InvalidInputError("--label", rule, f"none for {examples.name.rstrip(',')}", repair)
        examples, names = examples.subset(np.flatnonzero(labeled(names))), names[labeled(names)]
        if names.dtype.kind == "f" and (names % 1 != 0).any():
            rule, repair = "needs labels that are words or whole numbers", "Give others by --labels FILE."
            raise InvalidInputError("--label", rule, f"{names[names % 1 != 0][0]}", repair)
        _places(label, np.unique(names))
        of_labels = {"labels": names, "weights": examples.weights, "seed": run.seed}
        classes = run.compute(fit_classes, examples, "encoding labeled examples", **of_labels)
        wanted = _places(label, classes.classes)
    if not run.is_first_process:
        return
    num_chains = _MOST_CHAINS if classes is not None else min(n, _MOST_CHAINS)
    start = chains.to(model.prior.bias.device)
    total, of_states = n * max(1, len(wanted)), {"num_chains": num_chains, "seed": run.seed}
    settings["condition"] = c = run.condition(condition)
    if c is not None and model.condition is not None:
        # what is never missing in training leaves its vector at 0
        places = (c[0].isnan() & ~model.condition.missing.any(1).cpu()).nonzero()[:, 0].tolist()
        if names := [model.condition.names[place] for place in places]:
            what = f"--condition does not give {some(names, 3)}, and the model has not learned to do without"
            repair = f"the mean over the training data is taken. Give it: --condition {names[0]}=VALUE."
            warnings.warn(f"{what}: {repair}", stacklevel=2)
    with run.progress(total, "generating") as report:
        settings["report"] = report
        if wanted and classes is None:
            set_units = {"clamped": clamped, "field": field}
            made = generate_of_labels(model, start, n, wanted, **set_units, **of_states, **settings)
        else:
            states = PriorStates(model.prior, start, clamped, field, **of_states)
            made = generate(model, states, n, classes=classes, wanted=wanted, seed=run.seed, **settings)
    print(f"{run.title}: {total} new examples")
    classes_of = {}
    if len(own):
        units = made.z[:, : len(own)]
        is_class = units.sum(1) == 1
        classes_of = {"labels": np.where(is_class, own[units.argmax(1)], "")}
        if not is_class.all():
            print(f"{100 * is_class.mean():.1f} % of them are of a class; --label all draws no others")
    if classes is not None and made.places is not None:
        classes_of = {"labels": classes.classes[made.places]}
        right = with_error(100 * classes.accuracy, 100 * classes.accuracy_std_error, 1, " %")
        right = f"right for {right} of labeled examples held out"
        print(f"classes are read off the latents: {right}; {made.num_states:,} states were drawn")
    if output is not None and output.ending in run.sequence_endings:
        named = zip(range(1, total + 1), *classes_of.values(), strict=True)
        run.write_sequences(output, made.x, (" ".join(map(str, each)) for each in named))
    elif output is not None:
        data = run.loaded.config.data
        of_run = getattr(data, "label_units", None) or getattr(data, "label_column", None)
        name = run.row_options["label_column"] or of_run or "label"
        features = feature_columns(made.x, known_columns(run.directory), run.schema)
        columns = beside_features(dict(zip([name], classes_of.values(), strict=False)), features)
        arrays = {"x": made.x, "z": made.z} | classes_of
        say_written(output.write(arrays, array=made.x, columns=columns, **run.text_format.of_output))
    if drawing is not None:
        names = classes_of.get("labels") if wanted else None
        figure = draw_new_examples(made.x, names, run.image_shape, settings["statistic"])
        run.save_picture(figure, drawing)


def _pairs(argument: str, word: str | None, form: str, value: str) -> dict[int, float]:
    """Values by unit, of "3=1,17=0"; `value` is the pattern of one."""
    found: dict[int, float] = {}
    for part in word.split(",") if word is not None else ():
        match = re.fullmatch(rf"\s*(\d{{1,9}})\s*=\s*({value})\s*", part)
        if match is None or int(match[1]) in found:
            rule, repair = f"must be pairs {form}, each unit once", "Give 3=1,17=0, say."
            raise InvalidInputError(argument, rule, repr(part)[:80], repair)
        found[int(match[1])] = float(match[2])
    return found


def _field(word: str | None, num_units: int) -> Tensor | None:
    import torch

    from discrete_vae.data.arrays import read_npy

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


def _places(label: str, classes: np.ndarray) -> list[int]:
    names = [str(name) for name in classes]
    words = [label] if label in names else [word.strip() for word in label.split(",")]
    wanted = names if label == "all" else list(dict.fromkeys(words))
    for word in wanted:
        if word not in names:
            rule = f"must be among the labels, {some(names, 20)}"
            raise InvalidInputError("--label", rule, repr(word)[:80], "Give one.")
    return [names.index(word) for word in wanted]


_STREAM = 0x70616972


@verb("interpolate", EXPLAINED)
@takes_rows
@option("--from I", "number of the example to start at; default: random pairs", whole_number(0))
@option("--to J", "number of the example to end at", whole_number(0))
@option("--num-pairs N", "random pairs; default: 8", whole_number())
@option(
    "--path flips|straight",
    "by single bits in an order of low energy (default), or straight through zeta",
    default="flips",
)
@option("--num-steps K", "steps of a straight path, and images of a picture", whole_number(2), default="11")
@option("--out FILE", "a row per step: pair, step, flipped unit, energy, and x; .npz, .csv, ...")
@option("--picture FILE", "the paths, of a run of images: .png, .pdf or .svg")
def run_interpolate(
    run: TrainedRun, to: int | None, num_pairs: int | None, path: PathKind, num_steps: int, **more: int | None
) -> None:
    """Interpolate between examples."""
    from discrete_vae.figures.results import draw_latent_paths
    from discrete_vae.inference.generate import interpolate

    start = more["from"]
    if (start is None) != (to is None) or (start is not None and num_pairs is not None):
        received = f"{start}, {to} and {num_pairs}".replace("None", "nothing")
        rule = "and --to must be given together, and without --num-pairs"
        raise InvalidInputError("--from", rule, received, "Give both, or neither.")
    output, drawing = run.outputs()
    model = run.loaded.model
    if drawing is not None and len(model.event_shape) != 3:
        rule, repair = "needs a run of images", "Write a table: --out FILE.csv."
        raise InvalidInputError("--picture", rule, "one of a table", repair)
    examples = run.rows()
    pairs = _pairs_of_examples(examples, start, to, num_pairs or 8, run.seed)
    paths = []
    with run.progress(len(pairs), "interpolating") as report:
        for done, (first, last) in enumerate(pairs, start=1):
            ends = examples.x[first : first + 1], examples.x[last : last + 1]
            c = None if examples.condition is None else examples.condition[[first, last]]
            paths.append(interpolate(model, *ends, condition=c, path=path, num_steps=num_steps))
            report(done)
    print(run.headline(examples))
    numbers = [(int(examples.index[first]), int(examples.index[last])) for first, last in pairs]
    for (first, last), way in zip(numbers, paths, strict=True):
        print(f"{first} to {last}: {_described(way, path)}")
    if output is not None:
        arrays, columns = _steps(examples, numbers, paths)
        say_written(output.write(arrays, array=arrays["x"], columns=columns))
    if drawing is not None:
        ends = [(examples.x[[first]][0], examples.x[[last]][0]) for first, last in pairs]
        run.save_picture(draw_latent_paths(paths, ends, numbers, num_frames=num_steps), drawing)


def _pairs_of_examples(
    rows: Rows, start: int | None, end: int | None, count: int, seed: int
) -> list[tuple[int, int]]:
    from discrete_vae.data.splits import fixed_permutation

    if start is not None and end is not None:
        numbers = rows.index.tolist()
        for name, number in (("--from", start), ("--to", end)):
            if number not in numbers:
                rule = f"must be the number of one of the {len(rows)} examples, from {numbers[0]}"
                raise InvalidInputError(name, rule, number, f"The last one is {numbers[-1]}.")
        return [(numbers.index(start), numbers.index(end))]
    if 2 * count > len(rows):
        rule = f"must be at most {len(rows) // 2} for {len(rows)} examples"
        raise InvalidInputError("--num-pairs", rule, count, "Give fewer, or a pair by --from and --to.")
    order = fixed_permutation(len(rows), seed, _STREAM)
    return [(int(a), int(b)) for a, b in order[: 2 * count].reshape(-1, 2)]


def _described(way: LatentPath, path: PathKind) -> str:
    differ = int((way.bits[0] != way.bits[-1]).sum())
    bits = f"{differ} bits differ" if differ != 1 else "1 bit differs"
    if path == "straight":
        return bits
    ends = f"{way.energy[0]:.1f} and {way.energy[-1]:.1f} nats at the ends"
    return f"{bits}, energies {ends}, {way.energy.max():.1f} at most on the way"


def _steps(
    rows: Rows, numbers: list[tuple[int, int]], paths: list[LatentPath]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A row per step: what a .npz file holds, and what a table does, in its words if it has a schema."""
    steps = [len(way.energy) for way in paths]

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(way, name) for way in paths])

    starts, ends = np.repeat(numbers, steps, axis=0).T
    along = {"from": starts, "to": ends, "step": np.concatenate([np.arange(count) for count in steps])}
    along |= {"flipped": joined("flipped"), "energy": joined("energy")}
    arrays = along | {"bits": joined("bits"), "x": joined("mean"), "zeta": joined("zeta")}
    if paths[0].continuous.shape[1]:
        arrays["continuous"] = joined("continuous")
    return arrays, beside_features(along, feature_columns(arrays["x"], rows.columns, rows.schema))
