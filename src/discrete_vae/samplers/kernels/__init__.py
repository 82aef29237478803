"""Kernels that run the sweeps of the samplers."""
