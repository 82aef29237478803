"""Smoothing transformations r(zeta|z), one a file."""
