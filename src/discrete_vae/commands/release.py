"""dvae release: a trained run made small enough to pass on."""

from __future__ import annotations

from typing import Any

from discrete_vae.commands.options import data_dir_option, one_of, option, whole_number
from discrete_vae.commands.progress import examples_progress
from discrete_vae.commands.trained import EXPLAINED, AskedRun, takes_run
from discrete_vae.commands.verbs import verb

_MORE = (
    "The new folder is a run that every verb takes, of one checkpoint, without what training would need to go on. RUN "
    "must have been evaluated, and stays as it is. The ELBO of validation examples is compared before and after; if it "
    "falls by more than 0.1 nats, nothing is written."
)


@verb("release", f"{EXPLAINED} {_MORE}")
@takes_run
@option("--out DIR", "new folder, after which the model is named", required=True)
@option("--license NAME", "of the weights, for the model card: apache-2.0, mit, cc-by-4.0", required=True)
@option(
    "--precision bfloat16|float32",
    "in which the matrices of the networks are kept; all else keeps every bit; default: bfloat16",
    one_of("bfloat16", "float32"),
    default="bfloat16",
)
@option(
    "--num-examples N",
    "validation examples of the check, at most; default: 1000",
    whole_number(),
    default="1000",
)
@option("--num-samples K", "draws of the posterior for each; default: 10", whole_number(), default="10")
@data_dir_option
def run_release(
    asked: AskedRun,
    seed: int | None,
    out: str,
    license: str,
    precision: Any,
    num_examples: int,
    num_samples: int,
    data_dir: str | None,
) -> int:
    """Write the released run; returns the exit status."""
    from discrete_vae.commands.device import say_device
    from discrete_vae.config import instantiate
    from discrete_vae.interop.release import check_release, release_run
    from discrete_vae.training.run import warn_of_other_data

    loaded = asked.load()
    settings = {
        "license": license,
        "precision": precision,
        "num_examples": num_examples,
        "num_samples": num_samples,
        "seed": seed or 0,
    }
    folder, made = check_release(asked.directory, loaded, out, **settings)
    dataset = instantiate(loaded.config.data, data_dir=data_dir)
    warn_of_other_data(asked.directory, dataset)
    say_device(asked.device)
    with examples_progress(2 * min(num_examples, len(dataset.valid)), "ELBO before and after") as progress:
        found = release_run(asked.directory, loaded, dataset, folder, **settings, report=progress)
    sizes = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    weights = sum(size for path, size in sizes.items() if path.suffix == ".safetensors")
    print(f"{asked.name}, checkpoint of step {found.step}, in {precision}")
    print(found)
    where = f"{'Written to' if made is None else 'It was there:'} {folder}"
    print(f"{where}: {sum(sizes.values()):,} bytes, {weights:,} of them weights and chains")
    print(f"Next: dvae sample {folder}")
    return 0
