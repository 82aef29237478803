"""Estimates of the log partition function."""
