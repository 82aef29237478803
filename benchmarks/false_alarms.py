"""How often the defaults keep a trained checkpoint that is worse than independent features, and one that is better.

    python benchmarks/false_alarms.py OUT.json [--independent 13] [--dependent 12]

Small made tables, whose columns are independent or depend on one of four classes, are trained with the defaults. At
each validation the ELBO of 1,000 more rows of the same law is taken beside that of independent features. These rows,
cut into validation parts of 5, 10, 16 and 30, say how often the rule of `RunCheckpoints.score`, by the bound alone,
would have kept a checkpoint, the best of those that pass: a false alarm where it is worse than independent features on
all 1,000 rows, else a gain. One standard error is the rule that it replaced. OUT.json keeps the tables that it has.
"""

from __future__ import annotations

import json
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from own_tables import of_rows
from rich.console import Console
from scipy.special import stdtrit

from discrete_vae import train
from discrete_vae.evaluation.evaluate import elbo_parts
from discrete_vae.runs.progress import TrainingProgress
from discrete_vae.training import loop

POOL, SIZES = 1000, (5, 10, 16, 30)
KINDS = ("bernoulli", "gaussian", "categorical", "negative-binomial", "long tails")
STRENGTHS = (0.5, 1.0, 0.7, 1.4)


def table(kind: str, rows: int, columns: int, strength: float, seed: int) -> np.ndarray:
    """Rows of four classes that differ by so much, or of one."""
    random = np.random.default_rng(seed)
    parts = 4 if strength else 1
    of = random.integers(0, parts, rows)
    if kind == "bernoulli":
        base = random.normal(0, 1.2, columns)
        logits = base + strength * random.normal(size=(parts, columns))
        return random.random((rows, columns)) < 1 / (1 + np.exp(-logits[of]))
    if kind in ("gaussian", "long tails"):
        means = strength * random.normal(size=(parts, columns))[of]
        shape = (rows, columns)
        noise = random.normal(size=shape) if kind == "gaussian" else random.standard_t(3, size=shape)
        return (means + noise) * random.gamma(1, 3, columns) + 5
    if kind == "negative-binomial":
        means = random.gamma(1, 5, columns) * np.exp(strength * 0.5 * random.normal(size=(parts, columns)))
        return random.poisson(means[of] * random.gamma(2, 0.5, (rows, columns)))
    odds = np.log(random.dirichlet(np.full(5, 1.0), columns))
    odds = np.exp(odds + strength * random.normal(size=(parts, columns, 5)))
    odds = (odds / odds.sum(-1, keepdims=True)).cumsum(-1)[of]
    return (random.random((rows, columns, 1)) > odds[..., :-1]).sum(-1)


def leads(likelihood: str, rows: np.ndarray) -> np.ndarray:
    """Of the last rows over independent features, (validation, row), nats, as training on the others goes on."""
    x = torch.from_numpy(np.asarray(rows, np.float32))
    pool, found = x[-POOL:], []
    config, data = of_rows(likelihood, x[:-POOL])
    own = data.train
    assert isinstance(own, torch.Tensor)

    class Watched(loop.RunCheckpoints):
        def score(self, bound: loop.MeanElbo, examples: torch.Tensor) -> float:
            log_partition, error = self._state.evaluated_log_partition()
            parts = elbo_parts(self._state.evaluated, pool, log_partition=log_partition, seed=5).detach()
            law = deepcopy(self._state.model.likelihood).double()
            alone = law.fit_marginals_(own.double()).expand(POOL, *law.parameter_shape)
            alone = law.log_prob(alone, pool.double()).detach()
            found.append((parts[:, 0] - parts[:, 1] - parts[:, 2] - alone - 2 * error).double().numpy())
            return super().score(bound, examples)

    loop.RunCheckpoints, kept = Watched, loop.RunCheckpoints
    try:
        with tempfile.TemporaryDirectory() as folder:
            train(config, data, folder, progress=TrainingProgress(0, 1, Console(quiet=True)))
    finally:
        loop.RunCheckpoints = kept
    return np.stack(found)


def judge(found: np.ndarray) -> dict[str, Any]:
    """Shares of the validation parts in which a worse or a better checkpoint is kept, by each rule."""
    truth, values = found.mean(1), np.random.default_rng(0).permutation(found.T).T
    figures: dict[str, Any] = {"lead": round(float(truth.max()), 2)}
    for size in SIZES:
        parts = values[:, : POOL // size * size].reshape(len(found), -1, size)
        means, errors = parts.mean(2), parts.std(2, ddof=1) / size**0.5
        for name, limit in (("rule", stdtrit(size - 1, 0.95)), ("one standard error", 1.0)):
            passed = means > limit * errors
            chosen = truth[np.where(passed, means, -np.inf).argmax(0)]
            alarms, gains = ((passed.any(0) & which).mean() for which in (chosen < 0, chosen > 0))
            figures[f"{name}, {size} rows"] = [round(float(alarms), 3), round(float(gains), 3)]
    return figures


def main() -> None:
    """Measure what the file lacks."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--independent", type=int, default=13)
    parser.add_argument("--dependent", type=int, default=12)
    given = parser.parse_args()
    torch.set_num_threads(1)
    done = json.loads(given.out.read_text()) if given.out.exists() else {}
    for seed in (*range(given.independent), *range(300, 300 + given.dependent)):
        random, kind = np.random.default_rng(1000 + seed), KINDS[seed % len(KINDS)]
        rows, columns = (int(np.exp(random.uniform(*np.log(span)))) for span in ((50, 300), (3, 40)))
        strength = STRENGTHS[seed % len(STRENGTHS)] if seed >= 300 else 0.0
        key = f"{kind} {rows}x{columns}, strength {strength}, seed {seed}"
        if key not in done:
            likelihood = "gaussian" if kind == "long tails" else kind
            done[key] = judge(leads(likelihood, table(kind, rows + POOL, columns, strength, seed)))
            lines = (f"{json.dumps(name)}: {json.dumps(found)}" for name, found in done.items())
            given.out.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        print(key, done[key], flush=True)


if __name__ == "__main__":
    main()
