"""dvae denoise: examples freed of noise by a trained model."""

from __future__ import annotations

from discrete_vae.commands.options import number, option, whole_number
from discrete_vae.commands.pictures import PictureFile
from discrete_vae.commands.progress import examples_progress
from discrete_vae.commands.rows import AskedRows, headline, takes_rows, write_examples
from discrete_vae.commands.trained import EXPLAINED, AskedRun
from discrete_vae.commands.verbs import verb
from discrete_vae.errors import InvalidInputError


@verb("denoise", EXPLAINED, divides=True)
@takes_rows
@option(
    "--noise P",
    "probability with which each bit was flipped. Of --data FILE it says what is known of its noise; without a file "
    "the run's own bits are flipped, and the error is shown before and after",
    number,
)
@option("--num-draws K", "draws of the latents per example; default: 20", whole_number(), default="20")
@option(
    "--out FILE", "where the means go: .npz, .npy, or a table with the features as columns, .csv or .parquet"
)
@option("--picture FILE", "examples before and after: .png, .pdf or .svg")
def run_denoise(
    asked: AskedRun,
    rows: AskedRows,
    seed: int | None,
    noise: float | None,
    num_draws: int,
    out: str | None,
    picture: str | None,
) -> int:
    """Denoise examples; returns the exit status."""
    from discrete_vae.commands.device import say_device
    from discrete_vae.distributed import rank
    from discrete_vae.figures.denoised import draw_denoised
    from discrete_vae.inference.denoise import check_flips, denoise_rows, flip_bits
    from discrete_vae.inference.guess_error import guess_error

    if noise is None and rows.data is None:
        repair = "For example: --noise 0.1, which flips bits of the run's own test part."
        raise InvalidInputError("--data", "or --noise must be given", "neither", repair)
    output, drawing = rows.output(asked, out), PictureFile.of(picture)
    loaded = asked.load()
    model = loaded.model
    if noise is not None:
        check_flips(model, noise, argument="--noise")
    found = rows.read(asked, loaded)
    clean = found.x if rows.data is None else None
    noisy = found.x
    if clean is not None:
        noisy = flip_bits(clean, noise or 0.0, seed=seed or 0, numbers=found.index.tolist())
    say_device(asked.device)
    with examples_progress(len(found), "denoising") as progress:
        x = denoise_rows(
            model,
            noisy,
            noise=noise,
            num_draws=num_draws,
            seed=seed or 0,
            numbers=found.index,
            report=progress,
        )
    if rank() > 0:
        return 0
    print(headline(asked, loaded, found))
    if clean is not None:
        for when, guess in (("Before", noisy.nan_to_num(0.0).numpy()), ("After", x)):
            print(f"{when}: {guess_error(clean.numpy(), guess, is_share=True)}")
    write_examples(output, found, x, {"x": x, "noisy": noisy.numpy().reshape(x.shape)})
    if drawing is not None:
        drawing.save(draw_denoised(clean, noisy, x, model.event_shape), loaded)
    return 0
