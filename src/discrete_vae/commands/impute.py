"""dvae impute: gaps in examples filled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from discrete_vae.commands.options import one_of, option, whole_number
from discrete_vae.commands.progress import examples_progress
from discrete_vae.commands.rows import AskedRows, headline, say_written, takes_rows, write_examples
from discrete_vae.commands.trained import EXPLAINED, AskedRun
from discrete_vae.commands.verbs import verb
from discrete_vae.errors import InvalidInputError

if TYPE_CHECKING:
    from discrete_vae.data.rows import Rows
    from discrete_vae.inference.impute import Imputed
    from discrete_vae.model import DiscreteVAE
    from discrete_vae.runs.output_file import OutputFile


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
    from discrete_vae.commands.device import say_device
    from discrete_vae.commands.pictures import PictureFile
    from discrete_vae.distributed import rank
    from discrete_vae.inference.imputation_settings import ImputationSettings, filling_for
    from discrete_vae.inference.impute import impute

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
        from discrete_vae.figures.imputed import draw_imputed

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

    from discrete_vae.data.read_arrays import read_npy
    from discrete_vae.paths import user_path

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
    from discrete_vae.likelihoods.categorical import CategoricalLikelihood

    values = mode or bool(draws) or isinstance(model.likelihood, CategoricalLikelihood)
    return values and model.likelihood.domain(exact=True).whole


def _fill_csv(
    output: OutputFile, source: Path, found: Rows, gaps: np.ndarray, table: np.ndarray, *, whole: bool
) -> Path:
    """Write the .csv file that was read with its gaps filled, each number with the digits that float32 has."""
    from discrete_vae.data.filled_csv import filled_csv

    values = table.reshape(len(table), -1)
    words = np.full(values.shape, "", dtype=object)
    words[gaps] = [str(int(value)) if whole else str(value) for value in values[gaps].astype(np.float32)]
    return output.write_text(filled_csv(source.expanduser(), list(found.columns), gaps, words))
