"""Data sets, one per file: found or downloaded, checked, split and cut into batches."""
