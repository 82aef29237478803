"""Draws for importance sampling, and what their weights are made of."""
