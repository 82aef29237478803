"""Data sets, one a file: found or downloaded, checked, split, binarised and cut into batches."""
