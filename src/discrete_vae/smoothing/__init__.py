"""Smoothing transformations r(zeta|z)."""
