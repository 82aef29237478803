"""Data sets: found or downloaded, checked, split and cut into batches."""
