"""dvae log-partition: log Z of a trained prior, repeated, with the health of the chains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from discrete_vae.commands.layout import hanging
from discrete_vae.commands.options import number, option, whole_number
from discrete_vae.commands.trained import EXPLAINED, AskedRun, keep, takes_run
from discrete_vae.commands.verbs import verb
from discrete_vae.durations import in_words

if TYPE_CHECKING:
    from discrete_vae.boltzmann.log_partition import LogPartition


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
    "the run stays as it is then, as --pretrained asks for",
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
    from discrete_vae.evaluation.prior import evaluate_prior
    from discrete_vae.figures import draw_log_partition_histogram, save_figure
    from discrete_vae.figures.log_partition_histogram import histogram_of_result
    from discrete_vae.figures.saving import picture_file
    from discrete_vae.runs.results import kept_log_partitions
    from discrete_vae.runs.writable import is_stream

    # what cannot be written is found before the work
    to_json = out is not None and (Path(out).suffix.lower() == ".json" or is_stream(Path(out)))
    if std_error is not None:
        check_number("std_error", std_error, at_least=1e-6, repair="Give nats, for example 0.01.")
    kept_in_run = not to_json and asked.pretrained is None
    results = asked.results(None if kept_in_run else out, kept_log_partitions)
    results.check()
    drawn = out or asked.place(asked.directory.figures_path / "log-partition.png")
    place = None if to_json else picture_file(drawn, argument="--out").path
    loaded = asked.load()
    settings = loaded.config.evaluation
    given = {"seed": seed or 0, "log_partition_std_error": std_error or settings.log_partition_std_error}
    settings = settings.model_copy(update=given)
    say_device(asked.device)
    print(
        f"{asked.name}, checkpoint of step {loaded.step}: prior of {loaded.model.prior.num_units} units",
        flush=True,
    )

    def report(number: int, found: LogPartition) -> None:
        print(f"{number}/{repeats}  {found}, {in_words(found.seconds or 0)}" if number else found, flush=True)

    found = evaluate_prior(
        loaded.chains, settings, repeats=repeats, health_sweeps=health_sweeps, report=report
    )
    repeated = found.repeated
    print(hanging(_ladder(repeated.estimates[-1]), "tempering: "))
    print(hanging(str(found.chains), "training chains: ", indent=11))
    if repeats > 1:
        print(
            f"mean {repeated.mean:.4f}, spread {repeated.std:.4f} nats over {repeats} repeats "
            f"(stated errors {repeated.rms_std_error:.4f})"
        )
    config = {"std_error": settings.log_partition_std_error, "seed": settings.seed}
    config |= {"max_sweeps": settings.max_tempered_sweeps, "num_chain_sweeps": settings.num_chain_sweeps}
    try:
        keep(results, loaded, {"config": config | {"health_sweeps": health_sweeps}} | found.to_json())
    finally:  # one file that cannot be written leaves the other
        if place is not None:
            table = histogram_of_result(found.to_json())
            figure = draw_log_partition_histogram(table, name=loaded.config.name)
            print(f"Picture: {save_figure(figure, place, note=loaded.note)}")
    return 0


def _ladder(found: LogPartition) -> str:
    """The ladder of an estimate."""
    rates, ladder = found.swap_rates or (), found.inverse_temperatures or ()
    return (
        f"{len(ladder)} replicas, exchange rates {min(rates):.2f} to {max(rates):.2f}, "
        f"{found.round_trips:.0f} round trips per chain, {found.effective_samples:.0f} effective samples per replica "
        f"in {found.num_sweeps} sweeps"
    )
