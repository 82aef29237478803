"""Are digits that are generated for a class recognised as it by a classifier that has seen images alone?

    python benchmarks/class_conditional.py RUN [--num-labeled 10000] [--num-each 100] [--picture FILE]

RUN is a run of mnist-static or mnist-dynamic. Classes are fitted to latents of labeled MNIST training images, binarized
once, and digits are drawn from p(latents | class), as dvae generate --label all does. The judge is a network
(784-256-10, scikit-learn) trained on other binarized training images; what it makes of real test images is shown
beside. Errors are standard errors over images.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import torch
from sklearn.neural_network import MLPClassifier

from discrete_vae import load_run
from discrete_vae.data.datasets import data_folder
from discrete_vae.figures.results import draw_new_examples
from discrete_vae.figures.style import save_figure
from discrete_vae.inference.encode import encode_rows
from discrete_vae.inference.generate import PriorStates, fit_class_model, generate, latents_of_classes


def share(right: np.ndarray) -> str:
    """A share with its standard error, in percent."""
    mean = right.mean()
    return f"{100 * mean:.1f} ± {100 * math.sqrt(mean * (1 - mean) / len(right)):.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--num-labeled", type=int, default=10_000)
    parser.add_argument("--num-judge", type=int, default=20_000)
    parser.add_argument("--num-each", type=int, default=100)
    parser.add_argument("--picture")
    options = parser.parse_args()
    loaded = load_run(options.run)
    model = loaded.model
    arrays = np.load(data_folder() / "mnist.npz")
    random = np.random.default_rng(0)

    def bits(images: np.ndarray) -> np.ndarray:
        return (random.random((len(images), 784)) < images.reshape(-1, 784) / 255).astype(np.float32)

    order = random.permutation(60_000)
    labeled, judged = order[: options.num_labeled], order[-options.num_judge :]
    labels, test_labels = arrays["train_labels"], arrays["test_labels"]
    judge = MLPClassifier((256,), max_iter=15, early_stopping=True, random_state=0)
    judge.fit(bits(arrays["train_images"][judged]), labels[judged])
    print(
        "real test images:     ", share(judge.predict(bits(arrays["test_images"])) == test_labels), flush=True
    )
    codes = encode_rows(model, torch.from_numpy(bits(arrays["train_images"][labeled])), draw=True)
    z, h = torch.from_numpy(codes.bits).float(), torch.from_numpy(codes.continuous)
    for name, latents in {"z": z, "z and h": latents_of_classes(z, h)}.items():
        classes = fit_class_model(latents.numpy(), labels[labeled])
        print(
            f"latents {name}: classes right for {100 * classes.accuracy:.1f} % of held-out images", flush=True
        )
        for statistic in ("mean", "sample"):
            states = PriorStates(model.prior, loaded.chains.z, num_chains=2000)
            asked = {"classes": classes, "wanted": range(10), "statistic": statistic, "num_sweeps": 1000}
            made = generate(model, states, options.num_each, **asked)
            assert made.places is not None
            found = judge.predict(made.x.reshape(len(made.x), -1))
            right = found == classes.classes[made.places]
            per_class = [f"{100 * right[made.places == place].mean():.0f}" for place in range(10)]
            print(
                f"  {statistic}s of {made.num_states} states: recognised {share(right)}; "
                f"by class {' '.join(per_class)}",
                flush=True,
            )
            if options.picture and (name, statistic) == ("z and h", "mean"):
                figure = draw_new_examples(made.x, classes.classes[made.places], (28, 28), "mean")
                print(save_figure(figure, options.picture))


if __name__ == "__main__":
    main()
