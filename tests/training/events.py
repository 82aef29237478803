"""What TensorBoard shows of a run, and what metrics.jsonl holds, in one form."""

import numpy as np


def events(folder):
    """The scalars that TensorBoard shows, by name and step."""
    from tensorboard.backend.event_processing import event_accumulator

    found = event_accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {
        name: [(event.step, event.value) for event in found.Scalars(name)] for name in found.Tags()["scalars"]
    }


def lines(run):
    """The numbers of metrics.jsonl, by name and step."""
    found = {}
    for record in run.metrics().read():
        for name, value in record.items():
            if name != "step":
                found.setdefault(name, []).append((record["step"], float(np.float32(value))))
    return found
