"""dvae score: how probable a trained model finds each example."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from discrete_vae.commands.options import option, whole_number
from discrete_vae.commands.progress import examples_progress
from discrete_vae.commands.rows import AskedRows, headline, identity, say_written, takes_rows
from discrete_vae.commands.trained import EXPLAINED, AskedRun
from discrete_vae.commands.verbs import verb
from discrete_vae.records import with_error

if TYPE_CHECKING:
    from discrete_vae.data.rows import Rows
    from discrete_vae.inference.log_partition import KnownLogPartition
    from discrete_vae.inference.score import Scores
    from discrete_vae.training.load import LoadedRun

_PARTS = ("train", "valid", "test")
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
    from discrete_vae.commands.device import say_device
    from discrete_vae.commands.pictures import PictureFile
    from discrete_vae.distributed import rank
    from discrete_vae.figures.score_histogram import draw_scores
    from discrete_vae.inference.log_partition import log_partition_of_run
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
    from discrete_vae.inference.detection import roc_area

    area = roc_area(reference.value, scores.value)
    shares = ", ".join(f"{100 * np.mean(p_value <= level):.1f} % at most {level}" for level in (0.01, 0.05))
    return (
        f"Reference: {familiar.name.rstrip(',')}: {len(familiar)} examples, mean "
        f"{with_error(reference.mean, reference.mean_std_error, 3)} nats\n"
        f"  p-values: {shares}, of examples like the reference as many per cent\n"
        f"  area under the ROC curve: {with_error(area.value, area.std_error, 4)} (1 tells all apart, 0.5 none)"
    )
