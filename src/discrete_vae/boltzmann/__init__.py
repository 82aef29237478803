"""Boltzmann machines over binary units: energies, conditionals, free energies."""
