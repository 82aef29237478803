"""Loops on the CPU that numba compiles: threads, cache, addresses, rounding."""
