"""Likelihoods p(x|zeta)."""
