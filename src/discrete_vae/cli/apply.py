"""Verbs that tell about examples: encode, score, predict, neighbors.

Each reads its words, calls the function of `discrete_vae.inference` that it is named after, prints what came of it,
and writes files. What cannot be written is refused before the work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from discrete_vae.cli.options import Outcome, json_option, option, verb, weighted_means, whole_number, wrapped
from discrete_vae.cli.trained import (
    ANNOTATED,
    EXPLAINED,
    TrainedRun,
    feature_columns,
    numbered,
    takes_rows,
    write_rows,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.records import digits_of, with_error
from discrete_vae.system import check_memory

if TYPE_CHECKING:
    from discrete_vae.data.rows import Rows
    from discrete_vae.inference.score import RocArea, Scores


_COLUMNS = {"bits": "bit", "probabilities": "probability", "packed": "byte"}  # named after one of an array


@verb("encode", EXPLAINED, divides=True)
@takes_rows
@option(
    "--out FILE",
    "where the codes go: .npz holds all kinds; .npy, .csv, .parquet and obsm of .h5ad one kind",
    required=True,
)
@option("--what bits|probabilities|zeta|packed|continuous", "which kind, except for .npz", default="bits")
@option("--draw", "draw codes from the posterior; without it, the most probable code, group by group")
@option("--picture FILE", "how often each unit is on, by label or example: .png, .pdf or .svg")
def run_encode(run: TrainedRun, what: str, draw: bool) -> None:
    """Write the codes of examples."""
    from discrete_vae.figures.results import draw_codes
    from discrete_vae.inference.encode import encode_rows

    output, drawing = run.outputs(more=[ANNOTATED])
    if what == "continuous" and run.loaded.model.hierarchy.num_layers == 0:
        rule = "must be an array of this run, which has no layers"
        raise InvalidInputError("--what", rule, what, "Take zeta.")
    examples = run.rows()
    codes = run.compute(encode_rows, examples, "encoding", draw=draw, seed=run.seed)
    if not run.is_first_process:
        return
    print(run.headline(examples))
    share, distinct = 100 * codes.bits.mean(), len(np.unique(codes.packed, axis=0))
    print(f"{codes.bits.shape[1]} units, {share:.0f} % of them on; {distinct} different codes")
    arrays = codes.arrays()
    columns = numbered(_COLUMNS.get(what, what), arrays[what], first=0)
    of_rows = {"X_dvae": arrays[what].reshape(len(examples), -1)}
    write_rows(run, output, examples, arrays, arrays[what], columns, of_rows=of_rows)
    if drawing is not None:
        run.save_picture(draw_codes(codes, examples.labels), drawing)


_SAMPLES, _ELBO_DRAWS = 100, 10


@verb("score", EXPLAINED, divides=True)
@takes_rows
@option("--out FILE", "a row per example: its log-likelihood or ELBO, std_error, p_value; .csv, .npz, ...")
@option(
    "--num-samples K", f"samples per example; default: {_SAMPLES}, with --elbo {_ELBO_DRAWS}", whole_number()
)
@option("--elbo", "use the ELBO: a lower bound of the log-likelihood, many times faster")
@option("--features", "also log p(value | the other values) of each feature, in columns given_others_NAME")
@option(
    "--threshold-from valid|test|train|FILE",
    "normal examples to compare with, for p-values; not those trained on",
)
@option("--picture FILE", "histograms of the scores: .png, .pdf or .svg")
@json_option
def run_score(
    run: TrainedRun, num_samples: int | None, elbo: bool, features: bool, threshold_from: str | None
) -> Outcome:
    """Score examples."""
    from discrete_vae.evaluation.evaluate import positive_weights
    from discrete_vae.figures.results import draw_scores
    from discrete_vae.inference import score as scoring
    from discrete_vae.inference.evaluate_run import log_partition_of_run

    output, drawing = run.outputs({"--threshold-from": threshold_from}, more=[ANNOTATED])
    examples = run.rows()
    familiar = None
    if threshold_from is not None:
        # at most as many as are scored, under numbers that give them noise of their own
        familiar = run.rows(**_source(threshold_from), at_most=True, argument="--threshold-from")
        familiar = replace(familiar, index=scoring.reference_numbers(familiar.index))
    if features:
        needed = 8 * len(examples) * run.loaded.model.likelihood.num_features
        check_memory("--features", needed, "Give fewer examples.", what="for their scores")
    run.say_device()
    log_z = log_partition_of_run(run.directory, run.loaded, seed=run.seed)
    score, count = (scoring.elbo_rows, _ELBO_DRAWS) if elbo else (scoring.score_rows, _SAMPLES)
    settings = {"log_partition": log_z.value, "num_samples": num_samples or count, "seed": run.seed}
    scores, reference = run.compute(score, examples, "scores", **settings), None
    scores = replace(scores, weights=positive_weights(examples.weights, len(examples)))
    if familiar is not None:
        reference = run.compute(score, familiar, "reference", **settings)
        reference = replace(reference, weights=positive_weights(familiar.weights, len(familiar)))
    of_features = None
    if features:
        own = {"num_samples": num_samples or _SAMPLES, "seed": run.seed}
        of_features = run.compute(scoring.score_features, examples, "scores of features", **own)
    if not run.is_first_process:
        return None
    columns = {scores.name: scores.value, "std_error": scores.std_error}
    if scores.ess is not None:
        columns["ess"] = scores.ess
    print(run.headline(examples))
    digits = digits_of(log_z.std_error, 4)
    error = "(exact)" if log_z.std_error == 0 else f"± {log_z.std_error:.{digits}f}"
    print(f"log Z: {log_z.value:.{digits}f} {error}, {log_z.method}")
    _print_summary(scores)
    record = run.loaded.named | {
        "data": examples.name.rstrip(","),
        "log_partition": {"value": log_z.value, "std_error": log_z.std_error, "method": log_z.method},
        scores.name: _mean(scores),
    }
    if reference is not None and familiar is not None:
        columns["p_value"] = scoring.p_values(scores.value, reference.value)
        area = scoring.roc_area(reference.value, scores.value)
        lowest = {str(level): float(np.mean(columns["p_value"] <= level)) for level in _LEVELS}
        record["reference"] = {"data": familiar.name.rstrip(","), **_mean(reference)}
        record |= {"share_in_lowest": lowest, "roc_area": asdict(area)}
        _print_comparison(lowest, area, reference, familiar)
    if of_features is not None:
        named = feature_columns(of_features, examples.columns)
        columns |= {f"given_others_{name}": each for name, each in named.items()}
    write_rows(run, output, examples, columns, columns=columns)
    if drawing is not None:
        names = _called(run.row_options["data"] or run.row_options["part"]), _called(threshold_from)
        run.save_picture(draw_scores(scores, reference, names=names), drawing)
    return record


_LEVELS = (0.01, 0.05)


def _mean(scores: Scores) -> dict[str, Any]:
    """What --json prints of scores; those of single examples are in the file of --out."""
    return {
        "value": scores.mean,
        "std_error": scores.mean_std_error,
        "num_examples": len(scores.value),
        "num_samples": scores.num_samples,
        "effective_examples": scores.effective_examples,
    }


def _source(word: str) -> dict[str, Any]:
    """Keywords of `rows_of_run` for the examples that an option names: a part of the run's own data, or a file."""
    if word in ("train", "valid", "test"):
        return {"data": None, "part": word, "label_column": None}
    return {"data": word, "part": None, "needs_labels": False}


def _called(word: str | None) -> str:
    """What a picture calls the examples of a part or a file."""
    word = word or "test"
    return f"{word} part" if word in ("train", "valid", "test") else Path(word).name


def _print_summary(scores: Scores) -> None:
    name = "ELBO" if scores.is_bound else "log-likelihood"
    low, middle, high = np.quantile(scores.value, [0.01, 0.5, 0.99])
    error = f"{np.median(scores.std_error):.2f} nats (median), with {scores.num_samples} samples per example"
    if scores.num_samples == 1:
        error = "not known from one sample per example"
    if scores.ess is not None:
        error += f", whose effective number is {np.median(scores.ess):.1f} (median)"
    print(f"{name}: {with_error(scores.mean, scores.mean_std_error, 3)} nats per example")
    if scores.effective_examples is not None:
        print(wrapped(weighted_means(len(scores.value), scores.effective_examples), "  "))
    print(wrapped(f"1 %, 50 %, 99 % of the scores are below {low:.1f}, {middle:.1f}, {high:.1f} nats.", "  "))
    print(wrapped(f"The error of a single score is {error}.", "  "))


def _print_comparison(lowest: Mapping[str, float], area: RocArea, reference: Scores, familiar: Rows) -> None:
    mean = with_error(reference.mean, reference.mean_std_error, 3)
    shares = [f"{100 * each:.1f} % in its lowest {100 * float(level):g} %" for level, each in lowest.items()]
    found, size = ", ".join(shares), len(reference.value) + 1
    # p-values are multiples of 1 / size, so of few examples of the reference none may be as low
    alike = " and ".join(f"{100 * math.floor(float(level) * size + 1e-9) / size:.1f} %" for level in lowest)
    apart = with_error(area.value, area.std_error, 4)
    print(wrapped(f"Reference: {familiar.name.rstrip(',')}: {len(familiar)} examples, mean {mean} nats"))
    print(wrapped(f"Of your examples, {found}. Examples like the reference would give about {alike}.", "  "))
    print(wrapped(f"Area under the ROC curve: {apart} (1: all are told apart; 0.5: none).", "  "))


@verb(
    "predict",
    f"{EXPLAINED} It is one trained with --data.label-units, or --model.num-classes. Labels of the examples, if there "
    "are some, tell how often it is right.",
    divides=True,
)
@takes_rows
@option(
    "--out FILE",
    "a row per example: index, label, predicted, p_CLASS and std_error_CLASS of each; .csv, .npz, ..., .h5ad",
)
@option("--num-samples K", "per example and class", whole_number(), default="100")
def run_predict(run: TrainedRun, num_samples: int) -> None:
    """Predict classes."""
    from discrete_vae.evaluation.evaluate import positive_weights
    from discrete_vae.inference.predict import class_accuracy, predict_rows

    output, _ = run.outputs(more=[ANNOTATED])
    model = run.loaded.config.model
    if not model.num_classes:
        rule, repair = "must be of a model with classes", "Train one with --data.label-units COLUMN."
        raise InvalidInputError("run_dir", rule, run.directory.quoted, repair)
    examples = run.rows()
    labels = model.label_numbers(examples.labels, len(examples))
    found = run.compute(predict_rows, examples, "predicting", num_samples=num_samples, seed=run.seed)
    if not run.is_first_process:
        return
    classes = np.array(model.classes)
    counts = np.bincount(found.predicted, minlength=len(classes))
    print(run.headline(examples))
    print("predicted:", ", ".join(f"{counts[each]} {classes[each]}" for each in np.flatnonzero(counts)))
    if num_samples > 1:
        error = f"{np.median(found.std_error.max(1)):.4f} (median), of {num_samples} draws per class"
        ess = np.median(found.ess[np.arange(len(found.ess)), found.predicted])
        error += f", whose effective number is {ess:.1f} for the predicted one (median)"
        print(wrapped(f"The error of a single p(class | x) is {error}.", "  "))
    weights = positive_weights(examples.weights, len(examples))
    known = None if labels is None else class_accuracy(found.log_probabilities, labels, weights)
    if known is not None:
        share = with_error(100 * known.accuracy, 100 * known.std_error, 1, " %")
        most = f"the most frequent label is that of {100 * known.most_frequent:.1f} %"
        print(f"right: {share} of {known.num_examples} examples with a label; {most}")
        print(f"log-loss: {with_error(known.log_loss, known.log_loss_std_error, 3)} nats")
        if known.effective_examples is not None:
            print(wrapped(weighted_means(known.num_examples, known.effective_examples), "  "))
    columns = {"predicted": classes[found.predicted]}
    for name, values in (("p", found.probabilities), ("std_error", found.std_error)):
        columns |= {f"{name}_{each}": column for each, column in zip(classes, values.T, strict=True)}
    arrays = {"classes": classes, "predicted": columns["predicted"], "probabilities": found.probabilities}
    arrays |= {"std_error": found.std_error, "ess": found.ess, "approximate": found.approximate}
    write_rows(run, output, examples, arrays, found.probabilities, columns)


@verb(
    "neighbors",
    f"{EXPLAINED} Codes are the most probable ones of the posterior; the search is exact, and of codes equally far "
    "the one with the lower index comes first.",
    divides=True,
)
@takes_rows
@option(
    "--among FILE|train|valid|test",
    "examples that are searched: a file, or a part of the run's data",
    default="train",
)
@option("-k K", "neighbors of each example", whole_number(), default="10")
@option("--others", "leave out the example of the same number")
@option("--out FILE", "where they go: .npz, .csv or .parquet; .npy holds the neighbors alone", required=True)
@option("--picture FILE", "the first examples beside their neighbors: .png, .pdf or .svg")
def run_neighbors(run: TrainedRun, among: str, k: int, others: bool) -> None:
    """Find neighbors."""
    import torch

    from discrete_vae.data.rows import labeled
    from discrete_vae.evaluation.evaluate import standard_error, weighted_mean
    from discrete_vae.figures.results import draw_neighbors
    from discrete_vae.inference.encode import encode_rows, nearest_codes
    from discrete_vae.inference.score import share_error

    output, drawing = run.outputs({"--among": among})
    queries = run.rows()
    pool = run.rows(**_source(among), num_examples=None, argument="--among")
    most = len(pool) - others
    if k > most:
        raise InvalidInputError("-k", f"must be at most {most}, the examples searched", k, "Ask for fewer.")
    own = run.compute(encode_rows, queries, "encoding").packed
    codes = run.compute(encode_rows, pool, "encoding those searched").packed
    if not run.is_first_process:
        return
    number = queries.index
    if others and not (number.max() < len(codes) and np.array_equal(own, codes[number])):
        rule = "needs the examples themselves among those searched, with the same numbers"
        repair = "Leave it out, or search a file that begins with them: --among."
        raise InvalidInputError("--others", rule, "others", repair)
    with run.progress(len(pool), "searching") as report:
        nearest = nearest_codes(own, codes, k, excluded=queries.index if others else None, report=report)
    print(run.headline(queries))
    first, last = np.median(nearest.distances[:, 0]), np.median(nearest.distances[:, -1])
    print(f"searched: {pool.name.rstrip(',')}, {len(pool)} examples")
    print(f"units that differ from the nearest: median {first:g}, from the last of {k}: {last:g}")
    mine, of_pool = queries.labels, pool.labels
    kinds = {None if each is None or each.ndim != 1 else each.dtype.kind == "U" for each in (mine, of_pool)}
    if mine is not None and of_pool is not None and kinds in ({True}, {False}):  # words, or numbers
        known = labeled(mine)[:, None] & labeled(of_pool)[nearest.indices]
        same = known & (of_pool[nearest.indices] == mine[:, None])
        if known.any():
            rows = known.any(1)
            weights = torch.from_numpy(known[rows].sum(1)).double()
            shares = torch.from_numpy(same[rows].sum(1)) / weights
            share, error = float(weighted_mean(shares, weights)), float(standard_error(shares, weights))
            error = error or share_error(share, len(shares))
            shown = with_error(100 * share, 100 * error, 1, " %")
            print(f"{shown} of the neighbors have the label of their example")
    arrays = {"neighbors": nearest.indices, "distances": nearest.distances}
    columns = numbered("neighbor", nearest.indices) | numbered("distance", nearest.distances)
    write_rows(run, output, queries, arrays, nearest.indices, columns)
    if drawing is not None:
        run.save_picture(draw_neighbors(queries.x, pool.x, nearest, run.image_shape), drawing)
