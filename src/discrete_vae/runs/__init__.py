"""What a run leaves on disk: file names, atomic writes, metrics, checksums, checkpoints, the environment."""
