"""Run folders: files written atomically, checkpoints, metrics, results, models by name."""
