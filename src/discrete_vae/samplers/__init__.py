"""Samplers for Boltzmann machines."""
