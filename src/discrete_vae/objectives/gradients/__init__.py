"""Estimators of the bound's gradient: reparameterized, and by the score function for comparison."""
