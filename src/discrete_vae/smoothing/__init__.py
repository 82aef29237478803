"""Smoothing transformations r(zeta|z), one per file."""
