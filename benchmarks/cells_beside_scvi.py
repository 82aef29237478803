"""Counts of cells given their totals: a model of `dvae train`, and scvi-tools in as much of the processor's time.

    python benchmarks/cells_beside_scvi.py FOLDER

FOLDER has cells.csv and cells.classes.txt, which benchmarks/real_tables.py makes, and gets scvi.json. The same rows
train, stop and test both; scvi-tools has its defaults, for negative binomials with added zeros and without.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from real_tables import SAMPLES, command, log_likelihoods
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score

from discrete_vae import load_run
from discrete_vae.data import load_data
from discrete_vae.data.splits import shuffled_rows
from discrete_vae.evaluation.evaluate import evaluate_elbo
from discrete_vae.inference import encode_rows, score_rows
from discrete_vae.log_partition import exact_log_partition

WORDS = ("--model.likelihood", "negative-binomial", "--model.likelihood.exposure", "total")


def beside_scvi(folder: Path) -> dict[str, Any]:
    """Counts of cells given their totals: the model, and scvi-tools in as much of the processor's time."""
    import anndata
    import scvi

    run = folder / "runs" / "cells-total"
    timed = folder / "cells-total.seconds.json"
    if not timed.exists():
        spent = command("train", "--data", folder / "cells.csv", *WORDS, "--run-dir", run)
        timed.write_text(json.dumps(spent))
    seconds, loaded = json.loads(timed.read_text()), load_run(run)
    data = load_data(loaded.config)
    found: dict[str, Any] = {"seconds": seconds, "step": loaded.step, "version": scvi.__version__}
    log_z = float(exact_log_partition(loaded.model.prior))
    found["bound"] = evaluate_elbo(loaded.model, data.test, log_partition=log_z, num_samples=20).elbo
    found |= log_likelihoods(loaded, data, None, None)
    scores = score_rows(loaded.model, data.test, log_partition=log_z, num_samples=SAMPLES).value
    names = (folder / "cells.classes.txt").read_text().split("\n")
    order = shuffled_rows(len(names), len(data.test), len(data.valid), loaded.config.data.split_seed)
    own = np.array(names)[np.concatenate(order[::-1])]
    x = torch.cat([data.train, data.valid, data.test])
    split = np.split(np.arange(len(x)), [len(data.train), len(data.train) + len(data.valid)])
    codes = encode_rows(loaded.model, x)

    def agreement(points: np.ndarray) -> float:
        near = KMeans(len(set(names)), n_init=10, random_state=0).fit_predict(points)
        return float(adjusted_mutual_info_score(own, near))

    layers = codes.continuous.reshape(len(x), -1)
    found["AMI"] = agreement(np.concatenate([codes.probabilities, layers], 1))
    for law in ("nb", "zinb"):
        cells = anndata.AnnData(x.numpy())
        scvi.settings.seed = 0
        scvi.model.SCVI.setup_anndata(cells)

        def trained(epochs: int, cells: Any = cells, law: str = law) -> tuple[Any, float]:
            model, start = scvi.model.SCVI(cells, gene_likelihood=law), time.process_time()
            options = {"accelerator": "cpu", "enable_progress_bar": False, "early_stopping": True}
            options["datasplitter_kwargs"] = {"external_indexing": list(split)}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.train(max_epochs=epochs, **options)
            return model, time.process_time() - start

        pace = trained(20)[1] - trained(10)[1]
        model, taken = trained(max(10, int(10 * seconds / pace)))
        indices = split[2].tolist()
        nats = model.get_marginal_ll(indices=indices, n_mc_samples=SAMPLES, return_mean=False)
        lead = scores - np.asarray(nats)
        found[law] = {
            "seconds": taken,
            "epochs": len(model.history["elbo_train"]),
            "bound": float(model.get_elbo(indices=indices, return_mean=True)),
            "log-likelihood": float(np.mean(scores - lead)),
            "lead": [float(lead.mean()), float(lead.std(ddof=1) / len(lead) ** 0.5)],
            "AMI": agreement(model.get_latent_representation()),
        }
    return found


def main() -> None:
    """Judge both."""
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    (folder / "scvi.json").write_text(json.dumps(beside_scvi(folder), indent=1))


if __name__ == "__main__":
    main()
