"""One training in a process of its own, on random images: for each line that it reads, steps for so many seconds.

Its first argument is the experiment. With a second one, ``train``, its threads give way as those of
`discrete_vae.training.loop.run_steps`; with ``dvae`` they are also as many as `dvae train` chooses.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time

import torch

from discrete_vae.presets import load_experiment
from discrete_vae.system import yielding_threads
from discrete_vae.training.loop import training_step
from discrete_vae.training.run import training_threads
from discrete_vae.training.state import TrainingState

WARM_UP = 2  # steps before those that count: the process has stood still


def main() -> None:
    config = load_experiment(sys.argv[1], "short")
    kind = sys.argv[2] if len(sys.argv) > 2 else None
    with contextlib.ExitStack() as around:
        if kind is not None:
            around.enter_context(yielding_threads())
        if kind == "dvae":
            around.enter_context(training_threads(config, {}))
        torch.manual_seed(0)
        x = torch.bernoulli(torch.full((config.training.batch_size, config.model.num_values), 0.2))
        state = TrainingState.initial(config, x)
        halfway = config.training.num_epochs / 2

        def step() -> float:
            begin = time.perf_counter()
            training_step(state, config, x, halfway, 0.5)
            state.step += 1
            return time.perf_counter() - begin

        step()
        print(torch.get_num_threads(), flush=True)
        for line in sys.stdin:
            for _ in range(WARM_UP):
                step()
            end, times = time.perf_counter() + float(line), []
            while not times or time.perf_counter() < end:
                times.append(step())
            print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
