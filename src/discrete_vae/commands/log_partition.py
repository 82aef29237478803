"""dvae log-partition: log Z of a trained prior, repeated, with the health of the chains."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from discrete_vae.commands.layout import hanging
from discrete_vae.commands.options import number, option, whole_number
from discrete_vae.commands.trained import EXPLAINED, AskedRun, changed_config, picture_note, takes_run
from discrete_vae.commands.verbs import verb
from discrete_vae.durations import in_words

if TYPE_CHECKING:
    from discrete_vae.evaluation.chain_health import ChainHealth
    from discrete_vae.log_partition.record import LogPartition


@verb("log-partition", EXPLAINED)
@takes_run
@option("--repeats R", "independent estimates; default: 1", whole_number(), default="1")
@option("--std-error S", "standard error to go for, nats; default: the run's config", number)
@option(
    "--health-sweeps N",
    "sweeps of the training chains to look at; default: 500",
    whole_number(at_least=20),
    default="500",
)
@option(
    "--out FILE",
    "the picture, .png, .pdf or .svg; default: in RUN/figures. With .json, the results instead, without a picture; "
    "the run stays as it is then",
)
def run_log_partition(
    asked: AskedRun,
    seed: int | None,
    repeats: int,
    std_error: float | None,
    health_sweeps: int,
    out: str | None,
) -> int:
    """Estimate log Z by bridge sampling as often as asked for; returns the exit status."""
    from discrete_vae.checks import check_number
    from discrete_vae.commands.device import say_device
    from discrete_vae.commands.results import ResultFile, keep, kept_log_partitions
    from discrete_vae.figures.saving import check_picture_path, noting
    from discrete_vae.runs.writable import check_writable

    to_json = out is not None and Path(out).suffix.lower() == ".json"
    if out is not None and not to_json:
        check_picture_path(out)
    if std_error is not None:
        check_number("std_error", std_error, at_least=1e-6, repair="Give nats, for example 0.01.")
    from discrete_vae.evaluation.chain_health import chain_health
    from discrete_vae.evaluation.repeats import repeat_log_partition
    from discrete_vae.log_partition.bennett import bennett_log_partition
    from discrete_vae.log_partition.exact import (
        MAX_ENUMERATED_UNITS,
        exact_log_partition,
        num_enumerated_units,
    )

    run = asked.directory
    results = ResultFile(out) if out is not None and to_json else kept_log_partitions(run)
    results.check()
    loaded = asked.load()
    picture = None if to_json else check_picture_path(out or run.figure_path("log-partition.png"))
    if picture is not None:
        check_writable(picture)
    say_device(asked.device)
    settings, prior, seed = loaded.config.evaluation, loaded.model.prior, seed or 0
    chains = loaded.chains.step(settings.num_chain_sweeps)
    std_error = std_error or settings.log_partition_std_error
    print(f"{run.path}, checkpoint of step {loaded.step}: prior of {prior.num_units} units")
    exact = exact_log_partition(prior) if num_enumerated_units(prior) <= MAX_ENUMERATED_UNITS else None
    if exact is not None:
        print(exact)

    def estimate(seed: int) -> LogPartition:
        return bennett_log_partition(
            prior, std_error=std_error, max_sweeps=settings.max_tempered_sweeps, start=chains, seed=seed
        )

    def report(number: int, found: LogPartition) -> None:
        print(f"{number}/{repeats}  {found}, {in_words(found.seconds or 0)}", flush=True)

    repeated = repeat_log_partition(estimate, repeats, seed=seed, report=report)
    _print_health(repeated.estimates[-1])
    health = chain_health(loaded.chains, num_sweeps=health_sweeps)
    _print_chains(health)
    if repeats > 1:
        print(
            f"mean {repeated.mean:.4f}, spread {repeated.std:.4f} nats over {repeats} repeats "
            f"(stated errors {repeated.rms_std_error:.4f})"
        )
    fields = {
        "step": loaded.step,
        "config": {"std_error": std_error, "seed": seed, "max_sweeps": settings.max_tempered_sweeps}
        | {"num_chain_sweeps": settings.num_chain_sweeps, "health_sweeps": health_sweeps},
        "estimates": [asdict(found) for found in repeated.estimates],
        "exact": None if exact is None else exact.value,
        "chains": asdict(health),
        **changed_config(loaded),
    }
    try:
        keep(results, fields)
    finally:  # one file that cannot be written leaves the other
        if picture is not None:
            with noting(picture_note(loaded)):
                _draw(picture, loaded.config.name, repeated.estimates, exact)
    return 0


def _draw(path: Path, name: str, estimates: tuple[LogPartition, ...], exact: LogPartition | None) -> None:
    from discrete_vae.figures.log_partition_histogram import (
        draw_log_partition_histogram,
        log_partition_histogram,
    )

    table = log_partition_histogram(
        [found.value for found in estimates],
        [found.std_error for found in estimates],
        exact=None if exact is None else exact.value,
    )
    draw_log_partition_histogram(table, path, name=name)
    print(f"Picture: {path}")


def _print_health(found: LogPartition) -> None:
    """The ladder of the last estimate."""
    rates, ladder = found.swap_rates or (), found.inverse_temperatures or ()
    text = (
        f"{len(ladder)} replicas, exchange rates {min(rates):.2f} to {max(rates):.2f}, "
        f"{found.round_trips:.0f} round trips per chain, {found.effective_samples:.0f} effective samples per replica "
        f"in {found.num_sweeps} sweeps"
    )
    print(hanging(text, "tempering: "))


def _print_chains(health: ChainHealth) -> None:
    """The persistent chains of training."""
    text = (
        f"{health.num_chains}, {health.num_sweeps} sweeps of each looked at: autocorrelation time "
        f"{health.autocorrelation_time:.1f} sweeps, R-hat {health.r_hat:.3f}, "
        f"{health.effective_samples:.0f} effective samples"
    )
    print(hanging(text, "training chains: ", indent=11))
