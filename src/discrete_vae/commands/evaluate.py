"""dvae evaluate: log-likelihood, ELBO and log Z of a trained model."""

from __future__ import annotations

from typing import Any

from discrete_vae.commands.options import data_dir_option, one_of, option, whole_number
from discrete_vae.commands.progress import examples_progress
from discrete_vae.commands.trained import EXPLAINED, AskedRun, keep, takes_run
from discrete_vae.commands.verbs import verb


@verb("evaluate", EXPLAINED, divides=True)
@takes_run
@option("--num-samples K", "importance samples per example; default: the experiment's", whole_number())
@option(
    "--num-examples N",
    "a fixed random choice of N test examples, the same for every seed; default: the experiment's, "
    "all in sizes cpu and paper",
    whole_number(),
)
@option(
    "--precision auto|float32|bfloat16",
    "of the networks' matrix products; auto is bfloat16 where it gains; default: the experiment's",
    one_of("auto", "float32", "bfloat16"),
)
@option(
    "--out FILE.json",
    "write the result there and leave the run as it is, as --pretrained asks for; default: RUN/evaluations, and the "
    "fullest result also to RUN/evaluation.json",
)
@option(
    "--per-example FILE",
    "write the log-likelihood of each example, with its standard error, to this .csv or .npz",
)
@data_dir_option
def run_evaluate(
    asked: AskedRun, out: str | None, per_example: str | None, data_dir: str | None, **settings: Any
) -> int:
    """Evaluate a run on its test data; returns the exit status."""
    from discrete_vae.commands.device import say_device
    from discrete_vae.commands.evaluation_table import evaluation_table
    from discrete_vae.config import EvaluationConfig, instantiate
    from discrete_vae.data.chosen import chosen_test_examples
    from discrete_vae.distributed import compute_on_rank_zero, rank, world_size
    from discrete_vae.inference.evaluate_run import evaluate_run
    from discrete_vae.runs.columns import check_columns_path, write_columns
    from discrete_vae.runs.results import kept_evaluations
    from discrete_vae.training.run import warn_of_other_data

    run = asked.directory
    # what cannot be written is found before the hours that it would cost
    results = asked.results(out, kept_evaluations)
    compute_on_rank_zero(results.check)
    if per_example is not None:
        compute_on_rank_zero(lambda: check_columns_path("--per-example", per_example, others=asked.sources))
    loaded = asked.load()
    given = {name: value for name, value in settings.items() if value is not None}
    config = EvaluationConfig(**loaded.config.evaluation.model_dump() | given)
    dataset = instantiate(loaded.config.data, data_dir=data_dir)
    warn_of_other_data(run, dataset)
    indices = chosen_test_examples(len(dataset.test), config.num_examples, argument="--num-examples")
    say_device(asked.device)
    with examples_progress(len(indices), "log-likelihood") as progress:
        found = evaluate_run(
            loaded,
            dataset,
            config,
            indices,
            device=asked.device,
            parts_folder=asked.directory.evaluation_parts_path if out is None and world_size() == 1 else None,
            report=lambda done, mean: progress(done, f"{mean:.2f} nats"),
        )
    if rank() > 0:
        return 0
    print(f"{asked.name}, checkpoint of step {loaded.step}, {dataset.name}: {len(indices)} test examples")
    print(evaluation_table(found.result), flush=True)
    try:
        keep(results, loaded, found.fields)
        if found.parts is not None:
            found.parts.discard()
    finally:  # one file that cannot be written leaves the other
        if per_example is not None:
            path = write_columns(per_example, found.result.columns(), argument="--per-example")
            print(f"Written to {path}")
    print(f"Next: dvae sample {asked.words}")
    return 0
