"""Runs for the tests of reproductions: tiny ones that are trained, and records that are made up."""

import numpy as np
import pandas as pd

from reproduction.records import DataOfRun, Estimate, RunRecord, plan_run, write_record
from reproduction.sweep import Places, Sweep

TINY = {
    "training.num-epochs": [3],
    "training.sampler.num-chains": [30],
    "training.num-sweeps": [3],
    "training.log-every": [5],
    "training.validate-every": [7],
    "model.prior.num-left": [5],
    "model.prior.num-right": [4],
    "model.posterior.groups": [3],
    "model.posterior.hidden": [12],
    "model.decoder.hidden": [10],
    "evaluation.num-samples": [50],
    "evaluation.num-examples": [40],
    "evaluation.log-partition-std-error": [0.1],
    "evaluation.num-chain-sweeps": [50],
}
NUM_STEPS = 36  # three epochs of twelve batches


def tiny(seed=0, budget=None, **changes):
    """A run of a second."""
    more = {name.replace("__", ".").replace("_", "-"): [value] for name, value in changes.items()}
    return plan_run("digits", "smoke", seed=seed, changes=TINY | more, budget=budget)


def sweep(folder, *planned, say=lambda text: None, **more):
    return Sweep(planned or (tiny(),), Places(folder / "runs", folder / "out"), say=say, **more)


def completed(folder, *planned, **more):
    """The runs of a sweep, complete."""
    work = sweep(folder, *planned, **more)
    work.complete()
    return list(work.stored.values())


def record_fields(stored):
    """A record without what another run of the same cannot repeat."""
    fields = stored.record.model_dump()
    return {name: value for name, value in fields.items() if name not in ("seconds", "evaluation_seconds")}


def make_up(planned, out, value, *, num_examples=20, seed=0, log_partition_error=0.0, num_steps=1000):
    """Write the record of a run that was never made, with normal log-likelihoods about a value."""
    random = np.random.default_rng(seed)
    examples = value + random.normal(size=num_examples)
    examples += value - examples.mean()
    record = RunRecord(
        experiment=planned.experiment,
        size=planned.size,
        seed=planned.seed,
        settings=(),
        budget_minutes=planned.budget,
        log_likelihood=Estimate(value=value, std_error=float(examples.std(ddof=1) / num_examples**0.5)),
        log_likelihood_limit=value + 0.1,
        log_partition=Estimate(value=87.0, std_error=log_partition_error),
        elbo=value - 4.0,
        num_samples=10_000,
        num_examples=num_examples,
        epochs=planned.config.training.num_epochs,
        seconds=3600.0,
        device="cpu",
        commit="0123456789abcdef",
        log_likelihood_limit_std_error=0.1,
        elbo_std_error=0.1,
        monte_carlo_std_error=0.01,
        median_ess=100.0,
        doubling_gain=0.05,
        step=900,
        num_steps=num_steps,
        validation_elbo=value - 4.2,
        evaluation_seconds=600.0,
        refit_steps=planned.refit_steps,
        evaluation_precision="bfloat16",
        precision="bfloat16",
        num_weights=1000,
        machine="Linux, 2 cores",
        threads=1,
        modified=False,
        version="0",
        data=DataOfRun(name=planned.experiment, source="made up", version="1", sha256=None),
        config=planned.config,
    )
    return write_record(
        out / "runs",
        planned,
        record,
        history=history(value),
        examples=pd.Series(examples, np.arange(num_examples)),
    )


def history(value):
    """Two hours of training, each quarter logged, and validated but for the first."""
    elbo = value - np.array([14.0, 6.0, 4.0, 3.0])
    return pd.DataFrame(
        {
            "step": [250, 500, 750, 1000],
            "epoch": [2.5, 5.0, 7.5, 10.0],
            "seconds": [1800.0, 3600.0, 5400.0, 7200.0],
            "elbo": elbo,
            "validation_elbo": [np.nan, *(elbo[1:] - [0.5, 0.8, 1.5])],
            "validation_score": [np.nan, *(elbo[1:] - [0.6, 0.9, 1.6])],
        }
    )


def made_up(reproduction, options, folder, values):
    """A complete sweep of a table, with the values of its runs in the order of its plan."""
    work = Sweep(reproduction.plan(options), Places(folder / "runs", folder))
    for number, (planned, value) in enumerate(zip(work.planned, values, strict=True)):
        work.stored[planned] = make_up(planned, folder, value, seed=number, log_partition_error=0.003)
    return work
