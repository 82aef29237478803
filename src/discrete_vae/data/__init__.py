"""Data sets, one a file: found or downloaded, checked, split and cut into batches."""
