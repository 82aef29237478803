"""dvae refit: the posterior of a trained model fitted anew, as a run of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from discrete_vae.commands.options import data_dir_option, number, option, whole_number
from discrete_vae.commands.trained import EXPLAINED, AskedRun, takes_run
from discrete_vae.commands.verbs import verb
from discrete_vae.errors import NonFiniteLossError

if TYPE_CHECKING:
    from discrete_vae.training.refit import Refit

_LINES = 10
_MORE = (
    "RUN stays as it is. A refit takes minutes and writes its folder at the end, so one that is interrupted leaves "
    "nothing."
)


@verb("refit", f"{EXPLAINED} {_MORE}")
@takes_run
@option(
    "--out DIR",
    "new folder for the run with the new posterior; default: RUN-refit, with --pretrained NAME-refit here",
)
@option("--num-steps N", "steps of Adam; default: 2000", whole_number(), default="2000")
@option("--batch-size B", "examples per step; default: as in the run's training", whole_number(at_least=2))
@option("--model-share S", "share of them that the model draws, 0 to 1; default: 0.5", number)
@option("--learning-rate R", "largest step size, which falls to a hundredth; default: 0.0003", number)
@data_dir_option
def run_refit(
    asked: AskedRun, out: str | None, num_steps: int, data_dir: str | None, seed: int | None, **given: Any
) -> int:
    """Fit encoder and posteriors on training examples and draws of the model; returns the exit status."""
    from discrete_vae.commands.device import say_device
    from discrete_vae.config import instantiate
    from discrete_vae.training.progress import TrainingProgress
    from discrete_vae.training.refit_run import RunRefit
    from discrete_vae.training.run import warn_of_other_data
    from discrete_vae.training.threads import training_threads

    run = asked.directory
    loaded = asked.load()
    dataset = instantiate(loaded.config.data, data_dir=data_dir)
    warn_of_other_data(run, dataset)
    settings = {name: value for name, value in given.items() if value is not None}
    out = out or str(_beside(asked))
    refit = RunRefit(run, loaded, dataset, out, num_steps=num_steps, seed=seed or 0, **settings)
    say_device(asked.device)
    with training_threads(loaded.config, {}), TrainingProgress(0, num_steps, what="refitting") as shown:
        losses: list[float] = []

        def report(step: int, loss: float) -> None:
            losses.append(loss)
            shown.advance(step)
            if step % max(1, num_steps // _LINES) == 0:
                shown.show(step, None, {"elbo": -sum(losses) / len(losses)})
                losses.clear()

        try:
            found = refit.run(report)
        except NonFiniteLossError as error:
            raise NonFiniteLossError(error.step, error.term, error.value, loaded.step) from None
    print(f"{asked.name}, checkpoint of step {loaded.step}, {num_steps} steps")
    print(_outcome(found))
    print(f"{'Written to' if refit.made is None else 'It was there:'} {refit.folder}")
    print(f"Next: dvae evaluate {refit.folder}")
    return 0


def _beside(asked: AskedRun) -> Path:
    """RUN-refit, or that of a model that comes with the library here."""
    path = asked.directory.path if asked.pretrained is None else Path(asked.pretrained)
    named = path if path.name not in ("", "..") else path.resolve()
    return named.with_name(f"{named.name}-refit")


def _outcome(found: Refit) -> str:
    """Both bounds, and what a posterior that got worse asks for."""
    gain = found.after.elbo - found.before.elbo
    lines = [
        f"Validation ELBO {found.before.elbo:.2f} before, {found.after.elbo:.2f} after: {gain:+.3f} nats.",
        "The generative model is the same, so the difference is KL to the true posterior.",
    ]
    if gain < 0:
        lines.append("The posterior of training was better: try more steps or a smaller --learning-rate.")
    return "\n".join(lines)
